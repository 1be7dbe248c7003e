"""Compares the peers: the same rows for all, outputs checked first, repetitions in turns."""

import json
import pathlib
import subprocess
import sys
import time

import command
import machines
import pkv
import table
import worker
from shapes import ELEMENT_BYTES, QUICK, SHAPES, Rows

BLOCK_SECONDS = 0.05  # A timed block of calls takes about this long.
LONG_SECONDS = 0.2  # A call of this length needs no warm-up call.
SLOW_SECONDS = 1  # A call of this length is only timed twice.
PAUSE_SECONDS = 0.05  # Idle threads of the previous peer may spin for a moment.


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
                time_ = workers[peer]("time", variant, count, seconds < LONG_SECONDS)
                samples[peer, variant].append(time_)
            except worker.Failed as error:
                skipped[peer] = str(error)
    return {key: times for key, times in samples.items() if key[0] not in skipped}


def compare(shape, dtype, workers, rounds):
    result = {"shape": shape.name, "dtype": dtype, "decode": shape.decode}
    result |= {"kv_bytes": shape.kv_bytes(dtype), "flops": shape.flops()}
    result |= {"seconds": {}, "deviation": {}, "skipped": {}}
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
    shapes = [s for s in SHAPES if options.only in s.name]
    if options.quick and not options.only:
        shapes = [s for s in shapes if s.name in QUICK]
    results, measured = [], []
    for shape in shapes:
        command.note(f"{shape.name} ...")
        measured.append(machines.measure(options.peaks, options.threads))
        rows = Rows(shape)
        workers = {name: start(module, shape, rows, options) for name, module in names.items()}
        for dtype in options.dtypes:
            results.append(compare(shape, dtype, workers, 3 if options.quick else 7))
        for process in workers.values():
            if not isinstance(process, str):
                process.close()
    return {"limits": machines.best(measured), "results": results}


def arguments():
    parser = command.parser("bench/peers", list(ELEMENT_BYTES))
    parser.add_argument("--only", metavar="NAME", default="")
    engines = list(worker.ENGINES)
    parser.add_argument("--engines", type=command.words, default=engines, metavar="LIST")
    instruction_sets = [isa.name.lower() for isa in pkv.raw.Isa]
    parser.add_argument("--isa", default=pkv.isa, choices=instruction_sets)
    parser.add_argument("--peaks", required=True, metavar="PROGRAM")
    options = command.parse(parser, list(ELEMENT_BYTES))
    if not any(options.only in s.name for s in SHAPES):
        names = "; ".join(s.name for s in SHAPES)
        parser.error(f"no shape has {options.only!r} in its name; there are: {names}")
    if unknown := [name for name in options.engines if name not in engines]:
        parser.error(f"no engine {unknown[0]}; there are {', '.join(engines)}")
    pkv.isa = options.isa  # of the processes that are forked from this one
    return options


def commit():
    """The commit of the tree that this file is in, or ""."""
    git = ["git", "-C", pathlib.Path(__file__).parent, "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def pooled(before, now):
    """Adds the repetitions of an earlier run of the same shape and type to a result."""
    seconds = now["seconds"]
    for name, old in before["seconds"].items():
        times = seconds.get(name, {"all": []})["all"] + old["all"]
        seconds[name] = {"fastest": min(times), "all": times}
    return now


def added(report, file):
    """Adds the shapes, types and repetitions of the file to a report."""
    if not file or not file.exists():
        return report
    before = json.loads(file.read_text())
    if before["machine"] != report["machine"]:
        sys.exit(f"bench/peers: the figures in {file} are of another machine")
    results = {(r["shape"], r["dtype"]): r for r in before["results"]}
    for result in report["results"]:
        key = result["shape"], result["dtype"]
        results[key] = pooled(results[key], result) if key in results else result
    order = [(s.name, dtype) for s in SHAPES for dtype in ELEMENT_BYTES]
    best = machines.best([before["limits"], report["limits"]])
    return report | {"results": [results[k] for k in order if k in results], "limits": best}


def main():
    options = arguments()
    names = {worker.name(module): module for module in worker.modules(options.engines)}
    report = command.report(options) | {"commit": commit()}
    report["machine"]["isa"] = options.isa
    report["peers"] = {
        name: worker.in_own_process(worker.version, module, options.library)
        for name, module in names.items()
    }
    report |= run(options, names)
    table.show(report)
    report = added(report, options.json)
    command.save(report, options)
    if options.out:
        import plot

        plot.draw(report, options.out)
    if any(worker.WRONG in why for r in report["results"] for why in r["skipped"].values()):
        sys.exit("bench/peers: the results of a peer differ from the reference")


main()
