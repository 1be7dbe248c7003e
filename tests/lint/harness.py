"""What the lints share. A lint is a function from a source tree to a list of findings."""

import pathlib
import re
import subprocess
import sys


def run(check, *extra):
    """Prints the findings. Notes do not fail."""
    found = check(pathlib.Path(sys.argv[1]), *extra)
    print("\n".join(found))
    bad = sum(not finding.startswith("note: ") for finding in found)
    print(f"{bad} findings, {len(found) - bad} notes")
    sys.exit(1 if bad else 0)


def committed(root):
    """The files git knows, or would take; in a tree without git, all but hidden ones and build
    directories.
    """
    git = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    if git.returncode == 0 and (root / ".git").exists():
        paths = [root / name for name in git.stdout.decode().split("\0") if name]
    else:
        paths = [
            p
            for p in root.rglob("*")
            if not any(
                part.startswith((".", "build")) or part == "__pycache__"
                for part in p.relative_to(root).parts
            )
        ]
    return sorted(p for p in paths if p.is_file() and not p.is_symlink())


def sources(root, *folders):
    """Yields the C and C++ files below these folders, as (path relative to root, text)."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if (
                path.suffix in (".c", ".h", ".cpp", ".hpp")
                and "subprojects" not in path.parts
                and path.is_file()
            ):
                yield path.relative_to(root), path.read_text(errors="replace")


def strip_comments(text):
    """Replaces comments by blanks. Lines keep their numbers."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
    return pattern.sub(lambda m: m[0] if m[0][0] == '"' else re.sub(r"[^\n]", " ", m[0]), text)
