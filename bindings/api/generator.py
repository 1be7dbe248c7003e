"""What the generators of all languages share."""

import os
import pathlib
import re
import sys

from describe import describe, renew_or_check

REDIS = "pkv_redis_config"
# Structs that a caller fills in, and of which bindings have types of their own. Their numbers are
# generated; what they point to is written by hand in each language.
CONFIGS = (
    "pkv_layer_group",
    "pkv_prefix_config",
    "pkv_cache_config",
    "pkv_chosen_blocks",
    "pkv_attention_params",
    "pkv_directory_config",
    "pkv_store_config",
    REDIS,
)
# Numbers that are 0 or 1.
FLAGS = {"connect_later", "down", "encrypted", "groups_share_memory", "has_kv", "prefault"}
FLAGS |= {"prefix_index", "suspended", "tls", "tls_insecure_no_verify", "trust_salts"}


def one_line(text):
    """A C comment without its line breaks."""
    return re.sub(r"\s*\n\s*", " ", text).strip()


def constants(api):
    """All constants except those of the version."""
    return [
        constant for constant in api["constants"] if not constant["name"].startswith("PKV_VERSION")
    ]


def numeral(value):
    return str(value) if value < 10 else f"0x{value:X}"


def enum_prefix(enum):
    """The prefix of an enum's constants that bindings drop, such as "PKV_STORAGE_"."""
    names = [constant["name"] for constant in enum["constants"]]
    return re.sub(r"[^_]*$", "", os.path.commonprefix(names)) or "PKV_"


def is_text(function):
    """Whether the function returns a C string."""
    return function["returns"] == {"pointer": {"name": "char"}, "const": True}


def plain(kind):
    return "name" in kind or kind.get("array") == {"name": "unsigned char"}


def reported(struct, api):
    """Whether the library fills the struct with plain numbers, such as stats or a plan."""
    out = {"pointer": {"name": struct["name"]}, "const": False}
    parameters = (p for function in api["functions"] for p in function["parameters"])
    return all(plain(field["type"]) for field in struct["fields"]) and any(
        parameter["type"] == out for parameter in parameters
    )


def given(struct):
    """The fields that a caller gives: not the sizes of what others point to."""
    names = {field["name"] for field in struct["fields"]}
    for field in struct["fields"]:
        counted = re.fullmatch(r"(.*)(?:_size|_count)", field["name"])
        size = counted and {counted[1], f"{counted[1]}s"} & names
        if field["name"] not in ("struct_size", "reserved") and not size:
            yield field


def with_flags(text, no, yes):
    """What is said of a flag, with the words of a language that has flags."""
    return re.sub(r"\b0(?= \(default\):)|(?<=Default )0\b", no, re.sub(r"\b1(?=:)", yes, text))


def whole(lines):
    """The text of a file."""
    return "\n".join(lines) + "\n"


def main(folder, generate, kept=True):
    """`generate` makes {path in folder: text} from the description. --check prints what differs
    from the files that the repository keeps; a language whose builds make them keeps none.
    """
    arguments = sys.argv[1:]
    if len(arguments) > 1:
        sys.exit("usage: generate_raw.py [--check | FOLDER]")
    check = arguments == ["--check"]
    if arguments and not check:
        folder = pathlib.Path(arguments[0])
    api = describe()
    # libpagedkv-redis is a library of its own: its struct alone is taken from here.
    api["structs"] += [s for s in describe(names=["redis.h"])["structs"] if s["name"] == REDIS]
    files = generate(api)
    if folder is None or (check and not kept):
        return
    same = [renew_or_check(folder / name, text, check) for name, text in files.items()]
    if not all(same):
        sys.exit("outdated: python3 bindings/api/describe.py updates it")
