"""Runs pkv-bench on 1, 2, 4 ... all CPUs, and prints how much faster each row gets.

    python3 -B bench/compare/threads.py PKV_BENCH [SECONDS]

Each row is measured for SECONDS, and at least twenty times. A run is bound to its CPUs: first one
of each core, a NUMA node after the other, then the other threads of the cores.
"""

import json
import os
import subprocess
import sys

import table
from command import note

DECODE = "decode/bf16/gqa{}/dim128/sessions{}/tokens{}"
BENCHMARKS = {
    "decode 1 x 32768": DECODE.format(4, 1, 32768),
    "decode 8 x 512": DECODE.format(4, 8, 512),
    "decode 8 x 4096": DECODE.format(4, 8, 4096),
    "decode 8 x 32768": DECODE.format(4, 8, 32768),
    "decode 256 x 512": DECODE.format(4, 256, 512),
    "decode 8 x 4096, GQA 8": DECODE.format(8, 8, 4096),
    "decode 256 x 512, GQA 8": DECODE.format(8, 256, 512),
    "shared prefix 16 x 4096": "shared_prefix/bf16/gqa4/dim128/sessions16/tokens4096",
    "prompt 512 on 3584": "prefill/bf16/gqa4/dim128",
    "prompt 512 on 3584, int8": "prefill/int8/gqa4/dim128",
    "step of 256 sessions, no rows": "step/overhead",
    "pool, 1 id at a time": "pool/single/{cpus}",
    "pool, 16 ids at a time": "pool/batch16/{cpus}",
}
# Limits that are measured beside rows: the row, and the counter.
LIMITS = {
    "plain reads": ("decode 8 x 32768", "read_GB/s"),
    "fp32 multiply-adds": ("prompt 512 on 3584", "FMA_GFLOP/s"),
}
RATES = ("GB/s", "GFLOP/s", "M_ids/s")  # a row without any of these has a time, "us"


def cpus():
    """CPUs that this process may use, in the order in which runs take them; number of cores."""
    text = subprocess.run(["lscpu", "-p=CPU,CORE,NODE"], capture_output=True, text=True, check=True)
    lines = [line.split(",") for line in text.stdout.splitlines() if not line.startswith("#")]
    found, of_core = [], {}
    for cpu, core, node in ([int(number or 0) for number in line] for line in lines):
        if cpu in os.sched_getaffinity(0):
            of_core[core] = of_core.get(core, 0) + 1
            found.append((of_core[core], node, core, cpu))
    return [cpu for *_, cpu in sorted(found)], len(of_core)


def counts(all_cpus, cores):
    powers = [1 << i for i in range(cores.bit_length()) if 1 << i < cores]
    return sorted({*powers, cores, all_cpus})


def measure(program, chosen, name, seconds):
    """The counters of a benchmark on these CPUs."""
    command = ["taskset", "-c", ",".join(map(str, chosen)), program, "--benchmark_format=json"]
    command += [f"--benchmark_filter=^{name}/real_time$", f"--benchmark_min_time={seconds}"]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)} failed: {run.stderr}")
    return json.loads(run.stdout)["benchmarks"][0]


def rate(row):
    """(amount per second, as text)"""
    name = next((name for name in RATES if name in row), "us")
    return row[name] if name in RATES else 1 / row[name], f"{row[name]:.4g} {name}"


def show(results):
    header = ["", *(f"{n} CPU{'s' if n > 1 else ''}" for n in results)]
    rows = []
    for title in BENCHMARKS:
        measured = [result[title] for result in results.values()]
        first, text = rate(measured[0])
        cells = [text, *(f"{rate(row)[0] / first:.2f}" for row in measured[1:])]
        rows.append([title, *(f"{c} ({row['ratio']:.2f})" for c, row in zip(cells, measured))])
    for title, (row, counter) in LIMITS.items():
        amounts = [result[row][counter] for result in results.values()]
        text = f"{amounts[0]:.4g} {counter.partition('_')[2]}"
        rows.append([title, text, *(f"{amount / amounts[0]:.2f}" for amount in amounts[1:])])
    table.show_aligned(header, rows)


def main():
    program, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 0.5
    order, cores = cpus()
    results = {}
    for count in counts(len(order), cores):
        results[count] = {}
        for title, name in BENCHMARKS.items():
            row = measure(program, order[:count], name.format(cpus=count), seconds)
            results[count][title] = row
            note(f"{count} of {len(order)} CPUs: {title}: {rate(row)[1]} ({row['ratio']:.2f})")
    show(results)
    print(
        "The first column is a rate or a time; the others say how many times faster it is.\n"
        "In brackets, the ratio of pkv-bench on these CPUs: to plain reads (decode), to fp32\n"
        "multiply-adds (prompts), to sessions with prompts of their own (shared prefix), to 25 us\n"
        "(step), to a vector of ids under a mutex (pool)."
    )


main()
