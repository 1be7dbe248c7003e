"""Adds up meson's test logs: prints "passed failed skipped".

usage: tally.py BUILD_DIRECTORY NAME REPORT

Each case of a GoogleTest program counts; another test counts as one. meson decides about a whole
program: one that fails although all its cases passed (a leak at exit, a crash before the results
were written) adds one failure. The failed and skipped tests of the build NAME are appended to the
file REPORT, in lines that begin with "failed: " or "skipped: ". A missing or truncated log is a
failure.
"""

import collections
import json
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

PASSED = {"OK", "EXPECTEDFAIL"}
# Lines with brackets name GoogleTest's cases, often the faulty one.
FAULT = re.compile(r"(?!\[).*(error|fail|expected|exception|sanitizer|assert)", re.IGNORECASE)
SUMMARY = re.compile(r"SUMMARY: \w+Sanitizer: ")
MAX_ERROR_LINES, MAX_LINE = 3, 160
NO_REASON = "it gives no reason"

# One result: its outcome is "passed", "failed" or "skipped"; the lines are its error or reason.
Result = collections.namedtuple("Result", "outcome name lines")


class Cut(Exception):
    """A log that is missing or ends too early."""


def shortened(text):
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return [line[:MAX_LINE] for line in lines]


def what_it_said(element):
    return shortened(element.get("message") or element.text or "")


def case_error(lines):
    """The first lines of a case's error, and the values that GoogleTest found."""
    values = [line for line in lines[MAX_ERROR_LINES:] if line.lstrip().startswith("Which is:")]
    return lines[:MAX_ERROR_LINES] + values[:MAX_ERROR_LINES]


def case_result(name, case):
    for tag in ("failure", "error"):
        fault = case.find(tag)
        if fault is not None:
            return Result("failed", name, case_error(what_it_said(fault)))
    skipped = case.find("skipped")
    if skipped is not None or case.get("status") == "notrun":
        # The first line of a reason of GoogleTest is the place of GTEST_SKIP.
        said = what_it_said(skipped) if skipped is not None else ["it is disabled"]
        return Result("skipped", name, said[-1:])
    return Result("passed", name, [])


def gtest_cases(junit):
    """{suite name: [Result]} of the suites that GoogleTest programs wrote."""
    if not junit.exists():
        raise Cut(f"{junit} is missing")
    try:
        root = ElementTree.parse(junit).getroot()
    except ElementTree.ParseError as problem:
        raise Cut(f"{junit} is cut: {problem}") from problem
    cases = collections.defaultdict(list)
    for suite in root.iter("testsuite"):
        for case in suite.iter("testcase"):
            name = f"{case.get('classname', '')}.{case.get('name')}".strip(".")
            cases[suite.get("name")].append(case_result(name, case))
    return cases


def sanitizer_summaries(test):
    """What sanitizers found in a program or its children, a line each."""
    lines = shortened(test.get("stderr", "") + "\n" + test.get("stdout", ""))
    return [line for line in lines if SUMMARY.match(line)][:MAX_ERROR_LINES]


def first_error(test):
    """The most useful lines: from the first that names a fault on, else the last ones."""
    for stream in (test.get("stderr", ""), test.get("stdout", "")):
        lines = shortened(stream)
        for number, line in enumerate(lines):
            if FAULT.match(line):
                return lines[number : number + MAX_ERROR_LINES]
    return shortened(test.get("stderr", "") or test.get("stdout", ""))[-MAX_ERROR_LINES:]


def whole(test, name):
    """The result of a test that has no cases, or whose cases do not show why it failed."""
    if test["result"] in PASSED:
        return Result("passed", name, [])
    if test["result"] == "SKIP":
        said = shortened(test.get("stdout", "") + "\n" + test.get("stderr", ""))
        return Result("skipped", name, said[-1:])
    end = f"{test['result']} after {test.get('duration', 0):.0f} s"
    if test["result"] == "INTERRUPT":
        return Result("failed", name, [end])
    return Result("failed", name, [end, *first_error(test)])


def results(logs):
    """(test name, Result) of every case and test; it ends with a failure where a log is cut."""
    try:
        cases, cut = gtest_cases(logs / "testlog.junit.xml"), None
    except Cut as problem:
        cases, cut = {}, problem
    log = logs / "testlog.json"
    if not log.exists():
        yield "meson test", Result("failed", "", [f"no test was run: {log} is missing"])
        return
    for number, line in enumerate(log.read_text(errors="replace").splitlines(), 1):
        try:
            test = json.loads(line)
            name, _ = test["name"], test["result"]
        except (ValueError, TypeError, KeyError):
            yield "meson test", Result("failed", "", [f"{log}:{number}: the log is cut here"])
            continue
        short = name.rsplit(" / ", 1)[-1]
        own = [case for suite, some in cases.items() if f".{name}." in suite for case in some]
        ok = test["result"] in PASSED
        for case in own:
            if case.outcome == "failed":
                case = case._replace(lines=case.lines + sanitizer_summaries(test))
            yield short, case
        if not own or not ok and not any(case.outcome == "failed" for case in own):
            yield short, whole(test, "")
    if cut:
        yield "meson test", Result("failed", "", [f"cases are not counted one by one: {cut}"])


def report(build, log, everything):
    """The lines of the report: each failure with its error, skipped ones by their reason."""
    skipped = collections.Counter()
    any_failed = False
    for test, result in everything:
        if result.outcome == "failed":
            any_failed = True
            yield f"failed: {build}: {test}{': ' if result.name else ''}{result.name}"
            for line in result.lines:
                yield f"failed:     {line}"
        elif result.outcome == "skipped":
            skipped[(test, (result.lines or [NO_REASON])[0])] += 1
    if any_failed:
        yield f"failed:   the whole log of {build} is {log}"
    for (test, reason), count in skipped.items():
        yield f"skipped: {build}: {test}{f' ({count} cases)' if count > 1 else ''}: {reason}"


def tally(logs):
    outcomes = collections.Counter(result.outcome for _, result in results(logs))
    return [outcomes[name] for name in ("passed", "failed", "skipped")]


if __name__ == "__main__":
    directory, build_name, file = sys.argv[1:]
    the_logs = pathlib.Path(directory) / "meson-logs"
    with open(file, "a", encoding="utf-8") as stream:
        for line in report(build_name, the_logs / "testlog.txt", results(the_logs)):
            print(line, file=stream)
    print(*tally(the_logs))
