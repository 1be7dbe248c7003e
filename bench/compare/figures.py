"""Prints the tables of FIGURES.md, "beside other engines", from bench/data/peers.

    python3 -B bench/compare/figures.py [REPORT]

REPORT is a file of bench/peers --json: its times are first stored in the folder, as the figures of
its machine's family.
"""

import kept
from table import OURS, fastest

LETTERS = {"OpenVINO": "O", "ONNX Runtime": "R", "PyTorch": "P", "vLLM": "V", "ggml": "G"}


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


def _beside_best(row):
    """Our time, the best peer's time, and its ratio to ours."""
    if not row or OURS not in row:
        return "-"
    name = min((n for n in row if n != OURS), key=row.get)
    ratio = row[name] / row[OURS]
    text = f"{ratio:.2f}" if 0.9 <= ratio < 1.05 else f"{ratio:.1f}"
    text = f"**{text}**" if ratio < 1 else text
    return f"{_number(row[OURS])}, {_number(row[name])} {LETTERS[name]}: {text}"


def _rows(machines):
    """(shape, type) of all measurements on any machine."""
    pairs = [(s, t) for m in machines for s, types in m["milliseconds"].items() for t in types]
    return sorted(dict.fromkeys(pairs), key=lambda pair: not pair[0].startswith("decode"))


def side_by_side(machines):
    find = [m["milliseconds"] for m in machines]
    rows = [[s, t, *[_beside_best(m.get(s, {}).get(t)) for m in find]] for s, t in _rows(machines)]
    kept.show(["shape", "type", *[m["machine"]["family"] for m in machines]], rows)


def all_peers(machine):
    names = [OURS, *[name for name in LETTERS if machine["peers"].get(name)]]
    rows = []
    for shape, dtype in _rows([machine]):
        row = machine["milliseconds"][shape][dtype]
        rows.append([shape, dtype, *[_number(row[n]) if n in row else "-" for n in names]])
    print(f"{machine['machine']['family']}, {machine['date']}:\n")
    kept.show(["shape", "type", *names], rows)


def main():
    machines = kept.update("peers", condensed)
    side_by_side(machines)
    for machine in machines:
        rows = [row for types in machine["milliseconds"].values() for row in types.values()]
        # The oldest figures have only the best peer.
        if max(map(len, rows)) > 2:
            all_peers(machine)


main()
