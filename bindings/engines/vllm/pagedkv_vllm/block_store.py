"""Blocks of keys and values by name, in a directory or in Redis. A name is a hash of everything
that the keys and values depend on.
"""

from __future__ import annotations

import collections
import ctypes
import hashlib
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from pagedkv import DirectoryStore, RedisStore, Store
from pagedkv.support import Uncopied, address, close_store, open_store, raw
from pagedkv.weights import digest

Bytes = npt.NDArray[np.uint8]

CHECK = 32  # bytes in front of a block: a hash of its name and its contents
MAX_CALL_BYTES = 64 << 20  # of one call of a store

_CALL = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(raw.StoreItem)
)


class BlockStore(Uncopied):
    """Blocks of `size` bytes under names of 32 bytes. Corrupt blocks are removed and not found. A
    store that cannot be reached finds and takes nothing.

    Blocks of one text are given in its order. The store gets the last one first: if it deletes what
    was not used for longest, ends are deleted before the beginnings that they need.

    One thread may put while another one gets.
    """

    def __init__(self, store: DirectoryStore | RedisStore | Store, size: int) -> None:
        self.size = size
        self.stats: collections.Counter[str] = collections.Counter()
        table = open_store(store)
        self._table: raw.Store | None = table
        self._put, self._get = _CALL(table.put), _CALL(table.get)
        self._touch, self._remove = _CALL(table.touch), _CALL(table.remove)

    def close(self) -> None:
        if self._table is not None:
            close_store(self._table)
        self._table = None

    def new_block(self) -> Bytes:
        """Room for one block and its check; block_of() returns the block."""
        return np.empty(CHECK + self.size, np.uint8)

    def missing(self, names: Sequence[bytes]) -> list[int]:
        """The blocks that the store does not have in full: all, if it cannot be reached. The others
        count as used."""
        items = _items(names)
        if self._call(self._touch, items) < 0:
            return list(range(len(names)))
        return [i for i, item in enumerate(items) if item.size != CHECK + self.size]

    def put(self, name: bytes, block: Bytes) -> bool:
        """Stores what new_block() made room for, unless the store has it."""
        if not self.missing([name]):
            self.stats["known"] += 1
            return True
        block[:CHECK] = _check(name, block)
        stored = self._call(self._put, _items([name], [block])) == 1
        self.stats["stored" if stored else "not stored"] += 1
        return stored

    def get(self, names: Sequence[bytes]) -> list[Bytes]:
        """Reads the leading blocks that the store has and that are not corrupt."""
        found: list[Bytes] = []
        step = max(1, MAX_CALL_BYTES // self.size)
        for first in range(0, len(names), step):
            part = names[first : first + step]
            blocks = [self.new_block() for _ in part]
            items = _items(part, blocks)
            if self._call(self._get, items) < 0:
                return found
            right = [self._is_right(*each) for each in zip(part, blocks, items, strict=True)]
            found += [
                block
                for block, _ in itertools.takewhile(
                    lambda pair: pair[1], zip(blocks, right, strict=True)
                )
            ]
            if not all(right):
                break
        return found

    def _is_right(self, name: bytes, block: Bytes, item: Any) -> bool:
        if (
            item.size == CHECK + self.size
            and _check(name, block).tobytes() == block[:CHECK].tobytes()
        ):
            self.stats["found"] += 1
            return True
        if item.size:
            self.stats["corrupt"] += 1
            self._call(self._remove, _items([name]))
        return False

    def _call(self, function: Any, items: Any) -> int:
        if self._table is None:
            return -1
        reverse = type(items)(*items[::-1])
        done = int(function(self._table.user, len(items), reverse))
        for item, answer in zip(items, reverse[::-1], strict=True):
            item.size = answer.size
        if done < 0:
            self.stats["failures"] += 1
        return done


def block_names(
    root: bytes, tokens: Sequence[int], block_size: int, count: int, known: list[bytes]
) -> list[bytes]:
    """The names of the first `count` blocks; `known` has some of the first, and gets the others. A
    name depends on all tokens up to the end of its block.
    """
    while len(known) < count:
        first = len(known) * block_size
        ids = np.asarray(tokens[first : first + block_size], np.int64)
        known.append(digest([known[-1] if known else root, ids.tobytes()]))
    return known[:count]


def block_of(memory: Bytes) -> Bytes:
    return memory[CHECK:]


def _check(name: bytes, block: Bytes) -> Bytes:
    found = hashlib.blake2b(block_of(block).data, digest_size=CHECK, key=name).digest()
    return np.frombuffer(found, np.uint8)


def _items(names: Sequence[bytes], blocks: Sequence[Bytes] | None = None) -> Any:
    items = (raw.StoreItem * len(names))()
    for item, name in zip(items, names, strict=True):
        ctypes.memmove(item.name, name, 32)
    for item, block in zip(items, blocks or (), strict=False):
        item.data, item.size = address(block), block.nbytes
    return items
