"""The look of pictures. They are saved as PNG, and as SVG that is short enough to be kept."""

import re

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

plt.rcParams |= {
    "svg.fonttype": "none",
    "svg.hashsalt": "pagedkv",
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titleweight": "bold",
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
}
FONT = "font-family: 'DejaVu Sans', 'Verdana', 'Arial', sans-serif"
# Colours of Okabe and Ito, which colour-blind readers can distinguish.
BLUE, ORANGE, GREEN, PURPLE, RED, SKY, YELLOW = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442",
)  # fmt: skip
GREY = "#444444"


def save(figure, directory, name):
    directory.mkdir(parents=True, exist_ok=True)
    figure.savefig(directory / f"{name}.png", dpi=150, bbox_inches="tight")
    path = directory / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    path.write_text(compact(path.read_text()))
    plt.close(figure)


def compact(svg):
    """The same picture without groups that only have a name, with the font named once, with tenths
    of a point, and with an element on each line.
    """
    svg = re.sub(r"<(metadata>.*?</metadata|!--.*?--|!DOCTYPE.*?|\?xml.*?)>", "", svg, flags=re.S)
    svg = re.sub(r";? ?font-family: [^;\"]*|transform=\"rotate\(-0 [^)]*\)\"", "", svg)
    svg = svg.replace('version="1.1"', f'style="{FONT}"', 1)
    svg = re.sub(r"<[^>]*>", lambda tag: re.sub(r"-?\d+\.\d+", rounded, tag[0]), svg)
    svg = re.sub(r"[ \n]+", " ", svg).replace("> <", ">\n<")
    svg = re.sub(r'<g [^>]*/>\n|<path d="M [-\d.]+ [-\d.]+ "[^>]*/>\n', "", svg)  # show nothing
    return without_groups(svg).strip() + "\n"


def rounded(number):
    value = float(number[0])
    return f"{round(value, 1 if abs(value) >= 1 else 2) + 0.0:g}"


def without_groups(svg):
    """Removes groups whose only attribute is an unused name."""
    kept, lines = [], []
    for line in svg.splitlines():
        if line.startswith("<g"):
            kept.append(re.fullmatch(r'<g(?: id="[^"]*")?>', line) is None)
        if (line.startswith("<g") and not kept[-1]) or (line == "</g>" and not kept.pop()):
            continue
        lines.append(line)
    return "\n".join(lines)
