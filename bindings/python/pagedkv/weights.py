"""Digests of a model's weights, by which stores tell models apart. Every byte is hashed: a tuned
model may differ from its base in a few layers, or in a few rows of one tensor.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import pathlib
import sys
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

PIECE = 4 << 20  # bytes that a thread hashes at once

WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf")
READ_WITH_THEM = ("*.index.json", "*quant*.json", "*.py")
"""Files that say which weights are read and how they are quantised, and the code of models that
bring their own."""


def digest(parts: Iterable[bytes]) -> bytes:
    """A digest of 32 bytes; the length of each part is hashed, too."""
    state = hashlib.blake2b(digest_size=32)
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.digest()


def contents_digest(named: Iterable[tuple[str, pathlib.Path | Bytes]]) -> bytes:
    """A digest of names, lengths and all bytes of files, or of tensors in memory."""
    return digest(contents_digests(named))


def contents_digests(named: Iterable[tuple[str, pathlib.Path | Bytes]]) -> list[bytes]:
    """A digest for each. There is one hashing thread per CPU."""
    with concurrent.futures.ThreadPoolExecutor(_cpus()) as threads:
        hashed = [
            (name, size, [threads.submit(_piece, source, at) for at in range(0, size, PIECE)])
            for name, source in named
            for size in [source.nbytes if isinstance(source, np.ndarray) else _size(source)]
        ]
        return [
            digest([name.encode(), str(size).encode(), *(piece.result() for piece in pieces)])
            for name, size, pieces in hashed
        ]


def weights_files(place: pathlib.Path) -> list[pathlib.Path]:
    """The files of a model in a folder, or its single file; empty if there are none."""
    if place.is_file():
        return [place]
    weights, others = (
        {path for pattern in patterns for path in place.glob(pattern)}
        for patterns in (WEIGHTS, READ_WITH_THEM)
    )
    return sorted(weights | others) if weights else []


def _cpus() -> int:
    """The CPUs that this thread may use, where the system says it."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _size(path: pathlib.Path) -> int:
    return path.stat().st_size


def _piece(source: pathlib.Path | Bytes, begin: int) -> bytes:
    if isinstance(source, np.ndarray):
        return hashlib.blake2b(source[begin : begin + PIECE].data, digest_size=32).digest()
    with source.open("rb") as file:
        file.seek(begin)
        return hashlib.blake2b(file.read(PIECE), digest_size=32).digest()
