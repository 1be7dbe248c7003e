"""A scheduler of the guide finishes in a cache of any size, from the smallest that fits its longest
text up to plenty, and with any watermark.

usage: sizes_test.py PROGRAM LEAST_BLOCKS MOST_BLOCKS RESULT [MORE_ARGUMENTS ...]

The program gets the blocks, the watermark and the further arguments. RESULT is its expected
output."""

import subprocess
import sys


def main():
    program, least, most, wanted, *more = sys.argv[1:]
    for watermark in (0, 1, 2, 4):
        for blocks in range(int(least) + watermark, int(most) + 1):
            result = subprocess.run(
                [program, str(blocks), str(watermark), *more],
                capture_output=True,
                text=True,
                timeout=60,
            )
            if result.returncode != 0 or wanted not in result.stdout:
                sys.exit(
                    f"{blocks} blocks, watermark {watermark}: exit {result.returncode}\n"
                    f"{result.stdout}{result.stderr}"
                )


main()
