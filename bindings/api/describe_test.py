"""describe.py on headers whose description is known, and on a file that is not what they say."""

import pathlib
import sys
import tempfile

import describe

HEADER = """
#include <stdint.h>
#include <stddef.h>
/** How many. */
#define PKV_ALL ((uint32_t)-1)
#define PKV_NONE (-2)
#define PKV_MOST UINT64_MAX
/** A thing. */
typedef struct pkv_thing_t* pkv_thing;
/** A mark. */
typedef uint64_t pkv_mark;
/** Kinds. */
typedef enum pkv_kind { PKV_A = 3, /**< First. */ PKV_B } pkv_kind;
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
pkv_kind pkv_open(pkv_thing thing, const pkv_box* box);
"""

TYPES = {
    "uint32_t": {"name": "uint32_t"},
    "const char *": {"pointer": {"name": "char"}, "const": True},
    "struct pkv_box *": {"pointer": {"name": "pkv_box"}, "const": False},
    "const float *const *": {
        "pointer": {"pointer": {"name": "float"}, "const": True},
        "const": True,
    },
    "float *const *": {"pointer": {"pointer": {"name": "float"}, "const": False}, "const": True},
    "int [4]": {"array": {"name": "int"}, "length": 4},
    "void (*)(void)": {"function": {"returns": {"name": "void"}, "parameters": []}},
    "void (*)(void (*)(int, long), int)": {
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
        same(text, describe.parse_type(text), expected)


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
    (box,) = found["structs"]
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


def test_check(tree):
    path = tree / "api.json"
    path.write_text("{}\n")
    same("a stale file", describe.renew_or_check(path, "{1}\n", check=True), False)
    same("nothing written", path.read_text(), "{}\n")
    same("a file that is right", describe.renew_or_check(path, "{}\n", check=True), True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        sample = pathlib.Path(directory)
        (sample / "include/pagedkv").mkdir(parents=True)
        (sample / "include/pagedkv/pagedkv.h").write_text(HEADER)
        test_types()
        test_headers(sample)
        test_check(sample)
    print("describe.py describes the sample as it is")
