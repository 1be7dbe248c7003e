"""Makes pagedkv/_raw.py, the C interface for ctypes, and pagedkv/records.py, what its functions report, of bindings/api/api.json.

usage: generate_raw.py [--check]
"""

import json
import pathlib
import re
import sys
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "api"))
from describe import renew_or_check  # noqa: E402  (found through the line above)

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

HEAD = '''"""The C interface of libpagedkv for ctypes. Made by generate_raw.py from bindings/api/api.json: do not edit.

Handles and pointers are c_void_p: integers, byref(...) and arrays pass for them. Fields and arguments that are enums are c_int.
"""

from __future__ import annotations

import ctypes
import enum
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
from ctypes import c_void_p as _pointer
from typing import Any
'''

RECORDS = '''"""What the library reports: counts and sizes. Made by generate_raw.py from bindings/api/api.json: do not edit."""

from __future__ import annotations

import builtins
import dataclasses

from . import _raw'''

FUNCTIONS = '''

_Call = Callable[..., int]
_Text = Callable[..., bytes]


def _bind(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments
    return function


class Functions:
    """The functions of an opened library, without their `pkv_`. An AttributeError names one that it does not have."""

    def __init__(self, library: ctypes.CDLL) -> None:'''


def camel(name):
    return "".join(part.capitalize() for part in name.removeprefix("pkv_").split("_")).replace("Kv", "KV")


def wrap(text, indent, quote='"""'):
    """A docstring of this text, or nothing."""
    if not text:
        return []
    margin = " " * indent
    text = re.sub(r"\s*\n\s*", " ", text).replace("\\", "\\\\")
    lines = textwrap.wrap(text, 126 - indent)
    if len(lines) == 1 and len(lines[0]) + indent + 6 <= 130:
        return [f"{margin}{quote}{lines[0]}{quote}"]
    return [f"{margin}{quote}{lines[0]}", *(margin + line for line in lines[1:]), f"{margin}{quote}"]


def ctype(kind, api):
    if "pointer" in kind or "function" in kind:
        return "_pointer"
    if "array" in kind:
        return f"{ctype(kind['array'], api)} * {kind['length']}"
    name = kind["name"]
    if name in CTYPES:
        return CTYPES[name]
    if name in {enum["name"] for enum in api["enums"]}:
        return "_int"
    if name in {handle["name"] for handle in api["handles"]}:
        return "_pointer"
    for alias in api["aliases"]:
        if alias["name"] == name:
            return ctype(alias["type"], api)
    return camel(name)


def common_beginning(names):
    first, last = min(names), max(names)
    return next((first[:i] for i in range(len(first)) if first[i] != last[i]), first)


def enum_lines(enum):
    names = [constant["name"] for constant in enum["constants"]]
    prefix = re.sub(r"[^_]*$", "", common_beginning(names)) or "PKV_"
    lines = ["", "", f"class {camel(enum['name'])}(enum.IntEnum):", *wrap(enum["doc"], 4)]
    for constant in enum["constants"]:
        lines += [f"    {constant['name'].removeprefix(prefix)} = {constant['value']}", *wrap(constant["doc"], 4)]
    return lines


def struct_lines(struct, api):
    lines = [
        "",
        "",
        f"class {camel(struct['name'])}(ctypes.Structure):",
        *wrap(struct["doc"], 4),
        *([""] if struct["doc"] else []),
        "    _fields_ = [",
    ]
    lines += [f'        ("{field["name"]}", {ctype(field["type"], api)}),' for field in struct["fields"]]
    return [*lines, "    ]"]


def function_lines(api):
    lines = FUNCTIONS.splitlines()
    for function in api["functions"]:
        text = function["returns"] == {"pointer": {"name": "char"}, "const": True}
        result, call = ("_text", "_Text") if text else (ctype(function["returns"], api), "_Call")
        types = [result] + [ctype(parameter["type"], api) for parameter in function["parameters"]]
        name = function["name"]
        lines.append(f'        self.{name.removeprefix("pkv_")}: {call} = _bind(library, "{name}", {", ".join(types)})')
    return lines


def plain(kind):
    return "name" in kind or kind.get("array") == {"name": "unsigned char"}


def reported(struct, api):
    """A struct that the library fills with plain numbers: stats, plans and the like."""
    inits = {function["name"] for function in api["functions"]}
    fields = struct["fields"]
    if struct["name"] == "pkv_prefix_event":  # pinned, so that it has no size, and it comes in arrays
        return True
    return fields[0]["name"] == "struct_size" and f"{struct['name']}_init" not in inits and all(plain(f["type"]) for f in fields)


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
            python = "builtins.bytes" if name is None else f"_raw.{camel(name)}" if name in enums else "int"
            lines += [f"    {field['name']}: {python}", *wrap(field["doc"], 4)]
    return lines


def generate_records(api):
    structs = [struct for struct in api["structs"] if reported(struct, api)]
    return "\n".join([RECORDS, *(line for struct in structs for line in record_lines(struct, api))]) + "\n"


def generate(api):
    lines = [HEAD, f'VERSION = "{api["version"]}"', ""]
    for constant in api["constants"]:
        if not constant["name"].startswith("PKV_VERSION"):
            lines += [
                f"{constant['name'].removeprefix('PKV_')} = 0x{constant['value']:X}"
                if constant["value"] > 9
                else f"{constant['name'].removeprefix('PKV_')} = {constant['value']}",
                *wrap(constant["doc"], 0),
            ]
    for enum in api["enums"]:
        lines += enum_lines(enum)
    for struct in api["structs"]:
        lines += struct_lines(struct, api)
    text = "\n".join(lines + function_lines(api)) + "\n"
    if text.count("\n") > 800:
        text = text.replace("do not edit.", "do not edit. Over 800 lines: made by a program.", 1)
    return text


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit("usage: generate_raw.py [--check]")
    interface = json.loads((HERE.parent / "api/api.json").read_text())
    files = {"_raw.py": generate(interface), "records.py": generate_records(interface)}
    results = [renew_or_check(HERE / "pagedkv" / name, text, bool(sys.argv[1:])) for name, text in files.items()]
    if not all(results):
        sys.exit("pagedkv is not what api.json gives: python3 bindings/api/describe.py renews it")
