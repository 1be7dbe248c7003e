"""The result as a picture: seconds of each workload, each host with its own attention and ours."""

import figure_file
from figure_file import plt
from ways import WAYS

OURS, THEIRS = figure_file.BLUE, "#BBBBBB"


def _panel(axes, result):
    shown = [way for way in WAYS if way.name in result["runs"]]
    for place, way in enumerate(shown):
        run = result["runs"][way.name]
        prompt, whole = run["prompt_seconds"], run["seconds"]
        style = {"color": OURS if "pagedkv" in way.name else THEIRS, "height": 0.8}
        axes.barh(place, prompt, **style)
        axes.barh(place, whole - prompt, left=prompt, alpha=0.5, **style)
        axes.text(whole, place, f"\N{NO-BREAK SPACE}{whole:.3g}", va="center", fontsize=8)
    axes.set_yticks(range(len(shown)), [way.name for way in shown], fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_title(f"{result['workload']}, {result['dtype']}")


def draw(report, directory):
    results = report["results"]
    dtypes = list(dict.fromkeys(r["dtype"] for r in results))
    names = list(dict.fromkeys(r["workload"] for r in results))
    plt.rcParams |= {"font.size": 9, "axes.titlesize": 10, "axes.titleweight": "normal"}
    size = (6.2 * len(dtypes), 2.5 * len(names))
    how = {"figsize": size, "squeeze": False, "layout": "constrained"}
    figure, grid = plt.subplots(len(names), len(dtypes), **how)
    for result in results:
        axes = grid[names.index(result["workload"])][dtypes.index(result["dtype"])]
        _panel(axes, result)
    machine = report["machine"]
    figure.supxlabel(
        "Seconds, less is better: dark until the last first token, light the answers after it. "
        f"Blue: on pagedkv.\n{machine['family']}, {machine['threads']} threads, {report['date']}",
        fontsize=9,
    )
    figure_file.save(figure, directory, "engines")
