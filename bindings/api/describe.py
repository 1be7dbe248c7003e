"""Describes the C interface of libpagedkv as data: all that a generator of bindings needs from the
headers.

usage: describe.py            updates what every bindings/*/generate_raw.py makes of the description
       describe.py --check    prints a diff for each outdated file, and fails
       describe.py OUTPUT     writes the description, api.json: see README.md

The headers are regular enough for regular expressions; a line that no expression matches is an
error. describe_test.py compares sizes, offsets and values with those of a C compiler.
"""

import difflib
import json
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parents[1]
HEADERS = ("pagedkv.h", "experimental.h")
NOT_CONSTANTS = {"PKV_API", "PKV_ENUM", "PKV_REDIS_API"}

# ---- Types

# Sizes in bytes on 64-bit machines, which are also the alignments.
BYTES = {"char": 1, "unsigned char": 1, "float": 4, "int": 4, "size_t": 8}
BYTES |= {f"{sign}int{bits}_t": bits // 8 for sign in ("", "u") for bits in (8, 16, 32, 64)}


def split_parameters(text):
    parts, depth, begin = [], 0, 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append(text[begin:i])
            begin = i + 1
    return [part for part in [*parts, text[begin:]] if part.strip() != "void"]


def parse_type(text):
    """A C type as data: see README.md."""
    text = text.strip()
    if text.endswith("*"):
        to = text[:-1].strip()
        constant = to.endswith("const") if "*" in to else to.startswith("const ")
        return {"pointer": parse_type(re.sub(r"\s*\bconst$", "", to)), "const": constant}
    return {"name": re.sub(r"\b(const|struct|enum) ", "", text)}


def declared(text):
    """(name, type) of a parameter or a field."""
    text = " ".join(text.split())
    if function := re.fullmatch(r"(.*?)\(\*(\w+)\)\((.*)\)", text):
        parameters = [declared(p)[1] for p in split_parameters(function[3])]
        returns = parse_type(function[1])
        return function[2], {"function": {"returns": returns, "parameters": parameters}}
    if array := re.fullmatch(r"(.*)\b(\w+)\[(\d+)\]", text):
        return array[2], {"array": parse_type(array[1]), "length": int(array[3])}
    kind, name = re.fullmatch(r"(.*[ *])(\w+)", text).groups()
    return name, parse_type(kind)


def spelled(kind):
    """A type as C writes it."""
    if "function" in kind:
        parameters = ", ".join(map(spelled, kind["function"]["parameters"])) or "void"
        returns = spelled(kind["function"]["returns"])
        return f"{returns}{'' if returns.endswith('*') else ' '}(*)({parameters})"
    if "array" in kind:
        return f"{spelled(kind['array'])}[{kind['length']}]"
    if "name" in kind:
        return kind["name"]
    to = spelled(kind["pointer"])
    if kind["const"]:
        to = f"{to}const" if to.endswith("*") else f"const {to}"
    return f"{to}*" if to.endswith("*") else f"{to} *"


def measure(kind, known):
    """(size, alignment) of a type. `known` has those of structs and other named types."""
    if "array" in kind:
        size, alignment = measure(kind["array"], known)
        return size * kind["length"], alignment
    return known[kind["name"]] if "name" in kind else (8, 8)


def lay_out(struct, known):
    """Adds the sizes and offsets that compilers use to a struct and its fields."""
    end, widest = 0, 1
    for field in struct["fields"]:
        size, alignment = measure(field["type"], known)
        field["offset"], field["size"] = -(-end // alignment) * alignment, size
        end, widest = field["offset"] + size, max(widest, alignment)
    struct["size"], struct["alignment"] = -(-end // widest) * widest, widest


# ---- Comments


def paragraphs(comment):
    lines = [re.sub(r"^\s*\*?\s*", "", line).rstrip() for line in (comment or "").split("\n")]
    return [text.strip() for text in re.split(r"\n\n+|\n(?=@param)", "\n".join(lines))]


def documentation(comment):
    """The text of a comment without its @param lines; empty lines between paragraphs."""
    return "\n\n".join(p for p in paragraphs(comment) if p and not p.startswith("@param"))


def documentation_of_parameters(comment):
    """{name of a parameter: what its @param line says}"""
    found = {}
    for paragraph in paragraphs(comment):
        if match := re.match(r"@param(?:\[[a-z,]+\])?\s+(\w+)\s+(.*)", paragraph, re.S):
            found[match[1]] = match[2]
    return found


# ---- Declarations

TEXT = r"((?:[^*]|\*(?!/))*)\*/"
BEFORE, BEHIND = rf"(?:/\*\*(?!<){TEXT}\s*)?", rf"(?: */\*\*<{TEXT})?"
DECLARATIONS = {
    "constants": rf"{BEFORE}#define (PKV_\w+) (.+)",
    "enums": rf"{BEFORE}typedef enum (\w+)[^{{;]*\{{(.*?)^\}} \w+;",
    "handles": rf"{BEFORE}typedef struct \w+_t\* (\w+);",
    "aliases": rf"{BEFORE}typedef ([\w ]+) (\w+);",
    "structs": rf"{BEFORE}typedef struct (\w+) \{{(.*?)^\}} \w+;",
    "functions": rf"{BEFORE}PKV_(?:REDIS_)?API ([^;(]*[ *])(\w+)\(([^;]*)\);",
}
# Lines that a header may also have.
REST = (
    r"/\*.*?\*/|_Static_assert\(.*?\);"
    r"|#(?:include|ifndef|endif|if|elif|else|define PAGEDKV_|define PKV_\w+(?:$|\()).*?$"
)


def macro_type(value):
    """The type that a macro casts to, that of UINT64_MAX and its like, or int."""
    cast, limit = re.match(r"\(\((\w+)\)", value), re.fullmatch(r"(U?INT\d+)_MAX", value)
    return cast[1] if cast else limit[1].lower() + "_t" if limit else "int"


def constant(doc, name, value):
    kind = macro_type(value)
    number = int(re.sub(r"\(\w+\)|[()u]", "", "-1" if value.endswith("_MAX") else value), 0)
    value = number if kind == "int" else number % 2 ** (8 * BYTES[kind])
    return {"name": name, "type": kind, "value": value, "doc": documentation(doc)}


def enum(doc, name, body):
    value, found = -1, []
    for before, member, given, behind in re.findall(
        rf"{BEFORE}(\w+)(?: = (-?\w+))?,?{BEHIND}", body
    ):
        value = int(given, 0) if given else value + 1
        found.append({"name": member, "value": value, "doc": documentation(before or behind)})
    return {"name": name, "doc": documentation(doc), "constants": found}


def struct(doc, name, body):
    found = []
    for before, text, behind in re.findall(rf"{BEFORE}([^;/]+);{BEHIND}", body):
        member, kind = declared(text)
        doc_of_field = documentation(before or behind)
        found.append({"name": member, "type": kind, "c": spelled(kind), "doc": doc_of_field})
    return {"name": name, "doc": documentation(doc), "fields": found}


def handle(doc, name):
    return {"name": name, "doc": documentation(doc)}


def alias(doc, c, name):
    return {"name": name, "type": parse_type(c), "c": c, "doc": documentation(doc)}


def function(doc, returns, name, parameters):
    docs, since = documentation_of_parameters(doc), re.search(r"Since (\d+\.\d+)\.", doc or "")
    kind = parse_type(returns)
    found = [
        {"name": parameter, "type": kind, "c": spelled(kind), "doc": docs.get(parameter, "")}
        for parameter, kind in map(declared, split_parameters(parameters))
    ]
    return {
        "name": name,
        "since": since[1] if since else None,
        "returns": kind,
        "c_returns": spelled(kind),
        "parameters": found,
        "doc": documentation(doc),
    }


MAKERS = dict(zip(DECLARATIONS, (constant, enum, handle, alias, struct, function)))


def headers(tree, name):
    """A header and those that it includes, in the order in which a compiler reads them."""
    found, text = {}, (tree / "include/pagedkv" / name).read_text()
    for other in re.findall(r"^#include <pagedkv/(.*)>", text, re.M):
        found |= headers(tree, other)
    return found | {name: text}


def describe(tree=TREE, names=HEADERS):
    """The description of headers and of those that they include."""
    found, texts = {kind: [] for kind in DECLARATIONS}, {}
    for name in names:
        texts |= headers(tree, name)
    for header, text in texts.items():
        text = re.sub(r"^#ifdef __cplusplus$.*?^#endif$", "", text, flags=re.M | re.S)
        for kind, pattern in DECLARATIONS.items():
            for match in re.finditer(pattern, text, re.M | re.S if "{" in pattern else re.M):
                if match[2] not in NOT_CONSTANTS:
                    made = MAKERS[kind](*match.groups())
                    found[kind].append({"name": made.pop("name"), "header": header} | made)
            text = re.sub(pattern, "", text, flags=re.M | re.S if "{" in pattern else re.M)
        if rest := re.sub(REST, "", text, flags=re.M | re.S).split():
            sys.exit(f"describe.py: cannot read this in {header}: {' '.join(rest)}")
    known = {name: (size, size) for name, size in BYTES.items()}
    known |= {enum["name"]: (4, 4) for enum in found["enums"]}
    known |= {handle["name"]: (8, 8) for handle in found["handles"]}
    known |= {alias["name"]: measure(alias["type"], known) for alias in found["aliases"]}
    for struct in found["structs"]:
        lay_out(struct, known)
        known[struct["name"]] = struct["size"], struct["alignment"]
    version = ".".join(
        str(macro["value"])
        for macro in found["constants"]
        if macro["name"].startswith("PKV_VERSION_")
    )
    about = "The C interface, as bindings/api/describe.py reads it from include/pagedkv. "
    about += "Sizes and offsets are those of 64-bit machines."
    return {"about": about, "version": version, **found}


def undocumented(description):
    """The names in a description that have no comment in the headers."""
    named = [
        (thing["name"], thing)
        for kind in ("enums", "handles", "aliases", "structs", "functions")
        for thing in description[kind]
    ]
    parts = [
        (f"{name}.{part['name']}", part)
        for name, thing in named
        for part in thing.get("constants", []) + thing.get("fields", [])
    ]
    return [name for name, thing in named + parts if not thing["doc"]]


# ---- Files


def renew_or_check(path, text, check):
    """Writes the file, or prints how it differs from what it must be. Returns True if nothing was
    printed.
    """
    old = path.read_text() if path.exists() else ""
    if not check:
        if old != text:
            # Tests that begin at the same time make the same file.
            path.parent.mkdir(parents=True, exist_ok=True)
            other = path.with_name(f"{path.name}.{os.getpid()}")
            other.write_text(text)
            other.replace(path)
            print(f"renewed {path.name}")
        return True
    name = path.name
    sys.stdout.writelines(
        difflib.unified_diff(
            old.splitlines(True),
            text.splitlines(True),
            f"{name} (committed)",
            f"{name} (renewed)",
            n=1,
        )
    )
    return old == text


def run_generators(*arguments):
    """Runs the generator of each language; True if all succeed."""
    failed = []
    for generator in sorted(HERE.parent.glob("*/generate_raw.py")):
        print(f"{generator.parent.name}:", end=" ", flush=True)
        result = subprocess.run([sys.executable, "-B", str(generator), *arguments])
        print("ok" if result.returncode == 0 else "FAILED", flush=True)
        failed += [generator] * (result.returncode != 0)
    return not failed


def main():
    description, arguments = describe(), sys.argv[1:]
    if names := undocumented(description):
        sys.exit(f"no comment in include/pagedkv: {', '.join(names)}")
    if len(arguments) == 1 and not arguments[0].startswith("-"):
        pathlib.Path(arguments[0]).write_text(json.dumps(description, indent=1) + "\n")
    elif arguments not in ([], ["--check"]):
        sys.exit("usage: describe.py [--check | OUTPUT]")
    elif not run_generators(*arguments):
        sys.exit(
            "outdated: python3 bindings/api/describe.py updates it"
            if arguments
            else "a generator failed"
        )


if __name__ == "__main__":
    main()
