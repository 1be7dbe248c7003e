"""The example in C++ prints what its README says. $PKV_EMULATOR is the command that runs a program
for another machine.

usage: example_test.py PROGRAM README"""

import os
import pathlib
import subprocess
import sys

program, readme = sys.argv[1:]
command = [*os.environ.get("PKV_EMULATOR", "").split(), program]
result = subprocess.run(command, capture_output=True, text=True, timeout=60)
assert result.returncode == 0 and not result.stderr, result
assert f"```text\n{result.stdout}```\n" in pathlib.Path(readme).read_text(), result.stdout
print(result.stdout, end="")
