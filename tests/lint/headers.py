"""Each public header compiles alone, without a warning, as C99 with every compiler named on the
command line after the tree, and as C++11 and C++20 with one of them; and each of C++ as C++17 and
C++20 with every one."""

import subprocess
import sys

import harness

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
LANGUAGES = {
    ".h": [("c", "c99", ["-Wstrict-prototypes"]), ("c++", "c++11", []), ("c++", "c++20", [])],
    ".hpp": [("c++", "c++17", []), ("c++", "c++20", [])],
}


def compile_alone(root, header, compiler, language, standard, more):
    program = (
        f"#include <pagedkv/{header}>\n#include <pagedkv/{header}>\nint unused_but_not_empty;\n"
    )
    result = subprocess.run(
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
    if result.returncode == 0:
        return []
    first = next(
        (line for line in result.stderr.splitlines() if "error" in line), result.stderr.strip()
    )
    return [f"{header} alone as {standard} with {compiler}: {first}"]


def check(root, compilers):
    return [
        finding
        for turn, path in enumerate(sorted((root / "include/pagedkv").glob("*.h*")))
        for number, compiler in enumerate(compilers)
        for place, (language, standard, more) in enumerate(LANGUAGES[path.suffix])
        if path.suffix == ".hpp" or language == "c" or (turn + place) % len(compilers) == number
        for finding in compile_alone(root, path.name, compiler, language, standard, more)
    ]


harness.run(check, sys.argv[2:])
