"""Makes pagedkv/generated from the C headers: raw.py, the C interface for ctypes, enums.py,
records.py, the reports of its functions, and configs.py, the numbers that callers give it.

usage: generate_raw.py [--check | FOLDER]

The files are not kept in the repository: tests and builds of the package make them.
"""

import pathlib
import re
import sys
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "api"))
import generator  # noqa: E402  (found through the line above)

WIDTH = 100

CTYPES = {
    "float": "_f32",
    "int": "_int",
    "unsigned char": "_u8",
    "size_t": "_size",
    "int32_t": "_i32",
    "uint32_t": "_u32",
    "int64_t": "_i64",
    "uint64_t": "_u64",
}

HEAD = '''"""The C interface of libpagedkv for ctypes.

Made by generate_raw.py from the headers of C: do not edit.

Handles and pointers are c_void_p, which accept integers, byref(...) and arrays. Fields and
arguments that are enums are c_int.
"""
# fmt: off

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_char_p as _text
from ctypes import c_float as _f32
from ctypes import c_int as _int
from ctypes import c_int32 as _i32
from ctypes import c_int64 as _i64
from ctypes import c_size_t as _size
from ctypes import c_uint8 as _u8
from ctypes import c_uint32 as _u32
from ctypes import c_uint64 as _u64
from ctypes import c_void_p as _p
from typing import Any

from .enums import *  # noqa: F403
'''

ENUMS = '''"""The enums of libpagedkv.

Made by generate_raw.py from the headers of C: do not edit.
"""
# fmt: off

from __future__ import annotations

import enum
'''

RECORDS = '''"""What the library reports: counts and sizes.

Made by generate_raw.py from the headers of C: do not edit.
"""

from __future__ import annotations

import builtins
import dataclasses

from . import raw'''

CONFIGS = '''"""Structs that callers fill in: their numbers and texts.

Made by generate_raw.py from the headers of C: do not edit. The public classes add what is pointed
to, and take the documentation.
"""

from __future__ import annotations

import dataclasses
import os
from typing import TypeAlias

from .._enums import DtypeLike
from .._repr import Shown
from .raw import Eviction, HugePages, Isa, LayerKind, Layout, Rotation, Storage

Path: TypeAlias = "str | os.PathLike[str]"'''

# Fields that only C has, or that have another name in Python.
NOT_HERE = {"allocator", "bidirectional", "durability", "list_blocks", "rotation_matrices"}
NOT_HERE |= {"pkv_store_config.store"}
BY_HAND = {"path"}
# The library's default is another number than 0.
DEFAULTS = {"block_size": 16, "first_blocks": 1, "last_blocks": 1}
# The fields that may be given without their names.
POSITIONS = {
    "pkv_layer_group": ["layers", "query_heads", "kv_heads", "key_dim", "value_dim"],
    "pkv_chosen_blocks": ["top_blocks"],
    generator.REDIS: ["servers"],
}

FUNCTIONS = '''

_Call = Callable[..., int]
_Text = Callable[..., bytes]


def _bind(library: ctypes.CDLL, result: Any) -> Callable[..., Any]:
    def bind(name: str, *arguments: Any) -> Any:
        function = getattr(library, f"pkv_{name}")
        function.restype, function.argtypes = result, arguments
        return function

    return bind


class Functions:
    """The functions of an opened library, without their `pkv_`.

    An AttributeError names one that the library does not have.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        call: Callable[..., _Call] = _bind(library, _int)
        text: Callable[..., _Text] = _bind(library, _text)'''


def camel(name):
    parts = name.removeprefix("pkv_").split("_")
    return "".join(part.capitalize() for part in parts).replace("Kv", "KV")


def names_in_python(api):
    """{a name in C: what it is in Python} of constants that texts may mention."""
    found = {"NULL": "None"}
    found |= {c["name"]: c["name"].removeprefix("PKV_") for c in api["constants"]}
    for enum in api["enums"]:
        prefix = generator.enum_prefix(enum)
        for constant in enum["constants"]:
            found[constant["name"]] = f"{camel(enum['name'])}.{constant['name'][len(prefix):]}"
    return found


