"""Makes the C interface for Go from the headers: in the package internal/generated what its other
files need (structs, functions, sizes to test), and generated.go of the module's own package (enums,
errors, figures, configs), because its public types must be declared there.

usage: generate_raw.py [--check]
"""

import itertools
import pathlib
import re
import sys
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "api"))
import generator  # noqa: E402  (found through the line above)

WIDTH = 100
TAB = 4  # columns
# C type: Go type. For 64-bit machines.
SCALARS = {
    "float": "float32",
    "int": "int32",
    "size_t": "uint64",
    "int32_t": "int32",
    "uint32_t": "uint32",
    "int64_t": "int64",
    "uint64_t": "uint64",
    "char": "byte",
    "uint8_t": "byte",
    "unsigned char": "byte",
}
CAPITALS = "AVX AVX2 AVX512 BF16 CA E4M3 E5M2 F16 F32 FP8 ID IO ISA KV LRU LSE NEON NONE OK SSE2 "
CAPITALS += "TLS TTL VNNI"
WORDS = {word.lower(): word for word in CAPITALS.split()}
WORDS |= {"dtype": "DType", "ids": "IDs", "none": "None", "alibi": "ALiBi"}
WORDS |= {"q8": "Q8_", "q4": "Q4_"}  # of Q8_0 and Q4_0, which have no other names anywhere
# The statuses that the binding itself compares.
STATUSES = {"PKV_OK", "PKV_BUFFER_TOO_SMALL", "PKV_OUT_OF_BLOCKS"}
FLAGS = generator.FLAGS | {"bidirectional"}
# Structs that a caller fills in: what is said of them, and fields whose types are not numbers, or
# which the binding has in another form; None: only C has the field.
CONFIGS = {
    "pkv_layer_group": (
        "LayerGroup describes layers with the same shape. A plain model is one group; hybrid "
        "models have one for each shape or window. Fields that its Kind does not use stay 0.",
        {
            "layer_indices": "LayerIndices []uint32",
            "rotation_matrices": (
                "KeyRotation, ValueRotation []float32",
                "Experimental: orthogonal matrices that rotate rows instead of Rotation, "
                "[KeyDim][KeyDim] and [ValueDim][ValueDim]; nil: K, or V, is not rotated.",
            ),
        },
    ),
    "pkv_prefix_config": (
        "PrefixConfig makes a cache keep the blocks of ended sessions, for new ones that begin "
        "with the same tokens: see Prefix.",
        {},
    ),
    "pkv_cache_config": (
        "CacheConfig describes a cache. A field that is 0 has its default.",
        {
            "groups": ("Groups []LayerGroup", "The layers. A plain model has one group."),
            "memory_directory": "MemoryDirectory string",
            "prefix": "Prefix *PrefixConfig",
            "store": "Store *StoreConfig",
            "allocator": None,
            "runner": (
                "Runner Runner",
                "Computes attention instead of the library's threads; Threads then says how many "
                "workers it has.",
            ),
            "logger": "Logger Logger",
            "block_io": "BlockIO BlockIO",
            "clock": "Clock Clock",
        },
    ),
    "pkv_session_config": (
        "SessionConfig describes a session. The zero value has the defaults.",
        {
            "salt": (
                "Salt string",
                "Sessions share prefixes only with those of the same salt, any "
                "bytes, up to 256.",
            )
        },
    ),
    "pkv_compute_config": (
        "ComputeConfig describes a Compute.",
        {"allocator": None, "runner": None},
    ),
    "pkv_chosen_blocks": (
        "ChosenBlocks says which blocks rows read for each KV head, instead of all of them. "
        "Experimental: it may change in any minor version.",
        {
            "first_blocks": (
                "FirstBlocks int",
                "How many first blocks are read as well; 0: one; NoFirstBlocks: none.",
            ),
            "last_blocks": (
                "LastBlocks int",
                "How many blocks before their own, as well; 0: one; NoLastBlocks: none.",
            ),
            "list_blocks": "ListBlocks int",
            "lists": "Lists []uint32",
        },
    ),
    "pkv_attention_params": (
        "AttentionParams vary attention. The zero value, and nil, have the defaults.",
        {
            "kv_head_windows": "KVHeadWindows []uint32",
            "kv_head_sink_tokens": (
                "KVHeadSinkTokens []uint32",
                "The sink tokens of each KV head, instead of SinkTokens. 0: the layer's; "
                "NoHeadSinkTokens: none.",
            ),
            "alibi_slopes": "ALiBiSlopes []float32",
            "sink_logits": "SinkLogits []float32",
            "mask": "Mask *Mask",
            "chosen_blocks": "ChosenBlocks *ChosenBlocks",
        },
    ),
    "pkv_file_config": (
        "FileConfig has the options of saving and loading. The zero value, and nil, have the "
        "defaults.",
        {"fingerprint": "Fingerprint []byte", "secret_key": "SecretKey Secret"},
    ),
}
NOTE = "// Code generated by generate_raw.py from the headers of C. DO NOT EDIT.\n"


