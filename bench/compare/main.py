"""Runs the comparison: the same rows for every peer, outputs checked first, repetitions interleaved
between the peers.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

import limits
import table
import worker
from shapes import ELEMENT_BYTES, QUICK, SHAPES, Rows

BLOCK_SECONDS = 0.05  # A timed block is as many calls as take about this long.
LONG_SECONDS = 0.2  # A call so long needs no other to wake threads and caches.
PAUSE_SECONDS = 0.05  # Idle threads of the peer before may spin for a moment.


def note(*text):
    print(*text, file=sys.stderr, flush=True)


def interleave(workers, rough, rounds, skipped):
    """{(peer, variant): [seconds per call]}: every round times every peer once."""
    samples = {key: [] for key in rough}
    for _ in range(rounds):
        for (peer, variant), seconds in rough.items():
            if peer in skipped:
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
        result["seconds"][name] = {"median": statistics.median(times), "all": times}
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
        measured.append(worker.in_own_process(limits.measure, options.threads))
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


def main():
    options = arguments()
    names = {worker.name(module): module for module in worker.MODULES}
    report = {
        "machine": {"processor": table.processor(), "threads": options.threads},
        "peers": {
            name: worker.in_own_process(worker.version, module, options.library)
            for name, module in names.items()
        },
    } | run(options, names)
    table.show(report)
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
