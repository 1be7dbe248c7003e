"""Variants of attention, and attention over the caller's memory."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ._arrays import (
    BatchRows,
    Floats,
    IntegerRows,
    Integers,
    Rows,
    address,
    batch_tensor,
    block_ids,
    floats,
    integers,
    pointer_array,
    some_integers,
    tensor,
    token_ids,
)
from ._handle import call, reference, sized, unsigned
from ._library import library
from ._repr import Shown, counted
from ._structs import fill
from .compute import Compute, handle_of
from .errors import misuse
from .generated import configs
from .generated import raw as _raw
from .generated.raw import MaskKind
from .kv import KVView, Sequences


@dataclasses.dataclass(frozen=True, repr=False)
class BitMask(Shown):
    """The new tokens that each row sees: `data` is [rows][words] of integers. If bit j of a row is
    set, the row sees new token j of its session. With a window or slopes, `positions` must be the
    position of each row's token in its text.
    """

    data: IntegerRows
    positions: Integers | None = None

    def build(self, rows: BatchRows, keep: list[Any]) -> _raw.Mask:
        """The struct for C; `keep` gets what must stay alive with it."""
        data = integers(self.data, np.uint64, "mask", dims=2)
        if len(data) != rows.total:
            raise misuse(f"mask: [{rows.total}][words] are needed, the array is {data.shape}")
        keep.append(data)
        struct = sized(_raw.Mask, MaskKind.TREE_BITS, address(data), data.shape[1])
        if self.positions is not None:
            positions = some_integers(self.positions, rows.total, np.int64, "positions")
            keep.append(positions)
            struct.positions = address(positions)
        return struct


@dataclasses.dataclass(frozen=True, repr=False)
class TreeMask(Shown):
    """A tree of speculative tokens: `parents` is [rows] of int32, for each new token the index of
    its parent among the new tokens of its session, -1 for none. Windows, sinks and slopes count
    from its depth.
    """

    parents: Integers

    def build(self, rows: BatchRows, keep: list[Any]) -> _raw.Mask:
        """As BitMask.build."""
        parents = token_ids(self.parents, "parents")
        if parents.shape != (rows.total,):
            raise misuse(f"parents: {rows.total} are needed, {len(parents)} are there")
        keep.append(parents)
        return sized(_raw.Mask, MaskKind.TREE_PARENTS, address(parents))


@dataclasses.dataclass(frozen=True, repr=False)
class BoolMask(Shown):
    """The positions that each query sees: `data` is [sequences][n][columns] of bool; an extent of 1
    stands for all sequences or all queries. Column c is position first_positions[sequence] + c
    (negative: padding on the left), 0 by default.
    """

    data: npt.NDArray[np.bool_] | npt.NDArray[np.uint8]
    first_positions: Integers | None = None

    def build(self, rows: BatchRows, keep: list[Any]) -> _raw.Mask:
        """As BitMask.build."""
        kinds = {np.bool_: MaskKind.BYTES, np.uint8: MaskKind.BYTES}
        return _mask_of_columns(self, kinds, "bool", rows, keep)


@dataclasses.dataclass(frozen=True, repr=False)
class AdditiveMask(Shown):
    """Numbers that are added to scores; -infinity hides a position. `data` is float16 or float32,
    with the shape and `first_positions` of a BoolMask. `head_factors`, [query_heads], multiply it.
    """

    data: npt.NDArray[np.floating[Any]]
    first_positions: Integers | None = None
    head_factors: Sequence[float] | Floats | None = None

    def build(self, rows: BatchRows, keep: list[Any]) -> _raw.Mask:
        """As BitMask.build, without head_factors."""
        kinds = {np.float16: MaskKind.F16, np.float32: MaskKind.F32}
        return _mask_of_columns(self, kinds, "float16 or float32", rows, keep)


def _mask_of_columns(
    mask: BoolMask | AdditiveMask,
    kinds: dict[Any, MaskKind],
    elements: str,
    rows: BatchRows,
    keep: list[Any],
) -> _raw.Mask:
    data, count = np.asarray(mask.data), len(rows.lengths)
    size = data.itemsize
    if (
        data.ndim != 3
        or data.dtype.type not in kinds
        or not data.dtype.isnative
        or data.shape[0] not in (1, count)
        or (data.shape[1] != 1 and data.shape[1] < rows.reach)
        or (data.shape[2] > 1 and data.strides[2] != size)
        or min(data.strides) < 0
        or any(stride % size for stride in data.strides)
    ):
        raise misuse(
            f"mask: [{count}][{rows.reach}][columns] of {elements} are needed, the array is "
            f"{data.dtype} {data.shape} with strides {data.strides}"
        )
    keep.append(data)
    kind = kinds[data.dtype.type]
    struct = sized(_raw.Mask, kind, address(data), columns=data.shape[2])
    struct.batch_stride = data.strides[0] // size if data.shape[0] > 1 else 0
    struct.row_stride = data.strides[1] // size if data.shape[1] > 1 else 0
    if mask.first_positions is not None:
        first = some_integers(mask.first_positions, count, np.int64, "first_positions")
        keep.append(first)
        struct.first_positions = address(first)
    return struct


Mask: TypeAlias = BitMask | TreeMask | BoolMask | AdditiveMask


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class ChosenBlocks(configs.ChosenBlocks):
    """Experimental: the blocks that queries read instead of all blocks."""

    lists: npt.NDArray[np.integer[Any]] | None = None

    def build(self, batch: BatchRows, kv_heads: int, keep: list[Any]) -> _raw.ChosenBlocks:
        """The struct for C; `keep` gets what must stay alive with it."""
        struct = sized(_raw.ChosenBlocks)
        fill(struct, self)
        if self.lists is not None:
            lists = block_ids(self.lists, (self.choices(batch), kv_heads, None), "lists")
            keep.append(lists)
            struct.lists, struct.list_blocks = address(lists), lists.shape[2]
        return struct

    def choices(self, batch: BatchRows) -> int:
        """How often blocks are chosen for a KV head."""
        tokens = max(1, self.tokens_per_choice)
        return sum(-(-queries // tokens) for queries in batch.lengths)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class AttentionParams(configs.AttentionParams):
    """How queries attend. `causal`: a query sees nothing after its position."""

    causal: bool = True
    kv_head_windows: Integers | None = None
    kv_head_sink_tokens: Integers | None = None
    alibi_slopes: Sequence[float] | Floats | None = None
    sink_logits: Sequence[float] | Floats | None = None
    mask: Mask | None = None
    chosen_blocks: ChosenBlocks | None = None

    def build(self, batch: BatchRows, query_heads: int, kv_heads: int) -> _raw.AttentionParams:
        """The struct for C, which keeps alive what it points to."""
        struct = sized(_raw.AttentionParams)
        keep: list[Any] = []
        struct.owners = keep
        fill(struct, self)
        struct.bidirectional = 1 - unsigned(self.causal, 1, "causal")
        if self.mask is not None:
            mask = self.mask.build(batch, keep)
            if isinstance(self.mask, AdditiveMask) and self.mask.head_factors is not None:
                factors = floats(self.mask.head_factors, (query_heads,), "head_factors")
                keep.append(factors)
                mask.head_factors = address(factors)
            struct.mask = _kept(mask, keep)
        if self.chosen_blocks is not None:
            struct.chosen_blocks = _kept(self.chosen_blocks.build(batch, kv_heads, keep), keep)
        for name in ("alibi_slopes", "sink_logits"):
            if (given := getattr(self, name)) is not None:
                values = floats(given, (query_heads,), name)
                keep.append(values)
                setattr(struct, name, address(values))
        for name in ("kv_head_windows", "kv_head_sink_tokens"):
            if (per_head := getattr(self, name)) is not None:
                windows = some_integers(per_head, kv_heads, np.uint32, name)
                keep.append(windows)
                setattr(struct, name, address(windows))
        return struct


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class AttentionOutputs(Shown):
    """Arrays for results of attention besides its outputs; None: not wanted. `lse`,
    [rows][query_heads] of float32, is filled with the logarithm of the sum of exp(score).

    Experimental: `chosen`, [choices][kv_heads][top_blocks] of uint32, is filled with the blocks
    that ChosenBlocks.top_blocks chose, in the form of its lists; `masses`,
    [sessions][query_heads][n] of float32, with the weights that the last `mass_queries` new tokens
    of a session (0: all) give each block.
    """

    lse: Floats | None = None
    chosen: npt.NDArray[np.uint32] | None = None
    masses: Floats | None = None
    mass_queries: int = 0

    def build(
        self, params: AttentionParams | None, batch: BatchRows, query_heads: int, kv_heads: int
    ) -> _raw.AttentionOutputs:
        """The struct for C of a call with these params."""
        struct, of_blocks = sized(_raw.AttentionOutputs), sized(_raw.BlockOutputs)
        fill(of_blocks, self)
        struct.owners = of_blocks
        struct.block_outputs = ctypes.addressof(of_blocks)
        if self.lse is not None:
            struct.lse = address(floats(self.lse, (batch.total, query_heads), "lse", out=True))
        if self.chosen is not None:
            blocks = None if params is None else params.chosen_blocks
            if blocks is None:
                raise misuse("chosen: the params have no chosen_blocks")
            shape = (blocks.choices(batch), kv_heads, blocks.top_blocks)
            of_blocks.chosen = address(block_ids(self.chosen, shape, "chosen", out=True))
        if self.masses is not None:
            size = np.shape(self.masses)[-1] if np.ndim(self.masses) else 0
            shape = (len(batch.lengths), query_heads, size)
            of_blocks.masses = address(floats(self.masses, shape, "masses", out=True))
            of_blocks.mass_blocks = size
        return struct


def _kept(struct: ctypes.Structure, keep: list[Any]) -> int:
    """The address of a struct; `keep` keeps it alive."""
    keep.append(struct)
    return ctypes.addressof(struct)


def kv_attend(
    kv: KVView,
    q: Rows,
    query_lengths: Integers,
    kv_lengths: Integers,
    block_tables: IntegerRows,
    query_heads: int,
    out: Rows | None = None,
    params: AttentionParams | None = None,
    outputs: AttentionOutputs | None = None,
    *,
    first_rows: Integers | None = None,
    query_positions: Integers | None = None,
    compute: Compute | None = None,
) -> Any:
    """Attention without a cache, over a view and block tables ([sequences][entries]) that you own.
    Shapes as for Batch.attend; an array of four dimensions is a padded batch,
    [sequences][n][heads][dim]. `first_rows` and `query_positions` are those of
    pkv_kv_sequences.
    """
    sequences = Sequences(
        query_lengths, kv_lengths, block_tables, query_heads, first_rows, query_positions
    )
    rows, view, heads = sequences.rows, kv.struct, sequences.struct.query_heads
    queries = batch_tensor(q, rows, heads, view.key_dim, "q")
    result: Any = results(queries, view.value_dim) if out is None else out
    into = batch_tensor(result, rows, heads, view.value_dim, "out", out=True)
    structs = built(params, outputs, rows, heads, view.kv_heads)
    given = view, sequences.struct, structs[0], queries, into, structs[1]
    with kv._reading():
        call(library().kv_attend, handle_of(compute), *map(reference, given))
    return result


def built(
    params: AttentionParams | None,
    outputs: AttentionOutputs | None,
    batch: BatchRows,
    query_heads: int,
    kv_heads: int,
) -> tuple[_raw.AttentionParams | None, _raw.AttentionOutputs | None]:
    """The structs for C; None stays None."""
    return (
        None if params is None else params.build(batch, query_heads, kv_heads),
        None if outputs is None else outputs.build(params, batch, query_heads, kv_heads),
    )


def results(queries: _raw.Tensor, dim: int) -> Floats:
    """An array for the outputs, with the shape of the queries."""
    return np.zeros((*queries.shape[:-1], dim), np.float32)


def attention_merge(
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
    shape = unsigned(rows, 40, "rows"), unsigned(heads, 32, "heads"), unsigned(dim, 32, "dim")
    parts = [tensor(out, *shape, f"outs[{i}]") for i, out in enumerate(outs)]
    logs = [floats(part, shape[:2], f"lse[{i}]") for i, part in enumerate(lse)]
    if len(parts) != len(logs):
        raise misuse(f"{len(logs)} lse for {counted(len(parts), 'output')}")
    merged, merged_lse = np.empty(shape, np.float32), np.empty(shape[:2], np.float32)
    result = tensor(merged, *shape, "merged", out=True)
    given = (_raw.Tensor * len(parts))(*parts), pointer_array([address(log) for log in logs])
    into = *shape, ctypes.byref(result), address(merged_lse)
    call(library().attention_merge, handle_of(compute), len(parts), *given, *into)
    return merged, merged_lse
