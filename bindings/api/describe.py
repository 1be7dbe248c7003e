"""Describes the C interface of libpagedkv as data: api.json is to the headers what a generator of
bindings needs to know of them.

usage: describe.py            renews api.json, and what every bindings/*/generate_raw.py makes of it
       describe.py --check    says with a diff where a file is not what the headers say

clang parses the headers (its syntax tree as JSON has declarations, types and documentation); a
small program that it compiles tells what only a compiler knows: sizes, offsets and the values of
macros.
"""

import difflib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parents[1]
WIDTH = 130
NOT_CONSTANTS = {"PKV_API", "PKV_ENUM"}
SKIPPED = 77  # what meson takes for a skipped test


def clang():
    for name in ("clang-19", "clang"):
        if path := shutil.which(name):
            return path
    print(
        "describe.py: there is no clang-19 and no clang here: bash tests/install-deps everything",
        file=sys.stderr,
    )
    sys.exit(SKIPPED)


def run_clang(tree, *arguments):
    header = tree / "include/pagedkv/pagedkv.h"
    command = [clang(), "-x", "c", "-std=c99", f"-I{tree / 'include'}", *arguments, str(header)]
    # ccache, under the name of clang, takes no header into account where nothing is compiled.
    environment = os.environ | {"CCACHE_DISABLE": "1"}
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=environment
    ).stdout


# ---- Types


def split_parameters(text):
    parts, depth, begin = [], 0, 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append(text[begin:i])
            begin = i + 1
    return [part for part in [*parts, text[begin:]] if part.strip() != "void"]


def parse_type(text):
    """A C type as clang spells it, as data: see README.md."""
    text = text.strip()
    if function := re.fullmatch(r"(.*?)\(\*\)\((.*)\)", text):
        return {
            "function": {
                "returns": parse_type(function[1]),
                "parameters": [parse_type(p) for p in split_parameters(function[2])],
            }
        }
    if array := re.fullmatch(r"(.*)\[(\d+)\]", text):
        return {"array": parse_type(array[1]), "length": int(array[2])}
    if text.endswith("*"):
        to = text[:-1].strip()
        constant = to.endswith("const") if "*" in to else to.startswith("const ")
        return {"pointer": parse_type(re.sub(r"\s*\bconst$", "", to)), "const": constant}
    return {"name": re.sub(r"\b(const|struct|enum) ", "", text)}


# ---- The syntax tree


def headers_of(tree):
    """{address of a top-level node: the file it stands in}. clang names a file only where it is
    another than that of the place it printed before, wherever that was: so every place has to be
    looked at, in the order of printing."""
    found, current = {}, [None]

    def visit(value):
        if isinstance(value, list):
            for item in value:
                visit(item)
        elif isinstance(value, dict):
            for key, item in value.items():
                if key == "file":
                    current[0] = item
                elif key not in ("includedFrom", "type", "referencedDecl"):
                    visit(item)
                if key == "loc" and "kind" in value:
                    found[value["id"]] = current[0]

    visit(tree)
    return found


def text_of(comment):
    own = [comment["text"].strip()] if comment["kind"] == "TextComment" else []
    return own + [line for part in comment.get("inner", []) for line in text_of(part)]


def parts_of(node):
    """The paragraphs of the comment of a declaration, and what it says of each parameter."""
    for comment in node.get("inner", []):
        if comment["kind"] == "FullComment":
            return comment["inner"]
    return []


def documentation(node):
    """The text of the comment without its @param lines; empty lines between paragraphs."""
    paragraphs = [text_of(p) for p in parts_of(node) if p["kind"] != "ParamCommandComment"]
    texts = ["\n".join(line for line in lines if line) for lines in paragraphs]
    return "\n\n".join(text for text in texts if text)


def documentation_of_parameters(node):
    """{name of a parameter: what its @param line says}"""
    return {
        part["param"]: "\n".join(text_of(part)).strip()
        for part in parts_of(node)
        if part["kind"] == "ParamCommandComment"
    }


def typed(node):
    c = node["type"]["qualType"]
    return {"name": node["name"], "type": parse_type(c), "c": c}


