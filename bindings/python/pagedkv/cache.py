"""The KV memory of a model."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from ._arrays import BatchRows, Integers, address, growing, pointer_array
from ._cache_base import CacheBase, salt_for_c
from ._enums import enum_number
from ._handle import signed32, sized
from ._library import library
from ._repr import counted
from .batch import Batch
from .errors import misuse
from .generated import raw as _raw
from .generated.raw import PrefixUse
from .kv import KVView
from .session import Session


class Cache(CacheBase):
    """The KV memory of a model: layers in groups, blocks, and the kernels that read them.

    Closing a cache closes its sessions, batches and snapshots; with a store it first waits until
    the blocks of closed sessions are written. Any number of threads may use it at once, each with
    sessions of its own; calls release the GIL. A cache with a `Store` or a `BlockIO` in Python that
    is collected is closed at the next call of the library, because the collecting thread may hold a
    lock that these need.
    """

    def open_session(
        self,
        *,
        priority: int = 0,
        prefix_use: PrefixUse | str = PrefixUse.SHARE,
        salt: bytes | None = None,
    ) -> Session:
        """Opens an empty session. Only sessions of the same salt share prefixes."""
        struct = sized(_raw.SessionConfig)
        struct.priority = signed32(priority, "priority")
        struct.prefix_use = enum_number(prefix_use, PrefixUse, "prefix_use")
        given, struct.salt_size = salt_for_c(salt)
        bytes_of_salt = ctypes.create_string_buffer(given or b"")
        if given:
            struct.salt = ctypes.addressof(bytes_of_salt)
        return Session(self, library().session_open, self._handle, ctypes.byref(struct))

    def begin(self, sessions: Sequence[Session], new_tokens: Integers) -> Batch:
        """Begins a step: takes the blocks for all new tokens of every session, or raises an
        OutOfBlocksError with the number of missing blocks.
        """
        step = _Step(sessions, new_tokens)
        given = self._handle, *step.for_c
        return Batch(self, step.sessions, step.rows, library().batch_begin, *given)

    def choose_victims(self, sessions: Sequence[Session], new_tokens: Integers) -> list[int]:
        """Handles of the sessions to suspend or close so that `begin` with the rest of this list
        gets its blocks.
        """
        step = _Step(sessions, new_tokens)
        ask = library().batch_choose_victims
        (victims,) = growing(np.uintp, ask, self._handle, *step.for_c)
        return [int(victim) for victim in victims]

    def kv_view(self, layer: int) -> KVView:
        """The addresses of K and V of a layer, for your own kernels and for `attention`. Valid
        while the cache is open.
        """
        return KVView.of_cache(self, layer)


class _Step:
    """Sessions and their new tokens."""

    def __init__(self, sessions: Sequence[Session], new_tokens: Integers) -> None:
        self.sessions = tuple(sessions)
        self.rows = BatchRows(new_tokens, "new_tokens")
        lengths = self.rows.lengths
        if len(self.sessions) != len(lengths):
            raise misuse(
                f"new_tokens has {counted(len(lengths), 'number')} for "
                f"{counted(len(self.sessions), 'session')}"
            )
        handles = pointer_array([session._handle for session in self.sessions])
        self.for_c = len(lengths), handles, address(self.rows.c_lengths)
