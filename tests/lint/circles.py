"""There are no circles of files: by includes in C and C++, imports in Python, `crate::` in Rust.

A header and the source of the same name count as one file. Imports only for annotations count,
because a reader must follow them, too.
"""

import ast
import pathlib
import posixpath
import re

import harness

C_ROOMS = ("src", "bindings/c", "tests/support")
PYTHON_ROOMS = ("bindings/python/pagedkv",)
# Circles there are only notes so far, not findings.
NOTED = "src/"
RUST_CRATES = ("bindings/rust/pagedkv/src", "bindings/rust/pagedkv-sys/src")

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)
C_FUNCTION = re.compile(r"^(?!static)\w[\w* ]*?(\w+)\([^;{}]*\) \{", re.M)
RUST_COMMENT = re.compile(r"//[^\n]*")
RUST_USE = re.compile(r"^ *(?:pub(?:\([a-z]+\))? )?use ([^;]+);", re.M)
RUST_TEST = re.compile(r"^ *#\[cfg\(test\)\]\s+mod (\w+);", re.M)
RUST_PATH = re.compile(r"\bcrate::(\{[^}]*\}|\w+(?:::\w+)*|\*)")


def without_suffix(path):
    return posixpath.splitext(path)[0]


def files_in(root, room, suffixes):
    return {
        path.relative_to(root).as_posix(): path.read_text(errors="replace")
        for path in sorted((root / room).rglob("*"))
        if path.suffix in suffixes and path.is_file()
    }


def c_graph(root):
    """{file without suffix: those it includes}. Includes count from the file or from its room. In C
    also those whose functions it calls, whatever header declares them.
    """
    texts = {}
    for room in C_ROOMS:
        texts |= files_in(root, room, {".c", ".h", ".cpp", ".hpp"})
    graph = {without_suffix(path): set() for path in texts}
    for path, text in texts.items():
        here = without_suffix(path)
        for name in INCLUDE.findall(harness.strip_comments(text)):
            folders = (posixpath.dirname(path), *C_ROOMS, "tests")
            candidates = [posixpath.normpath(posixpath.join(folder, name)) for folder in folders]
            found = next((target for target in candidates if target in texts), None)
            if found:
                graph[here] |= {without_suffix(found)} - {here}
    defined = {
        name: without_suffix(path)
        for path, text in texts.items()
        if path.endswith(".c")
        for name in C_FUNCTION.findall(text)
    }
    for path, text in texts.items():
        if path.endswith(".c"):
            used = set(re.findall(r"\w+", harness.strip_comments(text)))
            here = without_suffix(path)
            graph[here] |= {defined[name] for name in used & set(defined)} - {here}
    return graph


