"""Saves a figure of matplotlib: as PNG, and as an SVG that is short enough to be read and kept."""

import re

STYLE = {"svg.fonttype": "none", "svg.hashsalt": "pagedkv"}
FONT = "font-family: 'DejaVu Sans', 'Verdana', 'Arial', sans-serif"


def save(figure, directory, name, **how):
    figure.savefig(directory / f"{name}.png", dpi=150, **how)
    path = directory / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None}, **how)
    path.write_text(compact(path.read_text()))


def compact(svg):
    """The same picture without groups that only have a name, with the font named once, and with
    tenths of a point: an element on a line.
    """
    svg = re.sub(
        r"<metadata>.*?</metadata>|<!--.*?-->|<!DOCTYPE.*?>|<\?xml.*?>", "", svg, flags=re.S
    )
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
    """Removes groups whose only attribute is a name that nothing refers to."""
    kept, lines = [], []
    for line in svg.splitlines():
        if line.startswith("<g"):
            kept.append(re.fullmatch(r'<g(?: id="[^"]*")?>', line) is None)
        if (line.startswith("<g") and not kept[-1]) or (line == "</g>" and not kept.pop()):
            continue
        lines.append(line)
    return "\n".join(lines)
