"""The result as pictures: rates as bars, and a roofline."""

import math

import machines
import matplotlib

matplotlib.use("Agg")
import figure_file  # noqa: E402
import matplotlib.pyplot as plt  # noqa: E402
from limits import UNITS  # noqa: E402
from table import fastest  # noqa: E402

# Okabe and Ito: told apart by colour-blind readers, too.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
MARKERS = {"f32": "o", "f16": "s", "bf16": "D", "int8": "^"}
STYLE = figure_file.STYLE | {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titleweight": "bold",
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
}


def _save(figure, directory, name):
    figure_file.save(figure, directory, name, bbox_inches="tight")
    plt.close(figure)


def _panel(axes, results, names, rate, limit, unit):
    """A group of bars per shape; a peer that was skipped leaves its place empty."""
    width = 0.82 / len(names)
    for i, (name, colour) in enumerate(zip(names, COLOURS)):
        for x, result in enumerate(results):
            seconds = fastest(result, name)
            place = x + (i - (len(names) - 1) / 2) * width
            if seconds:
                axes.bar(place, rate(result) / seconds / 1e9, width * 0.92, color=colour)
            else:
                axes.text(
                    place,
                    0,
                    "\N{MULTIPLICATION SIGN}",
                    color=colour,
                    ha="center",
                    va="bottom",
                    fontsize=9,
                )
    axes.axhline(limit / 1e9, color="#444444", linewidth=1, linestyle="--")
    axes.set_xticks(range(len(results)), [_wrapped(r["shape"]) for r in results], fontsize=9)
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.6, len(results) - 0.4)
    axes.set_ylabel(unit)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


def _wrapped(shape):
    rest = shape.partition(" ")[2]
    for separator in (" on ", " (", " 512.."):
        rest = rest.replace(
            separator, "\n" + separator.strip() + (" " if separator == " on " else "")
        )
    return rest


def bars(report, directory):
    names, limits, results = list(report["peers"]), report["limits"], report["results"]
    dtypes = list(dict.fromkeys(r["dtype"] for r in results))
    kinds = [k for k in (True, False) if any(r["decode"] == k for r in results)]
    counts = [len({r["shape"] for r in results if r["decode"] == k}) for k in kinds]
    size = (max(8, 2.4 + 1.5 * sum(counts)), 0.9 + 2.5 * len(dtypes))
    figure, grid = plt.subplots(
        len(dtypes),
        len(kinds),
        figsize=size,
        squeeze=False,
        width_ratios=counts,
        layout="constrained",
        sharey="col",
    )
    for row, dtype in zip(grid, dtypes):
        for axes, decode in zip(row, kinds):
            chosen = [r for r in results if r["dtype"] == dtype and r["decode"] == decode]
            if decode:
                _panel(
                    axes, chosen, names, lambda r: r["kv_bytes"], limits["read"], "GB/s of K and V"
                )
                axes.set_title(f"Decode, {dtype}")
            else:
                _panel(axes, chosen, names, lambda r: r["flops"], limits["f32"], "GFLOP/s")
                axes.set_title(f"Prefill, {dtype}")
    for axes in grid[0]:
        axes.set_ylim(0, None)  # of a whole column, so after all of its bars
    patches = [plt.Rectangle((0, 0), 1, 1, color=c) for c in COLOURS[: len(names)]]
    labels = [f"{n} {v}".strip() for n, v in report["peers"].items()]
    line = plt.Line2D([], [], color="#444444", linewidth=1, linestyle="--")
    figure.legend(
        [*patches, line],
        [*labels, "limit: memory read, f32 multiply-adds"],
        loc="outside upper center",
        ncols=4,
        frameon=False,
    )
    figure.supxlabel(
        f"{_machine(report)}. Higher is better; \N{MULTIPLICATION SIGN}: not offered", fontsize=10
    )
    _save(figure, directory, "peers-bars")


def _machine(report):
    machine = report["machine"]
    return f"{machine['family']}, {machine['threads']} threads, {report['date']}"


