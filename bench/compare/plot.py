"""The result as pictures: rates as bars, and a roofline."""

import math

import figure_file
import machines
from figure_file import GREY, plt
from machines import UNITS
from table import fastest

F = figure_file
COLOURS = (F.BLUE, F.ORANGE, F.GREEN, F.PURPLE, F.RED, F.SKY, F.YELLOW)
MARKERS = {"f32": "o", "f16": "s", "bf16": "D", "int8": "^", "int4": "v"}


def _panel(axes, results, names, amount, limit, unit):
    """A group of bars per shape; the place of a skipped peer stays empty."""
    width = 0.82 / len(names)
    for i, (name, colour) in enumerate(zip(names, COLOURS)):
        for x, result in enumerate(results):
            seconds = fastest(result, name)
            place = x + (i - (len(names) - 1) / 2) * width
            if seconds:
                axes.bar(place, result[amount] / seconds / 1e9, width * 0.92, color=colour)
            else:
                style = {"color": colour, "ha": "center", "va": "bottom", "fontsize": 9}
                axes.text(place, 0, "\N{MULTIPLICATION SIGN}", **style)
    axes.axhline(limit / 1e9, color=GREY, linewidth=1, linestyle="--")
    axes.set_xticks(range(len(results)), [_wrapped(r["shape"]) for r in results], fontsize=9)
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.6, len(results) - 0.4)
    axes.set_ylabel(unit)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


def _wrapped(shape):
    rest = shape.partition(" ")[2]
    for separator in (" on ", " (", " 512.."):
        after = " " if separator == " on " else ""
        rest = rest.replace(separator, "\n" + separator.strip() + after)
    return rest


def bars(report, directory):
    names, limits, results = list(report["peers"]), report["limits"], report["results"]
    dtypes = list(dict.fromkeys(r["dtype"] for r in results))
    kinds = [k for k in (True, False) if any(r["decode"] == k for r in results)]
    counts = [len({r["shape"] for r in results if r["decode"] == k}) for k in kinds]
    size = (max(8, 2.4 + 1.5 * sum(counts)), 0.9 + 2.5 * len(dtypes))
    how = {"width_ratios": counts, "sharey": "col", "squeeze": False, "layout": "constrained"}
    figure, grid = plt.subplots(len(dtypes), len(kinds), figsize=size, **how)
    for row, dtype in zip(grid, dtypes):
        for axes, decode in zip(row, kinds):
            chosen = [r for r in results if r["dtype"] == dtype and r["decode"] == decode]
            amount, limit, unit = (
                ("kv_bytes", "read", "GB/s of K and V") if decode else ("flops", "f32", "GFLOP/s")
            )
            _panel(axes, chosen, names, amount, limits[limit], unit)
            axes.set_title(f"{'Decode' if decode else 'Prefill'}, {dtype}")
    for axes in grid[0]:
        axes.set_ylim(0, None)  # of a whole column, so after all of its bars
    patches = [plt.Rectangle((0, 0), 1, 1, color=c) for c in COLOURS[: len(names)]]
    labels = [f"{n} {v}".strip() for n, v in report["peers"].items()]
    line = plt.Line2D([], [], color=GREY, linewidth=1, linestyle="--")
    labels.append("limit: memory read, f32 multiply-adds")
    place = {"loc": "outside upper center", "ncols": 4, "frameon": False}
    figure.legend([*patches, line], labels, **place)
    text = f"{_machine(report)}. Higher is better; \N{MULTIPLICATION SIGN}: not offered"
    figure.supxlabel(text, fontsize=10)
    figure_file.save(figure, directory, "peers-bars")


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
    colour, read = GREY, report["limits"]["read"] / 1e9
    roofs, reached = _roofs(report), low
    for highest, text, measured in roofs:
        style = {"color": colour, "zorder": 0, "linestyle": "-" if measured else ":"}
        ridge = highest / read
        axes.plot([reached, ridge, high], [reached * read, highest, highest], **style)
        # Text over the left end of a roof does not cover the prompts' marks, if there is room.
        place, side = (ridge * 1.3, "left") if measured else (high / 1.1, "right")
        axes.text(place, highest * 1.05, text, color=colour, ha=side, fontsize=9.5)
        reached = ridge
    axes.figure.canvas.draw()  # The slope on the picture is known once the axes have their places.
    (x0, y0), (x1, y1) = axes.transData.transform([(low, low * read), (ridge, highest)])
    slope = math.degrees(math.atan2(y1 - y0, x1 - x0))
    style = {"rotation": slope, "rotation_mode": "anchor", "color": colour}
    label = f"memory read {read:.1f} GB/s"
    axes.annotate(label, (low, low * read), xytext=(8, 22), textcoords="offset points", **style)


def roofline(report, directory):
    names, results = list(report["peers"]), report["results"]
    figure, axes = plt.subplots(figsize=(10, 7), layout="constrained")
    intensities = [r["flops"] / r["kv_bytes"] for r in results]
    low, high = min(intensities) / 2, max(intensities) * 3
    rates = []
    for i, (name, colour) in enumerate(zip(names, COLOURS)):
        # Peers share an intensity, so they are drawn side by side.
        beside = 1.07 ** (i - (len(names) - 1) / 2)
        for result, intensity in zip(results, intensities):
            if seconds := fastest(result, name):
                rates.append(result["flops"] / seconds / 1e9)
                marker = MARKERS[result["dtype"]]
                style = {"markersize": 8, "markeredgecolor": "white", "markeredgewidth": 0.6}
                axes.plot(intensity * beside, rates[-1], color=colour, marker=marker, **style)
    span = min(rates, default=1) / 1.8, max([_roofs(report)[-1][0], *rates]) * 1.5
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=span)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    axes.set_xlabel("arithmetic intensity, FLOP per byte of K and V (peers side by side)")
    axes.set_ylabel("GFLOP/s")
    axes.set_title(f"Attention of decode steps (left) and prompts (right)\n{_machine(report)}")
    axes.grid(which="major", color="#dddddd", linewidth=0.6)
    used = [d for d in MARKERS if any(r["dtype"] == d and r["seconds"] for r in results)]
    style = {"linestyle": "", "markersize": 8}
    marks = [
        plt.Line2D([], [], color=c, marker="o", label=n, **style) for n, c in zip(names, COLOURS)
    ] + [plt.Line2D([], [], color=GREY, marker=MARKERS[d], label=d, **style) for d in used]
    place = {"loc": "lower center", "bbox_to_anchor": (0.6, 0), "frameon": False, "ncols": 2}
    axes.legend(handles=marks, **place)
    _draw_roofs(axes, low, high, report)
    figure_file.save(figure, directory, "peers-roofline")


def draw(report, directory):
    bars(report, directory)
    roofline(report, directory)
