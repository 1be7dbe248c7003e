"""Names of blocks in a store: what their keys and values follow from, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._weights import digest


def block_names(
    root: bytes, tokens: Sequence[int], block_size: int, count: int, known: list[bytes]
) -> list[bytes]:
    """Of the first `count` blocks; `known` has some of the first of them, and gets the others. A
    name stands for all tokens up to the end of its block.
    """
    while len(known) < count:
        first = len(known) * block_size
        ids = np.asarray(tokens[first : first + block_size], np.int64)
        known.append(digest([known[-1] if known else root, ids.tobytes()]))
    return known[:count]