def constants_of(enum):
    value, found = -1, []
    for node in enum["inner"]:
        if node["kind"] == "EnumConstantDecl":
            given = [part for part in node.get("inner", []) if part["kind"] == "ConstantExpr"]
            value = int(given[0]["value"]) if given else value + 1
            found.append({"name": node["name"], "value": value, "doc": documentation(node)})
    return found


def function_of(node):
    doc, of_parameters = documentation(node), documentation_of_parameters(node)
    since = re.search(r"Since (\d+\.\d+)\.", doc)
    returns = node["type"]["qualType"].split("(")[0].strip()
    return {
        "name": node["name"],
        "since": since[1] if since else None,
        "returns": parse_type(returns),
        "c_returns": returns,
        "parameters": [
            typed(part) | {"doc": of_parameters.get(part["name"], "")}
            for part in node.get("inner", [])
            if part["kind"] == "ParmVarDecl"
        ],
        "doc": doc,
    }


def declarations(tree):
    found = {"enums": [], "handles": [], "aliases": [], "structs": [], "functions": []}
    headers = headers_of(tree)
    for node in tree["inner"]:
        if not node.get("name", "").startswith("pkv_"):
            continue
        header = pathlib.PurePath(headers[node["id"]]).name
        named = {"name": node["name"], "header": header}
        kind = node["kind"]
        if kind == "EnumDecl":
            found["enums"].append(
                named | {"doc": documentation(node), "constants": constants_of(node)}
            )
        elif kind == "RecordDecl" and node.get("completeDefinition"):
            fields = [
                typed(part) | {"doc": documentation(part)}
                for part in node["inner"]
                if part["kind"] == "FieldDecl"
            ]
            found["structs"].append(named | {"doc": documentation(node), "fields": fields})
        elif kind == "FunctionDecl":
            found["functions"].append(named | function_of(node))
        elif kind == "TypedefDecl":
            c = node["type"]["qualType"]
            if c == f"struct {node['name']}_t *":
                found["handles"].append(named | {"doc": documentation(node)})
            elif c.split()[0] not in ("struct", "enum"):
                found["aliases"].append(
                    named | {"type": parse_type(c), "c": c, "doc": documentation(node)}
                )
    return found


# ---- Macros, sizes and offsets


def macro_documentation(tree):
    """{macro: (header, text)}: clang keeps no comments of macros, so the ones that stand right
    above are read here.
    """
    found = {}
    for path in sorted((tree / "include/pagedkv").glob("*.h")):
        for comment, name in re.findall(
            r"(?:/\*\*((?:[^*]|\*(?!/))*)\*/\n)?#define (PKV_\w+)[ \t]", path.read_text()
        ):
            found[name] = (
                path.name,
                "\n".join(line.strip(" *") for line in comment.splitlines()).strip(),
            )
    return found


def macro_type(value):
    """The type that a macro casts to, that of UINT64_MAX and its like, or int."""
    cast, limit = re.match(r"\(*(\w+)\)", value), re.fullmatch(r"(U?INT\d+)_MAX", value)
    return cast[1] if cast else limit[1].lower() + "_t" if limit else "int"


def constants(tree):
    docs = macro_documentation(tree)
    found = []
    for name, value in re.findall(r"^#define (PKV_\w+) (.+)$", run_clang(tree, "-E", "-dM"), re.M):
        if name not in NOT_CONSTANTS:
            header, doc = docs[name]
            found.append(
                {
                    "name": name,
                    "header": header,
                    "type": macro_type(value),
                    "value": None,
                    "doc": doc,
                }
            )
    return sorted(found, key=lambda constant: list(docs).index(constant["name"]))


