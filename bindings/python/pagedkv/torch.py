"""Our kernels as PyTorch operators over your own tensors, without a copy.

    k_cache, v_cache = pagedkv.torch.new_cache(blocks, block_size, kv_heads, head_dim)
    pagedkv.torch.write_slots(k_cache, v_cache, key, value, slots)
    out = pagedkv.torch.attention(query, k_cache, v_cache, block_tables, query_lengths, kv_lengths)

They are torch.ops.pagedkv.write_slots, attention, attention.out, attention_with_lse and
attention_merge: torch.compile traces them, and knows what they write to. They run on as many
threads as PyTorch (torch.set_num_threads) and have no gradients.

A cache is two tensors, whose shapes say how keys and values are stored:

    [blocks][block_size][kv_heads][head_dim]     float32, float16, bfloat16, float8_e4m3fn or
                                                 float8_e5m2
    [blocks][tiles][kv_heads][16 * head_dim]     the same types, packed in tiles of 16 tokens
    [blocks][tiles][kv_heads][bytes of a tile]   uint8: INT8 or INT4, packed in tiles
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import torch

from ._arrays import pointer_array
from ._handle import call, sized, unsigned
from ._library import library
from ._repr import counted
from ._torch_threads import ROWS as ROWS
from ._torch_threads import torch_compute as torch_compute
from ._torch_threads import torch_runner as torch_runner
from .errors import misuse
from .generated import raw as _raw
from .generated.raw import Dtype, Layout
from .kv import plan_view

if TYPE_CHECKING:
    from typing_extensions import Unpack

_STORED = {**ROWS, torch.float8_e4m3fn: Dtype.FP8_E4M3, torch.float8_e5m2: Dtype.FP8_E5M2}
_TILE = 16

# ---- How a cache is stored ----


@functools.cache
def _formats(dim: int) -> dict[tuple[torch.dtype, int], tuple[Dtype, Layout]]:
    """How a cache of this head dim is stored, from its type and its last extent."""
    found = {}
    for dtype, stored in _STORED.items():
        found[dtype, dim] = stored, Layout.PLAIN
        found[dtype, _TILE * dim] = stored, Layout.PACKED
    for stored in (Dtype.INT8, Dtype.INT4):
        found[torch.uint8, _tile_bytes(stored, dim)] = stored, Layout.PACKED
    return found


def _tile_bytes(dtype: Dtype, dim: int) -> int:
    shape = {"block_size": _TILE, "kv_heads": 1, "key_dim": dim, "blocks": 1, "latent": 1}
    return plan_view(sized(_raw.KVView, layout=Layout.PACKED, dtype=dtype, **shape))


def new_cache(
    blocks: int,
    block_size: int,
    kv_heads: int,
    head_dim: int,
    dtype: torch.dtype | Dtype = torch.float32,
    *,
    value_dim: int | None = None,
    value_dtype: torch.dtype | Dtype | None = None,
    packed: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of one layer, of zeros. Dtype.INT8 and Dtype.INT4 are for quantised ones.

    Packed is faster and takes blocks of a multiple of 16 tokens; without it, tensors are
    [blocks][block_size][kv_heads][head_dim], for kernels of your own beside these.
    """
    blocks, block_size, kv_heads, head_dim, value_dim = (
        unsigned(given, 32, name)
        for name, given in (
            ("blocks", blocks),
            ("block_size", block_size),
            ("kv_heads", kv_heads),
            ("head_dim", head_dim),
            ("value_dim", 0 if value_dim is None else value_dim),
        )
    )
    if packed and block_size % _TILE:
        raise misuse(f"block_size is {block_size}; packed tiles need a multiple of {_TILE}")

    layout, tokens = Layout.PLAIN, block_size
    if packed:
        layout, tokens = Layout.PACKED, block_size // _TILE

    def new(dim: int, wanted: torch.dtype | Dtype) -> torch.Tensor:
        for (kind, last), found in _formats(dim).items():
            if found == (_STORED.get(wanted, wanted), layout):
                return torch.zeros(blocks, tokens, kv_heads, last, dtype=kind)
        raise misuse(f"{wanted!r}{'' if packed else ' in plain rows'} is not stored in a cache")

    return new(head_dim, dtype), new(value_dim or head_dim, value_dtype or dtype)


