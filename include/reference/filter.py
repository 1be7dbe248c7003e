"""What Doxygen reads instead of a header or a chapter of the guide. The headers are written to be
read as they are: of Doxygen's words they have @param alone, and the others are put in here. A
header becomes a group with all of its declarations and the comment at its top; names of functions,
constants and statuses become links, "Statuses:" and "Since" paragraphs of their own, indented
lines code.

usage: filter.py FILE (Doxygen's INPUT_FILTER)"""

import pathlib
import re
import sys

INCLUDE = pathlib.Path(__file__).resolve().parents[1]
HEADERS = sorted((INCLUDE / "pagedkv").glob("*.h"))
CHAPTERS = [INCLUDE / "README.md", *sorted((INCLUDE / "guide").glob("*.md"))]
ALL = "".join(path.read_text() for path in HEADERS)
FUNCTIONS = set(re.findall(r"^PKV_(?:REDIS_)?API\s[^;{]*?\b(pkv_\w+)\(", ALL, re.M))
TYPES = set(re.findall(r"^\} (pkv_\w+);", ALL, re.M)) | set(
    re.findall(r"^typedef .*?\*? ?\b(pkv_\w+);", ALL, re.M)
)
CONSTANTS = set(re.findall(r"\b(PKV_\w+) = -?\d+", ALL)) | set(
    re.findall(r"^#define (PKV_\w+?)(?:\(\w+\))? .*\d", ALL, re.M)
)
STATUSES = set(
    re.findall(r"^  PKV_(\w+) = \d+\b", re.search(r"enum pkv_status.*?\}", ALL, re.S)[0], re.M)
)

COMMENT = re.compile(r"/\*\*(?:(?!\*/).)*\*/", re.S)
SECTION = re.compile(r"^/\* ---- (.+?) -{4,}(.*?)\*/\n\n?(.*)", re.M | re.S)


# ---- Headers -------------------------------------------------------------------------------------


def linked(text):
    text = re.sub(
        r"\bpkv_\w+\b(?!\(|\.h)", lambda m: m[0] + "()" if m[0] in FUNCTIONS else m[0], text
    )
    return re.sub(r'(?<![#\w"])PKV_\w+', lambda m: "#" + m[0] if m[0] in CONSTANTS else m[0], text)


def statuses_linked(text):
    """Those outside of parentheses, where NONE or NULL are no statuses."""
    parts = re.split(r"(\([^)]*\))", text)
    return "".join(
        part
        if part.startswith("(")
        else re.sub(
            r"\b[A-Z][A-Z_]+\b", lambda m: "#PKV_" + m[0] if m[0] in STATUSES else m[0], part
        )
        for part in parts
    )


def with_code(comment):
    """Marks lines that are indented by two or more as code, except the further lines of a point of
    a list or of a parameter.
    """
    lines, inside, listed = [], False, False
    for line in comment.split("\n"):
        text = re.match(r"^\s*\*(?: (.*))?$", line)
        indented = bool(text and text[1] and text[1].startswith("  "))
        if text and text[1] and not indented:
            listed = bool(re.match(r"(\d+\.|-|@param\S*) ", text[1]))
        if indented and not listed and not inside:
            lines.append(" * @code{.unparsed}")
        if inside and not indented and (text is None or text[1]):
            lines.append(" * @endcode")
        inside = indented and not listed or inside and bool(text) and not text[1]
        lines.append(line)
    return "\n".join(lines)


def documented(match):
    comment = with_code(match[0]).replace("%", "%%").replace(" .. ", " \u2026 ")
    pieces = re.split(r"(@code.*?@endcode)", comment, flags=re.S)
    comment = "".join(piece if piece.startswith("@code") else linked(piece) for piece in pieces)
    comment = re.sub(
        r"\s*\*?\s*\bStatuses:\s+(?:\* )?(.*?)(?=\bSince |\*/)",
        lambda m: "\n *\n * @par Statuses\n * " + statuses_linked(m[1]),
        comment,
        flags=re.S,
    )
    return re.sub(r"\s*\*?\s*\bSince (\d+\.\d+)\.", r"\n *\n * @since \1\n", comment)


