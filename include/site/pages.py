"""Makes the pages of the site: every document of the tree at its own place, the reference from the
public headers, and a page for each source file that a document links to.

usage: pages.py TREE DIR     writes DIR/pages and DIR/mkdocs.yml
"""

import json
import os
import pathlib
import re
import sys

from reference import Reference, relative

FENCE = re.compile(r"(^[ ]*```.*?^[ ]*```[ ]*$)", re.M | re.S)
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()([^)#\s]*)(#[^)\s]*)?\)")
NAME_IN_CODE = re.compile(r"(\[[^\]]*\]\([^)]*\)|^#.*$)|`(pkv_\w+|PKV_\w+)`", re.M)
PICTURES = (".svg", ".png")
# Python-Markdown wants an empty line between a paragraph and a list.
LIST_AFTER_TEXT = re.compile(r"^((?![*-] |\d+\. |[ |]).+\n)(?=(?:[*-]|\d+\.) )", re.M)
LANGUAGES = {
    ".c": "c",
    ".cpp": "cpp",
    ".go": "go",
    ".h": "c",
    ".hpp": "cpp",
    ".json": "json",
    ".lua": "lua",
    ".py": "python",
    ".rs": "rust",
    ".sh": "bash",
    ".toml": "toml",
    "": "bash",
}
# What follows the guide and the reference: a file, or the README of a folder.
PARTS = {
    "Languages": [
        "bindings/python",
        "bindings/rust",
        "bindings/rust/pagedkv",
        "bindings/rust/pagedkv-sys",
        "bindings/go",
        "bindings/cpp",
        "bindings/node",
        "bindings/java",
        "bindings/luajit",
        "bindings/api",
        "bindings/scenarios",
        "bindings/c",
    ],
    "Engines": [
        "bindings/engines",
        "bindings/engines/llama.cpp",
        "bindings/engines/candle",
        "bindings/engines/transformers",
        "bindings/engines/transformers/MODELS.md",
        "bindings/engines/vllm",
    ],
    "Inside": [
        "src",
        "src/engine/file/FORMAT.md",
        "src/packaging",
        "src/packaging/DEPENDENCIES.md",
        "tests",
        "tests/schedules",
        "fuzz",
    ],
    "Figures": [
        "bench",
        "bench/FIGURES.md",
        "bench/COMPARISON.md",
        "bench/NOTEBOOK.md",
        "bench/data",
    ],
    "Project": ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"],
}


class Site:
    def __init__(self, tree, out):
        self.tree, self.out = tree.resolve(), out / "pages"
        self.reference = Reference(tree / "include/pagedkv")
        self.sources = set()  # files and folders that documents link to

    def write(self, page, text):
        path = self.out / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def documents(self):
        for path in sorted(self.tree.rglob("*.md")):
            name = path.relative_to(self.tree)
            if not any(
                part.startswith(("build", ".")) or part in ("subprojects", "target")
                for part in name.parts
            ):
                yield name

    # ---- Documents

    def target(self, page, path):
        """Where a link of a page to a file or folder of the tree leads on the site."""
        name = pathlib.PurePath(os.path.normpath(page.parent / path))
        if name.parent == pathlib.PurePath("include/pagedkv") and name.suffix == ".h":
            return relative(self.reference.places[name.name], page)
        if (self.tree / name).is_dir():
            if (self.tree / name / "README.md").exists():
                return relative(name / "README.md", page)
            self.sources.add(name)
            return relative(name / "index.md", page)
        if name.suffix in (".md", *PICTURES):
            return path
        self.sources.add(name)
        return relative(f"{name}.md", page)

    def linked(self, text, page):
        def link(match):
            begin, path, anchor = match.groups()
            if not path or "://" in path or path.startswith("mailto:"):
                return match[0]
            if pathlib.PurePath(path).suffix in PICTURES:
                picture = page.parent / path
                (self.out / picture).parent.mkdir(parents=True, exist_ok=True)
                (self.out / picture).write_bytes((self.tree / picture).read_bytes())
            return f"{begin}{self.target(page, path)}{anchor or ''})"

        def name(match):
            if match[1] or match[2] not in self.reference.places:
                return match[0]
            return self.reference.link(match[2], page)

        return NAME_IN_CODE.sub(name, LINK.sub(link, text))

    def document(self, page):
        def prose(text):
            text = re.sub(r"^<!--.*?-->\n", "", text, flags=re.M | re.S)
            return LIST_AFTER_TEXT.sub(r"\1\n", self.linked(text, page))

        parts = FENCE.split((self.tree / page).read_text())
        self.write(page, "".join(p if i % 2 else prose(p) for i, p in enumerate(parts)))

    # ---- Source files, which a search does not find

    def folder(self, name):
        here, lines = name / "index.md", []
        for entry in sorted((self.tree / name).iterdir()):
            if entry.is_file():
                lines.append(f"* [{entry.name}]({self.target(here, entry.name)})")
        return here, "\n".join(lines)

    def file(self, name):
        text = (self.tree / name).read_text(errors="replace")
        language = LANGUAGES.get(name.suffix, "text")
        return f"{name}.md", f'````{language} linenums="1"\n{text}\n````'

    def source(self, name):
        page, text = (self.folder if (self.tree / name).is_dir() else self.file)(name)
        self.write(page, f"---\nsearch:\n  exclude: true\n---\n\n# {name}\n\n{text}\n")

    # ---- The whole

    def entry(self, name):
        """The line of a document in the table of contents: its title and its page."""
        page = name if name.endswith(".md") else f"{name}/README.md"
        title = re.search(r"^# (.+)$", (self.tree / page).read_text(), re.M)[1]
        return {title.replace("`", ""): page}

    def contents(self):
        """The table of contents, in reading order; that of the guide is include/README.md's."""
        table = (self.tree / "include/README.md").read_text()
        chapters = re.findall(r"^\| \[.*?\]\((guide/[\w-]+\.md)\)", table, re.M)
        return [
            {"Start": "README.md"},
            {"Guide": ["include/README.md", *(self.entry(f"include/{name}") for name in chapters)]},
            {
                "Reference": [
                    {"The ladder": "reference/pagedkv.md"},
                    *({name: self.reference.places[name]} for name in self.reference.order()),
                    {"All names": "reference/names.md"},
                ]
            },
            *({title: [self.entry(name) for name in names]} for title, names in PARTS.items()),
        ]

    def make(self):
        for page in self.documents():
            self.document(page)
        made = set()
        while missing := self.sources - made:  # a source file may link to others
            for name in sorted(missing):
                self.source(name)
            made |= missing
        for header in self.reference.public:
            self.write(self.reference.places[header], self.reference.page(header))
        self.write("reference/names.md", self.reference.names("reference/names.md"))
        here = pathlib.Path(__file__).resolve().parent
        self.write("site/style.css", (here / "style.css").read_text())
        config = {"INHERIT": str(here / "mkdocs.yml"), "docs_dir": "pages", "site_dir": "html"}
        (self.out.parent / "mkdocs.yml").write_text(
            json.dumps(config | {"nav": self.contents()}, indent=1) + "\n"
        )


if __name__ == "__main__":
    Site(*map(pathlib.Path, sys.argv[1:])).make()