@functools.lru_cache(maxsize=4096)
def _view(
    dims: tuple[int, int],
    dtypes: tuple[torch.dtype, torch.dtype],
    shapes: tuple[torch.Size, torch.Size],
    strides: tuple[tuple[int, ...], tuple[int, ...]],
    places: tuple[int, int],
) -> _raw.KVView:
    """A pkv_kv_view of two caches. Raises if they do not fit together."""
    formats = []
    for name, dim, dtype, shape, stride in zip(
        ("k_cache", "v_cache"), dims, dtypes, shapes, strides, strict=True
    ):
        found = _formats(dim).get((dtype, shape[-1])) if len(shape) == 4 else None
        if found is None:
            raise misuse(
                f"{name}: {dtype} {list(shape)} is not a cache of head dim {dim}: "
                "new_cache() makes one"
            )
        if stride[-1] != 1:
            raise misuse(f"{name}: strides {list(stride)}; the last one must be 1")
        formats.append(found)
    (key, layout), (value, other) = formats
    if shapes[0][:3] != shapes[1][:3] or layout != other:
        raise misuse(f"k_cache {list(shapes[0])} and v_cache {list(shapes[1])} do not fit together")
    blocks, tokens, heads, _ = shapes[0]
    size = tokens * (_TILE if layout == Layout.PACKED else 1)
    memory = *places, 0, 0, *strides[0][:3], *strides[1][:3]
    return sized(_raw.KVView, layout, size, heads, *dims, key, value, blocks, *memory)


def _view_of(
    k_cache: torch.Tensor, v_cache: torch.Tensor, key_dim: int, value_dim: int
) -> _raw.KVView:
    return _view(
        (key_dim, value_dim),
        (k_cache.dtype, v_cache.dtype),
        (k_cache.shape, v_cache.shape),
        (k_cache.stride(), v_cache.stride()),
        (k_cache.data_ptr(), v_cache.data_ptr()),
    )


def _value_dim(query: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor) -> int:
    """The dim of results. It does not follow from the shape of quantised values; they have the dim
    of the keys."""
    dim: int = query.shape[-1]
    if v_cache.dtype == torch.uint8:
        return dim
    packed = k_cache.dtype == torch.uint8 or k_cache.shape[-1] != dim
    dim = v_cache.shape[-1]
    return dim // _TILE if packed else dim


# ---- The operators, with defaults and names ----


