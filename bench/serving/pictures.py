"""Draws what pkv-serve wrote into DIR/serve.json or DIR/policies.json, as SVG and PNG beside it.
Run as: pictures.py DIR
"""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

sys.path.append(str(pathlib.Path(__file__).parents[1] / "compare"))
import figure_file  # noqa: E402

# Okabe and Ito: told apart by colour-blind readers, too.
BLUE, ORANGE, GREEN, SKY = "#0072B2", "#E69F00", "#009E73", "#56B4E9"
RUNS = {
    "paged, prefix on": {"color": BLUE},
    "paged, prefix off": {"color": SKY, "linestyle": "--"},
    "contiguous, oracle": {"color": GREEN, "linestyle": ":"},
    "contiguous": {"color": ORANGE},
}
STYLE = figure_file.STYLE | {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titleweight": "bold",
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
}


def save(figure, directory, name):
    figure_file.save(figure, directory, name, bbox_inches="tight")
    plt.close(figure)


def columns(run, most=500):
    """Columns of the moments, as means over neighbours where there are more than can be
    told apart.
    """
    moments = run["moments"]
    width = -(-len(moments) // most) or 1
    groups = [moments[i : i + width] for i in range(0, len(moments), width)]
    return [
        [sum(m[c] for m in group) / len(group) for group in groups]
        for c in range(len(run["moment_columns"]))
    ]


def minutes(times):
    return [t / 60 for t in times]


def smooth(values, width=15):
    half = width // 2
    windows = [values[max(0, i - half) : i + half + 1] for i in range(len(values))]
    return [sum(window) / len(window) for window in windows]


def blocks(report, directory):
    """The pool over time: one panel per run."""
    runs = report["runs"]
    size = (9.5, 0.8 + 1.9 * len(runs))
    figure, grid = plt.subplots(
        len(runs), 1, figsize=size, sharex=True, squeeze=False, layout="constrained"
    )
    for (axes,), run in zip(grid, runs):
        time, _, _, used, cached, free = columns(run)[:6]
        areas = axes.stackplot(
            minutes(time), used, cached, free, colors=[BLUE, SKY, "#eeeeee"], linewidth=0
        )
        axes.set_title(f"{run['name']}: {run['mean_running']:.1f} sessions at once on average")
        axes.set_ylabel("blocks")
        axes.set_ylim(0, run["blocks"])
        axes.margins(x=0)
        axes.yaxis.set_major_formatter("{x:,.0f}")
    grid[-1][0].set_xlabel("simulated time, minutes")
    figure.legend(
        areas,
        ["of sessions", "cached, used by nobody", "free"],
        loc="outside upper right",
        ncols=3,
        frameon=False,
    )
    save(figure, directory, "serve-blocks")


def utilization(report, directory):
    """Of the slots that sessions hold, how many have a token; and how many sessions that lets in.
    Running means.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for run in report["runs"]:
        time, running, *_, filled, reserved = columns(run)
        part = [100 * f / r if r else 100 for f, r in zip(filled, reserved)]
        style = {"linewidth": 1.6, "label": run["name"], **RUNS[run["name"]]}
        left.plot(minutes(time), smooth(part), **style)
        right.plot(minutes(time), smooth(running), **style)
    left.set(
        ylim=(0, 102),
        ylabel="%",
        xlabel="simulated time, minutes",
        title="Slots filled, of those reserved",
    )
    right.set(ylabel="sessions", xlabel="simulated time, minutes", title="Sessions running at once")
    right.set_ylim(0, None)
    for axes in (left, right):
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    save(figure, directory, "serve-utilization")


def hits(report, directory):
    found = report["hits"]
    figure, axes = plt.subplots(figsize=(7.5, 4.6), layout="constrained")
    lines = (
        ("belady", "bound (Belady)", "#444444", "--", ""),
        ("default", "default", GREEN, "-", "D"),
        ("lru", "LRU", BLUE, "-", "o"),
        ("lfu", "LFU", ORANGE, "-", "s"),
    )
    for name, label, colour, dash, marker in lines:
        percent = [100 * x for x in found[name]]
        axes.plot(
            found["capacities"],
            percent,
            color=colour,
            linestyle=dash,
            marker=marker,
            markersize=5,
            label=label,
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylim(0, None)
    axes.set_xlabel(f"capacity, blocks of {found['block_tokens']} tokens (one request at a time)")
    axes.set_ylabel("% of prompt blocks found cached")
    axes.set_title(f"Hits by policy: {report['trace']}")
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.legend(frameon=False, loc="lower right")
    save(figure, directory, "serve-hits")


def first_token(report, directory):
    figure, axes = plt.subplots(figsize=(7.5, 4.6), layout="constrained")
    for run in report["runs"]:
        times = sorted(max(t, 1e-6) for t in run["first_tokens"])
        if times:
            ranks = sorted({round(k / 500 * (len(times) - 1)) for k in range(501)})
            share = [100 * (i + 1) / len(times) for i in ranks]
            axes.plot(
                [times[i] for i in ranks],
                share,
                linewidth=1.8,
                label=run["name"],
                **RUNS[run["name"]],
            )
    axes.set(
        xscale="log",
        ylim=(0, 101),
        xlabel="seconds from arrival to first token",
        ylabel="% of requests",
    )
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.set_title(f"Time to first token: {report['trace']}")
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.legend(frameon=False, loc="best")
    save(figure, directory, "serve-first-token")


POLICIES = {
    "bound": ("bound (Belady)", {"color": "#444444", "linestyle": "--"}),
    "default": ("default", {"color": BLUE, "marker": "o", "zorder": 3}),
    "default, with hints": ("default, with hints", {"color": BLUE, "linestyle": ":"}),
    "LRU": ("LRU", {"color": ORANGE, "marker": "^"}),
    "LFU": ("LFU", {"color": GREEN, "marker": "v"}),
    "SGLang slru": ("SGLang slru", {"color": "#CC79A7", "linestyle": "-."}),
}


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
            if row["policy"] not in POLICIES:
                continue
            label, style = POLICIES[row["policy"]]
            percent = [100 * x for x in row["blocks"]]
            (lines[label],) = axes.plot(
                comparison["capacities"], percent, **{"markersize": 4, "linewidth": 1.4, **style}
            )
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
    save(figure, directory, "policies")


def main():
    directory = pathlib.Path(sys.argv[1])
    with plt.rc_context(STYLE):
        if (directory / "policies.json").exists():
            policies(json.loads((directory / "policies.json").read_text()), directory)
        if not (directory / "serve.json").exists():
            return
        report = json.loads((directory / "serve.json").read_text())
        blocks(report, directory)
        utilization(report, directory)
        first_token(report, directory)
        if report.get("hits", {}).get("capacities"):
            hits(report, directory)


if __name__ == "__main__":
    main()