def camel(name):
    return "".join(
        WORDS.get(part, part.capitalize()) for part in name.lower().removeprefix("pkv_").split("_")
    )


def argument(name):
    word = camel(name)
    lowered = word[:1].lower() + word[1:] if word.upper() != word else word.lower()
    return {
        "kVHeads": "kvHeads",
        "iSA": "isa",
        "iDs": "ids",
        "type": "kind",
        "range": "length",
    }.get(lowered, lowered)


def names_in_go(api):
    """{a name in C: what it is in Go} of fields, constants and errors that texts may mention."""
    found = {}
    for struct in api["structs"]:
        found |= {f["name"]: camel(f["name"]) for f in struct["fields"] if "_" in f["name"]}
    found |= {constant["name"]: camel(constant["name"]) for constant in api["constants"]}
    for enum in api["enums"]:
        for constant in enum["constants"]:
            found[constant["name"]] = constant_name(enum, constant["name"])
            if enum["name"] == "pkv_status":
                found[constant["name"].removeprefix("PKV_")] = found[constant["name"]]
    found |= {struct["name"]: camel(struct["name"]) for struct in api["structs"]}
    return found | {"NULL": "nil", "PKV_OK": "PKV_OK", "OK": "OK", "struct_size": "struct_size"}


def told(text):
    """A comment of C with the names of Go."""
    # INTERNAL alone is a status.
    text = re.sub(r"\bstorage ([A-Z]+)\b", r"PKV_STORAGE_\1", text)
    text = re.sub(r"\w+", lambda word: TOLD.get(word[0], word[0]), text)
    return re.sub(r"`(\w+)`", lambda word: camel(word[1]), text)


TOLD = {}


def comment(text, indent=""):
    text = told(text)
    width = WIDTH - TAB * len(indent) - 3
    lines = textwrap.wrap(generator.one_line(text), width, break_on_hyphens=False)
    return [f"{indent}// {line}" for line in lines]


def documented(line, doc):
    """A field or a constant with its comment: behind it if both are short, else above it."""
    text = generator.one_line(told(doc))
    if text and len(line) + len(text) <= 72:
        return [f"\t{line} // {text}"]
    return [*comment(doc, "\t"), f"\t{line}"]


def wrapped(text, first, others):
    """The text wrapped to lines that begin with this margin of tabs."""
    lines = textwrap.wrap(text, WIDTH - TAB * len(others), break_long_words=False)
    return [first + lines[0], *(others + line for line in lines[1:])]


def bracketed(head, items, tail, indent=""):
    """head, items between brackets, tail; the items are on lines of their own if they do not
    fit."""
    line = f"{indent}{head}({', '.join(items)}){tail}"
    if len(line.expandtabs(TAB)) <= WIDTH:
        return [line]
    inner, lines = indent + "\t", []
    for item in items:
        if lines and len(f"{lines[-1]} {item},".expandtabs(TAB)) <= WIDTH:
            lines[-1] += f" {item},"
        else:
            lines.append(f"{inner}{item},")
    return [f"{indent}{head}(", *lines, f"{indent}){tail}"]


