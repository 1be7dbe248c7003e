"""Names of blocks in a store: what their keys and values follow from, and nothing else."""

from __future__ import annotations

import hashlib
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np

SAMPLE = 64 << 10
WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")


def digest(parts: Iterable[bytes]) -> bytes:
    """Of 32 bytes; parts are told apart by their lengths."""
    state = hashlib.blake2b(digest_size=32)
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.digest()


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


def weights_digest(folder: pathlib.Path) -> bytes | None:
    """Of the files of weights in a folder: their names, sizes, and samples of their bytes. None
    where there are none.
    """
    parts = []
    for path in sorted({path for kind in WEIGHTS for path in folder.glob(kind)}):
        size = path.stat().st_size
        parts += [path.name.encode(), str(size).encode()]
        with path.open("rb") as file:
            for begin in (0, size // 3, 2 * size // 3, max(0, size - SAMPLE)):
                file.seek(begin)
                parts.append(file.read(SAMPLE))
    return digest(parts) if parts else None
