"""One forward pass over many sessions."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ._arrays import (
    BatchRows,
    Integers,
    Rows,
    TokenIds,
    address,
    batch_tensor,
    growing,
    integers,
    token_ids,
)
from ._cache_base import CacheBase, CacheMember
from ._enums import enum_number
from ._handle import call, reference, unsigned
from ._library import library
from ._repr import counted
from .attention import AttentionOutputs, AttentionParams, built, results
from .generated.raw import IndexUnit
from .session import Session, kv_tensors
from .states import SessionStates, shown


class KVIndices(NamedTuple):
    """Session i reads indices[indptr[i] : indptr[i + 1]]; its last block holds last_block_length[i]
    tokens.
    """

    indptr: npt.NDArray[np.int32]
    indices: npt.NDArray[np.int32]
    last_block_length: npt.NDArray[np.int32]


class StateBlocks(NamedTuple):
    """Session i has its state in block before[i] (NO_BLOCK_ID: none yet). The states after its new
    tokens tokens[indptr[i] : indptr[i + 1]] go into the blocks of `after` at the same indices.
    """

    before: npt.NDArray[np.uint32]
    indptr: npt.NDArray[np.int32]
    tokens: npt.NDArray[np.uint32]
    after: npt.NDArray[np.uint32]


class Batch(CacheMember):
    """A step in progress, made by Cache.begin. Rows are in the order of the sessions, and a
    session's rows in the order of its new tokens.

    Write and attend layer by layer, then commit. Until then no other call sees the new tokens;
    leaving `with` without a commit aborts.
    """

    _close_function = "batch_abort"

    def __init__(
        self,
        cache: CacheBase,
        sessions: Sequence[Session],
        rows: BatchRows,
        function: Any,
        *arguments: Any,
    ) -> None:
        self.sessions = tuple(sessions)
        self.rows = rows.total
        self.batch_rows = rows
        super().__init__(cache, function, *arguments)

    def _shown(self) -> str:
        return f"{counted(self.rows, 'row')} of {counted(len(self.sessions), 'session')}"

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._lives():
            super().__exit__(kind)

    def set_first_rows(self, first_rows: Integers | None) -> None:
        """Sets the first row of each session in the arrays of write and attend, for padding on the
        left or gaps. None: no gaps.
        """
        rows = self.batch_rows.moved(first_rows)
        first = rows.c_first_rows
        given = (0, None) if first is None else (len(first), address(first))
        call(library().batch_set_first_rows, self._handle, *given)
        self.batch_rows = rows

    def write(self, layer: int, k: Rows, v: Rows | None = None) -> None:
        """Stores keys [rows][kv_heads][key_dim] and values [rows][kv_heads][value_dim] of one
        layer; v None: it is inside k (latent). Arrays of four dimensions are padded batches,
        [sessions][n][heads][dim]."""
        index = unsigned(layer, 32, "layer")
        keys, values = kv_tensors(self.cache, index, k, v, self.batch_rows)
        call(library().batch_write, self._handle, index, keys, values)

    def attend(
        self,
        layer: int,
        q: Rows,
        out: Rows | None = None,
        params: AttentionParams | None = None,
        outputs: AttentionOutputs | None = None,
    ) -> Any:
        """Attention of all rows over their sessions, the new tokens included: q
        [rows][query_heads][key_dim]; the result, [rows][query_heads][value_dim], goes into `out`
        or a new array of float32, and is returned. `outputs` has arrays for other results."""
        index, rows = unsigned(layer, 32, "layer"), self.batch_rows
        shape = self.cache.rows_shape(index)
        heads = shape.query_heads
        queries = batch_tensor(q, rows, heads, shape.key_dim, "q")
        result: Any = results(queries, shape.value_dim) if out is None else out
        into = batch_tensor(result, rows, heads, shape.value_dim, "out", out=True)
        structs = built(params, outputs, rows, heads, shape.kv_heads)
        given = structs[0], queries, into, structs[1]
        call(library().batch_attend, self._handle, index, *map(reference, given))
        return result

    def states(self, layer: int) -> list[SessionStates]:
        """The states of a layer, by session: read `before`, and write all of `after` before the
        commit.
        """
        index = unsigned(layer, 32, "layer")
        size = self.cache.layer_shape(index).state_bytes
        _, indptr, tokens, _ = self.state_blocks(self.cache.group_of(index))
        before, after = np.zeros(len(self.sessions), np.uintp), np.empty(len(tokens), np.uintp)
        places = address(before), len(after), address(after), ctypes.byref(ctypes.c_size_t())
        call(library().batch_get_states, self._handle, index, *places)
        hold = self.cache.hold_memory()
        return [
            SessionStates(
                shown(int(before[i]), size, False, hold) if before[i] else None,
                tokens[first:end].tolist(),
                [shown(int(at), size, True, hold) for at in after[first:end]],
            )
            for i, (first, end) in enumerate(itertools.pairwise(indptr.tolist()))
        ]

    def state_blocks(self, group: int) -> StateBlocks:
        """The states of a group that the step keeps, and their blocks."""
        before = np.empty(len(self.sessions), np.uint32)
        indptr = np.empty(len(self.sessions) + 1, np.int32)
        given = unsigned(group, 32, "group"), address(before), address(indptr)
        ask = library().batch_get_state_blocks
        tokens, after = growing(np.uint32, ask, self._handle, *given, arrays=2)
        return StateBlocks(before, indptr, tokens, after)

    def accept(self, i: int, kept: Integers) -> None:
        """Keeps only these new tokens of session number i: the accepted path of a tree of
        speculative tokens.
        """
        numbers = integers(kept, np.uint32, "kept")
        given = unsigned(i, 64, "i"), len(numbers), address(numbers)
        call(library().batch_accept, self._handle, *given)

    def commit(self, tokens: TokenIds | None = None) -> None:
        """Ends the step: every session is longer by its new tokens, whose ids are `tokens`
        ([rows]).
        """
        ids = None if tokens is None else token_ids(tokens)
        given = (0, None) if ids is None else (len(ids), address(ids))
        call(library().batch_commit, self._handle, *given)
        self._closed = True

    def abort(self) -> None:
        """Aborts the step: nothing has changed."""
        self.close()

    def slot_mapping(self, group: int = 0) -> npt.NDArray[np.int64]:
        """Slots of all new tokens in one group, for an engine that stores K and V itself."""
        number = unsigned(group, 32, "group")
        return growing(np.int64, library().batch_get_slot_mapping, self._handle, number)[0]

    def block_copies(self, group: int = 0) -> npt.NDArray[np.uint32]:
        """[n][2], from and to: begin replaced these blocks because they were shared and
        part-filled. Copy their contents.
        """
        number = unsigned(group, 32, "group")
        copies = library().batch_get_block_copies
        return np.stack(growing(np.uint32, copies, self._handle, number, arrays=2), axis=1)

    def kv_indices(self, group: int = 0, unit: IndexUnit | str = IndexUnit.BLOCKS) -> KVIndices:
        """The block ids or slots that each session reads, as compressed sparse rows of int32."""
        indptr = np.empty(len(self.sessions) + 1, np.int32)
        last = np.empty(len(self.sessions), np.int32)

        number, kind = unsigned(group, 32, "group"), enum_number(unit, IndexUnit, "unit")

        def ask(*room: Any) -> int:
            asked = self._handle, number, kind, address(indptr)
            return library().batch_get_kv_indices(*asked, *room, address(last))

        return KVIndices(indptr, growing(np.int32, ask)[0], last)
