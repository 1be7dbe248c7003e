"""The loader for opening the library at run time has every function of the headers. The targets of
links in documents exist: files, pictures, headings; of addresses elsewhere only the form is
checked. Lines of prose have at most 100 columns. Tables have a header, and rows of one width. The
recipes in src/README.md name files and functions that exist."""

import re

import harness

LINK = re.compile(r"!?\[[^\]]*\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
URL = re.compile(r"https?://[a-z0-9.-]+\.[a-z]+(:\d+)?(/[\w./%?=&+~-]*)?", re.I)
WIDTH = 100
UNBREAKABLE = re.compile(r"\s*(?:(?:[*-]|\d+\.) )?(?:!?\[[^\]]*\]\([^)]*\)|\S+)[.,:;]?")
# A row of a recipe: files, and what to write there. Names in capitals are placeholders.
ROW = re.compile(r"^\| \d+ \| (.*?) \| (.*?) \|", re.M)
FILE = re.compile(r"`([a-z][\w./*-]*)`")
FUNCTION = re.compile(r"`([a-z]\w*)\(\)`")
PLACEHOLDER = re.compile("NAME|NOUN|ROOM")
TABLE = re.compile(r"^\|.*$(?:\n\|.*$)*", re.M)
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


def columns(row):
    return len(re.findall(r"(?<!\\)\|", re.sub(r"`[^`]*`", "", row)))


def check_tables(text):
    """Lists tables that a blank line cuts in two, and rows with a different number of columns."""
    for table in TABLE.finditer(re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)):
        rows = table[0].split("\n")
        if len(rows) < 2 or not re.fullmatch(r"\|(?:-+\|)+", rows[1]):
            yield f"a table without a header: {rows[0][:60]}"
        for row in rows:
            if columns(row) != columns(rows[0]):
                yield f"a row with a different number of columns: {row[:60]}"


def named(root, name, beside):
    """The files that a recipe names: below the tree, below src, or beside the one before."""
    for folder in (root, root / "src", beside):
        if found := sorted(folder.glob(name)):
            return found
    return []


def check_recipes(root):
    for files, work in ROW.findall((root / "src/README.md").read_text()):
        texts, beside = [], root
        for name in FILE.findall(files):
            found = [] if PLACEHOLDER.search(name) else named(root, name, beside)
            if not found and ("/" in name or "." in name) and not PLACEHOLDER.search(name):
                yield f"a recipe names {name}, which does not exist"
            for path in found:
                beside = path if path.is_dir() else path.parent
                paths = path.rglob("*") if path.is_dir() else [path]
                texts += [p.read_text(errors="replace") for p in paths if p.is_file()]
        for name in FUNCTION.findall(work) if texts else ():
            if not PLACEHOLDER.search(name) and not any(name in text for text in texts):
                yield f"a recipe names {name}(), which is not in {files}"


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
        found += [f"{name}: {odd}" for odd in check_tables(document.read_text())]
    return found + [f"src/README.md: {gap}" for gap in check_recipes(root)]


harness.run(check)
