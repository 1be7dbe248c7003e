"""Runs describe.py on headers whose description is known, and on an outdated file. A C compiler
confirms the computed sizes, offsets and values.

usage: describe_test.py CC..."""

import pathlib
import subprocess
import sys
import tempfile

import describe

HEADER = """
#ifndef PAGEDKV_H
#define PAGEDKV_H
#include <stdint.h>
#include <stddef.h>
#define PKV_API
/** How many. */
#define PKV_ALL ((uint32_t)-1)
#define PKV_NONE (-2)
#define PKV_MOST UINT64_MAX
/** A thing. */
typedef struct pkv_thing_t* pkv_thing;
/** A mark. */
typedef uint64_t pkv_mark;
/** Kinds. */
typedef enum pkv_kind {
  PKV_A = 3, /**< First. */
  PKV_B
} pkv_kind;
/* Not a description. */
typedef struct pkv_box {
  uint32_t struct_size;
  int16_t sides[3]; /**< Three. */
  const float* const* rows;
  void (*call)(void* user, const char* text);
} pkv_box;
/**
 * Opens.
 *
 * @param     thing  The thing.
 * @param[in] box    Its box,
 *                   if any.
 *
 * Since 0.7.
 */
PKV_API pkv_kind pkv_open(pkv_thing thing, const pkv_box* box);
#endif
"""

EXPERIMENTAL = """
#include <pagedkv/pagedkv.h>
/** A crate. */
typedef struct pkv_crate {
  const struct pkv_box* box; /**< Inside. */
} pkv_crate;
"""

TYPES = {
    "uint32_t x": {"name": "uint32_t"},
    "const char* x": {"pointer": {"name": "char"}, "const": True},
    "struct pkv_box *x": {"pointer": {"name": "pkv_box"}, "const": False},
    "const float* const* x": {
        "pointer": {"pointer": {"name": "float"}, "const": True},
        "const": True,
    },
    "float* const* x": {"pointer": {"pointer": {"name": "float"}, "const": False}, "const": True},
    "int x[4]": {"array": {"name": "int"}, "length": 4},
    "void (*x)(void)": {"function": {"returns": {"name": "void"}, "parameters": []}},
    "void (*x)(void (*call)(int a, long b), int c)": {
        "function": {
            "returns": {"name": "void"},
            "parameters": [
                {
                    "function": {
                        "returns": {"name": "void"},
                        "parameters": [{"name": "int"}, {"name": "long"}],
                    }
                },
                {"name": "int"},
            ],
        }
    },
}


def same(what, got, expected):
    if got != expected:
        sys.exit(f"{what}: expected\n  {expected!r}, got\n  {got!r}")


def test_types():
    for text, expected in TYPES.items():
        same(text, describe.declared(text), ("x", expected))


def test_headers(tree):
    found = describe.describe(tree)
    same(
        "constants",
        [(c["name"], c["value"], c["doc"]) for c in found["constants"]],
        [("PKV_ALL", 2**32 - 1, "How many."), ("PKV_NONE", -2, ""), ("PKV_MOST", 2**64 - 1, "")],
    )
    same("handles", [(h["name"], h["doc"]) for h in found["handles"]], [("pkv_thing", "A thing.")])
    same(
        "undocumented",
        describe.undocumented(found),
        ["pkv_box", "pkv_kind.PKV_B", "pkv_box.struct_size", "pkv_box.rows", "pkv_box.call"],
    )
    same(
        "aliases",
        [(a["name"], a["c"], a["doc"]) for a in found["aliases"]],
        [("pkv_mark", "uint64_t", "A mark.")],
    )
    same(
        "enum",
        [(e["doc"], e["header"], e["constants"]) for e in found["enums"]],
        [
            (
                "Kinds.",
                "pagedkv.h",
                [
                    {"name": "PKV_A", "value": 3, "doc": "First."},
                    {"name": "PKV_B", "value": 4, "doc": ""},
                ],
            )
        ],
    )
    box, crate = found["structs"]
    same("the other header", (crate["name"], crate["header"]), ("pkv_crate", "experimental.h"))
    same("struct", (box["size"], box["alignment"]), (32, 8))
    same(
        "fields",
        [(f["name"], f["offset"], f["size"], f["c"]) for f in box["fields"]],
        [
            ("struct_size", 0, 4, "uint32_t"),
            ("sides", 4, 6, "int16_t[3]"),
            ("rows", 16, 8, "const float *const *"),
            ("call", 24, 8, "void (*)(void *, const char *)"),
        ],
    )
    (function,) = found["functions"]
    same(
        "function",
        (
            function["since"],
            function["doc"],
            function["c_returns"],
            [(p["name"], p["doc"]) for p in function["parameters"]],
        ),
        (
            "0.7",
            "Opens.\n\nSince 0.7.",
            "pkv_kind",
            [("thing", "The thing."), ("box", "Its box,\nif any.")],
        ),
    )


