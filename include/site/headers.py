"""Reads the public headers: what each declares, with the words of its comment.

The headers are written to be read as they are. Their form is what tests/lint checks: a comment at
the top, `/* ---- TITLE` sections, and a `/** comment */` before each declaration or after a field.
"""

import dataclasses
import re

TOKEN = re.compile(
    r"(?P<section>/\* ---- (?P<title>.+?) -{4,}(?P<words>.*?)\*/)"
    r"|(?P<doc>/\*\*.*?\*/)"
    r"|(?P<comment>/\*.*?\*/)"
    r"|(?P<macro>#define (?P<macro_name>PKV_\w+)(?P<value>[^\n]*))"
    r'|(?P<skipped>#[^\n]*|extern "C" \{|\}\n)'
    r"|(?P<declaration>(?:typedef|PKV_)[^;{]*(?:\{[^\n]*\}|\{\n.*?^\})?[^;]*;)",
    re.S | re.M,
)
PARAMETER = re.compile(r"@param(?:\[([^\]]*)\])? +(\w+) +(.*(?:\n   .*)*)")
TAIL = re.compile(r"\s*(?:(Statuses: .*?))?\s*(?:\bSince (\d+\.\d+)\.)?\s*\Z", re.S)
FIELD = r"/\*\*<(?P<after>.*?)\*/|/\*\*(?P<before>.*?)\*/|(?P<code>[^/{0}]+(?:{0}|\Z|(?=\s*/)))"
NAME = re.compile(r"\(\*(\w+)\)|^(PKV_\w+)|(\w+)(?:\[\d+\])?$")


@dataclasses.dataclass
class Member:
    """A field of a struct or a constant of an enum."""

    name: str
    code: str
    text: str


@dataclasses.dataclass
class Declaration:
    kind: str  # function, struct, enum, handle, alias, macro, or section
    name: str
    code: str
    text: str
    parameters: list = dataclasses.field(default_factory=list)  # (name, direction, text)
    statuses: str = ""
    since: str = ""
    members: list = dataclasses.field(default_factory=list)


def plain(comment):
    """The text of a comment, without its stars."""
    text = re.sub(r"^/\*+<?|\*/$", "", comment.strip())
    return re.sub(r"^[ \t]*\*(?: |$)", "", text, flags=re.M).strip("\n ")


def members(body, end):
    body = re.sub(r"/\*(?!\*).*?\*/", "", body, flags=re.S)  # such as "The servers."
    found, before = [], ""
    for match in re.finditer(FIELD.format(end), body, re.S):
        code = " ".join((match["code"] or "").strip(" \n;,").split())
        if match["before"]:
            before = plain(match[0])
        elif match["after"]:
            found[-1].text = plain(match[0])
        elif code:
            found.append(Member(next(filter(None, NAME.search(code).groups())), code, before))
            before = ""
    return found


def kind_and_name(code):
    if code.startswith("PKV_"):
        return "function", re.search(r"\b(pkv_\w+)\s*\(", code)[1]
    name = re.search(r"(\w+);$", code)[1]
    if code.startswith("typedef enum"):
        return "enum", name
    if "{" in code:
        return "struct", name
    return ("handle" if f"{name}_t*" in code else "alias"), name


def declaration(match, comment):
    text = plain(comment)
    if match["macro"]:
        return Declaration("macro", match["macro_name"], match["macro"], text)
    code = match["declaration"]
    kind, name = kind_and_name(code)
    if kind == "function":
        code = re.sub(r"^PKV_(REDIS_)?API ", "", code)
        code = re.sub(r"\n\s+", " ", code)
    made = Declaration(kind, name, code, text)
    if kind in ("struct", "enum"):
        made.members = members(re.search(r"\{(.*)\}", code, re.S)[1], ";,"[kind == "enum"])
    if kind == "function":
        parameters = list(PARAMETER.finditer(text))
        made.parameters = [(m[2], m[1] or "", " ".join(m[3].split())) for m in parameters]
        made.text = PARAMETER.sub("", text)
        tail = TAIL.search(made.text)
        made.statuses = (tail[1] or "").removeprefix("Statuses: ")
        made.since = tail[2] or ""
        made.text = made.text[: tail.start()]
    return made


def read(text):
    """The comment at the top of a header, and its declarations in their order."""
    top = re.match(r"/\* pagedkv: (.*?)\*/", text, re.S)
    found, comment = [], ""
    for match in TOKEN.finditer(text, top.end()):
        if match["section"]:
            words = plain(f"/* {match['words']} */")
            found.append(Declaration("section", match["title"], "", words))
        elif match["doc"]:
            comment = match["doc"]
        elif match["declaration"] or match["macro"] and match["value"].strip():
            if match["macro_name"] not in ("PKV_API", "PKV_REDIS_API", "PKV_ENUM"):
                found.append(declaration(match, comment))
            comment = ""
    return plain("/*" + top[1] + "*/"), found
