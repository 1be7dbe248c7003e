"""Makes from the C headers what pagedkv-sys includes: raw.rs, the C interface for Rust, and
layout.rs, a test of sizes and offsets.

usage: generate_raw.py [--check | FOLDER]

The files are not kept in the repository: pagedkv-sys/build.rs makes them in a clone, and `package`
puts them into the published package.
"""

import pathlib
import re
import sys
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "api"))
import generator  # noqa: E402  (found through the line above)

WIDTH = 100

TYPES = {
    "void": "c_void",
    "char": "c_char",
    "float": "f32",
    "int": "c_int",
    "size_t": "usize",
    "int32_t": "i32",
    "uint32_t": "u32",
    "int64_t": "i64",
    "uint64_t": "u64",
    "unsigned int": "u32",
    "unsigned char": "u8",
    "uint8_t": "u8",
    "uint16_t": "u16",
}
KEYWORDS = {"in", "type", "ref", "match", "move", "use", "loop", "where", "final", "self"}

CONFIGS = {"pkv_attention_params", "pkv_cache_config", "pkv_chosen_blocks", "pkv_file_config"}
CONFIGS |= {"pkv_layer_group", "pkv_prefix_config", "pkv_session_config"}
# Fields that the crate sets in a way of its own.
OF_CONSTRUCTORS = {"durability", "group_count", "key_dim", "kind", "kv_heads", "layer_bytes"}
OF_CONSTRUCTORS |= {"layers", "list_blocks", "query_heads", "top_blocks"}

HEAD = """// The C interface of libpagedkv. Made by generate_raw.py: do not edit.

use std::os::raw::{c_char, c_int, c_void};
"""


def safe(name):
    return f"r#{name}" if name in KEYWORDS else name


def documentation(text, indent=0):
    """The C comment as lines of a Rust comment, with Markdown's special characters escaped."""
    text = re.sub(r"([\[\]<>*\\])", r"\\\1", generator.one_line(text))
    return wrapped(text, " " * indent + "/// ")


