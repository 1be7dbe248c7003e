"""The reference: Doxygen has nothing to complain of; every function that api.json knows has its
place, its statuses and its version, and stands in the index; every page of the guide is there;
and every link leads somewhere.

usage: reference_test.py DOXYGEN DOXYFILE API_JSON GUIDE_FOLDER"""

import html
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.parse


def broken_links(folder):
    pages = {page.name: page.read_text() for page in folder.glob("*.html")}
    anchors = {
        name: set(re.findall(r'\b(?:id|name)="([^"]+)"', text)) for name, text in pages.items()
    }
    for name, text in pages.items():
        for target in re.findall(r'\b(?:href|src)="([^"]+)"', text):
            if "://" in target or target.startswith(("javascript:", "data:")):
                continue
            file, _, anchor = urllib.parse.unquote(html.unescape(target)).partition("#")
            file = file or name
            if (
                not (folder / file).exists()
                or anchor
                and file in anchors
                and anchor not in anchors[file]
            ):
                yield f"{name}: {target} leads nowhere"


def gaps(folder, functions, chapters):
    index = (folder / "globals_func.html").read_text()
    groups = "".join(page.read_text() for page in folder.glob("group__*.html"))
    entries = {}
    for entry in re.split(r'<h2 class="memtitle">', groups)[1:]:
        name = re.search(r"</span>(\w+)\(\)", entry)
        if name:
            entries[name[1]] = entry
    for function in functions:
        entry, name = entries.get(function["name"], ""), function["name"]
        if not entry:
            yield f"{name} has no entry"
        elif function["returns"].get("name") == "pkv_status" and not re.search(
            r"<dt>Statuses</dt><dd>.*?\w", entry, re.S
        ):
            yield f"{name} has no statuses"
        elif not re.search(r'<dl class="section since"><dt>Since</dt><dd>\d', entry):
            yield f"{name} does not say since when"
        if f">{name}()" not in index:
            yield f"{name} is not in the index"
    for chapter in chapters:
        if not (folder / f"page-{chapter.stem}.html").exists():
            yield f"{chapter.name} is no page"


def main():
    doxygen, doxyfile, api, guide = sys.argv[1:]
    functions = json.loads(pathlib.Path(api).read_text())["functions"]
    chapters = sorted(pathlib.Path(guide).glob("*.md"))
    assert len(functions) > 80 and len(chapters) > 5
    with tempfile.TemporaryDirectory() as folder:
        # If there are several values, the last one counts.
        changed = pathlib.Path(doxyfile).read_text() + f"\nOUTPUT_DIRECTORY = {folder}\n"
        result = subprocess.run([doxygen, "-"], input=changed, capture_output=True, text=True)
        if result.returncode != 0 or result.stderr:
            sys.exit(f"doxygen objects:\n{result.stdout}{result.stderr}")
        html_folder = pathlib.Path(folder) / "html"
        # The check must be able to fail.
        assert list(
            gaps(html_folder, [{"name": "pkv_absent", "returns": {}}], [pathlib.Path("absent.md")])
        ) == ["pkv_absent has no entry", "pkv_absent is not in the index", "absent.md is no page"]
        (html_folder / "bad.html").write_text(
            '<a href="index.html#nowhere"></a><a href="gone.html"></a>'
        )
        bad = list(broken_links(html_folder))
        assert sum(found.startswith("bad.html") for found in bad) == 2, bad
        (html_folder / "bad.html").unlink()
        found = [*gaps(html_folder, functions, chapters), *broken_links(html_folder)]
    if found:
        sys.exit("\n".join(found))
    print(f"{len(functions)} functions, {len(chapters)} chapters")


main()