def item(text):
    """An item of a list, as gofmt formats it."""
    text = re.sub(r"\s*\n\s*", " ", text)
    return textwrap.wrap(text, 96, initial_indent="//   - ", subsequent_indent="//     ")


class Api:
    def __init__(self, api):
        self.data = api
        self.enums = {enum["name"] for enum in api["enums"]}
        self.handles = {handle["name"] for handle in api["handles"]}
        self.aliases = {alias["name"]: alias["type"] for alias in api["aliases"]}
        self.structs = {struct["name"]: struct for struct in api["structs"]}

    def resolve(self, kind):
        return self.aliases.get(kind.get("name"), kind)

    def go(self, kind):
        """The Go type of a field, a parameter or a result."""
        kind = self.resolve(kind)
        if "function" in kind:
            return "uintptr"
        if "array" in kind:
            return f"[{kind['length']}]{self.go(kind['array'])}"
        if "pointer" in kind:
            to = self.resolve(kind["pointer"])
            return (
                "unsafe.Pointer" if "pointer" in to or to["name"] == "void" else "*" + self.go(to)
            )
        name = kind["name"]
        if name in SCALARS:
            return SCALARS[name]
        return "int32" if name in self.enums else camel(name)


# ---- Structs


def go_field(api, field):
    """A hook's `user` is a number here, because C may not keep pointers into Go's memory."""
    kind = api.go(field["type"])
    return "uintptr" if (field["name"], kind) == ("user", "unsafe.Pointer") else kind


def joined(fields):
    """Fields of one type that follow each other, together."""
    rows = []
    for name, kind in fields:
        if rows and rows[-1][1] == kind and len(f"{rows[-1][0]}, {name}") <= 80:
            rows[-1][0] += f", {name}"
        else:
            rows.append([name, kind])
    return rows


def types_file(api):
    lines = [
        NOTE,
        "// Package generated is the C interface of libpagedkv as it is: its structs, handles and",
        "// functions. The headers of C document them, and the package internal/library opens the",
        "// library.",
        "package generated",
        "",
        'import "unsafe"',
        "",
        "// HeaderVersion is the version of the headers this was made of.",
        f'const HeaderVersion = "{api.data["version"]}"',
    ]
    for constant in generator.constants(api.data):
        value = generator.numeral(constant["value"])
        lines += ["", *comment(constant["doc"]), f"const {camel(constant['name'])} = {value}"]
    lines += status_lines(api)
    lines += ["", "// Handles: an index and a generation, never an address.", "type ("]
    lines += [f"\t{camel(name['name'])} uintptr" for name in api.data["handles"]] + [")"]
    for struct in api.data["structs"]:
        lines += ["", f"type {camel(struct['name'])} struct {{"]
        fields = [[camel(f["name"]), go_field(api, f)] for f in struct["fields"]]
        lines += [f"\t{names} {kind}" for names, kind in joined(fields)] + ["}"]
    return lines


def status_lines(api):
    """The type of all statuses, and the statuses that the binding itself compares."""
    status = next(enum for enum in api.data["enums"] if enum["name"] == "pkv_status")
    lines = [
        "",
        "// Status is pkv_status.",
        "type Status int32",
        "",
        "// Statuses by name.",
        "const (",
    ]
    for constant in status["constants"]:
        if constant["name"] in STATUSES:
            lines.append(f"\t{camel(constant['name'])} Status = {constant['value']}")
    return [*lines, ")"]


def layout_file(api):
    lines = [
        NOTE,
        "package generated",
        "",
        'import "reflect"',
        "",
        "// The size, then the offset of every field.",
        "var layouts = []struct {",
        "\there reflect.Type",
        "\tc    []uintptr",
        "}{",
    ]
    for struct in api.data["structs"]:
        sizes = [str(struct["size"]), *(str(field["offset"]) for field in struct["fields"])]
        row = f"{{reflect.TypeOf({camel(struct['name'])}{{}}), []uintptr{{{', '.join(sizes)}}}}},"
        lines += wrapped(row, "\t", "\t\t")
    return [*lines, "}"]


