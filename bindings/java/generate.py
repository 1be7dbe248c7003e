"""Prints Pkv.java: the C interface for JNA, made from api.json. Structs are classes, lists are
arrays of Java, handles and other addresses are Pointers.

usage: generate.py API_JSON > Pkv.java"""

import json
import pathlib
import sys

BITS = {
    "int": "int",
    "int32_t": "int",
    "uint32_t": "int",
    "int64_t": "long",
    "uint64_t": "long",
    "size_t": "long",
    "uint8_t": "byte",
    "char": "byte",
    "unsigned char": "byte",
    "float": "float",
    "void": "void",
}
WIDTHS = {"int": 1 << 32, "long": 1 << 64}


class Types:
    def __init__(self, api):
        self.names = dict(BITS)
        self.names |= {enum["name"]: "int" for enum in api["enums"]}
        self.names |= {handle["name"]: "Pointer" for handle in api["handles"]}
        self.structs = {struct["name"] for struct in api["structs"]}
        for alias in api["aliases"]:
            self.names[alias["name"]] = self.field(alias["type"])

    def field(self, kind):
        """The type of a field or a result. All pointers are addresses."""
        if "name" in kind:
            return self.names.get(kind["name"], kind["name"])
        if "array" in kind:
            return self.field(kind["array"]) + "[]"
        text = kind.get("pointer") == {"name": "char"} and kind["const"]
        return "String" if text else "Pointer"

    def parameter(self, kind):
        """The type of a parameter. JNA copies arrays into the call and back."""
        target = kind.get("pointer", {})
        if target.get("name") in self.structs:
            return target["name"]
        if self.field(kind) == "String" or not target or target == {"name": "void"}:
            return self.field(kind)
        return self.field(target) + "[]"


def constants(api, types):
    for each in [*api["constants"], *(c for enum in api["enums"] for c in enum["constants"])]:
        kind, value = types.names[each.get("type", "int")], each["value"]
        if value >= WIDTHS[kind] // 2:
            value -= WIDTHS[kind]
        yield f"  {kind} {each['name']} = {value}{'L' if kind == 'long' else ''};"


def struct(each, types):
    names = ", ".join(f'"{field["name"]}"' for field in each["fields"])
    yield f"  @Structure.FieldOrder({{{names}}})"
    yield f"  class {each['name']} extends Structure {{"
    for field in each["fields"]:
        kind, value = types.field(field["type"]), ""
        if kind.endswith("[]"):
            value = f" = new {kind[:-2]}[{field['type']['length']}]"
        yield f"    public {kind} {field['name']}{value};"
    if each["fields"][0]["name"] == "struct_size":
        yield f"    public {each['name']}() {{ struct_size = size(); }}"
    yield "  }"


def function(each, types):
    parameters = ", ".join(f"{types.parameter(p['type'])} {p['name']}" for p in each["parameters"])
    return f"  {types.field(each['returns'])} {each['name']}({parameters});"


def main():
    api = json.loads(pathlib.Path(sys.argv[1]).read_text())
    types = Types(api)
    print(
        "// Made by generate.py.",
        *(f"import com.sun.jna.{name};" for name in ("Library", "Pointer", "Structure")),
        "",
        "public interface Pkv extends Library {",
        *constants(api, types),
        *(line for each in api["structs"] for line in struct(each, types)),
        *(function(each, types) for each in api["functions"]),
        "}",
        sep="\n",
    )


main()
