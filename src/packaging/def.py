"""Writes a module-definition file with all functions of the headers. The linker for Windows exports
these, and MSVC makes an import library from it.

usage: def.py OUTPUT NAME HEADER..."""

import pathlib
import re
import sys

output, library, *headers = sys.argv[1:]
DECLARATION = re.compile(r"^PKV_API\s[^;{]*?\b(pkv_\w+)\s*\(", re.M)
names = sorted(n for h in headers for n in DECLARATION.findall(pathlib.Path(h).read_text()))
text = f"LIBRARY {library}\nEXPORTS\n" + "".join(f"    {name}\n" for name in names)
pathlib.Path(output).write_text(text)