def probe(tree, structs, macros):
    """What a compiled program says: sizes and alignments of structs, (offset, size) of fields,
    values of macros.
    """
    lines = [
        f'printf("%s %lld\\n", "{m["name"]}", '
        f'({"long long" if m["type"] == "int" else "unsigned long long"}){m["name"]});'
        for m in macros
    ]
    for s in structs:
        name = s["name"]
        lines.append(f'printf("{name} %zu %zu\\n", sizeof({name}), _Alignof({name}));')
        lines += [
            f'printf("{name}.{f["name"]} %zu %zu\\n", '
            f'offsetof({name}, {f["name"]}), sizeof((({name}*)0)->{f["name"]}));'
            for f in s["fields"]
        ]
    source = (
        "#include <pagedkv/pagedkv.h>\n#include <stdio.h>\nint main(void) {\n"
        + "\n".join(lines)
        + "\nreturn 0; }\n"
    )
    with tempfile.TemporaryDirectory() as directory:
        program = pathlib.Path(directory) / "probe"
        subprocess.run(
            [
                clang(),
                "-x",
                "c",
                "-std=c11",
                "-w",
                f"-I{tree / 'include'}",
                "-",
                "-o",
                str(program),
            ],
            input=source,
            text=True,
            check=True,
        )
        output = subprocess.run(
            [str(program)], check=True, stdout=subprocess.PIPE, text=True
        ).stdout
    return {
        name: [int(number) for number in numbers]
        for name, *numbers in map(str.split, output.splitlines())
    }


def describe(tree=TREE):
    found = declarations(json.loads(run_clang(tree, "-fsyntax-only", "-Xclang", "-ast-dump=json")))
    macros = constants(tree)
    known = probe(tree, found["structs"], macros)
    for macro in macros:
        value = known[macro["name"]][0]
        macro["value"] = (
            value if macro["type"] == "int" else value % 2 ** (32 if "32" in macro["type"] else 64)
        )
    for struct in found["structs"]:
        struct["size"], struct["alignment"] = known[struct["name"]]
        for field in struct["fields"]:
            field["offset"], field["size"] = known[f"{struct['name']}.{field['name']}"]
    version = ".".join(
        str(macro["value"]) for macro in macros if macro["name"].startswith("PKV_VERSION_")
    )
    return {
        "about": "The C interface, as bindings/api/describe.py reads it from include/pagedkv. "
        "Sizes and offsets are those of 64 bit.",
        "version": version,
        "constants": macros,
        **found,
    }


def undocumented(description):
    """The names in a description that no comment of the headers says anything of."""
    named = [
        (thing["name"], thing)
        for kind in ("enums", "handles", "aliases", "structs", "functions")
        for thing in description[kind]
    ]
    parts = [
        (f"{name}.{part['name']}", part)
        for name, thing in named
        for part in thing.get("constants", []) + thing.get("fields", [])
    ]
    return [name for name, thing in named + parts if not thing["doc"]]


# ---- The file


def pretty(value, indent=0):
    """JSON with whatever fits on one line on one line."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + indent <= WIDTH or not value or not isinstance(value, dict | list):
        return line
    inner = "\n" + " " * (indent + 1)
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {pretty(item, indent + 1)}" for key, item in value.items()]
        return "{" + inner + ("," + inner).join(parts) + "}"
    return "[" + inner + ("," + inner).join(pretty(item, indent + 1) for item in value) + "]"


def renew_or_check(path, text, check):
    """Writes the file, or says how it differs from what it has to be; True where there was nothing
    to say.
    """
    old = path.read_text() if path.exists() else ""
    if not check:
        if old != text:
            path.write_text(text)
            print(f"renewed {path.name}")
        return True
    name = path.name
    sys.stdout.writelines(
        difflib.unified_diff(
            old.splitlines(True),
            text.splitlines(True),
            f"{name} (committed)",
            f"{name} (renewed)",
            n=1,
        )
    )
    return old == text


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit("usage: describe.py [--check]")
    check = sys.argv[1:] == ["--check"]
    description = describe()
    ok = renew_or_check(HERE / "api.json", pretty(description) + "\n", check)
    if names := undocumented(description):
        sys.exit(f"no comment in include/pagedkv: {', '.join(names)}")
    for generator in sorted(HERE.parent.glob("*/generate_raw.py")):
        print(f"{generator.parent.name}:", end=" ", flush=True)
        result = subprocess.run([sys.executable, "-B", str(generator), *sys.argv[1:]])
        print("ok" if result.returncode == 0 else "FAILED", flush=True)
        ok = ok and result.returncode == 0
    if not ok:
        sys.exit(
            "not what the headers say: python3 bindings/api/describe.py renews it"
            if check
            else "a generator failed"
        )


if __name__ == "__main__":
    main()
