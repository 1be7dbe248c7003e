"""Stores figures by machine, and makes Markdown tables."""

import json
import pathlib
import re
import sys

DATA = pathlib.Path(__file__).parents[1] / "data"


def keep(folder, report):
    """Writes the figures of a machine's family, the innermost objects on a line each."""
    text = json.dumps(report, indent=1)
    text = re.sub(r"\{[^{}]*\}", lambda row: " ".join(row[0].split()), text)
    name = report["machine"]["family"].lower().replace(" ", "-")
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(text + "\n")


def update(name, condense):
    """Stores the reports that the command line names; returns all stored ones, newest first."""
    for path in sys.argv[1:]:
        keep(DATA / name, condense(json.loads(pathlib.Path(path).read_text())))
    reports = [json.loads(path.read_text()) for path in (DATA / name).glob("*.json")]
    return sorted(reports, key=lambda report: report["date"], reverse=True)


def show(header, rows):
    for row in [header, ["---"] * len(header), *rows]:
        print("| " + " | ".join(row) + " |")
    print()
