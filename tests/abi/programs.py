"""C programs that were compiled with the headers of the first release run with the library of now.
The programs and headers are those of the tag v1.0.0; until there is one, those of the last commit.
Without git or a clone it exits with 77 and prints the reason.

usage: programs.py TREE LIBRARY CC..."""

import os
import pathlib
import subprocess
import sys
import tempfile

TAG = "v1.0.0"
EXAMPLES = "include/guide/examples"
LEFT_OUT = {"redis.c"}  # it needs a server
EXPERIMENTAL = "pagedkv/experimental.h"  # which no later version needs to have
OPENS = {"open.c"}  # it opens the library itself


def git(tree, *words):
    return subprocess.run(["git", "-C", tree, *words], capture_output=True)


def build_and_run(source, folder, headers, library, compiler):
    """Returns what went wrong, or None."""
    program = folder / source.stem
    link = [] if source.name in OPENS else [library]
    command = [*compiler, "-std=gnu11", f"-I{headers}", source, "-o", program, *link]
    built = subprocess.run([*command, "-lm", "-lpthread", "-ldl"], capture_output=True, text=True)
    if built.returncode:
        return f"{source.name} cannot be built:\n{built.stderr}"
    ran = subprocess.run(
        [program],
        cwd=folder,
        env=os.environ | {"LD_LIBRARY_PATH": str(library.parent)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    if ran.returncode:
        return f"{source.name}: exit {ran.returncode}\n{ran.stdout}{ran.stderr}"
    return None


def main():
    tree, library, *compiler = sys.argv[1:]
    library = pathlib.Path(library).resolve()
    commit = (
        TAG if git(tree, "rev-parse", "--verify", f"{TAG}^{{commit}}").returncode == 0 else "HEAD"
    )
    archive = git(tree, "archive", commit, "include/pagedkv", EXAMPLES)
    if archive.returncode:
        print(f"SKIPPED: the headers of {commit} are not here: {archive.stderr.decode()}")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as directory:
        old, folder = pathlib.Path(directory, "old"), pathlib.Path(directory, "programs")
        old.mkdir()
        folder.mkdir()
        subprocess.run(["tar", "-x", "-C", old], input=archive.stdout, check=True)
        sources = [
            path
            for path in sorted((old / EXAMPLES).glob("*.c"))
            if path.name not in LEFT_OUT and EXPERIMENTAL not in path.read_text()
        ]
        failed = [
            problem
            for source in sources
            if (problem := build_and_run(source, folder, old / "include", library, compiler))
        ]
    assert len(sources) > 20, sources
    print(*failed, f"{len(sources)} programs of {commit}, {len(failed)} failed", sep="\n")
    sys.exit(bool(failed))


main()