def python_imports(tree, package):
    """Returns the modules and names that a module imports, as lists of folders and names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            for alias in node.names:
                yield [*base, alias.name]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.split(".")


def python_graph(root, room):
    parent = posixpath.dirname(room)
    texts = {without_suffix(path): text for path, text in files_in(root, room, {".py"}).items()}
    graph = {name: set() for name in texts}
    for name, text in texts.items():
        package = posixpath.relpath(posixpath.dirname(name), parent).split("/")
        for parts in python_imports(ast.parse(text), package):
            while parts:
                path = posixpath.join(parent, *parts)
                found = next((p for p in (path, path + "/__init__") if p in texts), None)
                if found:
                    graph[name] |= {found} - {name}
                    break
                parts = parts[:-1]
    return graph


def rust_names(lib):
    """Returns the names that the root of a crate re-exports: {name: module path}."""
    names = {}
    for use in RUST_USE.findall(lib):
        *path, last = re.split(r"::(?![^{]*\})", re.sub(r"\s+", " ", use))
        for name in re.findall(r"\w+(?: as \w+)?", last):
            names[name.split(" as ")[-1]] = [*path, name.split(" as ")[0]]
    return names


def rust_graph(root, crate):
    texts = {
        without_suffix(path): RUST_COMMENT.sub("", text)
        for path, text in files_in(root, crate, {".rs"}).items()
    }
    lib = posixpath.join(crate, "lib")
    graph = {name: set() for name in texts}
    if lib not in texts:
        return graph
    names = rust_names(texts[lib])
    tests = {posixpath.join(crate, name) for name in RUST_TEST.findall(texts[lib])}
    graph[lib] = set(texts) - tests - {lib}  # it declares them

    modules = {posixpath.relpath(name, crate).split("/")[0] for name in texts}

    def file_of(parts):
        """Returns the file that has the item of this path, or None if another crate has it."""
        if parts[0] not in modules:
            if parts[0] not in names:
                return lib
            parts = names[parts[0]] + parts[1:]
            if parts[0] not in modules:
                return None
        while parts:
            path = posixpath.join(crate, *parts)
            found = next((p for p in (path, path + "/mod") if p in texts), None)
            if found:
                return found
            parts = parts[:-1]
        return lib

    for name, text in texts.items():
        for path in RUST_PATH.findall(text) if name != lib else ():
            if path == "*":
                graph[name] |= set(texts) - {name}
                continue
            for item in path.strip("{}").split(","):
                parts = [part for part in item.strip().split("::") if part]
                graph[name] |= ({file_of(parts)} if parts else set()) - {name, None}
    return graph


def circles(graph):
    """Returns each set of files that reach one another (Tarjan 1972)."""
    index, low, stack, found = {}, {}, [], []

    def visit(name):
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in sorted(graph[name]):
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return found


def check(root):
    root = pathlib.Path(root)
    graphs = [c_graph(root)]
    graphs += [python_graph(root, room) for room in PYTHON_ROOMS]
    graphs += [rust_graph(root, crate) for crate in RUST_CRATES]
    return [
        f"{'note: ' * circle[0].startswith(NOTED)}a circle of {len(circle)} files: "
        f"{', '.join(circle)}"
        for graph in graphs
        for circle in circles(graph)
    ]


PY, RS = PYTHON_ROOMS[0], RUST_CRATES[0]
SAMPLES = [
    (
        None,
        {
            "src/a.h": '#include "b.h"\n',
            "src/a.cpp": '#include "a.h"\n// #include "c.h"\n',
            "src/b.h": "",
            "src/c.h": '#include "a.h"\n',
            f"{PY}/__init__.py": "from .a import x\n",
            f"{PY}/a.py": "from . import b\nfrom .deep.c import y\n",
            f"{PY}/b.py": "import os\n",
            f"{PY}/deep/__init__.py": "",
            f"{PY}/deep/c.py": "from .. import b\n",
            f"{RS}/lib.rs": "mod a;\nmod b;\n#[cfg(test)]\nmod c;\npub use other as sys;\n"
            "pub use a::{X, Y as Z};\n",
            f"{RS}/a.rs": "use crate::sys;\n/// [`b`](crate::b)\nuse std::fmt;\n",
            f"{RS}/b.rs": "use crate::{sys, Z};\nuse crate::a::X;\n",
            f"{RS}/c.rs": "use crate::*;\n",
        },
    ),
    (
        "2 files: src/a, src/b",
        {"src/a.h": '#include "b.h"\n', "src/b.h": "", "src/b.cpp": '#include "a.h"\n'},
    ),
    (
        "2 files: bindings/c/x/a, bindings/c/y/b",
        {
            "bindings/c/x/a.h": '#include "../y/b.h"\n',
            "bindings/c/y/b.h": "",
            "bindings/c/y/b.c": '#include "../x/a.h"\n',
        },
    ),
    (
        "2 files: bindings/c/a, bindings/c/b",
        {
            "bindings/c/a.h": "void f(void);\nvoid g(void);\n",
            "bindings/c/a.c": '#include "a.h"\nvoid f(void) {\n  g();\n}\n',
            "bindings/c/b.c": '#include "a.h"\nvoid g(void) {\n}\nstatic void h(int f) {\n}\n',
        },
    ),
    (
        "3 files",
        {
            "tests/support/a.h": '#include "support/b.h"\n',
            "tests/support/b.h": '#include "c.h"\n',
            "tests/support/c.h": '#include "support/a.h"\n',
        },
    ),
    (
        f"2 files: {PY}/a, {PY}/b",
        {
            f"{PY}/a.py": "from .b import x\n",
            f"{PY}/b.py": "if TYPE_CHECKING:\n    from .a import y\n",
        },
    ),
    (
        f"2 files: {PY}/a, {PY}/deep/b",
        {
            f"{PY}/a.py": "from pagedkv.deep import b\n",
            f"{PY}/deep/b.py": "def f():\n    from .. import a\n",
        },
    ),
    (f"{PY}/__init__", {f"{PY}/__init__.py": "from . import a\n", f"{PY}/a.py": "from . import x"}),
    (
        f"2 files: {RS}/a, {RS}/b",
        {
            f"{RS}/lib.rs": "mod a;\nmod b;\npub use b::Name;\n",
            f"{RS}/a.rs": "fn f() { crate::Name::new() }\n",
            f"{RS}/b.rs": "use crate::a::g;\n",
        },
    ),
    (
        f"2 files: {RS}/a, {RS}/lib",
        {f"{RS}/lib.rs": "mod a;\nfn f() {}\n", f"{RS}/a.rs": "use crate::f;\n"},
    ),
]

if __name__ == "__main__":
    harness.run(check, SAMPLES)
