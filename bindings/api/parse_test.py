"""The headers are plain C: pycparser, which reads no compiler extensions, parses them after the C
preprocessor and finds the same functions and parameter counts as describe.py.

usage: parse_test.py CC..."""

import pathlib
import subprocess
import sys

import describe

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(
    "/usr/lib/python3/dist-packages"
)  # the place of Debian's python3-pycparser, for another Python
try:
    from pycparser import c_ast, c_parser
except ImportError:
    print("SKIPPED: pycparser is missing: bash tests/install-deps test")
    sys.exit(77)


def functions(source, compiler):
    """The number of parameters of every function that C source declares. Attributes are removed
    first, ours and those of the system's headers.
    """
    text = subprocess.run(
        [
            *compiler,
            "-E",
            "-P",
            "-std=c99",
            "-D__attribute__(x)=",
            "-I",
            HERE.parent.parent / "include",
            "-x",
            "c",
            "-",
        ],
        input=source,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    declarations = [
        node
        for node in c_parser.CParser().parse(text).ext
        if isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.FuncDecl)
    ]
    return {node.name: len([p for p in node.type.args.params if p.name]) for node in declarations}


def main():
    described = {f["name"]: len(f["parameters"]) for f in describe.describe()["functions"]}
    found = functions(
        "#include <pagedkv/experimental.h>\n#include <pagedkv/pagedkv.h>\n", sys.argv[1:]
    )
    assert found == described, f"differ: {sorted(found.items() ^ described.items())}"
    redis = functions("#include <pagedkv/redis.h>\n", sys.argv[1:])
    assert {"pkv_redis_open", "pkv_redis_last_error"} <= redis.keys(), redis
    try:
        functions("typeof(int) x;\n", sys.argv[1:])
    except c_parser.ParseError:
        print(f"{len(found)} functions; an extension is refused")
    else:
        sys.exit("an extension of GNU C was read: this shows nothing")


main()
