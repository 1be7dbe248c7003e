"""The pages of the site: every function, struct, field and constant of the headers is described at
its own anchor; every document is in the table of contents; every link leads to an existing page and
anchor; and comments name nothing that does not exist.

usage: site_test.py TREE"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

CODE = re.compile(r"^(?P<fence>````?)\w.*?^(?P=fence)$|`[^`\n]+`", re.M | re.S)
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
HEADING = re.compile(r"^#+ +(.*?)\s*$", re.M)
PINNED = re.compile(r"\{ #(\S+) \}$")


def anchors(text):
    found = set(re.findall(r'\bid="([^"]+)"', text))
    for heading in HEADING.findall(re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)):
        if pinned := PINNED.search(heading):
            found.add(pinned[1])
            continue
        words = re.sub(r"\]\([^)]*\)", "", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
        number = 0
        while (name := slug if number == 0 else f"{slug}_{number}") in found:
            number += 1
        found.add(name)
    return found


def broken_links(folder):
    texts = {path: path.read_text() for path in sorted(folder.rglob("*.md"))}
    known = {path: anchors(text) for path, text in texts.items()}
    for path, text in texts.items():
        prose = re.sub(r"\[`([^`\n]+)`\]", r"[\1]", text)
        for target, anchor in LINK.findall(CODE.sub("", prose)):
            if "://" in target or target.startswith("mailto:"):
                continue
            to = (path.parent / target).resolve() if target else path
            if not to.is_file():
                yield f"{path.relative_to(folder)}: {target} leads nowhere"
            elif anchor and anchor not in known.get(to, ()):
                yield f"{path.relative_to(folder)}: there is no #{anchor} in {target or path.name}"


def entry(page, anchor):
    """The text below the heading of a declaration."""
    begin = re.search(rf"^## .* \{{ #{anchor.lower()} \}}$", page, re.M)
    return re.split(r"^## ", page[begin.end() :], maxsplit=1, flags=re.M)[0] if begin else ""


def described(page, anchor):
    found = re.search(rf'<code id="{re.escape(anchor.lower())}">.*</code>\n\n:   (.*)', page)
    return bool(found and found[1].strip())


def gaps(folder, api):
    pages = {path.stem: path.read_text() for path in (folder / "reference").glob("*.md")}
    names = pages["names"]
    for kind in ("functions", "structs", "enums", "handles", "aliases", "constants"):
        for part in api[kind]:
            name, page = part["name"], pages.get(part["header"][:-2], "")
            text = entry(page, name)
            if not text.strip():
                yield f"{name} has no entry"
            if f"[`{name}`](" not in names:
                yield f"{name} is not among all names"
            if part.get("since") and f"*Since {part['since']}.*" not in text:
                yield f"{name} does not say since when"
            if part.get("c_returns") == "pkv_status" and "**Statuses:** " not in text:
                yield f"{name} has no statuses"
            for parameter in part.get("parameters", ()):
                if not re.search(rf"^\| `{parameter['name']}` \|.*\| \S.* \|$", text, re.M):
                    yield f"{name} does not describe {parameter['name']}"
            for field in part.get("fields", ()):
                if not described(page, f"{name}.{field['name']}"):
                    yield f"{name}.{field['name']} is not described"
            for constant in part.get("constants", ()):
                if f'<code id="{constant["name"].lower()}">' not in page:
                    yield f"{constant['name']} has no entry"


def unknown_names(folder):
    """Names in comments that did not become links."""
    for path in sorted((folder / "reference").glob("*.md")):
        for name in re.findall(r"\bpkv(?:\\_\w+)+", CODE.sub("", path.read_text())):
            yield f"{path.name} names {name}, which is nothing"


def left_out(tree, contents, documents):
    listed = set(re.findall(r'"([^"]+\.md)"', json.dumps(contents)))
    for document in documents:
        if document not in listed:
            yield f"{document} is in no table of contents"
    for chapter in sorted((tree / "include/guide").glob("*.md")):
        if f"include/guide/{chapter.name}" not in listed:
            yield f"include/README.md does not list {chapter.name}"


def main():
    tree = pathlib.Path(sys.argv[1]).resolve()
    sys.path.insert(0, str(tree / "include/site"))
    sys.path.insert(0, str(tree / "bindings/api"))
    import describe
    import pages

    api = describe.describe()
    with tempfile.TemporaryDirectory() as directory:
        out = pathlib.Path(directory)
        program = tree / "include/site/pages.py"
        subprocess.run([sys.executable, "-B", program, tree, out], check=True)
        folder = (out / "pages").resolve()
        contents = json.loads((out / "mkdocs.yml").read_text())["nav"]
        documents = [name.as_posix() for name in pages.Site(tree, out).documents()]
        # The checks must be able to fail.
        absent = {"name": "pkv_a", "header": "pool.h", "fields": [{"name": "b"}]}
        nothing = {kind: [] for kind in api} | {"structs": [absent]}
        assert len(list(gaps(folder, nothing))) == 3
        assert list(left_out(tree, contents, ["a.md"])) == ["a.md is in no table of contents"]
        bad = folder / "bad.md"
        bad.write_text("# A b\n[a](#a-b) [b](#nowhere) [`c`](gone.md) [d](bad.md#nowhere)\n")
        assert sum(found.startswith("bad.md") for found in broken_links(folder)) == 3
        bad.rename(folder / "reference/bad.md").write_text("`pkv_a` and pkv\\_a\n")
        assert len(list(unknown_names(folder))) == 1
        (folder / "reference/bad.md").unlink()
        found = [
            *gaps(folder, api),
            *broken_links(folder),
            *unknown_names(folder),
            *left_out(tree, contents, documents),
        ]
        count = len(list(folder.rglob("*.md")))
    if found:
        sys.exit("\n".join(found))
    print(f"{count} pages, {len(api['functions'])} functions, {len(api['structs'])} structs")


main()
