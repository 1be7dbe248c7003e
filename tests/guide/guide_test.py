"""An example prints what the guide says.

usage: guide_test.py PROGRAM GUIDE_FOLDER NAME_OF_THE_SOURCE

A chapter has the output under a line <!-- printed by examples/NAME -->; with ", then again" the
program runs twice in the same folder. With PAGEDKV_RENEW=1 the output is written into the chapters
instead."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

PRINTED = r"(<!-- printed by examples/{}(, then again)? -->\n```text\n)(.*?)(```\n)"


def printed(program, folder):
    result = subprocess.run([program], cwd=folder, capture_output=True, text=True, timeout=100)
    if result.returncode != 0 or result.stderr:
        sys.exit(f"exit {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def main():
    program, guide, name = pathlib.Path(sys.argv[1]).resolve(), *sys.argv[2:]
    places = 0
    for chapter in sorted(pathlib.Path(guide).glob("*.md")):
        text = chapter.read_text()

        def compare(match):
            nonlocal places
            places += 1
            with tempfile.TemporaryDirectory() as folder:
                output = "".join(printed(program, folder) for _ in range(2 if match[2] else 1))
            if os.environ.get("PAGEDKV_RENEW"):
                return match[1] + output + match[4]
            if output != match[3]:
                sys.exit(f"{chapter.name} says\n{match[3]}but it prints\n{output}")
            return match[0]

        renewed = re.sub(PRINTED.format(re.escape(name)), compare, text, flags=re.S)
        if renewed != text:
            chapter.write_text(renewed)
    if places == 0:
        sys.exit(f"no chapter says what {name} prints")


main()
