"""What the machine can do: reading memory, and multiplying and adding."""

import time

import numpy as np


def _best_rate(amount, call, seconds=0.5):
    call()
    best, end = 0.0, time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        call()
        best = max(best, amount / (time.perf_counter() - begin))
    return best


def measure(threads):
    """{"read": bytes per second, "fma": operations per second, "by": what measured}, best of half a
    second each.
    """
    array = np.ones(1 << 28, np.float32)
    n = 2048
    matrix = np.ones((n, n), np.float32)
    try:
        import torch

        torch.set_num_threads(threads)
        array, matrix, by = torch.from_numpy(array), torch.from_numpy(matrix), "torch"
        out = torch.empty_like(matrix)
        multiply = lambda: torch.mm(matrix, matrix, out=out)  # noqa: E731
    except Exception:
        by = "numpy"
        multiply = lambda: matrix @ matrix  # noqa: E731
    read, fma = _best_rate(1 << 30, array.sum), _best_rate(2 * n**3, multiply)
    return {"read": read, "fma": fma, "by": f"{by} sum over 1 GiB, {by} f32 matmul of {n}"}


def best(measured):
    """Of several moments: on a shared machine most of them are slower than the machine is."""
    return {"by": measured[0]["by"]} | {
        name: max(m[name] for m in measured) for name in ("read", "fma")
    }
