"""The result as a picture: seconds of each workload, each host with its own attention and ours."""

import matplotlib

matplotlib.use("Agg")
import figure_file  # noqa: E402
import matplotlib.pyplot as plt  # noqa: E402
from ways import WAYS  # noqa: E402

OURS, THEIRS = "#0072B2", "#BBBBBB"


def _panel(axes, result):
    shown = [way for way in WAYS if way.name in result["runs"]]
    for place, way in enumerate(shown):
        run = result["runs"][way.name]
        ours = "pagedkv" in way.name
        prompt = run["prompt_seconds"]
        axes.barh(place, prompt, color=OURS if ours else THEIRS, height=0.8)
        axes.barh(
            place, run["seconds"] - prompt, left=prompt, height=0.8,
            color=OURS if ours else THEIRS, alpha=0.5,
        )  # fmt: skip
        axes.text(
            run["seconds"],
            place,
            f"\N{NO-BREAK SPACE}{run['seconds']:.3g}",
            va="center",
            fontsize=8,
        )
    axes.set_yticks(range(len(shown)), [way.name for way in shown], fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_title(f"{result['workload']}, {result['dtype']}")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def draw(report, directory):
    results = report["results"]
    dtypes = list(dict.fromkeys(r["dtype"] for r in results))
    names = list(dict.fromkeys(r["workload"] for r in results))
    plt.rcParams |= figure_file.STYLE
    plt.rcParams |= {"font.size": 9, "axes.titlesize": 10, "axes.titlelocation": "left"}
    figure, grid = plt.subplots(
        len(names), len(dtypes), figsize=(6.2 * len(dtypes), 2.5 * len(names)),
        squeeze=False, layout="constrained",
    )  # fmt: skip
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
    plt.close(figure)
