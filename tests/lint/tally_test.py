"""The totals at the end of tests/run: every kind of result is counted, a program that fails after
its last case is a failure, and so is a missing or truncated log. Failed and skipped tests are
named.
"""

import json
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import choose  # noqa: E402
import tally  # noqa: E402

JUNIT = """<testsuites>
<testsuite name="p.p:unit / mixed.A"><testcase name="ok" status="run"/>
<testcase classname="A" name="bad" status="run"><failure
message="a.cpp:1&#10;Expected:&#10;  f([] {&#10;  })&#10;    Which is: &quot;it died&quot;&#10;"/>
</testcase>
<testcase name="later" status="run"><skipped message="a.cpp:9&#10;no server"/></testcase>
<testcase name="off" status="notrun"/></testsuite>
<testsuite name="p.p:unit / leaks at exit.A"><testcase name="ok" status="run"/></testsuite>
<testsuite name="p"><testcase name="p / plain"/></testsuite>
</testsuites>"""
TESTS = [
    {
        "name": "p:unit / mixed",
        "result": "FAIL",
        "stderr": "==2==ERROR\nSUMMARY: AddressSanitizer: SEGV\n",
    },
    {
        "name": "p:unit / leaks at exit",
        "result": "FAIL",
        "stderr": "==1==ERROR: LeakSanitizer: 8\n",
    },
    {"name": "p / plain", "result": "OK"},
    {"name": "p / slow", "result": "TIMEOUT", "duration": 30.0},
    {"name": "p / broken", "result": "ERROR", "stdout": "one\ntwo\nthree\nfour\n"},
    {"name": "p / stopped", "result": "INTERRUPT"},
    {"name": "p / not here", "result": "SKIP", "stdout": "SKIPPED: there is no luajit here\n"},
]
LOG = "".join(json.dumps(test) + "\n" for test in TESTS)
PASSED = ["mixed ok", "leaks at exit ok", "plain"]
FAILED = ["mixed bad", "leaks at exit", "slow", "broken", "stopped"]
SKIPPED = ["mixed later", "mixed off", "not here"]
REPORT = [
    "failed: release: mixed: A.bad",
    "failed:     a.cpp:1",
    "failed:     Expected:",
    "failed:       f([] {",
    'failed:         Which is: "it died"',
    "failed:     SUMMARY: AddressSanitizer: SEGV",
    "failed: release: leaks at exit",
    "failed:     FAIL after 0 s",
    "failed:     ==1==ERROR: LeakSanitizer: 8",
    "failed: release: slow",
    "failed:     TIMEOUT after 30 s",
    "failed: release: broken",
    "failed:     ERROR after 0 s",
    "failed:     two",
    "failed:     three",
    "failed:     four",
    "failed: release: stopped",
    "failed:     INTERRUPT after 0 s",
    "failed:   the whole log of release is testlog.txt",
    "skipped: release: mixed: no server",
    "skipped: release: mixed: it is disabled",
    "skipped: release: not here: SKIPPED: there is no luajit here",
]


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: {got}, expected {wanted}")


def counted(log, junit):
    """The output of tally.py for two logs, each of which may be missing."""
    with tempfile.TemporaryDirectory() as directory:
        logs = pathlib.Path(directory)
        for name, text in {"testlog.json": log, "testlog.junit.xml": junit}.items():
            if text is not None:
                (logs / name).write_text(text)
        everything = list(tally.results(logs))
        return tally.tally(logs), list(tally.report("release", "testlog.txt", everything))


total, lines = counted(LOG, JUNIT)
expect("counted", total, [len(PASSED), len(FAILED), len(SKIPPED)])
expect("the report", lines, REPORT)

# One failure for the log, and one for the cases that are not counted.
for what, log, junit, wanted in [
    ("no logs", None, None, [0, 1, 0]),
    ("an empty log", "", JUNIT, [0, 0, 0]),
    ("a log that is cut", LOG[:-20], JUNIT, [3, 6, 2]),
    ("a log with something else", '[1]\n{"name": "a"}\n', JUNIT, [0, 2, 0]),
    ("no cases", LOG, None, [1, 6, 1]),
    ("cases that are cut", LOG, JUNIT[:-30], [1, 6, 1]),
]:
    total, lines = counted(log, junit)
    expect(what, total, wanted)
    if total[1] and not any("cut" in line or "missing" in line for line in lines):
        expect(f"{what}, in words", lines, "a sentence")
total, lines = counted(None, None)
expect("no logs, in words", lines[1].split(": ")[1].strip(), "no test was run")

# The words that tests/run accepts.
POOL = {"name": "pool", "suite": ["pagedkv:threads"]}
LINT = {"name": "api", "suite": ["pagedkv:lint", "pagedkv:bindings"]}
GO = {"name": "go", "suite": ["pagedkv:bindings"]}
CHECK = {"name": "go checks", "suite": ["pagedkv:checks", "pagedkv:bindings"]}
ALONE = {"name": "kernels", "suite": ["pagedkv"]}
LONG = {"name": "long", "suite": ["pagedkv:threads", "pagedkv:heavy"]}
LIST = [POOL, LINT, GO, CHECK, ALONE, LONG]
for word, wanted in {
    "ALL": ["pool", "api", "go", "go checks", "kernels", "long"],
    "PLAIN": ["pool", "api", "go", "kernels", "long"],
    "REST": ["go checks"],
    "LIGHT": ["pool", "api", "go", "go checks", "kernels"],
    "QUICK": ["pool", "api", "kernels"],
    "threads": ["pool", "long"],
    "pool": ["pool"],
}.items():
    expect(word, [test["name"] for test in LIST if choose.matches(word, test)], wanted)
expect("a known name", choose.unknown(["pool", "QUICK"], LIST), None)
if "did you mean pool?" not in (choose.unknown(["pol"], LIST) or ""):
    sys.exit("a name that is wrong by a letter: no suggestion")
