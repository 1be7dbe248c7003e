"""A lock-free allocator of reference-counted block ids, for engines that keep the bytes
elsewhere.
"""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from ._arrays import Integers, address, integers
from ._handle import Handle, call, report, sized, unsigned
from ._library import library
from ._repr import counted
from .generated import raw as _raw
from .generated.records import PoolStats


class Pool(Handle):
    """Blocks are numbers of 64 bits: the id in the low 32, the generation of that id above. Any
    thread may use any method at any time."""

    _close_function = "pool_destroy"

    def __init__(self, blocks: int) -> None:
        struct = sized(_raw.PoolConfig)
        struct.blocks = self._blocks = unsigned(blocks, 32, "blocks")
        super().__init__(library().pool_create, ctypes.byref(struct))

    def _shown(self) -> str:
        stats = self.stats()
        return f"{stats.held_blocks} of {counted(stats.blocks, 'block')} held"

    def alloc(self, n: int) -> npt.NDArray[np.uint64]:
        """Takes n blocks, all or none, each with one reference."""
        wanted = unsigned(n, 64, "n")
        found = np.empty(min(wanted, self._blocks), np.uint64)  # C refuses more
        call(library().pool_alloc, self._handle, wanted, address(found))
        return found

    def retain(self, blocks: Integers) -> None:
        """Adds one reference to each block, all or none."""
        numbers = integers(blocks, np.uint64, "blocks")
        call(library().pool_retain, self._handle, len(numbers), address(numbers))

    def release(self, blocks: Integers) -> None:
        """Drops one reference of each block; one whose last reference goes is free."""
        numbers = integers(blocks, np.uint64, "blocks")
        call(library().pool_release, self._handle, len(numbers), address(numbers))

    def stats(self) -> PoolStats:
        return report(PoolStats, library().pool_get_stats, self._handle)

    def validate(self) -> None:
        """Checks every invariant of the pool, while no other thread uses it."""
        call(library().pool_validate, self._handle)
