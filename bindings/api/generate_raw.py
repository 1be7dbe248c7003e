"""Makes src/base/generated/enum_values.h from the C headers: the names that error messages of the
library use, which are also those of the bindings.

usage: generate_raw.py [--check]
"""

import describe
import generator

HEAD = """// The values of the enums of the C interface, and their names without the enum's prefix.
// Made by bindings/api/generate_raw.py from the headers: do not edit.
// clang-format off
#pragma once

#include <pagedkv/pagedkv.h>

namespace pkv {

struct EnumValue {
  int value;
  const char* name;
};

template <class Enum>
struct EnumValues;
"""


def specialisation(enum):
    prefix, names = generator.enum_prefix(enum), [c["name"] for c in enum["constants"]]
    return [
        "",
        "template <>",
        f"struct EnumValues<{enum['name']}> {{",
        "  static constexpr EnumValue all[] = {",
        *(f'      {{{name}, "{name.removeprefix(prefix)}"}},' for name in names),
        "  };",
        "};",
    ]


def generate(api):
    lines = HEAD.splitlines()
    for enum in api["enums"]:
        if enum["name"] != "pkv_status":  # pkv_status_name has its names
            lines += specialisation(enum)
    return {"enum_values.h": generator.whole([*lines, "", "}  // namespace pkv"])}


if __name__ == "__main__":
    generator.main(describe.TREE / "src/base/generated", generate)