def test_leftovers(tree):
    header = tree / "include/pagedkv/pagedkv.h"
    header.write_text(HEADER.replace("#endif", "int pkv_odd(void);\n#endif"))
    try:
        describe.describe(tree)
    except SystemExit as error:
        same("an unknown line", "pkv_odd" in str(error), True)
    else:
        sys.exit("a declaration of another form was ignored")
    header.write_text(HEADER)


def numbers(description):
    """{an expression of C: its value}"""
    found = {macro["name"]: macro["value"] for macro in description["constants"]}
    for enum in description["enums"]:
        found |= {constant["name"]: constant["value"] for constant in enum["constants"]}
    for struct in description["structs"]:
        name = struct["name"]
        found |= {f"sizeof({name})": struct["size"], f"_Alignof({name})": struct["alignment"]}
        for field in struct["fields"]:
            found[f"offsetof({name}, {field['name']})"] = field["offset"]
            found[f"sizeof((({name}*)0)->{field['name']})"] = field["size"]
    return found


def test_numbers(tree, compiler, *names):
    """Compiles an assertion of each number."""
    assertions = [
        f'_Static_assert({expression} == {value}{"u" * (value > 2**63)}, "{expression}");'
        for expression, value in numbers(describe.describe(tree, names)).items()
    ]
    includes = [f"#include <pagedkv/{name}>" for name in names]
    source = "\n".join([*includes, "#include <stddef.h>", *assertions])
    command = [*compiler, "-std=c11", "-w", "-fsyntax-only", f"-I{tree}/include", "-xc", "-"]
    subprocess.run(command, input=source, text=True, check=True)
    wrong = subprocess.run(
        command, input=source.replace(" == ", " == 1 + ", 1), text=True, stderr=subprocess.DEVNULL
    )
    same("a wrong number is noticed", wrong.returncode != 0, True)
    return len(assertions)


def test_check(tree):
    path = tree / "file"
    path.write_text("{}\n")
    same("a stale file", describe.renew_or_check(path, "{1}\n", check=True), False)
    same("nothing written", path.read_text(), "{}\n")
    same("a current file", describe.renew_or_check(path, "{}\n", check=True), True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        sample = pathlib.Path(directory)
        (sample / "include/pagedkv").mkdir(parents=True)
        (sample / "include/pagedkv/pagedkv.h").write_text(HEADER)
        (sample / "include/pagedkv/experimental.h").write_text(EXPERIMENTAL)
        test_types()
        test_headers(sample)
        test_leftovers(sample)
        test_check(sample)
        test_numbers(sample, sys.argv[1:], *describe.HEADERS)
    count = test_numbers(describe.TREE, sys.argv[1:], *describe.HEADERS)
    count += test_numbers(describe.TREE, sys.argv[1:], "redis.h")
    print(f"describe.py describes the sample correctly, and {count} numbers are those of C")
