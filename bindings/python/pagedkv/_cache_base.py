"""The part of a cache that needs no sessions: its lifetime, statistics, prefix index and store.

Sessions, batches and views only use this part, so their modules can import it; cache.py imports
them.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from . import _hints, _waiting
from ._arrays import TokenIds, address, growing, token_ids
from ._exit import close_at_exit
from ._handle import Handle, as_record, call, number, report, sized, unsigned
from ._library import library
from ._memory import Hold, Memory
from ._python_store import Store
from ._repr import counted
from .config import CacheConfig
from .errors import MisuseError, misuse
from .generated import raw as _raw
from .generated.raw import ALL_GROUPS, NO_QUOTA, HintAction, LayerKind, Retention, Status
from .generated.records import (
    CacheInfo,
    CacheStats,
    HintResult,
    PoolStats,
    PrefixEvent,
    PrefixStats,
    StoreStats,
)
from .mooncake import MooncakeStore


class LayerShape(NamedTuple):
    """The shape of a layer's rows, or the size of its state in bytes."""

    query_heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    state_bytes: int


class PrefixEvents(NamedTuple):
    events: list[PrefixEvent]
    next: int
    lost: int
    """The requested events that were overwritten before this call."""


class RawEvents(NamedTuple):
    room: ctypes.Array[_raw.PrefixEvent]
    n: int
    next: int
    lost: int


