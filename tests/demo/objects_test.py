"""What bench/demo compiles, tests/run does not compile again: with the options of both scripts, the
library and pkv-generate are compiled by the same commands. objects_test.py TREE TARGET...
"""

import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

tree, targets = pathlib.Path(sys.argv[1]), sys.argv[2:]
DEMO = ("bench/common.sh", r"meson setup build (.+)")
RUN = ("tests/run", r'set -- (-D.+) "\$@"')
# CI and developers set this variable; then all is compiled with -Werror, once.
OF_CI = re.compile(r"\$\{PAGEDKV_WERROR:\+[^}]*\}")


def run(*command):
    result = subprocess.run(command, text=True, capture_output=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{shlex.join(command)} failed:\n{result.stdout}{result.stderr}")
    return result.stdout


def compiler_commands(folder, script, pattern):
    (options,) = re.findall(pattern, (tree / script).read_text())
    build = str(pathlib.Path(folder) / "build")
    run("meson", "setup", build, str(tree), *shlex.split(OF_CI.sub("", options)))
    lines = run("ninja", "-C", build, "-t", "commands", *targets).splitlines()
    return {line for line in lines if " -c " in line}


both = []
for place in (DEMO, RUN):
    with tempfile.TemporaryDirectory() as folder:
        both.append({c.replace(folder, "") for c in compiler_commands(folder, *place)})
demo, tests = both
assert len(demo) > 20, f"bench/demo compiles only {len(demo)} files?"
if demo != tests:
    sys.exit(
        f"{len(demo - tests)} of {len(demo)} files are compiled once more. The first command:\n"
        f"  bench/demo: {min(demo - tests, default='')}\n"
        f"  tests/run:  {min(tests - demo, default='')}"
    )
