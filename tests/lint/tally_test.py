"""The sum that tests/run ends with: every kind of result is counted, and a program that fails after
its last case is a failure.
"""

import json
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import tally  # noqa: E402

JUNIT = """<testsuites>
<testsuite name="p.p:unit / mixed.A"><testcase name="ok" status="run"/>
<testcase name="bad" status="run"><failure/></testcase>
<testcase name="later" status="run"><skipped/></testcase>
<testcase name="off" status="notrun"/></testsuite>
<testsuite name="p.p:unit / leaks at exit.A"><testcase name="ok" status="run"/></testsuite>
<testsuite name="p"><testcase name="p / plain"/></testsuite>
</testsuites>"""
RESULTS = {
    "p:unit / mixed": "FAIL",
    "p:unit / leaks at exit": "FAIL",
    "p / plain": "OK",
    "p / slow": "TIMEOUT",
    "p / broken": "ERROR",
    "p / stopped": "INTERRUPT",
    "p / not here": "SKIP",
}
PASSED = ["mixed ok", "leaks at exit ok", "plain"]
FAILED = ["mixed bad", "leaks at exit", "slow", "broken", "stopped"]
SKIPPED = ["mixed later", "mixed off", "not here"]

with tempfile.TemporaryDirectory() as directory:
    logs = pathlib.Path(directory)
    (logs / "testlog.junit.xml").write_text(JUNIT)
    (logs / "testlog.json").write_text(
        "".join(json.dumps({"name": n, "result": r}) + "\n" for n, r in RESULTS.items())
    )
    total = tally.tally(logs)
expected = [len(PASSED), len(FAILED), len(SKIPPED)]
if total != expected:
    sys.exit(f"counted {total}, expected {expected}")
