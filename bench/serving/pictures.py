"""Draws the figures that pkv-serve wrote into DIR/serve.json or DIR/policies.json, as SVG and PNG
beside it.

usage: pictures.py DIR
"""

import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1] / "compare"))
import figure_file  # noqa: E402
from figure_file import BLUE, GREEN, GREY, ORANGE, SKY, plt  # noqa: E402

RUNS = {
    "prefix on": {"color": BLUE},
    "prefix off": {"color": SKY, "linestyle": "--"},
    "reserved, oracle": {"color": GREEN, "linestyle": ":"},
    "reserved, longest": {"color": ORANGE},
}
HITS = {
    "belady": {"label": "bound (Belady)", "color": GREY, "linestyle": "--"},
    "default": {"label": "default", "color": GREEN, "marker": "D"},
    "lru": {"label": "LRU", "color": BLUE, "marker": "o"},
}
POLICIES = {
    "bound": {"label": "bound (Belady)", "color": GREY, "linestyle": "--"},
    "default": {"color": BLUE, "marker": "o", "zorder": 3},
    "default, with hints": {"color": BLUE, "linestyle": ":"},
    "LRU": {"color": ORANGE, "marker": "^"},
}


def single():
    figure, axes = plt.subplots(figsize=(7.5, 4.6), layout="constrained")
    axes.set_xscale("log")
    axes.grid(color="#dddddd", linewidth=0.6)
    return figure, axes


def percent(shares):
    return [100 * share for share in shares]


def hits(report, directory):
    found = report["hits"]
    figure, axes = single()
    for name, style in HITS.items():
        axes.plot(found["capacities"], percent(found[name]), markersize=5, **style)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylim(0, None)
    axes.set_xlabel(f"capacity, blocks of {found['block_tokens']} tokens (one request at a time)")
    axes.set_ylabel("% of prompt blocks found cached")
    axes.set_title(f"Hits by policy: {report['trace']}")
    axes.legend(frameon=False, loc="lower right")
    figure_file.save(figure, directory, "serve-hits")


def first_token(report, directory):
    figure, axes = single()
    for run in report["runs"]:
        if times := sorted(max(t, 1e-6) for t in run["first_tokens"]):
            ranks = sorted({round(k / 500 * (len(times) - 1)) for k in range(501)})
            shares = [100 * (i + 1) / len(times) for i in ranks]
            style = {"linewidth": 1.8, "label": run["name"], **RUNS[run["name"]]}
            axes.plot([times[i] for i in ranks], shares, **style)
    axes.set(ylim=(0, 101), xlabel="seconds from arrival to first token", ylabel="% of requests")
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.set_title(f"Time to first token: {report['trace']}")
    axes.legend(frameon=False, loc="best")
    figure_file.save(figure, directory, "serve-first-token")


def policies(report, directory):
    """Hits by capacity: one panel per workload."""
    comparisons = report["comparisons"]
    across = min(4, len(comparisons))
    down = -(-len(comparisons) // across)
    size = (3.6 * across + 0.4, 3.0 * down + 0.9)
    figure, grid = plt.subplots(down, across, figsize=size, squeeze=False, layout="constrained")
    lines = {}
    for axes, comparison in zip(grid.flat, comparisons):
        for row in comparison["rows"]:
            if row["policy"] in POLICIES:
                style = {"label": row["policy"], "linewidth": 1.4, **POLICIES[row["policy"]]}
                shares = percent(row["blocks"])
                (line,) = axes.plot(comparison["capacities"], shares, markersize=4, **style)
                lines[style["label"]] = line
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_title(pathlib.Path(comparison["workload"]).name.removeprefix("generated "))
        axes.grid(color="#dddddd", linewidth=0.6)
    unused = list(grid.flat)[len(comparisons) :]
    for axes in unused:
        axes.axis("off")
    figure.supxlabel("capacity in blocks", fontsize=11)
    figure.supylabel("% of prompt blocks found cached", fontsize=11)
    if unused:
        unused[0].legend(lines.values(), lines.keys(), loc="center", frameon=False)
    else:
        legend = {"loc": "outside upper center", "ncols": 4, "frameon": False}
        figure.legend(lines.values(), lines.keys(), **legend)
    figure_file.save(figure, directory, "policies")


def main():
    directory = pathlib.Path(sys.argv[1])
    if (directory / "policies.json").exists():
        policies(json.loads((directory / "policies.json").read_text()), directory)
    if (directory / "serve.json").exists():
        report = json.loads((directory / "serve.json").read_text())
        first_token(report, directory)
        if report.get("hits", {}).get("capacities"):
            hits(report, directory)


if __name__ == "__main__":
    main()
