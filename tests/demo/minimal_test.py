"""The example of bindings/c/README.md prints the mean it announces and a table of two blocks."""

import subprocess
import sys

result = subprocess.run([sys.argv[1]], capture_output=True, text=True, timeout=60)
assert result.returncode == 0, result.stderr
assert (
    result.stdout == "token 19 attends to 20 tokens: 9.50 (expected 9.50)\nblock table: 0 1\n"
), result.stdout