def wrapped(text, first, others=None):
    """The text in lines that begin with these margins."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=first if others is None else others,
        break_long_words=False,
        break_on_hyphens=False,
    )


def rust_type(kind, api):
    if "pointer" in kind:
        return f"*{'const' if kind['const'] else 'mut'} {rust_type(kind['pointer'], api)}"
    if "array" in kind:
        return f"[{rust_type(kind['array'], api)}; {kind['length']}]"
    if "function" in kind:
        parameters = ", ".join(
            rust_type(parameter, api) for parameter in kind["function"]["parameters"]
        )
        result = returns(kind["function"]["returns"], api)
        return f'Option<unsafe extern "C" fn({parameters}){result}>'
    return TYPES.get(kind["name"], kind["name"])


def returns(kind, api):
    return "" if kind == {"name": "void"} else f" -> {rust_type(kind, api)}"


def constant_lines(constant):
    kind, value = TYPES[constant["type"]], constant["value"]
    if kind == "c_int" and constant["name"] == "PKV_UNKNOWN_TOKEN":
        kind = "i32"
    text = (
        f"{kind}::MAX" if kind.startswith("u") and value in (2**32 - 1, 2**64 - 1) else str(value)
    )
    return [*documentation(constant["doc"]), f"pub const {constant['name']}: {kind} = {text};"]


def enum_lines(enum):
    prefix = generator.enum_prefix(enum)
    lines = ["", "c_enum! {", *documentation(enum["doc"], 4), f"    {enum['name']} {{"]
    for constant in enum["constants"]:
        lines += [
            *documentation(constant["doc"], 8),
            f"        {constant['name'][len(prefix):]} = {constant['value']},",
        ]
    return [*lines, "    }", "}"]


def feature(struct):
    """The attribute of a struct that is there only with a feature."""
    return ['#[cfg(feature = "redis")]'] if struct["name"] == generator.REDIS else []


def struct_lines(struct, api):
    documented = documentation if generator.reported(struct, api) else lambda *text: []
    lines = [
        "",
        *feature(struct),
        "c_struct! {",
        *documented(struct["doc"], 4),
        f"    {struct['name']} {{",
    ]
    for field in struct["fields"]:
        lines += documented(field["doc"], 8)
        declared = f"{safe(field['name'])}: {rust_type(field['type'], api)},"
        if documented is documentation or len(lines[-1]) + len(declared) >= WIDTH:
            lines += wrapped(declared, " " * 8, " " * 12)
        elif lines[-1].endswith("{"):
            lines.append(" " * 8 + declared)
        else:
            lines[-1] += " " + declared
    return [*lines, "    }", "}"]


def setter_lines(api, struct):
    """A macro with the methods that set the numbers of a struct, for the crate pagedkv."""
    lines = [
        "",
        "#[doc(hidden)]",
        "#[macro_export]",
        f"macro_rules! {struct['name']}_setters {{",
        "    () => {",
    ]
    enums = {enum["name"] for enum in api["enums"]}
    for field in generator.given(struct):
        name, kind = field["name"], field["type"].get("name")
        if kind is None or name in OF_CONSTRUCTORS:
            continue
        doc, argument, value = field["doc"].replace("PKV_", ""), "", "1"
        if name in generator.FLAGS | {"bidirectional"}:
            doc = generator.with_flags(doc.replace(" Default 0.", ""), "Without it", "With it")
        else:
            of_enum = "".join(part.capitalize() for part in kind.split("_")[1:])
            argument = f", {name}: {of_enum if kind in enums else TYPES[kind]}"
            value = name
        lines += [
            *documentation(doc, 8),
            f"        pub fn {name}(mut self{argument}) -> Self {{",
            f"            self.c.0.{name} = {value};",
            "            self",
            "        }",
        ]
    return [*lines, "    };", "}"]


def function_lines(api):
    lines = [
        "",
        "/// Hands the list of all functions to a macro: linked and opened at run time they are",
        "/// the same ones.",
        "macro_rules! for_each_function {",
        "    ($use:ident) => {",
        "        $use! {",
    ]
    for function in api["functions"]:
        parameters = ", ".join(
            f"{safe(parameter['name'])}: {rust_type(parameter['type'], api)}"
            for parameter in function["parameters"]
        )
        result = returns(function["returns"], api) or " -> ()"
        declared = f"fn {function['name']}({parameters}){result};"
        lines += wrapped(declared, " " * 12, " " * 16)
    return [*lines, "        }", "    };", "}", "pub(crate) use for_each_function;"]


def raw(api):
    lines = [
        HEAD.rstrip("\n"),
        "",
        "/// The version of the headers that this was made from.",
        f"pub const VERSION: &str = \"{api['version']}\";",
    ]
    for constant in api["constants"]:
        lines += constant_lines(constant)
    lines.append("")
    lines += [f"handle!({handle['name']}_t, {handle['name']});" for handle in api["handles"]]
    for alias in api["aliases"]:
        lines += [
            "",
            *documentation(alias["doc"]),
            f"pub type {alias['name']} = {rust_type(alias['type'], api)};",
        ]
    for enum in api["enums"]:
        lines += enum_lines(enum)
    for struct in api["structs"]:
        lines += struct_lines(struct, api)
        if struct["name"] in CONFIGS:
            lines += setter_lines(api, struct)
    return lines + function_lines(api)


LAYOUT = """// Sizes and offsets, those of a C compiler. Made by generate_raw.py: do not edit.
use super::raw::*;

layout! {"""


def layout(api):
    lines = [LAYOUT]
    for struct in api["structs"]:
        lines += ["}", *feature(struct), "layout! {"] if feature(struct) else []
        fields = [f"{safe(field['name'])}\0{field['offset']}" for field in struct["fields"]]
        head = f"{struct['name']} {struct['size']} {struct['alignment']}: "
        rows = wrapped(head + ", ".join(fields) + ";", " " * 4, " " * 8)
        lines += [row.replace("\0", " ") for row in rows]
    return [*lines, "}"]


def generate(api):
    return {name: generator.whole(make(api)) for name, make in MADE.items()}


MADE = {"raw.rs": raw, "layout.rs": layout}

if __name__ == "__main__":
    generator.main(None, generate, kept=False)
