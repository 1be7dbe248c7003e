"""Runs the comparison: the same rows for every peer, outputs checked first, repetitions interleaved
between the peers.
"""

import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import time

import limits
import machines
import table
import worker
from shapes import ELEMENT_BYTES, QUICK, SHAPES, Rows

BLOCK_SECONDS = 0.05  # A timed block is as many calls as take about this long.
LONG_SECONDS = 0.2  # A call so long needs no other to wake threads and caches.
SLOW_SECONDS = 1  # A call so long is timed twice only.
PAUSE_SECONDS = 0.05  # Idle threads of the peer before may spin for a moment.


def note(*text):
    print(*text, file=sys.stderr, flush=True)


def interleave(workers, rough, rounds, skipped):
    """{(peer, variant): [seconds per call]}: every round times every peer once."""
    samples = {key: [] for key in rough}
    for round_ in range(rounds):
        for (peer, variant), seconds in rough.items():
            if peer in skipped or (seconds > SLOW_SECONDS and round_ > 1):
                continue
            time.sleep(PAUSE_SECONDS)
            count = max(1, round(BLOCK_SECONDS / seconds))
            try:
                samples[peer, variant].append(
                    workers[peer]("time", variant, count, seconds < LONG_SECONDS)
                )
            except worker.Failed as error:
                skipped[peer] = str(error)
    return {key: times for key, times in samples.items() if key[0] not in skipped}


def compare(shape, dtype, workers, rounds):
    result = {
        "shape": shape.name,
        "dtype": dtype,
        "decode": shape.decode,
        "kv_bytes": shape.kv_bytes(dtype),
    }
    result |= {"flops": shape.flops(), "seconds": {}, "deviation": {}, "skipped": {}}
    rough = {}
    for peer, process in workers.items():
        if isinstance(process, str):
            result["skipped"][peer] = process
            continue
        try:
            result["deviation"][peer], variants = process("prepare", dtype)
            rough |= {(peer, variant): seconds for variant, seconds in variants.items()}
        except worker.Failed as error:
            result["skipped"][peer] = str(error)
    for (peer, variant), times in interleave(workers, rough, rounds, result["skipped"]).items():
        name = peer if variant == "step" else f"{peer}, {variant}"
        result["seconds"][name] = {"fastest": min(times), "all": times}
    return result


def start(module, shape, rows, options):
    try:
        return worker.Worker(module, shape, rows, options.threads, options.library)
    except worker.Failed as error:
        return str(error)


def run(options, names):
    shapes = [s for s in SHAPES if options.only in s.name] if options.only else SHAPES
    if options.quick and not options.only:
        shapes = [s for s in shapes if s.name in QUICK]
    results, measured = [], []
    for shape in shapes:
        note(f"{shape.name} ...")
        measured.append(limits.measure(options.peaks, options.threads))
        rows = Rows(shape)
        workers = {name: start(module, shape, rows, options) for name, module in names.items()}
        for dtype in options.dtypes:
            results.append(compare(shape, dtype, workers, 3 if options.quick else 7))
        for process in workers.values():
            if not isinstance(process, str):
                process.close()
    return {"limits": limits.best(measured), "results": results}


def arguments():
    parser = argparse.ArgumentParser(prog="bench/peers")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", metavar="NAME")
    parser.add_argument("--dtypes", type=lambda text: text.split(","), default=list(ELEMENT_BYTES))
    parser.add_argument("--library", required=True)
    parser.add_argument("--peaks", required=True, metavar="PROGRAM")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    if unknown := [d for d in options.dtypes if d not in ELEMENT_BYTES]:
        parser.error(f"no dtype {unknown[0]}; there are {', '.join(ELEMENT_BYTES)}")
    if options.only and not any(options.only in s.name for s in SHAPES):
        parser.error(
            f"no shape has {options.only!r} in its name; there are: "
            f"{'; '.join(s.name for s in SHAPES)}"
        )
    return options


def commit():
    """Of the tree that this file is in; "" where it is in none."""
    command = ["git", "-C", pathlib.Path(__file__).parent, "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def pooled(before, now):
    """The result with the repetitions of an earlier run of the same shape and type."""
    seconds = now["seconds"]
    for name, old in before["seconds"].items():
        times = seconds.get(name, {"all": []})["all"] + old["all"]
        seconds[name] = {"fastest": min(times), "all": times}
    return now


def added(report, file):
    """The report with what the file has: other shapes and types, and more repetitions of these."""
    if not file or not file.exists():
        return report
    before = json.loads(file.read_text())
    if before["machine"] != report["machine"]:
        sys.exit(f"bench/peers: {file} is of another machine")
    results = {(r["shape"], r["dtype"]): r for r in before["results"]}
    for result in report["results"]:
        key = result["shape"], result["dtype"]
        results[key] = pooled(results[key], result) if key in results else result
    order = [(s.name, dtype) for s in SHAPES for dtype in ELEMENT_BYTES]
    best = limits.best([before["limits"], report["limits"]])
    return report | {"results": [results[k] for k in order if k in results], "limits": best}


def main():
    options = arguments()
    names = {worker.name(module): module for module in worker.MODULES}
    report = {
        "machine": machines.here() | {"threads": options.threads},
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "peers": {
            name: worker.in_own_process(worker.version, module, options.library)
            for name, module in names.items()
        },
    } | run(options, names)
    table.show(report)
    report = added(report, options.json)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    if options.out:
        import plot

        plot.draw(report, options.out)
    if any(
        worker.WRONG in reason
        for result in report["results"]
        for reason in result["skipped"].values()
    ):
        sys.exit("bench/peers: a peer computed something else than the reference")


main()
