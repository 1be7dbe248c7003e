"""Checks that the build script of pagedkv-sys compiles the library as meson does.

usage: compare_flags.py LOG_OF_COMPILER COMPILE_COMMANDS

Both must compile the same files, with the same instruction sets, language and definitions.
"""

import json
import pathlib
import re
import shlex
import sys

# Flags that do not change the code, or differ on purpose.
IGNORED = re.compile(
    r"-D_GLIBCXX_|-D_FILE_OFFSET_BITS|-DNDEBUG|-DPKV_WITH|-f(diagnostics|PIC|sanitize)"
    r"|-m64$|-f\w+-sections$"
)
# The thread runner is a choice: see sources.rs.
THREADS = re.compile(r"base/parallel_(own|tbb)\.cpp$")


def read(words):
    """The file that a command compiles, by its name below src, and the flags to compare."""
    file = next(word for word in words if word.endswith(".cpp"))
    name = re.split(r"(?:^|/)src/", file)[-1]
    flags = {w for w in words if re.match(r"-std=|-m|-f|-D", w) and not IGNORED.match(w)}
    return THREADS.sub("base/parallel_tbb.cpp", name), flags


def files_of(file):
    """Both generate files that include several source files."""
    if not re.search(r"-unity\d+|joined\d+", file.name):
        return [str(file)]
    return re.findall(r'^#include\s*[<"](.*)[>"]', file.read_text(encoding="utf-8"), re.MULTILINE)


def read_all(words, directory="."):
    """The flags of each file that a command compiles."""
    file = next((word for word in words if word.endswith(".cpp")), None)
    if file is None:
        return {}
    others = [word for word in words if word != file]
    return dict(read([*others, each]) for each in files_of(pathlib.Path(directory, file)))


def of_meson(commands):
    """Only the files of libpagedkv."""
    part = re.compile(r"src/(kernels/)?libpagedkv(\.so|_)")
    flags = {}
    for entry in commands:
        if part.match(entry["output"]):
            flags.update(read_all(shlex.split(entry["command"]), entry["directory"]))
    return flags


def compare(cargo, meson):
    """Returns the differences."""
    found = [f"{name}: meson alone compiles it" for name in sorted(meson.keys() - cargo.keys())]
    found += [f"{name}: cargo alone compiles it" for name in sorted(cargo.keys() - meson.keys())]
    for name in sorted(cargo.keys() & meson.keys()):
        found += [f"{name}: cargo alone has {f}" for f in sorted(cargo[name] - meson[name])]
        found += [f"{name}: meson alone has {f}" for f in sorted(meson[name] - cargo[name])]
    return found


def main(log, commands):
    lines = pathlib.Path(log).read_text(encoding="utf-8").splitlines()
    cargo = {}
    for line in lines:
        if " -c " in f" {line} ":
            cargo.update(read_all(line.split()))
    meson = of_meson(json.loads(pathlib.Path(commands).read_text(encoding="utf-8")))
    found = compare(cargo, meson)
    print(*found, f"{len(cargo)} files, {len(found)} differences", sep="\n")
    return 1 if found or not cargo else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
