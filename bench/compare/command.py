"""The options and the report of a comparison of engines."""

import argparse
import datetime
import json
import os
import pathlib
import sys

import machines


def note(*text):
    print(*text, file=sys.stderr, flush=True)


def words(text):
    return text.split(",")


def parser(program, dtypes):
    result = argparse.ArgumentParser(prog=program)
    result.add_argument("--quick", action="store_true")
    result.add_argument("--dtypes", type=words, default=dtypes)
    result.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    result.add_argument("--library", type=pathlib.Path, required=True)
    result.add_argument("--json", type=pathlib.Path)
    result.add_argument("--out", type=pathlib.Path)
    return result


def parse(parser_, dtypes):
    options = parser_.parse_args()
    if unknown := [dtype for dtype in options.dtypes if dtype not in dtypes]:
        parser_.error(f"no dtype {unknown[0]}; there are {', '.join(dtypes)}")
    if options.threads < 1:
        parser_.error(f"--threads is {options.threads}; it must be at least 1")
    return options


def report(options):
    machine = machines.here() | {"threads": options.threads}
    return {"machine": machine, "date": datetime.date.today().isoformat()}


def save(report_, options):
    if options.json:
        options.json.write_text(json.dumps(report_, indent=1) + "\n")
