"""Runs attention on PyTorch's threads. Threads of our own would compete with these while they spin
for work, or share a CPU that the host has bound its thread to.
"""

from __future__ import annotations

import functools
import os

import torch

from .compute import Compute, openmp_runner
from .errors import PagedKVError
from .generated import raw as _raw
from .generated.raw import Dtype, Status

ROWS = {torch.float32: Dtype.F32, torch.float16: Dtype.F16, torch.bfloat16: Dtype.BF16}
"""The types of rows: queries, results, new keys and values."""


def torch_runner() -> _raw.Runner | None:
    """A runner with PyTorch's current number of threads; None if PyTorch was built without
    OpenMP."""
    try:
        return openmp_runner()
    except PagedKVError as error:
        if error.status != Status.UNSUPPORTED:
            raise
        return None


def torch_compute() -> int:
    """A pkv_compute with these threads, kept for all calls."""
    return _compute(torch.get_num_threads()).handle


@functools.cache
def _compute(threads: int) -> Compute:
    runner = torch_runner()
    return Compute(threads) if runner is None else Compute(runner=runner)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_compute.cache_clear)  # a child has no threads
