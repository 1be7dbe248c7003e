"""Each public header compiles alone, without a warning, as C99 with every compiler named on the
command line after the tree, and as C11, C++11 and C++20 with one of them; and each of C++ as C++17
and C++20 with every one. No compiler takes the headers with enums that are smaller than ints."""

import subprocess
import sys

import harness

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
LANGUAGES = {
    ".h": [
        ("c", "c99", ["-Wstrict-prototypes"]),
        ("c", "c11", []),
        ("c++", "c++11", []),
        ("c++", "c++20", []),
    ],
    ".hpp": [("c++", "c++17", []), ("c++", "c++20", [])],
}


def run(root, header, compiler, language, standard, more):
    program = (
        f"#include <pagedkv/{header}>\n#include <pagedkv/{header}>\nint unused_but_not_empty;\n"
    )
    return subprocess.run(
        [
            compiler,
            "-fsyntax-only",
            "-x",
            language,
            "-std=" + standard,
            *WARNINGS,
            *more,
            "-I",
            str(root / "include"),
            "-",
        ],
        input=program,
        capture_output=True,
        text=True,
    )


def compile_alone(root, header, compiler, language, standard, more):
    result = run(root, header, compiler, language, standard, more)
    if result.returncode == 0:
        return []
    first = next(
        (line for line in result.stderr.splitlines() if "error" in line), result.stderr.strip()
    )
    return [f"{header} alone as {standard} with {compiler}: {first}"]


def compile_short_enums(root, compiler):
    for language, standard in (("c", "c11"), ("c++", "c++11")):
        result = run(root, "pagedkv.h", compiler, language, standard, ["-fshort-enums"])
        # In C++ the headers name the type of each enum.
        if (result.returncode == 0) != (language == "c++"):
            yield f"{compiler} -fshort-enums, as {standard}: returned {result.returncode}"
        elif language == "c" and "-fno-short-enums" not in result.stderr:
            yield f"{compiler} -fshort-enums does not name the option: {result.stderr[:200]}"


def check(root, compilers):
    short = [found for compiler in compilers for found in compile_short_enums(root, compiler)]
    return short + [
        finding
        for turn, path in enumerate(sorted((root / "include/pagedkv").glob("*.h*")))
        for number, compiler in enumerate(compilers)
        for place, (language, standard, more) in enumerate(LANGUAGES[path.suffix])
        if path.suffix == ".hpp" or standard == "c99" or (turn + place) % len(compilers) == number
        for finding in compile_alone(root, path.name, compiler, language, standard, more)
    ]


harness.run(check, sys.argv[2:])