class CacheBase(Handle):
    """The part of `Cache` that does not know sessions."""

    _close_function = "cache_destroy"

    def __init__(self, config: CacheConfig) -> None:
        struct = config.build()
        self._owners = struct.owners  # the cache calls the hooks until it is closed
        self._memory = Memory()
        self._calls_python = config.block_io is not None or (
            config.store is not None and isinstance(config.store.store, Store | MooncakeStore)
        )
        with contextlib.nullcontext() if config.store is None else config.store.opened() as store:
            struct.store = None if store is None else ctypes.addressof(store)
            self._store = store  # the cache calls it until it is closed
            super().__init__(library().cache_create, ctypes.byref(struct))
        if self._calls_python or config.logger is not None or config.clock is not None:
            close_at_exit(self)
        self.config = config
        self._shapes: dict[int, LayerShape] = {}
        self._groups: dict[int, int] = {}
        for index, group in enumerate(config.layer_groups()):
            dims = group.key_dim, group.value_dim or group.key_dim
            state_bytes = group.layer_bytes if group.kind == LayerKind.STATES else 0
            shape = LayerShape(group.query_heads, group.kv_heads, *dims, state_bytes)
            for layer in group.layer_numbers(max(self._shapes, default=-1) + 1):
                self._shapes[layer] = shape
                self._groups[layer] = index

    def _closer(self) -> Callable[[], None]:
        return functools.partial(self._memory.close, super()._closer())

    def _ending(self) -> _waiting.Ending:
        return _waiting.Ending(
            self._closer(), (self._owners, self._store), later=self._calls_python
        )

    def hold_memory(self) -> Hold:
        """Keeps the cache's memory alive for arrays that refer to it."""
        return self._memory.hold()

    def _shown(self) -> str:
        info, stats, pools = self.info(), self.stats(), self.pool_stats()
        return (
            f"{counted(info.layers, 'layer')}, {pools.held_blocks} of {pools.blocks} blocks of "
            f"{info.block_size} tokens held, {counted(stats.sessions, 'session')}, "
            f"{info.isa.name}, {counted(info.threads, 'thread')}"
        )

    @property
    def layers(self) -> int:
        return len(self._shapes)

    def layer_shape(self, layer: int) -> LayerShape:
        shape = self._shapes.get(unsigned(layer, 32, "layer"))
        if shape is None:
            raise MisuseError(Status.OUT_OF_RANGE, f"layer {layer} of {self.layers}")
        return shape

    def rows_shape(self, layer: int) -> LayerShape:
        """The shape of a layer that keeps K and V."""
        shape = self.layer_shape(layer)
        if not shape.kv_heads and not shape.state_bytes:
            sentence = "only the engine can read the blocks of its group"
            raise MisuseError(Status.UNSUPPORTED, f"layer {layer}: {sentence}")
        if shape.state_bytes:
            raise MisuseError(
                Status.UNSUPPORTED, f"layer {layer} keeps a state, and no keys and values"
            )
        return shape

    def group_of(self, layer: int) -> int:
        """The index of the group that a layer is in."""
        index = unsigned(layer, 32, "layer")
        self.layer_shape(index)
        return self._groups[index]

    # ---- Information

    def info(self) -> CacheInfo:
        return report(CacheInfo, library().cache_get_info, self._handle)

    def stats(self) -> CacheStats:
        return report(CacheStats, library().cache_get_stats, self._handle)

    def pool_stats(self, group: int | None = None) -> PoolStats:
        """Statistics of the blocks of one group, or of all."""
        index = ALL_GROUPS if group is None else unsigned(group, 32, "group")
        return report(PoolStats, library().cache_get_pool_stats, self._handle, index)

    def metrics(self) -> str:
        """Returns the metrics of the cache in the text format of Prometheus."""
        (text,) = growing(np.uint8, library().cache_format_metrics, self._handle)
        return text.tobytes().partition(b"\0")[0].decode()

    def validate(self) -> None:
        """Checks every invariant, while no other thread uses the cache."""
        call(library().cache_validate, self._handle)

    # ---- The prefix index

    def prefix_stats(self, salt: bytes | None = None, *, all_salts: bool = False) -> PrefixStats:
        """Statistics of the index for one salt (None: sessions without a salt) or for all salts."""
        which = salt_for_c(salt, all_salts)
        return report(PrefixStats, library().prefix_get_stats, self._handle, *which)

    def prefix_clear(self, salt: bytes | None = None, *, all_salts: bool = False) -> None:
        """Drops every cached block that no session uses."""
        call(library().prefix_clear, self._handle, *salt_for_c(salt, all_salts))

    def prefix_probe(self, tokens: TokenIds, salt: bytes | None = None) -> int:
        """Returns how many tokens of a text are cached in whole blocks. Nothing is held or counted,
        and the order of eviction does not change.
        """
        return number(library().prefix_probe, self._handle, ctypes.byref(_text(tokens, salt)))

    def hint(
        self,
        action: HintAction | str,
        tokens: TokenIds,
        salt: bytes | None = None,
        *,
        first: int = 0,
        end: int | None = None,
        retention: Retention | str = Retention.NORMAL,
        duration_ms: int = 0,
    ) -> HintResult:
        """Says what to do with the cached blocks of tokens [first, end) of a text: see
        `HintAction`. A `duration_ms` of 0 has no end. The result says what came of it.
        """
        target = self._handle, ctypes.byref(_text(tokens, salt))
        bounds = first, end, retention, duration_ms
        return _hints.give(library().hint_prompt, target, action, *bounds)

    def prefix_set_quota(self, salt: bytes | None, tokens: int | None) -> None:
        """Limits the cached tokens of one salt, rounded down to whole blocks. None: no limit; 0:
        the limit in the config.
        """
        limit = NO_QUOTA if tokens is None else unsigned(tokens, 64, "tokens")
        call(library().prefix_set_quota, self._handle, *salt_for_c(salt), limit)

    def prefix_events(self, first: int = 0, n: int = 256) -> PrefixEvents:
        """Returns up to n events from number `first` on: blocks that were cached or removed. The
        next call continues from `next`.
        """
        read = self.read_events(first, n)
        events = [as_record(PrefixEvent, event) for event in read.room[: read.n]]
        return PrefixEvents(events, read.next, read.lost)

    def read_events(self, first: int, n: int) -> RawEvents:
        """The same events as C structs, for a reader of many events."""
        following, most = ctypes.c_uint64(unsigned(first, 64, "first")), unsigned(n, 24, "n")
        room = (_raw.PrefixEvent * most)()
        count, lost = ctypes.c_size_t(), ctypes.c_uint64()
        places = (ctypes.byref(following), most, room, ctypes.byref(count), ctypes.byref(lost))
        call(library().prefix_read_events, self._handle, *places)
        return RawEvents(room, count.value, following.value, lost.value)

    # ---- The store

    def wait_for_prefetch(
        self, tokens: TokenIds, salt: bytes | None = None, *, timeout_ms: int
    ) -> int:
        """Waits until no prefetch of the text is in progress. Returns how many of its tokens are in
        memory now.
        """
        return self._wait(tokens, salt, unsigned(timeout_ms, 32, "timeout_ms"))[0]

    def is_prefetching(self, tokens: TokenIds, salt: bytes | None = None) -> bool:
        """Whether `wait_for_prefetch` would wait."""
        return self._wait(tokens, salt, 0)[1] > 0

    def _wait(self, tokens: TokenIds, salt: bytes | None, timeout_ms: int) -> tuple[int, int]:
        cached, pending = ctypes.c_uint64(), ctypes.c_uint64()
        found = timeout_ms, ctypes.byref(cached), ctypes.byref(pending)
        call(library().prefetch_wait, self._handle, ctypes.byref(_text(tokens, salt)), *found)
        return cached.value, pending.value

    def cancel_prefetch(self, tokens: TokenIds, salt: bytes | None = None) -> None:
        """Cancels the prefetches that `wait_for_prefetch` would wait for."""
        call(library().prefetch_cancel, self._handle, ctypes.byref(_text(tokens, salt)))

    def flush_store(self, *, timeout_ms: int) -> int:
        """Waits until the blocks of closed sessions are written to the store. Returns how many
        tokens still wait.
        """
        timeout = unsigned(timeout_ms, 32, "timeout_ms")
        return number(library().cache_flush_store, self._handle, timeout)

    def store_stats(self) -> StoreStats:
        """Counts of items that were written to the store, read from it and lost."""
        return report(StoreStats, library().cache_get_store_stats, self._handle)


