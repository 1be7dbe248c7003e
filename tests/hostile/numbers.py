"""Lists every number that the C interface takes, from its description, for numbers_test.cpp.

usage: numbers.py API_JSON OUTPUT

A number is an integer or enum: a parameter, what a parameter points to, or a field of a struct that
a parameter, or a field of such a struct, points to. So a new function, parameter or field is tested
from the day it is described.
"""

import json
import pathlib
import re
import sys

INTEGERS = {  # bytes, and whether it is signed
    "int": (4, True),
    "int32_t": (4, True),
    "int64_t": (8, True),
    "uint32_t": (4, False),
    "uint64_t": (8, False),
    "size_t": (8, False),
}


def unknown_values(enum):
    values = [constant["value"] for constant in enum["constants"]]
    return [min(-1, min(values) - 1), max(values) + 1, 2**31 - 1]


class Interface:
    def __init__(self, api):
        self.functions = api["functions"]
        self.structs = {struct["name"]: struct for struct in api["structs"]}
        self.integers = dict(INTEGERS)
        self.integers |= {enum["name"]: (4, True) for enum in api["enums"]}
        self.unknown = {enum["name"]: unknown_values(enum) for enum in api["enums"]}
        self.integers |= {
            alias["name"]: self.integers[alias["type"]["name"]]
            for alias in api["aliases"]
            if alias["type"].get("name") in self.integers
        }

    def number(self, type_, path):
        """(size, signed, values that must be refused): those that an enum does not have, and what
        a reserved field must not be."""
        return *self.integers[type_], self.unknown.get(
            type_, [1] if path.endswith("reserved") else []
        )

    def in_struct(self, name, path, through):
        """(path, pointers to follow, offset) of each number in a struct and behind its pointers,
        and what number() says of it.
        """
        for field in self.structs[name]["fields"]:
            yield from self.at(field["type"], f"{path}.{field['name']}", through, field["offset"])

    def at(self, type_, path, through, offset):
        if type_.get("name") in self.integers:
            yield path, through, offset, *self.number(type_["name"], path)
        elif type_.get("name") in self.structs:
            raise SystemExit(f"numbers.py: {path} is a struct inside a struct: teach me that")
        elif "pointer" in type_:
            yield from self.behind(type_["pointer"], f"{path}[0]", [*through, offset])

    def behind(self, type_, path, through):
        if type_.get("name") in self.structs:
            yield from self.in_struct(type_["name"], path, through)
        elif type_.get("name") in self.integers:
            yield path, through, 0, *self.number(type_["name"], path)

    def numbers(self, function):
        for i, parameter in enumerate(function["parameters"]):
            type_ = parameter["type"]
            if type_.get("name") in self.integers:
                yield parameter["name"], i, True, [], 0, *self.number(type_["name"], "")
            elif "pointer" in type_:
                for path, through, *rest in self.behind(type_["pointer"], parameter["name"], []):
                    yield path, i, False, through, *rest


def statuses(functions):
    """{function: the statuses that its documentation names}, including those named by "as above",
    "as there" or "as in" another function."""
    found, before = {}, set()
    for function in functions:
        doc = text = function["doc"].replace("\n", " ")
        text = text[text.find("Statuses:") :] if "Statuses:" in text else ""
        own = set(re.findall(r"\b[A-Z][A-Z_]+\b", text))
        if re.search(r"as (above|there)", text):
            own |= before
        for other in re.findall(r"[aA]s (?:in |by )?(pkv_\w+)", doc):
            own |= found.get(other, set())
        found[function["name"]] = before = own
    return found


def main(description, output):
    api = json.loads(pathlib.Path(description).read_text())
    enums = {enum["name"]: enum for enum in api["enums"]}
    known = {constant["name"] for constant in enums["pkv_status"]["constants"]}
    interface = Interface(api)
    told = statuses(interface.functions)
    lines = ["// Made by numbers.py."]
    for function in interface.functions:
        names = sorted(f"PKV_{name}" for name in told[function["name"]] if f"PKV_{name}" in known)
        lines.append(f'{{"{function["name"]}", {{{", ".join(names)}}}, {{')
        for path, i, by_value, through, offset, size, signed, refused in interface.numbers(
            function
        ):
            follow, wrong = (", ".join(map(str, values)) for values in (through, refused))
            flags = [str(flag).lower() for flag in (by_value, signed)]
            lines.append(
                f'    {{"{path}", {i}, {flags[0]}, {{{follow}}}, {offset}, {size}, {flags[1]},'
                f" {{{wrong}}}}},"
            )
        lines.append("}},")
    pathlib.Path(output).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
