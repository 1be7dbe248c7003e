"""The sources of the library, and those of the serving simulator, can be compiled as one unit: no
two of them use the same name for local things. Builds compile some files together, and each new
file changes which ones, so a clash would appear only after an unrelated change."""

import subprocess
import sys

import harness

# For each program its folders, and replacements for some files.
UNITS = [
    (["src/base", "src/engine", "src/api"], {"src/base/parallel_own.cpp"}),
    (["bench/serving"], set()),
]


def sources_of(root, folders, left_out):
    paths = [path for folder in folders for path in sorted((root / folder).rglob("*.cpp"))]
    return [
        path
        for path in paths
        if str(path.relative_to(root)) not in left_out
        and not path.stem.endswith(("_windows", "_macos"))
    ]


def compile_together(root, sources, compiler):
    command = [compiler, "-fsyntax-only", "-x", "c++", "-std=c++20", "-Werror=shadow"]
    for folder in ("src", "include", "bench/serving"):
        command += ["-I", str(root / folder)]
    result = subprocess.run(
        [*command, "-"],
        input="".join(f'#include "{path.resolve()}"\n' for path in sources),
        capture_output=True,
        text=True,
    )
    return [
        line.replace(f"{root.resolve()}/", "")
        for line in result.stderr.splitlines()
        if "error:" in line
    ]


def check(root, compiler):
    return [
        finding
        for folders, left_out in UNITS
        for finding in compile_together(root, sources_of(root, folders, left_out), compiler)
    ]


SAMPLES = [
    (
        None,
        {
            "src/base/a.cpp": "namespace { constexpr int most = 1; }\nint a() { return most; }\n",
            "src/api/b.cpp": "namespace { constexpr int least = 1; }\nint b() { return least; }\n",
            "bench/serving/c.cpp": "namespace { constexpr int most = 1; }\nint c = most;\n",
        },
    ),
    (
        "src/engine/b.cpp:1:27: error: redefinition",
        {
            "src/base/a.cpp": "namespace { constexpr int most = 1; }\nint a() { return most; }\n",
            "src/engine/b.cpp": "namespace { constexpr int most = 2; }\nint b = most;\n",
        },
    ),
    (
        "bench/serving/d/b.cpp:1:5: error: redefinition",
        {
            "bench/serving/a.cpp": "int most() { return 1; }\n",
            "bench/serving/d/b.cpp": "int most() { return 2; }\n",
        },
    ),
]

if __name__ == "__main__":
    harness.run(check, SAMPLES, sys.argv[2])
