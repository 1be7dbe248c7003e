"""Code in the documents comes from a file: the code under a line

    <!-- shows PATH -->   or   <!-- shows PATH [region] -->

is that file (the path is relative to the document), or the lines between its comments [region] and
[region end], moved to the left. C and CMake code of more than three lines must have such a line.
The output of programs is checked elsewhere (tests/guide). The first rung of pagedkv.h has a whole
program as well, and uses only the functions that it lists.

usage: shown.py TREE, or shown.py TREE --renew to copy the code from the files into the documents"""

import pathlib
import re
import sys
import textwrap

import harness

BLOCK = re.compile(
    r"^(?:<!-- (?P<verb>shows|printed by) (?P<what>[^\n]*?) -->\n)?"
    r"```(?P<language>[\w+]*)\n(?P<text>.*?)^```$",
    re.M | re.S,
)
WHAT = re.compile(r"(?P<path>\S+)(?: \[(?P<region>\w+)\])?")
CODE = {"c", "c++", "cpp", "cmake"}
SHORT = 3
LADDER, FIRST = "include/pagedkv/pagedkv.h", "bindings/c/examples/minimal.c"
RUNG = re.compile(r"^ \* 1\. FIRST STEP\n(.*?)^ \* 2\. ", re.M | re.S)
LIST = re.compile(r"^ \*   pkv_\w+(?:, pkv_\w+)*,?$", re.M)
FUNCTIONS = 12


def documents(root):
    for path in sorted(root.rglob("*.md")):
        if not any(
            part.startswith(("build", ".")) or part in ("subprojects", "target")
            for part in path.relative_to(root).parts
        ):
            yield path


def shown(document, what):
    """Returns what a line of a document refers to, or None if it refers to nothing."""
    match = WHAT.fullmatch(what)
    path = document.parent / match["path"] if match else None
    if path is None or not path.is_file():
        return None
    text = path.read_text()
    if match["region"] is None:
        return text
    comment = r"^ *(?:/\* |// )\[{}\](?: \*/)?\n"
    marked = re.search(
        comment.format(match["region"]) + "(.*?)" + comment.format(match["region"] + " end"),
        text,
        re.M | re.S,
    )
    return textwrap.dedent(marked[1]) if marked else None


def without_marks(text):
    return re.sub(r"^ *(?:/\* |// )\[\w+(?: end)?\](?: \*/)?\n", "", text, flags=re.M)


def check_ladder(root):
    rung = RUNG.search((root / LADDER).read_text())[1]
    program = without_marks(shown(root / FIRST, "minimal.c [program]"))
    lines = [f" *   {line}".rstrip() for line in program.splitlines()]
    if "\n".join(lines) not in rung:
        yield f"{LADDER}: the first rung does not show the program of {FIRST}"
    listed = re.findall(r"pkv_\w+", "".join(LIST.findall(rung)))
    if len(set(listed)) != FUNCTIONS:
        yield f"{LADDER}: the first rung lists {len(set(listed))} functions, not {FUNCTIONS}"
    for name in set(re.findall(r"\b(pkv_\w+)\(", program)) - set(listed):
        yield f"{LADDER}: the first rung uses {name}, and does not list it"


def check(root):
    found = list(check_ladder(root))
    for document in documents(root):
        name, text = document.relative_to(root), document.read_text()
        for block in BLOCK.finditer(text):
            line = text.count("\n", 0, block.start()) + 1
            if block["verb"] == "shows":
                real = shown(document, block["what"])
                if real is None:
                    found.append(f"{name}:{line}: there is no {block['what']}")
                elif block["text"] != without_marks(real):
                    found.append(
                        f"{name}:{line}: this is not what {block['what']} has "
                        "(tests/lint/shown.py . --renew)"
                    )
            elif (
                block["verb"] is None
                and block["language"] in CODE
                and block["text"].count("\n") > SHORT
            ):
                found.append(f"{name}:{line}: nobody compiles this: show a file or a part of one")
    return found


def renew(root):
    for document in documents(root):
        text = document.read_text()

        def filled(block):
            real = shown(document, block["what"]) if block["verb"] == "shows" else None
            return (
                block[0]
                if real is None
                else f"<!-- shows {block['what']} -->\n"
                f"```{block['language']}\n{without_marks(real)}```"
            )

        renewed = BLOCK.sub(filled, text)
        if renewed != text:
            document.write_text(renewed)


if sys.argv[2:] == ["--renew"]:
    renew(pathlib.Path(sys.argv[1]))
else:
    harness.run(check)