# ---- Functions


def result_of(api, function):
    if generator.is_text(function):
        return "string"
    return (
        "Status" if function["returns"] == {"name": "pkv_status"} else api.go(function["returns"])
    )


def argument_of(api, parameter):
    """A parameter as the number that a call passes."""
    name, kind = argument(parameter["name"]), api.go(parameter["type"])
    if kind == "uintptr":
        return name
    return f"u(p({name}))" if kind.startswith("*") else f"u({name})"


def function_lines(api):
    """The functions, short ones on one line each, whose bodies gofmt aligns."""
    lines, short = [], []

    def width(row):
        return max(len(head) for head, _ in [*short, row]) + max(len(b) for _, b in [*short, row])

    def flush():
        column = max((len(head) for head, _ in short), default=0)
        lines.extend(f"{head.ljust(column)} {{ {body} }}" for head, body in short)
        short.clear()

    for number, function in enumerate(api.data["functions"]):
        parameters = [f"{argument(p['name'])} {api.go(p['type'])}" for p in function["parameters"]]
        arguments = [str(number), *(argument_of(api, p) for p in function["parameters"])]
        result = result_of(api, function)
        convert = {"string": "text"}.get(result, result)
        name = f"func {camel(function['name'])}"
        head = f"{name}({', '.join(parameters)}) {result}"
        called = f"call({', '.join(arguments)})"
        if result.startswith("*"):
            convert, called = f"({result})", f"pointer({called})"
        body = f"return {convert}({called})"
        if width((head, body)) + 5 <= WIDTH:
            short.append((head, body))
            continue
        flush()
        lines += [*bracketed(name, parameters, f" {result} {{"), *wrapped(body, "\t", "\t\t"), "}"]
    flush()
    return lines


def functions_file(api):
    functions = api.data["functions"]
    lines = [
        NOTE,
        "package generated",
        "",
        'import "unsafe"',
        "",
        "// Short, so that more functions fit on a line.",
        "type (",
        "\tu = uintptr",
        "\tp = unsafe.Pointer",
        ")",
        "",
        "// Names of the functions, whose numbers are those of call.",
        "var Names = [...]string{",
        *wrapped(", ".join(f'"{function["name"]}"' for function in functions) + ",", "\t", "\t"),
        "}",
    ]
    return [*lines, "", *function_lines(api)]


def table_file(api):
    """The functions for cgo, by a macro that is handed each name."""
    names = ", ".join(f"F({function['name'][4:]})" for function in api.data["functions"])
    rows = textwrap.wrap(names.replace(",", ""), WIDTH - 4)
    lines = [NOTE + "// clang-format off", "#define FUNCTIONS(F) \\"]
    return lines + [f"  {row} \\" for row in rows[:-1]] + [f"  {rows[-1]}"]


# ---- The package itself


def constant_name(enum, name):
    if enum["name"] == "pkv_status":
        return "Err" + camel(name)
    short = camel(name)
    return short.replace("ISA_", "ISA")


def enum_lines(enum):
    kind = camel(enum["name"])
    lines = [
        "",
        *comment(f"{kind}: {enum['doc']}" if enum["doc"] else f"{kind} is an enum of the library."),
        f"type {kind} int32",
        "",
        f"// Values of {kind}.",
        "const (",
    ]
    for constant in enum["constants"]:
        if constant["name"] != "PKV_OK":
            name = constant_name(enum, constant["name"])
            lines += documented(f"{name} {kind} = {constant['value']}", constant["doc"])
    return [*lines, ")"]


def status_names(enum):
    names = [f'{constant["value"]}:\0"{constant["name"]}",' for constant in enum["constants"]]
    rows = [row.replace("\0", " ") for row in wrapped(" ".join(names), "\t", "\t")]
    return ["", "var statusNames = map[Status]string{", *rows, "}"]


