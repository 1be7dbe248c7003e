"""Which blocks of vLLM's memory hold wrong keys and values after a load failed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Computed(NamedTuple):
    """The tokens of a request that a step computes."""

    request_id: str
    first: int
    end: int
    new_blocks: list[int]
    starts: bool
    """The request starts or resumes: these are all of its blocks, and it has no others."""


class LostBlocks(set[int]):
    """The blocks that could not be loaded, and those that were computed over them, until they are
    computed again.

    vLLM learns of a failed load after the step, and computes the request again from its first lost
    block. Until then the step itself, and with asynchronous scheduling the next one, compute on
    wrong blocks. So do other requests, with which vLLM shares blocks before they are loaded.
    """

    def __init__(self, block_size: int) -> None:
        super().__init__()
        self._block_size = block_size
        self._blocks: dict[str, list[int]] = {}  # of each running request

    def follow(self, computed: Iterable[Computed], finished: Iterable[str]) -> None:
        """Follows what a step computes, after its loads."""
        for request_id in finished:
            self._blocks.pop(request_id, None)
        for request_id, first, end, new_blocks, starts in computed:
            blocks = self._blocks.setdefault(request_id, [])
            if starts:
                blocks.clear()
            blocks += new_blocks
            if not self:
                continue
            written = blocks[first // self._block_size : -(-end // self._block_size)]
            # The first of the written blocks may hold earlier tokens.
            if self.isdisjoint(blocks[: -(-first // self._block_size)]):
                self.difference_update(written)
            else:
                self.update(written)