def write_slots(
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Stores rows [rows][kv_heads][head_dim], each in its slot: block * block_size + offset.

    A row with the slot -1 is padding. Rows of another type than the cache's are converted.
    """
    _check_devices(k_cache, v_cache, key, value, slots)
    torch.ops.pagedkv.write_slots(k_cache, v_cache, key, value, slots)


class AttentionRules(TypedDict, total=False):
    """The arguments of attention() besides its tensors."""

    query_starts: torch.Tensor
    """The first row of each sequence, if there are gaps between sequences. It may have one entry
    more, as cumulative lengths do. Results of rows in gaps are not written."""
    query_positions: torch.Tensor
    """The position of each query, if they are not the last ones of their sequence."""
    scale: float
    """Factor of the scores; 0 (default): 1 / sqrt(head_dim)."""
    softcap: float
    """Bound of the scores; 0 (default): none."""
    causal: bool
    """True (default): a query sees nothing after its position."""
    window: int
    """A query sees its position and window - 1 before it; 0 (default): all."""
    sink_tokens: int
    """The number of first positions that queries see besides the window."""
    alibi_slopes: torch.Tensor
    """One for each query head."""
    sink_logits: torch.Tensor
    """One for each query head: a logit that takes part in the softmax without a value."""
    lse: torch.Tensor
    """Receives the log of each sum of exp(score), [rows][query_heads] of float32."""


def attention(
    query: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_tables: torch.Tensor,
    query_lengths: torch.Tensor,
    kv_lengths: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    **rules: Unpack[AttentionRules],
) -> torch.Tensor:
    """Attention of sequences over the blocks that hold their keys and values.

    `query` is [rows][query_heads][head_dim]: the last `query_lengths[i]` of the `kv_lengths[i]`
    positions of each sequence, one sequence after the other. Position p of sequence i is in block
    `block_tables[i, p // block_size]`. All three are int32 or int64; kv_lengths as int64 and the
    others as int32 need no conversion.

    The result is `out`, or a new tensor of the type of the queries.
    """
    given = query, k_cache, v_cache, block_tables, query_lengths, kv_lengths
    _check_devices(*given)
    if out is None:
        out = _new_results(query, k_cache, v_cache)
    if not torch.compiler.is_compiling():  # what it traces are Python's numbers, or its own
        if "window" in rules:
            rules["window"] = unsigned(rules["window"], 32, "window")
        if "sink_tokens" in rules:
            rules["sink_tokens"] = unsigned(rules["sink_tokens"], 32, "sink_tokens")
    _attention_out(*given, out=out, **rules)
    return out


def attention_merge(
    outs: Sequence[torch.Tensor], lse: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Combines results over the same queries and different positions, [rows][heads][dim], by their
    lse, [rows][heads]: the merged result and its lse.
    """
    _check_devices(*outs, *lse)
    if not outs or len(outs) != len(lse):
        raise misuse(
            f"{len(lse)} lse for {counted(len(outs), 'output')}: one or more of each are needed"
        )
    merged: tuple[torch.Tensor, torch.Tensor] = torch.ops.pagedkv.attention_merge(outs, lse)
    return merged


def _check_devices(*tensors: torch.Tensor) -> None:
    for tensor in tensors:
        if not tensor.is_cpu:
            raise misuse(f"pagedkv computes on CPUs; a tensor is on {tensor.device}")


# ---- Tensors for C ----


def _rows(rows: torch.Tensor, name: str) -> _raw.Tensor:
    """[rows][heads][dim], the dims of a head side by side."""
    dtype = ROWS.get(rows.dtype)
    if dtype is None:
        raise misuse(f"{name}: float32, float16 or bfloat16 are needed, this is {rows.dtype}")
    if rows.dim() != 3 or not rows.is_cpu:
        raise misuse(
            f"{name}: [rows][heads][dim] on the CPU are needed, this is {list(rows.shape)} "
            f"on {rows.device}"
        )
    row, head, last = rows.stride()
    if last != 1 or (row == 0 and rows.shape[0] > 1) or (head == 0 and rows.shape[1] > 1):
        raise misuse(
            f"{name}: strides {[row, head, last]}; dims must be side by side, and rows apart"
        )
    n, heads, dim = rows.shape
    elements = (n - 1) * row + (heads - 1) * head + dim if rows.numel() else 0
    # A row stride of 0, which one row may have, would mean dense heads to C.
    strides = row or heads * head, head, 0
    return _raw.Tensor(rows.data_ptr(), dtype, 0, *strides, elements * rows.element_size())


def _numbers(given: torch.Tensor, dtype: torch.dtype, dims: int, name: str) -> torch.Tensor:
    """Converts int32 or int64 to the type that C takes; a tensor of that type is not copied."""
    if given.dtype is dtype and given.dim() == dims and given.is_cpu and given.is_contiguous():
        return given
    if given.dtype not in (torch.int32, torch.int64) or given.dim() != dims or not given.is_cpu:
        raise misuse(
            f"{name}: int32 or int64 of {dims} dimension{'s' * (dims > 1)} on the CPU are "
            f"needed, this is {given.dtype} {list(given.shape)} on {given.device}"
        )
    if dtype == torch.int32 and given.dtype == torch.int64 and given.numel():
        low, high = (int(end) for end in given.aminmax())
        if not -(2**31) <= low <= high < 2**31:
            raise misuse(f"{name}: {low} to {high} do not fit into 32 bits")
    return given.to(dtype).contiguous()


def _floats(given: torch.Tensor | None, heads: int, name: str) -> torch.Tensor | None:
    """A number of each query head."""
    if given is None:
        return None
    if given.shape != (heads,) or not given.is_cpu:
        raise misuse(
            f"{name}: one for each of {heads} query heads is needed, this is {list(given.shape)} "
            f"on {given.device}"
        )
    return given.detach().to(torch.float32).contiguous()


def _place(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


# ---- The operators on CPUs ----


def _write_slots(
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    keys, values = _rows(key, "key"), _rows(value, "value")
    slots = _numbers(slots, torch.int64, 1, "slots")
    view = _view_of(k_cache, v_cache, key.shape[2], value.shape[2])
    for name, rows in (("key", key), ("value", value)):
        if rows.shape[0] != len(slots) or rows.shape[1] != view.kv_heads:
            raise misuse(
                f"{name}: slots and k_cache need {counted(len(slots), 'row')} of "
                f"{counted(view.kv_heads, 'head')}, this is {list(rows.shape)}"
            )
    into = torch_compute(), ctypes.byref(view), len(slots), slots.data_ptr()
    call(library().kv_write_slots, *into, ctypes.byref(keys), ctypes.byref(values))


def _sequences(
    query: torch.Tensor,
    block_tables: torch.Tensor,
    query_lengths: torch.Tensor,
    kv_lengths: torch.Tensor,
    query_starts: torch.Tensor | None,
    query_positions: torch.Tensor | None,
) -> tuple[_raw.KVSequences, list[torch.Tensor], int]:
    """The sequences for C, what they point to, and how many queries there are."""
    tables = _numbers(block_tables, torch.int32, 2, "block_tables")
    lengths = _numbers(query_lengths, torch.int32, 1, "query_lengths")
    totals = _numbers(kv_lengths, torch.int64, 1, "kv_lengths")
    keep = [tables, lengths, totals]
    numbers = lengths.tolist()
    count, (table_count, entries) = len(numbers), tables.shape
    if totals.numel() != count or table_count != count:
        raise misuse(
            f"{count} query_lengths, {totals.numel()} kv_lengths, {table_count} block_tables"
        )
    queries = reach = sum(numbers)
    places = lengths.data_ptr(), totals.data_ptr(), tables.data_ptr()
    sequences = sized(_raw.KVSequences, query.shape[1], count, *places, entries)
    if query_starts is not None:
        starts = _numbers(query_starts, torch.int32, 1, "query_starts")
        if len(starts) not in (count, count + 1):
            raise misuse(f"query_starts: {count} or one more are needed, {len(starts)} are there")
        first = starts.tolist()
        reach = max((at + n for at, n in zip(first, numbers) if n), default=0)  # noqa: B905
        if min(first, default=0) < 0:
            raise misuse(f"query_starts: {min(first)} is before the first row")
        keep.append(starts)
        sequences.first_rows = starts.data_ptr()
    if min(numbers, default=0) < 0 or reach > query.shape[0]:
        raise misuse(
            f"query: {counted(query.shape[0], 'row')}; query_lengths {numbers[:8]}"
            f"{'...' * (count > 8)} need {reach}"
        )
    if query_positions is not None:
        positions = _numbers(query_positions, torch.int64, 1, "query_positions")
        if len(positions) != queries:
            raise misuse(f"query_positions: {queries} are needed, {len(positions)} are there")
        keep.append(positions)
        sequences.query_positions = positions.data_ptr()
    return sequences, keep, queries


def _attend(
    query: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_tables: torch.Tensor,
    query_lengths: torch.Tensor,
    kv_lengths: torch.Tensor,
    query_starts: torch.Tensor | None = None,
    query_positions: torch.Tensor | None = None,
    scale: float = 0.0,
    softcap: float = 0.0,
    causal: bool = True,
    window: int = 0,
    sink_tokens: int = 0,
    alibi_slopes: torch.Tensor | None = None,
    sink_logits: torch.Tensor | None = None,
    *,
    out: torch.Tensor,
    lse: torch.Tensor | None = None,
) -> None:
    queries, results = _rows(query, "query"), _rows(out, "out")
    if out.shape[:2] != query.shape[:2]:
        raise misuse(f"out is {list(out.shape)}, query {list(query.shape)}")
    view = _view_of(k_cache, v_cache, query.shape[2], out.shape[2])
    sequences, keep, rows = _sequences(
        query, block_tables, query_lengths, kv_lengths, query_starts, query_positions
    )
    heads = query.shape[1]
    slopes = _floats(alibi_slopes, heads, "alibi_slopes")
    logits = _floats(sink_logits, heads, "sink_logits")
    if lse is not None and not (
        lse.dtype == torch.float32
        and lse.is_contiguous()
        and lse.dim() == 2
        and lse.shape[0] >= rows
        and lse.shape[1] == heads
    ):
        raise misuse(
            f"lse: dense float32 [{rows}][{heads}] is needed, this is {lse.dtype} "
            f"{list(lse.shape)} of strides {list(lse.stride())}"
        )
    params = sized(
        _raw.AttentionParams,
        scale=scale,
        bidirectional=not causal,
        window=unsigned(window, 32, "window"),
        sink_tokens=unsigned(sink_tokens, 32, "sink_tokens"),
        softcap=softcap,
        alibi_slopes=_place(slopes),
        sink_logits=_place(logits),
    )
    outputs = sized(_raw.AttentionOutputs, lse=_place(lse))
    given = [ctypes.byref(each) for each in (view, sequences, params, queries, results, outputs)]
    call(library().kv_attend, torch_compute(), *given)
    del keep


def _new_results(query: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor) -> torch.Tensor:
    return query.new_empty(*query.shape[:-1], _value_dim(query, k_cache, v_cache))


def _attention(*args: Any, **kwargs: Any) -> torch.Tensor:
    out = _new_results(*args[:3])
    _attend(*args, **kwargs, out=out)
    return out


def _attention_with_lse(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse = _fake_attention_with_lse(*args)
    _attend(*args, **kwargs, out=out, lse=lse)
    return out, lse


def _attention_merge(
    outs: Sequence[torch.Tensor], lse: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    parts = [_rows(one, f"outs[{i}]") for i, one in enumerate(outs)]
    if len(lse) != len(parts):
        raise misuse(f"{len(lse)} lse for {counted(len(parts), 'output')}")
    shape = outs[0].shape
    for i, (one, sums) in enumerate(zip(outs, lse, strict=True)):
        fits = one.shape == shape and sums.shape == shape[:2] and sums.is_cpu
        if not fits or sums.dtype != torch.float32:
            raise misuse(
                f"outs[{i}] is {list(one.shape)} and lse[{i}] {sums.dtype} {list(sums.shape)}; "
                f"{list(shape)} and float32 {list(shape[:2])} are needed"
            )
    logs = [one.contiguous() for one in lse]
    merged, merged_lse = _fake_attention_merge(outs, lse)
    given = (_raw.Tensor * len(parts))(*parts), pointer_array([one.data_ptr() for one in logs])
    into = *shape, ctypes.byref(_rows(merged, "merged")), merged_lse.data_ptr()
    call(library().attention_merge, torch_compute(), len(parts), *given, *into)
    return merged, merged_lse


# ---- Shapes and types for torch.compile ----


def _fake_nothing(*_args: Any, **_kwargs: Any) -> None:
    return None


def _fake_attention(*args: Any, **_kwargs: Any) -> torch.Tensor:
    return _new_results(*args[:3])


def _fake_attention_with_lse(*args: Any, **_kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    query = args[0]
    lse = torch.empty(query.shape[:2], dtype=torch.float32, device=query.device)
    return _new_results(*args[:3]), lse


def _fake_attention_merge(
    outs: Sequence[torch.Tensor], lse: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(outs[0], memory_format=torch.contiguous_format), torch.empty_like(
        lse[0], memory_format=torch.contiguous_format
    )


_ATTENTION = """Tensor query, Tensor k_cache, Tensor v_cache, Tensor block_tables,
    Tensor query_lengths, Tensor kv_lengths, Tensor? query_starts=None,
    Tensor? query_positions=None, float scale=0.0, float softcap=0.0, bool causal=True,
    int window=0, int sink_tokens=0, Tensor? alibi_slopes=None, Tensor? sink_logits=None"""
_operators = torch.library.Library("pagedkv", "DEF")
for _name, _schema, _kernel, _fake in (
    (
        "write_slots",
        "Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor key, Tensor value, Tensor slots) -> (",
        _write_slots,
        _fake_nothing,
    ),
    ("attention", f"{_ATTENTION}) -> (Tensor", _attention, _fake_attention),
    (
        "attention.out",
        f"{_ATTENTION}, *, Tensor(a!) out, Tensor(b!)? lse=None) -> (",
        _attend,
        _fake_nothing,
    ),
    (
        "attention_with_lse",
        f"{_ATTENTION}) -> (Tensor, Tensor",
        _attention_with_lse,
        _fake_attention_with_lse,
    ),
    (
        "attention_merge",
        "Tensor[] outs, Tensor[] lse) -> (Tensor, Tensor",
        _attention_merge,
        _fake_attention_merge,
    ),
):
    _operators.define(f"{_name}({_schema})", tags=torch.Tag.pt2_compliant_tag)
    _operators.impl(_name, _kernel, "CPU")
    torch.library.register_fake(f"pagedkv::{_name}", _fake, lib=_operators)

_attention_out = torch.ops.pagedkv.attention.out
