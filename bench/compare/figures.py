"""Prints the tables of FIGURES.md, "beside other engines", from bench/data/peers.

    python3 -B bench/compare/figures.py [REPORT]

REPORT is a file of bench/peers --json: its times are first stored in the folder, as the figures of
its machine's family. The last table of a machine, with the times of all engines, is not in the
document.
"""

import itertools
import math

import kept
from table import OURS, fastest

LETTERS = {"OpenVINO": "O", "ONNX Runtime": "R", "PyTorch": "P", "vLLM": "V", "ggml": "G"}
LETTERS |= {"ik_llama.cpp": "I"}
TYPES = ("f32", "f16", "bf16", "int8", "int4")
GROUPS = (("f32",), ("f16", "bf16"), ("int8",), ("int4",))


def condensed(report):
    """Milliseconds by shape, type and peer, instead of all measurements."""
    shapes = {}
    for result in report["results"]:
        names = [name for name in report["peers"] if fastest(result, name)]
        row = {name: float(f"{fastest(result, name) * 1e3:.4g}") for name in names}
        shapes.setdefault(result["shape"], {})[result["dtype"]] = row
    names = ("machine", "date", "commit", "peers", "limits")
    return {name: report[name] for name in names} | {"milliseconds": shapes}


def _number(milliseconds):
    """Three digits, and no exponent."""
    return f"{float(f'{milliseconds:.3g}'):g}"


def _best(row):
    """The fastest peer, and its time over ours."""
    name = min((n for n in row if n != OURS), key=row.get)
    return name, row[name] / row[OURS]


def _ratio(ratio):
    text = f"{ratio:.2f}" if 0.9 <= ratio < 1.05 else f"{ratio:.1f}"
    return f"**{text}**" if ratio < 1 else text


def _mean(ratios):
    return _ratio(math.prod(ratios) ** (1 / len(ratios)))


def _measured(types, milliseconds):
    return [dtype for dtype in types if any(dtype in row for row in milliseconds.values())]


def _peers(machine):
    return [name for name in LETTERS if machine["peers"].get(name)]


def shapes(milliseconds):
    """Our time, the time of the best peer over it, and the letter of that peer."""
    types = _measured(TYPES, milliseconds)
    rows = []
    for shape in sorted(milliseconds, key=lambda name: not name.startswith("decode")):
        cells = []
        for row in map(milliseconds[shape].get, types):
            name, ratio = _best(row)
            cells.append(f"{_number(row[OURS])}, {_ratio(ratio)} {LETTERS[name]}")
        rows.append([shape, *cells])
    kept.show(["shape", *types], rows)


def means(machine):
    """Geometric means over the shapes of the time of each peer, and of the best one, over ours."""
    milliseconds, names, rows = machine["milliseconds"], _peers(machine), []
    groups = filter(None, [_measured(group, milliseconds) for group in GROUPS])
    for kind, types in itertools.product(("decode", "prefill"), groups):
        found = [
            of_shape[dtype]
            for shape, of_shape in milliseconds.items()
            for dtype in types
            if shape.startswith(kind)
        ]
        ratios = {n: [row[n] / row[OURS] for row in found if n in row] for n in names}
        cells = [_mean(ratios[n]) if len(ratios[n]) == len(found) else "-" for n in names]
        best = _mean([_best(row)[1] for row in found])
        rows.append([f"{kind}, {' and '.join(types)}", best, *cells])
    kept.show(["", "fastest", *names], rows)


def all_peers(machine):
    names = [OURS, *_peers(machine)]
    rows = []
    for shape, types in machine["milliseconds"].items():
        for dtype, row in types.items():
            rows.append([shape, dtype, *[_number(row[n]) if n in row else "-" for n in names]])
    kept.show(["shape", "type", *names], rows)


def main():
    for machine in kept.update("peers", condensed):
        print(f"{machine['machine']['family']}, {machine['date']}:\n")
        shapes(machine["milliseconds"])
        rows = [row for types in machine["milliseconds"].values() for row in types.values()]
        # The oldest figures have only the best peer.
        if max(map(len, rows)) > 2:
            means(machine)
            all_peers(machine)


main()
