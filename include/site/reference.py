"""The reference: a page of Markdown for each public header, and one with all names."""

import html
import os
import pathlib
import re

import headers

HANDLE = "A handle: an index and a generation, never an address. `NULL` is none."
STRUCT_SIZE = "`sizeof` the struct as the caller compiled it: see [common.h](common.md)."
NAMED_OR_SPECIAL = re.compile(r"\b(?:pkv_\w+|PKV_\w+|\w+\.h)\b|[\\`*_\[\]<>#|~]")
POINT = re.compile(r"- |\d+\. ")
KINDS = {
    "function": "Functions",
    "struct": "Structs",
    "enum": "Enums",
    "handle": "Handles",
    "macro": "Constants",
    "alias": "Other types",
}
SHORT = 60  # A prototype up to here is one line.


def relative(target, page):
    """The way from a page to a target, both relative to the top of the site."""
    return os.path.relpath(target, pathlib.PurePath(page).parent).replace(os.sep, "/")


def code_block(text):
    return "```text\n" + re.sub(r"^  ", "", text, flags=re.M) + "\n```"


def prototype(code):
    """A function's declaration, with a parameter a line where it is long."""
    if len(code) <= SHORT or "(" not in code:
        return code
    begin, parameters = re.fullmatch(r"(.*?\()(.*)\);", code, re.S).groups()
    return f"{begin}\n    " + re.sub(r",\s*", ",\n    ", parameters) + ");"


class Reference:
    def __init__(self, folder):
        self.public = {
            path.name: headers.read(path.read_text()) for path in sorted(folder.glob("*.h"))
        }
        # Where a name is described: {"pkv_pool": "reference/pool.md#pkv_pool"}.
        self.places = {name: f"reference/{name[:-2]}.md" for name in self.public}
        for header, (_, declarations) in self.public.items():
            for part in declarations:
                names = [part.name] if part.kind != "section" else []
                names += [constant.name for constant in part.members if part.kind == "enum"]
                for name in names:
                    self.places[name] = f"{self.places[header]}#{name.lower()}"

    def link(self, name, page, words=None):
        return f"[`{words or name}`]({relative(self.places[name], page)})"

    # ---- The words of comments

    def prose(self, words, page):
        """A paragraph: names become links, what Markdown would take for its own is escaped."""

        def replaced(match):
            name = match[0]
            if name in self.places:
                return self.link(name, page)
            return "\\" + name if len(name) == 1 else name.replace("_", "\\_")

        return NAMED_OR_SPECIAL.sub(replaced, words)

    def paragraph(self, words, page):
        """A paragraph, a list or code: what is indented is code, but for lines of a list."""
        if words.startswith("  "):
            return code_block(words)
        if heading := re.fullmatch(r"(\d\. )?([A-Z]{3,}(?: [A-Z]+)*)", words):
            return f"## {heading[1] or ''}{heading[2].capitalize()}"
        if POINT.match(words):
            return self.prose(words, page)
        first, code = re.fullmatch(r"(.*?)((?:\n  .*)*)", words, re.S).groups()
        return self.prose(first, page) + (f"\n\n{code_block(code[1:])}" if code else "")

    def text(self, words, page):
        parts = re.split(r"\n\s*\n", words)
        for i in range(len(parts) - 1, 0, -1):  # an empty line inside code splits nothing
            if parts[i].startswith("  ") and parts[i - 1].startswith("  "):
                parts[i - 1 : i + 1] = [f"{parts[i - 1]}\n\n{parts[i]}"]
        return "\n\n".join(self.paragraph(part, page) for part in parts)

    def statuses(self, words, page):
        """Statuses are named without their prefix; in parentheses NONE or NULL is no status."""

        def replaced(match):
            name = match[0]
            if name.startswith("pkv_"):
                return self.prose(name, page)
            if self.places.get(f"PKV_{name}", "").startswith("reference/common.md"):
                return self.link(f"PKV_{name}", page, name)
            return name

        return re.sub(r"\b(?:pkv_\w+|[A-Z][A-Z_]+)\b", replaced, words)

    # ---- Declarations

    def member(self, part, member, page):
        """A field or a constant, as an entry of a list of definitions."""
        anchor = member.name if part.kind == "enum" else f"{part.name}.{member.name}"
        code = re.sub(
            rf"\b{member.name}\b", f"<b>{member.name}</b>", html.escape(member.code), count=1
        )
        words = STRUCT_SIZE if member.name == "struct_size" and not member.text else None
        text = re.sub(r"\n(?=.)", "\n    ", words or self.text(member.text, page))
        return f'<code id="{anchor.lower()}">{code}</code>\n\n:   {text}\n'

    def parameters(self, part, page):
        lines = ["| parameter | | |", "|---|---|---|"]
        for name, direction, words in part.parameters:
            lines.append(f"| `{name}` | {direction} | {self.prose(words, page)} |")
        return "\n".join(lines)

    def declaration(self, part, page):
        if part.kind == "section":
            return [f"## {part.name}", self.text(part.text, page)]
        lines = [f"## {part.name} {{ #{part.name.lower()} }}"]
        if part.kind in ("function", "macro", "alias"):
            lines.append(f"```c\n{prototype(part.code)}\n```")
        lines.append(HANDLE if part.kind == "handle" else self.text(part.text, page))
        lines += [self.member(part, member, page) for member in part.members]
        if part.parameters:
            lines.append(self.parameters(part, page))
        if part.statuses:
            lines.append(f"**Statuses:** {self.statuses(part.statuses, page)}")
        if part.since:
            lines.append(f"*Since {part.since}.*")
        return lines

    # ---- Pages

    def page(self, header):
        top, declarations = self.public[header]
        page = self.places[header]
        words = top if top.startswith("pkv_") else top[0].upper() + top[1:]
        lines = [f"# {header}", self.text(words, page)]
        for part in declarations:
            lines += self.declaration(part, page)
        return "\n\n".join(line for line in lines if line) + "\n"

    def names(self, page):
        """The page with all names."""
        top = f"[pagedkv.h]({relative(self.places['pagedkv.h'], page)})"
        lines = ["# All names", "", f"What the headers declare. {top} has the rules.", ""]
        for kind, title in KINDS.items():
            found = sorted(
                (part.name, header)
                for header, (_, declarations) in self.public.items()
                for part in declarations
                if part.kind == kind
            )
            lines += [f"## {title}", "", "| name | header |", "|---|---|"]
            lines += [
                f"| {self.link(name, page)} | {self.link(header, page)} |" for name, header in found
            ]
            lines.append("")
        return "\n".join(lines)

    def order(self):
        """The headers in the order in which the ladder names them."""
        ladder = self.public["pagedkv.h"][0]
        rest = [name for name in self.public if name != "pagedkv.h"]
        return sorted(rest, key=lambda name: ladder.find(name) if name in ladder else len(ladder))
