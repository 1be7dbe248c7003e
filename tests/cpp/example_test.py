"""The example in C++ prints what its README says.

usage: example_test.py PROGRAM README"""

import pathlib
import subprocess
import sys

program, readme = sys.argv[1:]
result = subprocess.run([program], capture_output=True, text=True, timeout=60)
assert result.returncode == 0 and not result.stderr, result
assert f"```text\n{result.stdout}```\n" in pathlib.Path(readme).read_text(), result.stdout
print(result.stdout, end="")