def figure_lines(api, struct):
    kind = camel(struct["name"])
    about = f"{kind}: {struct['doc']}" if struct["doc"] else f"{kind} is a struct of the library."
    lines = ["", *comment(about), f"type {kind} struct {{"]
    for field in struct["fields"]:
        enum = field["type"].get("name")
        go = camel(enum) if enum in api.enums else api.go(field["type"])
        if field["name"] not in ("struct_size", "reserved"):
            kind_of_field = "bool" if field["name"] in FLAGS else go
            lines += documented(f"{camel(field['name'])} {kind_of_field}", field["doc"])
    return [*lines, "}"]


def enum_told(api, kind, doc):
    """What is said of a field that is an enum, with the enum's names in Go."""
    enum = next(enum for enum in api.data["enums"] if enum["name"] == kind)
    prefix = generator.enum_prefix(enum)
    names = {c["name"].removeprefix(prefix): c["name"] for c in enum["constants"]}
    return re.sub(r"\w+", lambda word: names.get(word[0], word[0]), doc)


def config_lines(api, name):
    about, by_hand = CONFIGS[name]
    lines = ["", *comment(about), f"type {camel(name)} struct {{"]
    for field in generator.given(api.structs[name]):
        declared, doc = by_hand.get(field["name"], ""), field["doc"]
        if isinstance(declared, tuple):
            declared, doc = declared
        if declared == "":
            kind, go = field["type"]["name"], api.go(field["type"])
            if field["name"] in FLAGS:
                go, doc = "bool", generator.with_flags(doc, "false", "true")
            elif kind in api.enums:
                go, doc = camel(kind), enum_told(api, kind, doc)
            declared = f"{camel(field['name'])} {'int' if go == 'uint32' else go}"
        if declared:
            lines += documented(declared, doc)
    return [*lines, "}"]


def package_file(api):
    lines = [NOTE, "package pagedkv"]
    for enum in api.data["enums"]:
        lines += enum_lines(enum)
        if enum["name"] == "pkv_status":
            lines += status_names(enum)
    for struct in api.data["structs"]:
        if generator.reported(struct, api.data):
            lines += figure_lines(api, struct)
    for name in CONFIGS:
        lines += config_lines(api, name)
    return lines


# ---- The parts of gofmt's layout that are needed here


def columns(rows):
    """Aligns cells with those of the rows above and below that also have a next cell."""
    for column in range(3):
        for following, run in itertools.groupby(rows, lambda row: len(row) > column + 1):
            run = list(run)
            width = max((len(row[column]) for row in run if following), default=0)
            for row in run if following else []:
                row[column] = row[column].ljust(width)
    return ["\t" + " ".join(row) for row in rows]


def gofmt(lines):
    """Aligns neighbouring fields, constants and table rows as gofmt does."""
    aligned, block = [], []
    for line in [*"\n".join(lines).split("\n"), None]:
        row = line and (
            re.fullmatch(r"\t(\w+) (\w+) (= -?\d+)(?: (//.*))?", line)
            or re.fullmatch(r"\t(\d+:) (\S+)", line)
            or re.fullmatch(r"\t([\w, ]+) ([\w.*\[\]]+)(?: (//.*))?", line)
        )
        if row and row[1] not in ("return", "package"):
            block.append([cell for cell in row.groups() if cell])
            continue
        aligned += columns(block)
        block.clear()
        aligned += [] if line is None else [line]
    return aligned


def whole(lines):
    text = generator.whole(gofmt(lines))
    reason = "// Over 800 lines: generated.\n" if text.count("\n") >= 800 else ""
    return text.replace(NOTE, NOTE + reason, 1)


def files(data):
    api = Api(data)
    TOLD.update(names_in_go(data))
    made = {
        "internal/generated/types.go": types_file(api),
        "internal/generated/layouts_test.go": layout_file(api),
        "internal/generated/functions.go": functions_file(api),
        "internal/generated/functions.h": table_file(api),
        "generated.go": package_file(api),
    }
    return {name: whole(lines) for name, lines in made.items()}


if __name__ == "__main__":
    generator.main(HERE, files)
