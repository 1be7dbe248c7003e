"""The example of bindings/c/README.md prints the mean that it announces.
$PKV_EMULATOR is the command that runs a program for another machine.
"""

import os
import subprocess
import sys

command = [*os.environ.get("PKV_EMULATOR", "").split(), sys.argv[1]]
result = subprocess.run(command, capture_output=True, text=True, timeout=60)
assert result.returncode == 0, result.stderr
assert result.stdout == "token 19 attends to 20 tokens: 9.50 (expected 9.50)\n", result.stdout
