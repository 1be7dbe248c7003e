"""The loader for opening the library at run time has every function of the headers. The targets of
links in documents exist: files, pictures, headings; of addresses elsewhere only the form is
checked. Lines of prose have at most 100 columns."""

import re

import harness

LINK = re.compile(r"!?\[[^\]]*\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
URL = re.compile(r"https?://[a-z0-9.-]+\.[a-z]+(:\d+)?(/[\w./%?=&+~-]*)?", re.I)
WIDTH = 100
UNBREAKABLE = re.compile(r"\s*(?:(?:[*-]|\d+\.) )?(?:!?\[[^\]]*\]\([^)]*\)|\S+)[.,:;]?")
DECLARED = re.compile(r"PKV_API[^;(]*?\bpkv_(\w+)\s*\(")


def read(root, name):
    path = root / name
    return path.read_text() if path.exists() else ""


def without_code(text):
    return re.sub(r"^```.*?^```$|`[^`\n]+`", "", text, flags=re.M | re.S)


def anchors(text):
    """GitHub's anchors of headings: lower case, no punctuation, hyphens for spaces; -1, -2 and so
    on for repeated names.
    """
    found = set()
    for heading in re.findall(
        r"^#+ +(.*?)\s*$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M
    ):
        words = re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", heading).lower()).replace(
            " ", "-"
        )
        number = 0
        while (name := words if number == 0 else f"{words}-{number}") in found:
            number += 1
        found.add(name)
    return found


def check_links(root, document):
    text = document.read_text()
    for target, anchor in LINK.findall(without_code(text)):
        if "://" in target or target.startswith("mailto:"):
            if not URL.fullmatch(target):
                yield f"{target} is not an address"
            continue
        path = document.parent / target if target else document
        if target.startswith("/") or not path.exists():
            yield f"there is no {target}"
        elif anchor and (path.suffix != ".md" or anchor not in anchors(path.read_text())):
            yield f"there is no #{anchor} in {path.name}"


def check_width(text):
    """Lists lines that are too wide. Tables, code, and lines of one link or word may be wider."""
    fenced, before = False, ""
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        indented = line.startswith("    ") and (not before.strip() or before.startswith("    "))
        excused = fenced or indented or line.startswith("|") or UNBREAKABLE.fullmatch(line)
        if len(line) > WIDTH and not excused:
            yield f"line {number} has {len(line)} columns, {WIDTH} are the limit"
        before = line


def check(root):
    found = []
    declared = {
        name for path, text in harness.sources(root, "include") for name in DECLARED.findall(text)
    }
    opened = set(re.findall(r"\bX\((\w+)\)", read(root, "bindings/c/common/pkv_dl.h")))
    found += [
        f"bindings/c/common/pkv_dl.h: pkv_{name} is declared but not opened"
        for name in sorted(declared - opened)
    ]
    for document in sorted(root.rglob("*.md")):
        if any(
            part.startswith(("build", ".")) or part in ("subprojects", "target")
            for part in document.relative_to(root).parts
        ):
            continue
        name = document.relative_to(root).as_posix()
        found += [f"{name}: {gap}" for gap in check_links(root, document)]
        found += [f"{name}: {wide}" for wide in check_width(document.read_text())]
    return found


harness.run(check)
