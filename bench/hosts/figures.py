"""Prints the tables of FIGURES.md, "a real model on engines", from bench/data/engines.

    python3 -B bench/hosts/figures.py [REPORT]

REPORT is a file of bench/engines --json: its times are first stored in the folder, as the figures
of its machine's family.
"""

import pathlib
import sys

from ways import WAYS, rates

sys.path.append(str(pathlib.Path(__file__).parents[1] / "compare"))
import kept  # noqa: E402

FIELDS = ("prompt_tokens", "prompt_seconds", "answer_tokens", "answer_seconds", "first_token")


def _condensed(run):
    attention = run["attention"]
    return {name: float(f"{run[name]:.4g}") for name in FIELDS} | {
        "attention": None if attention is None else float(f"{attention:.3g}"),
        "mebibytes": round(run["mebibytes"]),
    }


def condensed(report):
    """The report with only the figures that the tables have."""
    results = [
        result | {"runs": {name: _condensed(run) for name, run in result["runs"].items()}}
        for result in report["results"]
    ]
    return report | {"results": results}


def _rates(run):
    if run is None:
        return "-"
    prompt, answer = rates(run)
    return f"{prompt:.0f}, {answer:.0f}"


def _seconds(run):
    return run["prompt_seconds"] + run["answer_seconds"]


def _attention(run):
    return run["attention"]


def _ratio(own, ours, time):
    if own is None or ours is None or time(own) is None or time(ours) is None:
        return "-"
    ratio = time(own) / time(ours)
    return f"{ratio:.2f}" if ratio >= 1 else f"**{ratio:.2f}**"


def _beside_own(results, time):
    header = [result["workload"] for result in results]
    rows = [
        [w.name, *[_ratio(r["runs"].get(w.own), r["runs"].get(w.name), time) for r in results]]
        for w in WAYS
        if w.own
    ]
    kept.show(["way", *header], [row for row in rows if set(row[1:]) != {"-"}])


def show(report, dtype):
    results = [result for result in report["results"] if result["dtype"] == dtype]
    header = [result["workload"] for result in results]
    print(f"{report['machine']['family']}, {dtype}: prompt and answer tokens per second\n")
    rows = [[w.name, *[_rates(r["runs"].get(w.name)) for r in results]] for w in WAYS]
    kept.show(["way", *header], [row for row in rows if set(row[1:]) != {"-"}])
    print("All time with the host's own attention over that with ours\n")
    _beside_own(results, _seconds)
    print("The time of attention alone, in the same way\n")
    _beside_own(results, _attention)


def main():
    for report in kept.update("engines", condensed):
        for dtype in dict.fromkeys(result["dtype"] for result in report["results"]):
            show(report, dtype)


main()
