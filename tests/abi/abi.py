"""The binary interface of the library: functions, enumerators, layouts of structs. `update` writes
it to libpagedkv.abi, `check` compares a library with that file.

usage: abi.py check|update LIBRARY"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

KEPT = pathlib.Path(__file__).with_name("libpagedkv.abi")
SKIPPED = 77


def dump(library):
    """Dumps what does not depend on the machine, the build directory or the library's internals."""
    text = subprocess.run(
        [
            "abidw",
            "--exported-interfaces-only",
            "--no-architecture",
            "--no-corpus-path",
            "--no-comp-dir-path",
            "--no-show-locs",
            "--no-elf-needed",
            library,
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return re.sub(r"path='[^']*?(?=src/api/)", "path='", text)


def differences(old, new):
    """Returns abidiff's report of the changes between two dumps, or None if there are none."""
    with tempfile.TemporaryDirectory() as directory:
        paths = []
        for name, text in (("old.abi", old), ("new.abi", new)):
            paths.append(pathlib.Path(directory) / name)
            paths[-1].write_text(text)
        result = subprocess.run(
            ["abidiff", "--harmless", "--no-architecture", *map(str, paths)],
            capture_output=True,
            text=True,
        )
    if result.returncode & 3:  # bits 0 and 1: abidiff itself failed or was called wrongly
        sys.exit(f"abidiff failed: {result.stdout}{result.stderr}")
    return result.stdout if result.returncode else None


def self_test(text):
    """Checks that a changed number, a moved member and a removed function are found."""
    for what, pattern, replacement in (
        ("enumerator", r"(name='PKV_OUT_OF_BLOCKS' value=)'\d+'", r"\1'299'"),
        ("member", r"(layout-offset-in-bits=)'64'", r"\1'96'"),
        ("function", r"<elf-symbol name='pkv_version' [^\n]*\n", ""),
    ):
        changed, count = re.subn(pattern, replacement, text, count=1)
        if count != 1 or differences(text, changed) is None:
            sys.exit(f"the check itself is broken: it does not see a changed {what}")


def main():
    if not shutil.which("abidw") or not shutil.which("abidiff"):
        print(
            "SKIPPED: abidw and abidiff (package abigail-tools) are missing, so the binary "
            "interface was not checked"
        )
        return SKIPPED
    action, library = sys.argv[1:]
    now = dump(library)
    self_test(now)
    if action == "update":
        KEPT.write_text(now)
        return 0
    changed = differences(KEPT.read_text(), now)
    if changed is None:
        return 0
    print(changed, "If this is intended: bash tests/abi/update", sep="\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
