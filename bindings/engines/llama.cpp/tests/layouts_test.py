"""Loads the plug-in into programs that look like ggml, of each known layout and of unknown ones.

usage: layouts_test.py FAKE_GGML LIBGGML_PAGEDKV
"""

import subprocess
import sys

PROGRAM, PLUGIN = sys.argv[1:3]
REFUSED = "pagedkv: not used: "
CASES = [
    # Version, functions of a backend and of a device, what is wrong, and what the plug-in says.
    ((1, 13, 15, "none"), "used"),
    ((2, 13, 15, "none"), "used"),
    ((2, 14, 15, "none"), "used"),
    ((2, 16, 15, "none"), "used"),
    ((3, 16, 15, "none"), "used"),
    ((2, 17, 15, "none"), "backend interface is not known (17 functions of a backend, 15 of a"),
    ((2, 16, 16, "none"), "backend interface is not known (16 functions of a backend, 16 of a"),
    ((4, 16, 15, "none"), "backend interface has version 4; known are 1 to 3"),
    ((0, 16, 15, "none"), "backend interface has version 0; known are 1 to 3"),
    ((2, 16, 15, "tensor"), "tensors have a layout that is not known"),
    ((2, 16, 15, "properties"), "device properties have a layout that is not known"),
    ((2, 16, 15, "cpu"), "CPU backend must be loaded first"),
]

# A process that has none of ggml's functions: the caller is in a library of Python.
WITHOUT_GGML = "import ctypes, sys; sys.exit(ctypes.CDLL(sys.argv[1]).ggml_backend_init())"

failures = 0
for case, wanted in CASES:
    command = [PROGRAM, PLUGIN, *map(str, case)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = run.stdout.splitlines()
    good = run.returncode == 0 and len(lines) == 1 and wanted in lines[0]
    if wanted != "used":
        good = good and lines[0].startswith(REFUSED)
    if not good:
        failures += 1
        print(f"FAILED {case}: exit code {run.returncode}, {run.stdout}{run.stderr}")
run = subprocess.run(
    [sys.executable, "-c", WITHOUT_GGML, PLUGIN], capture_output=True, text=True, check=False
)
if run.returncode != 0 or run.stderr != f"{REFUSED}this ggml has no function ggml_init\n":
    failures += 1
    print(f"FAILED without ggml: exit code {run.returncode}, {run.stderr}")
print(f"{len(CASES) + 1 - failures} passed, {failures} failed")
sys.exit(failures != 0)