def _roofs(report):
    """[(GFLOP/s, text, whether it was measured)] of the units of this machine, lowest first."""
    limits, machine = report["limits"], report["machine"]
    roofs = [
        (limits[unit] / 1e9, f"{text}, {limits[unit] / 1e9:,.0f} GFLOP/s", True)
        for unit, text in UNITS.items()
        if limits[unit]
    ]
    known = machines.recorded(machine["family"]).get("matrix_unit")
    if known and not limits["matrix"]:
        low, high = (rate * machine["threads"] for rate in known["gflops_per_core"])
        text = f"not measured here: {low:,} to {high:,} GFLOP/s as on {known['measured_on']}"
        roofs.append(((low + high) / 2, f"{UNITS['matrix']} ({text})", False))
    return sorted(roofs)


def _draw_roofs(axes, low, high, report):
    colour, read = "#444444", report["limits"]["read"] / 1e9
    roofs, reached = _roofs(report), low
    for highest, text, measured in roofs:
        style = {"color": colour, "zorder": 0, "linestyle": "-" if measured else ":"}
        ridge = highest / read
        axes.plot([reached, ridge, high], [reached * read, highest, highest], **style)
        # Text over the left end of a roof is away from the prompts' marks, if there is room.
        place, side = (ridge * 1.3, "left") if measured else (high / 1.1, "right")
        axes.text(place, highest * 1.05, text, color=colour, ha=side, fontsize=9.5)
        reached = ridge
    axes.figure.canvas.draw()  # The slope on paper is known once the axes have their place.
    (x0, y0), (x1, y1) = axes.transData.transform([(low, low * read), (ridge, highest)])
    style = {
        "rotation": math.degrees(math.atan2(y1 - y0, x1 - x0)),
        "rotation_mode": "anchor",
        "color": colour,
    }
    label = f"memory read {read:.1f} GB/s"
    axes.annotate(label, (low, low * read), xytext=(8, 22), textcoords="offset points", **style)


def roofline(report, directory):
    names, results = list(report["peers"]), report["results"]
    figure, axes = plt.subplots(figsize=(10, 7), layout="constrained")
    intensities = [r["flops"] / r["kv_bytes"] for r in results]
    low, high = min(intensities) / 2, max(intensities) * 3
    rates = []
    for i, (name, colour) in enumerate(zip(names, COLOURS)):
        beside = 1.07 ** (
            i - (len(names) - 1) / 2
        )  # Peers share an intensity: side by side all are seen.
        for result, intensity in zip(results, intensities):
            if seconds := fastest(result, name):
                rates.append(result["flops"] / seconds / 1e9)
                style = {
                    "marker": MARKERS[result["dtype"]],
                    "markersize": 8,
                    "markeredgecolor": "white",
                    "markeredgewidth": 0.6,
                }
                axes.plot(intensity * beside, rates[-1], color=colour, **style)
    axes.set(
        xscale="log",
        yscale="log",
        xlim=(low, high),
        ylim=(min(rates, default=1) / 1.8, max([_roofs(report)[-1][0], *rates]) * 1.5),
    )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    axes.set_xlabel("arithmetic intensity, FLOP per byte of K and V (peers side by side)")
    axes.set_ylabel("GFLOP/s")
    axes.set_title(f"Attention of decode steps (left) and prompts (right)\n{_machine(report)}")
    axes.grid(which="major", color="#dddddd", linewidth=0.6)
    colours = [
        plt.Line2D([], [], color=c, marker="o", linestyle="", markersize=9, label=n)
        for n, c in zip(names, COLOURS)
    ]
    used = [d for d in MARKERS if any(r["dtype"] == d and r["seconds"] for r in results)]
    dtypes = [
        plt.Line2D([], [], color="#444444", marker=MARKERS[d], linestyle="", markersize=8, label=d)
        for d in used
    ]
    axes.legend(
        handles=colours + dtypes,
        loc="lower center",
        bbox_to_anchor=(0.6, 0),
        frameon=False,
        ncols=2,
    )
    _draw_roofs(axes, low, high, report)
    _save(figure, directory, "peers-roofline")


def draw(report, directory):
    directory.mkdir(parents=True, exist_ok=True)
    with plt.rc_context(STYLE):
        bars(report, directory)
        roofline(report, directory)
