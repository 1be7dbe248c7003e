"""Adds up meson's test logs: prints "passed failed skipped".

usage: tally.py BUILD_DIRECTORY

A GoogleTest program counts with each of its cases, another test as one. meson's verdict on a whole
program is the last word: one that fails although all its cases passed (a leak at exit, a crash
before the results were written) adds one failure.
"""

import json
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

PASSED = {"OK", "EXPECTEDFAIL"}


def gtest_cases(junit):
    """{suite name: [passed, failed, skipped]} of the suites that GoogleTest programs wrote."""
    counts = {}
    for suite in ElementTree.parse(junit).getroot().iter("testsuite"):
        count = counts.setdefault(suite.get("name"), [0, 0, 0])
        for case in suite.iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                count[1] += 1
            elif case.find("skipped") is not None or case.get("status") == "notrun":
                count[2] += 1
            else:
                count[0] += 1
    return counts


def tally(logs):
    cases = gtest_cases(logs / "testlog.junit.xml")
    total = [0, 0, 0]
    for line in (logs / "testlog.json").read_text().splitlines():
        test = json.loads(line)
        ok = test["result"] in PASSED
        own = [count for suite, count in cases.items() if f".{test['name']}." in suite]
        if own:
            total = [sum(column) for column in zip(total, *own)]
            if not ok and not any(failed for _, failed, _ in own):
                total[1] += 1
        else:
            total[0 if ok else 2 if test["result"] == "SKIP" else 1] += 1
    return total


if __name__ == "__main__":
    print(*tally(pathlib.Path(sys.argv[1]) / "meson-logs"))
