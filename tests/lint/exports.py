"""The library exports exactly the functions that the headers declare. Each has documentation right
before it with the version since which it exists. The version macros equal the project's version.

usage: exports.py TREE NM LIBRARY VERSION MACRO, with the macro that marks what is exported"""

import re
import subprocess
import sys

import harness

EXPORT = sys.argv.pop()
DECLARATION = re.compile(rf"^{EXPORT}\s[^;{{]*?\b(\w+)\s*\(", re.M)
# A documentation block, preprocessor directives, and the declaration.
DOCUMENTED = re.compile(
    rf"/\*\*((?:(?!\*/).)*)\*/\s*(?:#define[^\n]*\n\s*)*{EXPORT}\s[^;{{]*?\b(\w+)\s*\(", re.S
)
# Their sizes depend on the system: long has 4 bytes on Windows.
OTHER_SIZES = re.compile(r"\b(long|wchar_t|off_t|time_t|ssize_t)\b")
# C++ operators new and delete, which zig exports from each library for macOS.
OPERATORS = re.compile(r"_Z(n|d)[wal]")
MACRO = re.compile(r"#define PKV_VERSION_(MAJOR|MINOR|PATCH) (\d+)")


def headers(root):
    return {path.name: path.read_text() for path in sorted((root / "include/pagedkv").glob("*.h"))}


def declared(root):
    return {
        name
        for text in headers(root).values()
        for name in DECLARATION.findall(harness.strip_comments(text))
    }


def check_documentation(root):
    found = []
    for header, text in headers(root).items():
        documented = {name: comment for comment, name in DOCUMENTED.findall(text)}
        for name in DECLARATION.findall(harness.strip_comments(text)):
            if name not in documented:
                found.append(f"{header}: {name} has no documentation right before it")
            elif not re.search(r"\bSince \d+\.\d+\b", documented[name]):
                found.append(
                    f"{header}: the documentation of {name} does not say since which version"
                )
    return found


def check_types(root):
    return [
        f"{header}: {name} has another size on other systems"
        for header, text in headers(root).items()
        for name in OTHER_SIZES.findall(harness.strip_comments(text))
    ]


def check_version(root, version):
    text = headers(root).get("version.h", "")
    numbers = dict(MACRO.findall(text))
    in_header = ".".join(numbers.get(part, "?") for part in ("MAJOR", "MINOR", "PATCH"))
    return [] if in_header == version else [f"version.h says {in_header}, the project {version}"]


def compare(wanted, symbols):
    return [f"{name} is declared, but not exported" for name in sorted(wanted - symbols)] + [
        f"{name} is exported, but not declared" for name in sorted(symbols - wanted)
    ]


def listed(nm, library, *options):
    """The name and the type of each symbol that a library defines."""
    command = [nm, *options, "--defined-only", "--format=posix", library]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [fields[:2] for fields in map(str.split, lines) if len(fields) > 1]


def exported(nm, library):
    """The dynamic symbols that a library defines, except the name of the version (type A). Those of
    a DLL are in its import library; the names of macOS begin with an underscore.
    """
    if library.endswith(".dylib"):
        names = {name.removeprefix("_") for name, _ in listed(nm, library, "--extern-only")}
        return {name for name in names if not OPERATORS.match(name)}
    if library.endswith(".dll"):
        return {name for name, kind in listed(nm, library + ".a") if kind == "T"}
    return {name.split("@")[0] for name, kind in listed(nm, library, "--dynamic") if kind != "A"}


def check(root, symbols, version):
    return (
        compare(declared(root), symbols)
        + check_documentation(root)
        + check_types(root)
        + check_version(root, version)
    )


nm, library, version = sys.argv[2:]
harness.run(check, exported(nm, library), version)