Member = TypeVar("Member", bound="CacheMember")


class CacheMember(Handle):
    """An object that belongs to a cache, and is closed with it."""

    def __init__(self, cache: CacheBase, function: Any, *arguments: Any) -> None:
        self.cache = cache
        super().__init__(function, *arguments)

    @classmethod
    def _of(cls: type[Member], cache: CacheBase, handle: int | None) -> Member:
        """Makes the Python object for an existing handle."""
        made = cls.__new__(cls)
        made.cache, made._made, made._closed = cache, ctypes.c_void_p(handle), False
        return made

    def _lives(self) -> bool:
        return super()._lives() and not self.cache.closed


def prefix_hash_blocks(
    tokens: TokenIds, block_size: int, salt: bytes | None = None
) -> npt.NDArray[np.uint64]:
    """The hashes that events give for the whole blocks of a text."""
    text, size = _text(tokens, salt), unsigned(block_size, 32, "block_size")
    found = np.empty(text.n // max(size, 1), np.uint64)
    call(library().prefix_hash_blocks, ctypes.byref(text), size, address(found))
    return found


class _Text(_raw.Prompt):
    """A text for C, with the memory that it points to."""

    kept: tuple[Any, ...]


def _text(tokens: TokenIds, salt: bytes | None) -> _Text:
    given, size = salt_for_c(salt)
    ids, bytes_of_salt = token_ids(tokens), ctypes.create_string_buffer(given or b"")
    text = sized(_Text, 0, ctypes.addressof(bytes_of_salt), size, address(ids), len(ids))
    text.kept = ids, bytes_of_salt
    return text


def salt_for_c(salt: bytes | None, all_salts: bool = False) -> tuple[bytes | None, int]:
    if all_salts:
        if salt is not None:
            raise misuse("salt: one salt or all of them, not both")
        return None, _raw.ALL_SALTS
    if salt is not None and not isinstance(salt, bytes):
        raise misuse(f"salt: bytes are needed, this is {type(salt).__name__}")
    return salt or None, len(salt or b"")
