#!/usr/bin/env python3
"""Code compiled for one instruction set must not share functions with the rest of the program.

If two files emit the same weak (inline, template) function, the linker keeps one copy, which may
need instructions that the processor lacks. So a weak symbol in the library of an instruction set
must have that set's own architecture in its name.

usage: check_symbols.py [--must-find] <nm> <isa> <static library>
--must-find: succeed only if there is such a symbol (the test of this test).
"""

import subprocess
import sys

TAGS = {
    "sse2": "Sse2Arch",
    "avx2": "Avx2Arch",
    "avx_vnni": "AvxVnniArch",
    "avx512": "Avx512Arch",
    "avx512_vnni": "Avx512VnniArch",
    "avx512_bf16": "Avx512Bf16Arch",
    "amx": "AmxArch",
    "neon": "xsimd_neon",
    "neon_dot": "xsimd_neon_dot",
    "neon_bf16": "xsimd_neon_bf16",
}


def untagged(nm, tag, library):
    listing = subprocess.run(
        [nm, "--defined-only", library], check=True, capture_output=True, text=True
    ).stdout
    symbols = [line.split() for line in listing.splitlines() if len(line.split()) == 3]
    if not symbols:
        sys.exit(f"{library}: nm lists no symbol")
    # DW.ref.* is a pointer that the unwinder reads, and no code.
    return [
        name
        for _, kind, name in symbols
        if kind in "VWuvw" and not name.startswith("DW.ref.") and (not tag or tag not in name)
    ]


def main():
    arguments = sys.argv[1:]
    must_find = arguments[0] == "--must-find"
    nm, isa, library = arguments[must_find:]
    found = untagged(nm, TAGS.get(isa), library)
    for name in found:
        print(f"{library}: weak symbol without the tag of {isa}: {name}")
    sys.exit(0 if bool(found) == must_find else 1)


main()
