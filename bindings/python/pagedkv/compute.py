"""Threads and kernels for calls over the caller's memory."""

from __future__ import annotations

import ctypes

from ._enums import enum_number
from ._handle import Handle, call, report, sized, unsigned
from ._library import library
from ._repr import counted
from .generated import raw as _raw
from .generated.raw import Isa
from .generated.records import ComputeInfo


class Compute(Handle):
    """Threads, kernels and working memory for calls over your own arrays. Without a Compute these
    calls run on all CPUs. Any thread may use it at any time.

    `runner` is a result of `openmp_runner`; leave `threads` at 0 then.
    """

    _close_function = "compute_destroy"

    def __init__(
        self, threads: int = 0, isa: Isa | str = Isa.AUTO, *, runner: _raw.Runner | None = None
    ) -> None:
        struct = sized(_raw.ComputeConfig)
        struct.threads = unsigned(threads, 32, "threads")
        struct.isa = enum_number(isa, Isa, "isa")
        if runner is not None:
            struct.runner = ctypes.addressof(runner)
        super().__init__(library().compute_create, ctypes.byref(struct))

    def _shown(self) -> str:
        info = self.info()
        return f"{counted(info.threads, 'thread')}, {info.isa.name}"

    def info(self) -> ComputeInfo:
        return report(ComputeInfo, library().compute_get_info, self._handle)


def openmp_runner() -> _raw.Runner:
    """The OpenMP threads of the process, such as PyTorch's, for a Compute or a CacheConfig: see
    pkv_openmp_runner."""
    runner = _raw.Runner()
    call(library().openmp_runner, ctypes.byref(runner))
    return runner


def handle_of(compute: Compute | None) -> int | None:
    return None if compute is None else compute.handle