def told(text):
    """A comment of C on one line, with the names of Python."""
    return re.sub(r"\w+", lambda word: TOLD.get(word[0], word[0]), generator.one_line(text))


TOLD = {}


def wrap(text, indent):
    """A docstring of this text, or nothing."""
    if not text:
        return []
    quote, margin = '"""', " " * indent
    text = told(text).replace("\\", "\\\\")
    if indent + len(text) + 6 <= WIDTH:
        return [f"{margin}{quote}{text}{quote}"]
    lines = textwrap.wrap(quote + text, WIDTH - indent, break_on_hyphens=False)
    if len(lines) == 1:  # the formatter would append the quotes and exceed the width
        lines = textwrap.wrap(quote + text, WIDTH - indent - 3, break_on_hyphens=False)
    return [*(margin + line for line in lines), f"{margin}{quote}"]


def ctype(kind, api):
    if "pointer" in kind or "function" in kind:
        return "_p"
    if "array" in kind:
        return f"{ctype(kind['array'], api)} * {kind['length']}"
    name = kind["name"]
    if name in CTYPES:
        return CTYPES[name]
    if name in {enum["name"] for enum in api["enums"]}:
        return "_int"
    if name in {handle["name"] for handle in api["handles"]}:
        return "_p"
    for alias in api["aliases"]:
        if alias["name"] == name:
            return ctype(alias["type"], api)
    return camel(name)


def enum_lines(enum):
    prefix = generator.enum_prefix(enum)
    lines = ["", "", f"class {camel(enum['name'])}(enum.IntEnum):", *wrap(enum["doc"], 4)]
    lines += [""] if enum["doc"] else []
    for constant in enum["constants"]:
        name = constant["name"].removeprefix(prefix)
        lines += [f"    {name} = {constant['value']}", *wrap(constant["doc"], 4)]
    return lines


def wrapped(head, items, tail, indent):
    """head, items and tail, wrapped between items."""
    text = head + ", ".join(item.replace(" ", "\0") for item in items) + tail
    margins = {"initial_indent": " " * indent, "subsequent_indent": " " * (indent + 4)}
    return [line.replace("\0", " ") for line in textwrap.wrap(text, WIDTH, **margins)]


def struct_lines(struct, api):
    fields = [f'("{field["name"]}", {ctype(field["type"], api)})' for field in struct["fields"]]
    if struct["name"] == generator.REDIS:  # all its addresses are texts, which it keeps
        fields = [field.replace("_p)", "_text)") for field in fields]
    head = f"class {camel(struct['name'])}(ctypes.Structure):"
    return ["", "", head, *wrapped("_fields_ = [", fields, "]", 4)]


def function_lines(api):
    lines = FUNCTIONS.splitlines()
    for function in api["functions"]:
        name, result = function["name"].removeprefix("pkv_"), ctype(function["returns"], api)
        types = [ctype(parameter["type"], api) for parameter in function["parameters"]]
        bind = "text" if generator.is_text(function) else "call"
        if bind == "call" and result != "_int":
            bind = f"_bind(library, {result})"
        lines += wrapped(f"self.{name} = {bind}(", [f'"{name}"', *types], ")", 8)
    return lines


def record_lines(struct, api):
    enums = {enum["name"] for enum in api["enums"]}
    lines = [
        "",
        "",
        "@dataclasses.dataclass(frozen=True)",
        f"class {camel(struct['name'])}:",
        *wrap(struct["doc"] or f"What the library reports as {struct['name']}.", 4),
        "",
    ]
    for field in struct["fields"]:
        if field["name"] not in ("struct_size", "reserved"):
            name = field["type"].get("name")
            python = "builtins.bytes" if name is None else "int"
            if name in enums:
                python = f"raw.{camel(name)}"
            lines += [f"    {field['name']}: {python}", *wrap(field["doc"], 4)]
    return lines


