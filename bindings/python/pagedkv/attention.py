"""Variants of attention, and attention over memory of the caller's."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._arrays import (
    BatchRows,
    Floats,
    Rows,
    address,
    batch_tensor,
    block_ids,
    floats,
    pointer_array,
    positions64,
    tensor,
    token_ids,
    uint32s,
)
from ._library import library
from ._repr import counted, shown_dataclass
from ._structs import fill
from .compute import Compute, handle_of
from .errors import misuse
from .generated import raw as _raw
from .generated.raw import SINKS_OF_LAYER, WINDOW_OF_LAYER
from .kv import KVView, Sequences


@dataclasses.dataclass(frozen=True, repr=False)
class BoolMask:
    """Which positions each query sees: `data` is [sequences][n][columns] of bool, an extent of 1
    stands for all sequences or all queries. Column c is position first_positions[sequence] + c
    (negative: padding on the left), 0 by default.
    """

    data: npt.NDArray[np.bool_] | npt.NDArray[np.uint8]
    first_positions: Sequence[int] | npt.NDArray[np.int64] | None = None

    def __repr__(self) -> str:
        return shown_dataclass(self)

    def fill(self, struct: _raw.AttentionParams, rows: BatchRows, keep: list[Any]) -> None:
        """Fills the fields of C; `keep` gets what has to stay alive as long as they."""
        data, count = np.asarray(self.data), len(rows.lengths)
        if (
            data.ndim != 3
            or data.dtype not in (np.bool_, np.uint8)
            or data.shape[0] not in (1, count)
            or (data.shape[1] != 1 and data.shape[1] < rows.reach)
            or (data.shape[2] > 1 and data.strides[2] != 1)
            or min(data.strides) < 0
        ):
            raise misuse(
                f"bool_mask: [{count}][{rows.reach}][columns] of bool are needed, the array is "
                f"{data.dtype} {data.shape} with strides {data.strides}"
            )
        keep.append(data)
        struct.bool_mask, struct.bool_mask_columns = address(data), data.shape[2]
        struct.bool_mask_batch_stride = data.strides[0] if data.shape[0] > 1 else 0
        struct.bool_mask_row_stride = data.strides[1] if data.shape[1] > 1 else 0
        if self.first_positions is not None:
            first = positions64(self.first_positions, count, "first_positions")
            keep.append(first)
            struct.bool_mask_first_positions = address(first)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class AttentionParams:
    """The fields of pkv_attention_params. `mask` is [rows][words] of uint64: bit j of a row says
    that it sees new token j of its session. `parents` is [rows] of int32: the parent of each new
    token in a tree, -1 for none.

    `block_lists` is [rows][kv_heads][n] of uint32: rising indices of blocks, NO_BLOCK after the
    last. `chosen_blocks`, [rows][kv_heads][top_blocks] of uint32, is filled with such lists.

    `block_mass`, [sessions][query_heads][n] of float32, is filled with the attention mass of each
    block: the weights that the last `block_mass_queries` new tokens of a session (0: all) give it.

    `head_windows` and `head_sinks` have a number for each KV head, in place of `window` and
    `sinks`."""

    scale: float = 0.0
    causal: bool = True
    window: int = WINDOW_OF_LAYER
    sinks: int = SINKS_OF_LAYER
    softcap: float = 0.0
    alibi_slopes: Sequence[float] | Floats | None = None
    sink_logits: Sequence[float] | Floats | None = None
    mask: npt.NDArray[np.uint64] | None = None
    parents: Sequence[int] | npt.NDArray[np.int32] | None = None
    bool_mask: BoolMask | None = None
    top_blocks: int = 0
    first_blocks: int = 1
    last_blocks: int = 1
    block_lists: npt.NDArray[np.uint32] | None = None
    chosen_blocks: npt.NDArray[np.uint32] | None = None
    block_mass: Floats | None = None
    block_mass_queries: int = 0
    head_windows: Sequence[int] | npt.NDArray[np.uint32] | None = None
    head_sinks: Sequence[int] | npt.NDArray[np.uint32] | None = None
    choose_together: bool = False

    def __repr__(self) -> str:
        return shown_dataclass(self)

    def build(
        self,
        rows: int,
        query_heads: int,
        kv_heads: int,
        lse: Floats | None = None,
        batch: BatchRows | None = None,
    ) -> _raw.AttentionParams:
        """The struct for C, which keeps alive what it points to. `batch`: the sequences of the
        rows; they are one by default.
        """
        struct = _raw.AttentionParams.from_buffer_copy(_default_params())
        keep: list[Any] = []
        struct.owners = keep
        fill(struct, self)
        struct.scale, struct.softcap = self.scale, self.softcap
        for name in ("alibi_slopes", "sink_logits"):
            if (given := getattr(self, name)) is not None:
                values = floats(given, (query_heads,), name)
                keep.append(values)
                setattr(struct, name, address(values))
        for name in ("head_windows", "head_sinks"):
            if (per_head := getattr(self, name)) is not None:
                windows = uint32s(per_head, kv_heads, name)
                keep.append(windows)
                setattr(struct, name, address(windows))
        if self.mask is not None:
            mask = np.ascontiguousarray(self.mask)
            if mask.dtype != np.uint64 or mask.ndim != 2 or mask.shape[0] != rows:
                raise misuse(
                    f"mask: [{rows}][words] of uint64 are needed, the array is {mask.dtype} "
                    f"{mask.shape}"
                )
            keep.append(mask)
            struct.mask, struct.mask_words = address(mask), mask.shape[1]
        if self.parents is not None:
            parents = token_ids(self.parents, "parents")
            if parents.shape != (rows,):
                raise misuse(f"parents: {rows} are needed, {len(parents)} are there")
            keep.append(parents)
            struct.parents = address(parents)
        if self.bool_mask is not None:
            self.bool_mask.fill(struct, batch or BatchRows([rows]), keep)
        if self.block_lists is not None:
            lists = block_ids(self.block_lists, (rows, kv_heads, None), "block_lists")
            keep.append(lists)
            struct.block_lists, struct.block_list_size = address(lists), lists.shape[2]
        if self.chosen_blocks is not None:
            shape = (rows, kv_heads, struct.top_blocks)
            chosen = block_ids(self.chosen_blocks, shape, "chosen_blocks", out=True)
            keep.append(chosen)
            struct.chosen_blocks = address(chosen)
        if self.block_mass is not None:
            sessions = len((batch or BatchRows([rows])).lengths)
            size = np.shape(self.block_mass)[-1] if np.ndim(self.block_mass) else 0
            mass = floats(self.block_mass, (sessions, query_heads, size), "block_mass", out=True)
            keep.append(mass)
            struct.block_mass, struct.block_mass_size = address(mass), mass.shape[2]
        if lse is not None:
            struct.lse = address(floats(lse, (rows, query_heads), "lse", out=True))
        return struct


@functools.cache
def _default_params() -> bytes:
    struct = _raw.AttentionParams()
    library().check(library().attention_params_init(ctypes.byref(struct), ctypes.sizeof(struct)))
    return bytes(struct)


def attention(
    kv: KVView,
    q: Rows,
    query_lengths: Sequence[int],
    kv_lengths: Sequence[int],
    block_tables: npt.NDArray[np.uint32],
    query_heads: int,
    out: Rows | None = None,
    params: AttentionParams | None = None,
    lse: Floats | None = None,
    *,
    first_rows: Sequence[int] | None = None,
    query_positions: Sequence[int] | None = None,
    compute: Compute | None = None,
) -> Any:
    """Attention without a cache, over a view and block tables ([sequences][entries]) that you own.
    Shapes as for Batch.attend; an array of four dimensions is a padded batch,
    [sequences][n][heads][dim]. `first_rows` and `query_positions` are those of
    pkv_attention_sequences.
    """
    sequences = Sequences(
        query_lengths, kv_lengths, block_tables, query_heads, first_rows, query_positions
    )
    rows, view = sequences.rows, kv.struct
    result: Rows | Floats = results(q, rows, query_heads, view.value_dim) if out is None else out
    queries = batch_tensor(q, rows, query_heads, view.key_dim, "q")
    outputs = batch_tensor(result, rows, query_heads, view.value_dim, "out", out=True)
    struct = (params or AttentionParams(window=0, sinks=0)).build(
        rows.total, query_heads, view.kv_heads, lse, rows
    )
    with kv._reading():
        library().check(
            library().attention(
                handle_of(compute),
                ctypes.byref(view),
                ctypes.byref(sequences.struct),
                ctypes.byref(struct),
                ctypes.byref(queries),
                ctypes.byref(outputs),
            )
        )
    return result


def results(q: Any, rows: BatchRows, heads: int, dim: int) -> Floats:
    """An array for the outputs, shaped as the queries."""
    if getattr(q, "ndim", 0) == 4:
        return np.zeros((*q.shape[:2], heads, dim), np.float32)
    count = rows.total if rows.first_rows is None else int(q.shape[0])
    return np.zeros((count, heads, dim), np.float32)


def merge_states(
    outs: Sequence[Rows],
    lse: Sequence[Floats],
    rows: int,
    heads: int,
    dim: int,
    *,
    compute: Compute | None = None,
) -> tuple[Floats, Floats]:
    """Combines results over the same queries and different positions by their lse: the merged
    outputs and their lse.
    """
    if len(outs) != len(lse):
        raise misuse(f"{len(lse)} lse for {counted(len(outs), 'output')}")
    parts = [tensor(out, rows, heads, dim, f"outs[{i}]") for i, out in enumerate(outs)]
    logs = [floats(part, (rows, heads), f"lse[{i}]") for i, part in enumerate(lse)]
    merged, merged_lse = (
        np.empty((rows, heads, dim), np.float32),
        np.empty((rows, heads), np.float32),
    )
    result = tensor(merged, rows, heads, dim, "merged", out=True)
    tensors = (_raw.Tensor * len(parts))(*parts)
    library().check(
        library().merge_states(
            handle_of(compute),
            len(parts),
            tensors,
            pointer_array([address(log) for log in logs]),
            rows,
            heads,
            dim,
            ctypes.byref(result),
            address(merged_lse),
        )
    )
    return merged, merged_lse
