"""What stands in two places is the same in both: the example of README.md is bindings/c/minimal.c, the program that opens the library at run
time asks for every function of the headers; and what the documents link to is there."""

import re

import harness

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
DECLARED = re.compile(r"PKV_API[^;(]*?\bpkv_(\w+)\s*\(")


def read(root, name):
    path = root / name
    return path.read_text() if path.exists() else ""


def check(root):
    found = []
    example, readme = read(root, "bindings/c/minimal.c"), read(root, "README.md")
    if example not in readme:
        found.append("README.md: the example is not bindings/c/minimal.c")
    declared = {name for path, text in harness.sources(root, "include") for name in DECLARED.findall(text)}
    opened = set(re.findall(r"\bX\((\w+)\)", read(root, "bindings/c/pkv_dl.h")))
    found += [f"bindings/c/pkv_dl.h: pkv_{name} is declared but not opened" for name in sorted(declared - opened)]
    for document in sorted(root.rglob("*.md")):
        if any(part.startswith("build") or part == "subprojects" for part in document.relative_to(root).parts):
            continue
        for target in LINK.findall(document.read_text()):
            if "://" not in target and not (document.parent / target).exists():
                found.append(f"{document.relative_to(root)}: there is no {target}")
    return found


harness.run(check, [
    ("not bindings/c/minimal.c", {"README.md": "```c\nint main(void) {}\n```", "bindings/c/minimal.c": "int main(void) { return 0; }\n"}),
    ("pkv_b is declared", {"include/a.h": "PKV_API int pkv_a(int x);\nPKV_API int\npkv_b(void);", "bindings/c/pkv_dl.h": "#define F(X) X(a)"}),
    ("there is no gone.md", {"README.md": "[gone](gone.md)"}),
    (None, {"README.md": "```c\nint x;\n``` [c](bindings/c/minimal.c)", "bindings/c/minimal.c": "int x;\n"}),
])
