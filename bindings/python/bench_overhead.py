"""Measures how much more a decode step costs from Python than from C, and its share of a step.

usage: bench_overhead.py PKV_STEP [ROUNDS]      PKV_STEP: build/bindings/pkv-step

The same step in both: begin, write, attend and commit of one new token for each of 8 sessions. With
16 tokens in each session and one thread, Python's overhead is the difference in CPU time, which
other programs hardly disturb. It is compared with the shortest wall time of a step of 4096 tokens,
from C on all CPUs. C and Python take turns.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

import numpy as np

import pagedkv

SESSIONS, QUERY_HEADS, KV_HEADS, DIM = 8, 32, 8, 128
SHORT, LONG = 16, 4096


def steps_in_c(program: str, tokens: int, steps: int, threads: int) -> tuple[float, float]:
    """In microseconds: the median CPU time and the shortest wall time."""
    environment = os.environ | {"PAGEDKV_LIBRARY": pagedkv.library().path}
    command = [program, str(tokens), str(steps), str(threads)]
    median, shortest = subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment
    ).stdout.split()
    return float(median), float(shortest)


def steps_in_python(tokens: int, steps: int, threads: int) -> tuple[float, float]:
    """As steps_in_c."""
    config = pagedkv.CacheConfig(
        layers=1,
        query_heads=QUERY_HEADS,
        kv_heads=KV_HEADS,
        key_dim=DIM,
        dtype=pagedkv.Dtype.BF16,
        blocks=SESSIONS * (tokens // 16 + 1),
        prefault=True,
        threads=threads,
    )
    times, clock = [], []
    with pagedkv.Cache(config) as cache:
        prompt = (np.arange(tokens * KV_HEADS * DIM, dtype=np.float32) % 17 / 17).reshape(
            tokens, KV_HEADS, DIM
        )
        sessions = [cache.open_session() for _ in range(SESSIONS)]
        for session in sessions:
            with cache.begin([session], [tokens]) as batch:
                batch.write(0, prompt, prompt)
                batch.commit()
        q = np.zeros((SESSIONS, QUERY_HEADS, DIM), np.float32)
        k, v, out = (
            np.zeros((SESSIONS, heads, DIM), np.float32)
            for heads in (KV_HEADS, KV_HEADS, QUERY_HEADS)
        )
        new, ids = [1] * SESSIONS, np.arange(1, SESSIONS + 1, dtype=np.int32)
        for _ in range(steps):
            start, processor_start = time.perf_counter(), time.thread_time()
            with cache.begin(sessions, new) as batch:
                batch.write(0, k, v)
                batch.attend(0, q, out)
                batch.commit(ids)
            times.append(time.thread_time() - processor_start)
            clock.append(time.perf_counter() - start)
            for session in sessions:
                session.trim(tokens)
    return statistics.median(times) * 1e6, min(clock) * 1e6


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: bench_overhead.py PKV_STEP [ROUNDS]")
    program, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else 7
    c_short, python_short, c_long, python_long = [], [], [], []
    for _ in range(rounds):
        c_short.append(steps_in_c(program, SHORT, 500, 1)[0])
        python_short.append(steps_in_python(SHORT, 500, 1)[0])
        c_long.append(steps_in_c(program, LONG, 40, 0)[1])
        python_long.append(steps_in_python(LONG, 40, 0)[1])
    c, python = statistics.median(c_short), statistics.median(python_short)
    overheads = sorted(b - a for a, b in zip(c_short, python_short, strict=True))
    share = 100 * (python - c) / min(c_long)
    print(
        f"8 x {SHORT} tokens, one thread, CPU time: {c:.1f} us from C, {python:.1f} us from "
        "Python"
    )
    print(
        f"8 x {LONG} tokens, all CPUs, shortest: {min(c_long):.0f} us from C, "
        f"{min(python_long):.0f} us from Python"
    )
    print(
        f"overhead {python - c:.1f} us (rounds: {overheads[0]:.1f} to {overheads[-1]:.1f}), "
        f"{share:.2f} % of a step of 8 x {LONG}"
    )


if __name__ == "__main__":
    main()