def fields(struct):
    """Of a field whose name says it all there is an entry, too."""
    lines, described = [], False
    for line in struct[0].split("\n"):
        field = re.match(r"  (\w[^/]*[* ]|\w[^/]*\(\*)(\w+)(?:\[\d+\])?(?:\)\(.*\))?;$", line)
        if field and not described:
            words = {"struct_size": "sizeof the struct: see common.h.", "reserved": "0."}.get(
                field[2], "&nbsp;"
            )
            names = (
                [part.strip() for part in line.strip(" ;").split(",")]
                if "(" not in line
                else [line.strip(" ;")]
            )
            kind = names[0].rsplit(" ", 1)[0]
            lines += [
                f"  {kind + ' ' if i else ''}{part}; /**< {words} */"
                for i, part in enumerate(names)
            ]
        else:
            lines.append(line)
        described = line.rstrip().endswith("*/") and "/**<" not in line
    return "\n".join(lines)


def header(path, text):
    name = path.stem
    top, rest = re.match(r"/\* pagedkv: (.*?)\*/(.*)", text, re.S).groups()
    title = re.split(r"[.,:]\s", " ".join(top.replace("\n *", " ").split()))[0].rstrip(".")
    if name == "pagedkv":
        tour = COMMENT.sub(documented, f"/** @page tour The guided tour\n *\n * {top}*/")
        return tour + "\n/** @file\n * Includes all of the others: @ref tour. */" + rest

    def section(match):
        heading, words, rest = match.groups()
        if not words.strip(" *\n"):
            return rest
        if rest.startswith("typedef"):
            return f"/**{words}*/\n{rest}"
        sections.append(f" * @par {heading}\n *{words}")
        return rest

    sections = []
    while SECTION.search(rest):
        rest = SECTION.sub(section, rest, count=1)
    rest = re.sub(
        r"^(#define PKV_VERSION_M.*|#define PKV_VERSION_P.*)$",
        r"\1 /**< See PKV_VERSION_MAJOR. */",
        rest,
        flags=re.M,
    )
    rest = re.sub(r"^typedef struct \w+ \{\n.*?^\}", fields, rest, flags=re.M | re.S)
    rest = re.sub(
        r"^(typedef struct (pkv_\w+)_t\* (pkv_\w+);)",
        r"/** A handle: see @ref tour. */\n\1",
        rest,
        flags=re.M,
    )
    group = (
        f"/** @defgroup g_{name} {path.name}: {title}\n *\n * {top}{''.join(sections)}*/\n"
        f"/** @file\n * @ref g_{name} */\n/** @addtogroup g_{name}\n * @{{ */"
    )
    return COMMENT.sub(documented, group + rest) + "\n/** @} */\n"


# ---- Chapters ------------------------------------------------------------------------------------


def anchor(path, heading):
    words = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
    return f"{path.stem.lower()}-{words}"


def chapter(path, text):
    def link(match):
        words, target, part = match.groups()
        to = (path.parent / target).resolve() if target else path
        if "://" in match[0] or match[0].startswith("!") and to.is_file():
            return match[0] if "://" in match[0] else f"![{words}]({to.name})"
        if to in CHAPTERS:
            return (
                f'@ref {anchor(to, part)} "{words}"'
                if part
                else f'@ref page-{to.stem.lower()} "{words}"'
            )
        if to in HEADERS:
            return (
                '@ref tour "pagedkv.h"' if to.stem == "pagedkv" else f'@ref g_{to.stem} "{words}"'
            )
        return words  # what is no page here

    def prose(part):
        part = re.sub(r"!?\[([^\]]+)\]\(([^)#\s]*)(?:#([^)\s]*))?\)", link, part)
        part = re.sub(
            r"^(##+) (.+)$", lambda m: f"{m[1]} {m[2]} {{#{anchor(path, m[2])}}}", part, flags=re.M
        )
        part = re.sub(r"^# (.+)$", rf"# \1 {{#page-{path.stem.lower()}}}", part, flags=re.M)
        part = re.sub(r"<!--.*?-->\n", "", part)
        return re.sub(
            r"`(pkv_\w+)`",
            lambda m: f'@ref {m[1]} "{m[1]}"' if m[1] in FUNCTIONS | TYPES else m[0],
            part,
        )

    parts = re.split(r"(^```.*?^```$)", text, flags=re.M | re.S)
    return "".join(
        part.replace("```text", "```{.unparsed}").replace("```cmake", "```{.unparsed}")
        if part.startswith("```")
        else prose(part)
        for part in parts
    )


if __name__ == "__main__":
    path = pathlib.Path(sys.argv[1]).resolve()
    sys.stdout.write((header if path.suffix == ".h" else chapter)(path, path.read_text()))
