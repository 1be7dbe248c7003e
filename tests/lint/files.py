"""Files stay readable and finished: length, words that mean "not done", absolute paths of
somebody's machine, pipes whose reader leaves early; and each noun of the C interface has a header
and an api file of the same name."""

import pathlib
import re

import harness

CODE = ("src/", "include/", "bindings/", "fuzz/", "tests/", "bench/")
CODE_SUFFIXES = {".c", ".h", ".cpp", ".hpp", ".py", ".rs", ".go", ""}
LONG, TOO_LONG = 400, 800
REASON = re.compile(r"Over 800 lines: \w+")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")
PATH_OF_A_MACHINE = re.compile(r"(?<![\w./\-])/(work|root|home)/")
# With pipefail such a pipe fails at times, as `grep -q` ends before the writer has written all.
LEAVES_EARLY = re.compile(r"\|\s*(\\\n\s*)?grep -[a-zA-Z]*q")
NOT_NOUNS = {"common", "experimental", "pagedkv", "redis", "stats", "version"}


def check_text(path, text):
    """Returns the findings of one file. The path is relative to the tree."""
    found = []
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if PATH_OF_A_MACHINE.search(line):
            found.append(f"{path}:{number}: an absolute path of one machine")
        if path.startswith(("src/", "include/", "bindings/")) and UNFINISHED.search(line):
            found.append(f"{path}:{number}: unfinished: {line.strip()}")
    if "pipefail" in text and (pipe := LEAVES_EARLY.search(text)):
        line = text.count("\n", 0, pipe.end()) + 1
        found.append(f"{path}:{line}: a pipe into grep -q, which fails at times; use > /dev/null")
    if path.startswith(CODE) and pathlib.PurePosixPath(path).suffix in CODE_SUFFIXES:
        if len(lines) > TOO_LONG and not any(REASON.search(line) for line in lines[:15]):
            found.append(
                f"{path}: {len(lines)} lines, and no line at its top says 'Over {TOO_LONG} lines: "
                "why'"
            )
        elif len(lines) > LONG:
            found.append(f"note: {path} has {len(lines)} lines, {LONG} is the aim")
    return found


def check_nouns(root):
    headers = {p.stem for p in (root / "include/pagedkv").glob("*.h")}
    api = {p.stem for p in (root / "src/api").glob("*.cpp")}
    internal = {p.stem for p in (root / "src/api").glob("*.h")}
    nouns = headers - NOT_NOUNS
    return [
        f"include/pagedkv/{noun}.h has no src/api/{noun}.cpp" for noun in sorted(nouns - api)
    ] + [
        f"src/api/{name}.cpp has no include/pagedkv/{name}.h"
        for name in sorted(api - headers - internal)
    ]


def check(root):
    found = check_nouns(root)
    for path in harness.committed(root):
        data = path.read_bytes()
        if b"\0" not in data:
            found += check_text(path.relative_to(root).as_posix(), data.decode(errors="replace"))
    return found


harness.run(check)
