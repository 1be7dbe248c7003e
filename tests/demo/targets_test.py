"""Each target that a script of bench/ builds by name exists exactly once, because meson refuses an
ambiguous name. targets_test.py TREE BUILD
"""

import json
import pathlib
import re
import sys

tree, build = map(pathlib.Path, sys.argv[1:])
targets = json.loads((build / "meson-info/intro-targets.json").read_text())
kinds = {
    "shared library": "shared_library",
    "static library": "static_library",
    "executable": "executable",
}
wrong, asked = [], 0
for script in ("demo", "serve", "peers"):
    for line in re.findall(r"meson compile -C build (.+)", (tree / "bench" / script).read_text()):
        for word in line.split():
            name, _, kind = word.partition(":")
            asked += 1
            found = sum(t["name"] == name and kind in ("", kinds.get(t["type"])) for t in targets)
            if found != 1:
                wrong.append(f"bench/{script}: {found} targets are called {word}")
assert asked >= 5, f"only {asked} names were found: has the way changed in which scripts build?"
sys.exit("\n".join(wrong) or 0)
