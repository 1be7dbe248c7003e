"""All that the headers of 1.0 declare is still declared, with the same types, values and layouts:
so what compiled with them still compiles, and what was compiled still runs. pagedkv-1.0.txt lists
it. `update` writes that file, until 1.0.0 is released.

usage: abi.py check|update TREE"""

import pathlib
import re
import sys

KEPT = pathlib.Path(__file__).with_name("pagedkv-1.0.txt")
UNRELEASED = "## 1.0.0, not released yet"
HEADERS = ("pagedkv.h", "redis.h")  # not experimental.h, of which 1.x promises nothing
# These may change, each for its reason.
OF_A_VERSION = {"PKV_VERSION_MAJOR", "PKV_VERSION_MINOR", "PKV_VERSION_PATCH"}
NOT_USED = {"reserved"}  # a field takes its place
# The library owns this struct, and may extend it at its end.
GROWS_WITHOUT_SIZE = {"pkv_error_details"}
SIZE = re.compile(r"^(struct \w+: )(\d+)( bytes, or more)$")


def lines_of(description):
    """One line for each thing that a program can use."""
    for constant in description["constants"]:
        if constant["name"] not in OF_A_VERSION:
            yield f"constant {constant['name']}: {constant['type']} {constant['value']}"
    for enum in description["enums"]:
        for constant in enum["constants"]:
            yield f"constant {constant['name']}: {enum['name']} {constant['value']}"
    for handle in description["handles"]:
        yield f"handle {handle['name']}"
    for alias in description["aliases"]:
        yield f"alias {alias['name']}: {alias['c']}"
    for struct in description["structs"]:
        grows = struct["fields"][0]["name"] == "struct_size"
        more = ", or more" if grows or struct["name"] in GROWS_WITHOUT_SIZE else ""
        yield f"struct {struct['name']}: {struct['size']} bytes{more}"
        for field in struct["fields"]:
            if field["name"] not in NOT_USED:
                place = f"at {field['offset']}, {field['size']} bytes"
                yield f"field {struct['name']}.{field['name']}: {field['c']}, {place}"
    for function in description["functions"]:
        parameters = ", ".join(parameter["c"] for parameter in function["parameters"])
        yield f"function {function['name']}: {function['c_returns']} ({parameters})"


def broken(kept, now):
    """Returns the lines that are no longer true."""
    sizes = {match[1]: int(match[2]) for match in map(SIZE.match, now) if match}
    found = []
    for line in sorted(set(kept) - set(now)):
        size = SIZE.match(line)
        if not size or sizes.get(size[1], 0) < int(size[2]):
            found.append(line)
    return found


def main():
    action, tree = sys.argv[1], pathlib.Path(sys.argv[2])
    sys.path.insert(0, str(tree / "bindings/api"))
    import describe

    now = list(lines_of(describe.describe(tree, HEADERS)))
    more = set(lines_of(describe.describe(tree, ["experimental.h"]))) - set(now)
    assert more, "pagedkv.h includes experimental.h"
    unreleased = UNRELEASED in (tree / "CHANGELOG.md").read_text()
    if action == "update" and unreleased:
        KEPT.write_text("\n".join(now) + "\n")
        return 0
    kept = KEPT.read_text().splitlines()
    found = [f"1.0 has: {line}" for line in broken(kept, now)]
    if unreleased and kept != now:
        found.append("1.0.0 is not released yet: abi.py update TREE writes what it will have")
    print(*found, f"{len(kept)} declarations of 1.0, {len(found)} findings", sep="\n")
    print(f"{len(more)} declarations of experimental.h are not kept")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