def exported(names):
    """The list of what `from module import *` takes."""
    return ["", "__all__ = [", *sorted(f'    "{camel(name)}",' for name in names), "]"]


def records(api):
    structs = [struct for struct in api["structs"] if generator.reported(struct, api)]
    lines = [line for struct in structs for line in record_lines(struct, api)]
    return [RECORDS, *exported(struct["name"] for struct in structs), *lines]


def enums(api):
    lines = [line for enum in api["enums"] for line in enum_lines(enum)]
    return [ENUMS.rstrip("\n"), *exported(enum["name"] for enum in api["enums"]), *lines]


def config_field(field, api):
    """The annotation and the default of a field; None: it is written by hand."""
    kind, name, text = field["type"], field["name"], {"pointer": {"name": "char"}, "const": True}
    if name in BY_HAND:
        return None
    if kind == text:
        path = re.search("(^|_)(path|file|directory)$", name)
        secret = name in ("password", "servers")
        default = "dataclasses.field(default=None, repr=False)" if secret else "None"
        return f"{'Path' if path else 'str'} | None = {default}"
    if "name" not in kind:
        return None
    if name in generator.FLAGS:
        return "bool = False"
    if kind["name"] == "pkv_dtype":
        return "DtypeLike | None = None"
    for enum in api["enums"]:
        if enum["name"] == kind["name"]:
            default = next(c["name"] for c in enum["constants"] if c["value"] == 0)
            short = default.removeprefix(generator.enum_prefix(enum))
            return f"{camel(kind['name'])} | str = {camel(kind['name'])}.{short}"
    return "float = 0.0" if kind["name"] == "float" else f"int = {DEFAULTS.get(name, 0)}"


def doc_of_field(field):
    text, flag = told(field["doc"]), field["name"] in generator.FLAGS
    return generator.with_flags(text, "False", "True") if flag else text


def config_lines(struct, api):
    documented = {
        field["name"]: (config_field(field, api), doc_of_field(field))
        for field in generator.given(struct)
        if not {field["name"], f"{struct['name']}.{field['name']}"} & NOT_HERE
    }
    fields = {name: found for name, found in documented.items() if found[0]}
    first = POSITIONS.get(struct["name"], [])
    lines = ["", "", "@dataclasses.dataclass(frozen=True, repr=False)"]
    lines += [f"class {camel(struct['name'])}(Shown):", f'    """Fields of {struct["name"]}:', ""]
    for name, (_, doc) in documented.items():
        margins = {"initial_indent": "    ", "subsequent_indent": "      "}
        lines += textwrap.wrap(f"{name}: {doc}", WIDTH, **margins)
    lines += ['    """', ""]
    for name in [*first, "_", *(name for name in fields if name not in first)]:
        annotated, doc = fields.get(name, ("dataclasses.KW_ONLY", ""))
        lines += [f"    {name}: {annotated}", *wrap(doc, 4)]
    return lines


def configs(api):
    structs = {struct["name"]: struct for struct in api["structs"]}
    made = (line for name in generator.CONFIGS for line in config_lines(structs[name], api))
    return [CONFIGS, *made]


def raw(api):
    lines = [HEAD, f'VERSION = "{api["version"]}"', ""]
    for constant in generator.constants(api):
        value = generator.numeral(constant["value"])
        name = constant["name"].removeprefix("PKV_")
        lines += [f"{name} = {value}", *wrap(constant["doc"], 0)]
    for struct in api["structs"]:
        lines += struct_lines(struct, api)
    return lines + function_lines(api)


def generate(api):
    TOLD.update(names_in_python(api))
    return {name: generator.whole(make(api)) for name, make in MADE.items()}


MADE = {"enums.py": enums, "raw.py": raw, "records.py": records, "configs.py": configs}

if __name__ == "__main__":
    generator.main(HERE / "pagedkv/generated", generate, kept=False)
