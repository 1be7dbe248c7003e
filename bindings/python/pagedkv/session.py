"""Sessions, one sequence each, and snapshots of them."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _hints
from ._arrays import (
    BatchRows,
    Integers,
    Rows,
    TokenIds,
    address,
    batch_tensor,
    growing,
    integers,
    tensor,
    token_ids,
)
from ._cache_base import CacheBase, CacheMember
from ._handle import call, number, report, signed32, unsigned
from ._library import library
from ._repr import counted
from .errors import MisuseError
from .generated.raw import HintAction, Retention, Status
from .generated.records import HintResult, SessionInfo
from .states import StateBytes


class Resumed(NamedTuple):
    """Positions [length, total) of a resumed session are to be computed again."""

    length: int
    total: int


class Session(CacheMember):
    """One sequence: its tokens and its block tables. Made by Cache.open_session, fork and
    Snapshot.fork; one thread at a time.
    """

    _close_function = "session_close"
    _instead = ": fork() makes a session with the same tokens"

    def _shown(self) -> str:
        info = self.info()
        state = ", suspended" if info.suspended else ""
        return f"{counted(info.length, 'token')} in {counted(info.blocks, 'block')}{state}"

    def __len__(self) -> int:
        return self.length

    @property
    def length(self) -> int:
        """Committed tokens; 0 while the session is suspended."""
        return number(library().session_get_length, self._handle)

    def tokens(self, first: int = 0, n: int | None = None) -> npt.NDArray[np.int32]:
        """Token ids of positions [first, first + n), by default to the end; UNKNOWN_TOKEN for ids
        that are unknown.
        """
        begin = unsigned(first, 64, "first")
        count = max(0, self.length - begin) if n is None else unsigned(n, 64, "n")
        if begin + count > (total := self.info().total):  # otherwise memory for n is allocated
            sentence = f"tokens {begin} to {begin + count} of a session that has {total}"
            raise MisuseError(Status.OUT_OF_RANGE, sentence)
        found = np.empty(count, np.int32)
        call(library().session_get_tokens, self._handle, begin, count, address(found))
        return found

    def set_tokens(self, first: int, tokens: TokenIds) -> None:
        """Sets the ids of positions that were committed without ids."""
        ids, begin = token_ids(tokens), unsigned(first, 64, "first")
        call(library().session_set_tokens, self._handle, begin, len(ids), address(ids))

    def admit(self, tokens: TokenIds, total_tokens: int = 0) -> int:
        """Takes over the cached blocks of a text, and reserves blocks for a length of total_tokens
        (0: none); or raises OutOfBlocksError and does neither. Returns how many tokens were cached.
        Leave out the last token if its output is needed.
        """
        ids, total = token_ids(tokens), unsigned(total_tokens, 64, "total_tokens")
        return number(library().session_admit, self._handle, len(ids), address(ids), total)

    def reserve(self, total_tokens: int) -> None:
        """Reserves blocks for this length: steps up to there cannot run out of blocks."""
        call(library().session_reserve, self._handle, unsigned(total_tokens, 64, "total_tokens"))

    def trim(self, length: int) -> None:
        """Keeps the first `length` tokens and gives back every block beyond them."""
        call(library().session_trim, self._handle, unsigned(length, 64, "length"))

    def hint(
        self,
        action: HintAction | str,
        *,
        first: int = 0,
        end: int | None = None,
        retention: Retention | str = Retention.NORMAL,
        duration_ms: int = 0,
    ) -> HintResult:
        """As `Cache.hint`, about tokens [first, end) of this session; without an end also those
        that it gets later. It may be in a step.
        """
        bounds = first, end, retention, duration_ms
        return _hints.give(library().hint_session, (self._handle,), action, *bounds)

    def trim_point(self, limit: int) -> int:
        """The longest length up to `limit` that trim() can keep. With a window or with states,
        trim() cannot keep every length.
        """
        most = unsigned(limit, 64, "limit")
        return number(library().session_get_trim_point, self._handle, most)

    def drop_blocks(self, indices: Integers, group: int = 0) -> None:
        """Experimental: gives back blocks in the middle, by their indices in the block table of a
        group, in ascending order. Later tokens do not see the tokens of these blocks.
        """
        numbers = integers(indices, np.uint32, "indices")
        given = unsigned(group, 32, "group"), len(numbers), address(numbers)
        call(library().session_drop_blocks, self._handle, *given)

    def state(self, layer: int, tokens: int | None = None) -> StateBytes:
        """Returns a copy of the state of a layer after `tokens` tokens, by default after all."""
        index = unsigned(layer, 32, "layer")
        state = np.empty(self.cache.layer_shape(index).state_bytes, np.uint8)
        after = len(self) if tokens is None else unsigned(tokens, 64, "tokens")
        room = len(state), address(state)
        call(library().session_get_state, self._handle, index, after, *room)
        return state

    def fork(self) -> Session:
        """A session with the same tokens; blocks are shared until one of the two writes."""
        return Session(self.cache, library().session_fork, self._handle)

    def snapshot(self) -> Snapshot:
        """Freezes what the session holds now."""
        length = self.length
        taken = Snapshot(self.cache, library().snapshot_take, self._handle)
        taken.length = length
        return taken

    def suspend(self) -> None:
        """Gives blocks back and remembers the token ids (preemption)."""
        call(library().session_suspend, self._handle)

    def resume(self) -> Resumed:
        """Ends the suspension. An OutOfBlocksError has the number of missing blocks."""
        length, total = ctypes.c_uint64(), ctypes.c_uint64()
        ask = library().session_resume
        call(ask, self._handle, ctypes.byref(length), ctypes.byref(total))
        return Resumed(length.value, total.value)

    def set_priority(self, priority: int) -> None:
        """Sessions of higher priority are the last to be chosen as victims."""
        call(library().session_set_priority, self._handle, signed32(priority, "priority"))

    def info(self) -> SessionInfo:
        return report(SessionInfo, library().session_get_info, self._handle)

    def block_table(self, group: int = 0) -> npt.NDArray[np.uint32]:
        """Block ids of one group in token order; NO_BLOCK_ID where a block left the window."""
        index = unsigned(group, 32, "group")
        return growing(np.uint32, library().session_get_block_table, self._handle, index)[0]

    def read(
        self,
        layer: int,
        first: int = 0,
        n: int | None = None,
        k: Rows | None = None,
        v: Rows | None = None,
    ) -> tuple[Any, Any]:
        """K and V of positions [first, first + n) of one layer as dense rows, by default up to the
        length of the session: into the arrays given, or new ones of float32."""
        index, begin = unsigned(layer, 32, "layer"), unsigned(first, 64, "first")
        shape = self.cache.rows_shape(index)
        rows = max(0, self.length - begin) if n is None else unsigned(n, 40, "n")
        into, tensors = list[Any](), list[Any]()
        for given, dim, what in ((k, shape.key_dim, "k"), (v, shape.value_dim, "v")):
            room = (rows, shape.kv_heads, dim)
            into.append(np.empty(room, np.float32) if given is None else given)
            tensors.append(ctypes.byref(tensor(into[-1], *room, what, out=True)))
        call(library().session_read, self._handle, index, begin, rows, *tensors)
        return into[0], into[1]


class Snapshot(CacheMember):
    """A frozen sequence. It outlives its session, and any number of sessions can begin from it."""

    _close_function = "snapshot_close"
    _instead = ": fork() makes a session with its content"
    length = 0
    """Its tokens."""

    def _shown(self) -> str:
        return counted(self.length, "token")

    def __len__(self) -> int:
        return self.length

    def fork(self) -> Session:
        """A new session with the frozen content."""
        return Session(self.cache, library().snapshot_fork, self._handle)


def kv_tensors(
    cache: CacheBase, layer: int, k: Rows, v: Rows | None, rows: BatchRows
) -> tuple[Any, Any]:
    """Tensors of keys and of values (None: they are in the keys), by reference."""
    shape = cache.rows_shape(layer)

    def take(array: Rows, dim: int, what: str) -> Any:
        return ctypes.byref(batch_tensor(array, rows, shape.kv_heads, dim, what))

    return take(k, shape.key_dim, "k"), None if v is None else take(v, shape.value_dim, "v")
