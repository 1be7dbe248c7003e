"""The result as text."""

import statistics

from machines import UNITS

OURS = "pagedkv"


def show_aligned(header, rows, texts=1):
    """The first `texts` columns are text, the others numbers."""
    widths = [max(len(row[i]) for row in [header] + rows) for i in range(len(header))]
    for row in [header, ["-" * w for w in widths]] + rows:
        cells = [
            cell.ljust(w) if i < texts else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths))
        ]
        print("  ".join(cells).rstrip())
    print()


def fastest(result, name):
    """Seconds of the fastest repetition, because other load can only slow one down."""
    return result["seconds"].get(name, {}).get("fastest")


def best_peer(result):
    """(name, seconds) of the fastest that is not ours, or None."""
    names = [name for name in result["seconds"] if not name.startswith(OURS)]
    times = [(fastest(result, name), name) for name in names]
    return min(times)[::-1] if times else None


def _milliseconds(seconds):
    return "-" if seconds is None else f"{seconds * 1e3:.2f}"


def _spread(result):
    """The largest interquartile range over the median of any peer: the noise of the machine."""
    spread = 0.0
    for times in result["seconds"].values():
        if len(times["all"]) > 1:
            low, _, high = statistics.quantiles(times["all"], n=4, method="inclusive")
            spread = max(spread, (high - low) / statistics.median(times["all"]))
    return spread


def _row(result, peers, limits):
    ours, best = fastest(result, OURS), best_peer(result)
    row = [result["shape"], result["dtype"]]
    row += [_milliseconds(fastest(result, name)) for name in (OURS, f"{OURS}, attend only", *peers)]
    amount, limit = result["flops"], limits["f32"]
    if result["decode"]:
        amount, limit = result["kv_bytes"], limits["read"]
    row += [f"{amount / s / 1e9:.1f}" if s else "-" for s in (ours, best and best[1])]
    row += [f"{amount / ours / limit:.0%}" if ours else "-", f"{_spread(result):.0%}"]
    return row + [best[0] if best else "-", f"{best[1] / ours:.2f}" if best and ours else "-"]


def _show_times(title, results, peers, limits, unit):
    if not results:
        return
    print(title)
    header = ["shape", "dtype", OURS, "attend only", *peers, f"{OURS} {unit}", f"best peer {unit}"]
    header += ["of limit", "spread", "best peer", "ratio"]
    show_aligned(header, [_row(r, peers, limits) for r in results], texts=2)


def _show_deviations(results, names):
    print("Largest deviation from a float32 reference, over the largest element of the reference")
    rows = []
    for dtype in dict.fromkeys(r["dtype"] for r in results):
        found = [r["deviation"] for r in results if r["dtype"] == dtype]
        largest = (max((f[name] for f in found if name in f), default=None) for name in names)
        rows.append([dtype, *("-" if d is None else f"{d:.1e}" for d in largest)])
    show_aligned(["dtype", *names], rows)


def _show_skipped(results):
    reasons = {}
    for result in results:
        for name, reason in result["skipped"].items():
            reasons.setdefault((name, result["dtype"], reason), []).append(result["shape"])
    if reasons:
        print("Skipped")
    for (name, dtype, reason), shapes in reasons.items():
        every = len(shapes) == len({r["shape"] for r in results})
        print(f"  {name} {dtype}{'' if every else ', ' + ', '.join(shapes)}: {reason}")
    if reasons:
        print()


def show(report):
    machine, limits, results = report["machine"], report["limits"], report["results"]
    names = list(report["peers"])
    peers = [name for name in names if name != OURS]
    print(f"\n{machine['family']} ({machine['processor']}), {machine['threads']} threads")
    print(f"reads {limits['read'] / 1e9:.1f} GB/s")
    units = (f"{text} {limits[unit] / 1e9:.0f}" for unit, text in UNITS.items() if limits[unit])
    print(f"GFLOP/s: {', '.join(units)}")
    versions = (f"{name} {version or 'not installed'}" for name, version in report["peers"].items())
    print(", ".join(versions) + "\n")
    decode = [r for r in results if r["decode"]]
    prefill = [r for r in results if not r["decode"]]
    _show_times("Decode: milliseconds of a step, GB/s of K and V", decode, peers, limits, "GB/s")
    _show_times("Prefill: milliseconds of a chunk, GFLOP/s", prefill, peers, limits, "GFLOP/s")
    print(
        "Times are of the fastest repetition. A step stores the new tokens and attends; PyTorch's\n"
        f"only attends. ratio: time of the best peer over that of {OURS}, above 1 if {OURS}\n"
        "is faster. of limit: of memory reads (decode) or f32 multiply-adds (prefill). spread:\n"
        "largest interquartile range over median, the noise of the row. int8 and int4: K and V in\n"
        "8 and 4 bits, with the scales that each engine has.\n"
    )
    _show_deviations(results, names)
    _show_skipped(results)
