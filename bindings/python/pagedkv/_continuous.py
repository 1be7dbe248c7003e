"""Continuous batching of Hugging Face transformers with our kernels, which read the pages of its
PagedAttentionCache in place. See install_continuous().

The pages of a layer are rows of one tensor, and a slot is the index of a row. With full attention
each page holds `tokens_per_page` positions. With a sliding window, a sequence's pages are a ring: a
position's row is in slot `position % window`, so a new row replaces the one that just left the
window.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import importlib.util
import weakref
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
import transformers
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from ._arrays import address, integers, pointer_array
from ._handle import call, sized
from ._library import library
from ._model_layers import loaded_model, unsupported
from ._torch_threads import ROWS, torch_compute
from .generated import raw as _raw
from .generated.raw import Layout

Numbers: TypeAlias = npt.NDArray[Any]
_has_allocators = importlib.util.find_spec(
    "transformers.generation.continuous_batching.cache_allocators"
)

NAME = "pagedkv_flash"
"""The attention implementation that models are set to. generate_batch() accepts only its own names
and names that contain "flash"; it builds no masks for the latter."""


def install_continuous(model: PreTrainedModel) -> None:
    """Makes model.generate_batch() and related methods attend by pagedkv, in transformers' own
    pages.

    Other calls of the model use PyTorch's sdpa. A PagedCache sets the model to another attention;
    after that, call this again before generate_batch().
    """
    model = loaded_model(model)
    if not _has_allocators:
        raise RuntimeError(
            f"transformers {transformers.__version__} does not lay out its pages as 5.23 and 5.24 "
            "do: use one of these"
        )
    if not model._can_set_attn_implementation():
        raise NotImplementedError(
            f"{type(model).__name__} does not attend through transformers' AttentionInterface"
        )
    _leave_rows_to_attention()
    # set_attn_implementation() would search the hub for a name that contains "flash".
    model.config._attn_implementation = NAME


@functools.cache
def _leave_rows_to_attention() -> None:
    """From transformers 5.24 on, a layer gives its new rows to the paged cache before it attends.
    The cache of a model that attends by pagedkv now leaves them to _attention()."""
    from transformers.generation.continuous_batching.cache import PagedAttentionCache

    update = PagedAttentionCache.update

    @functools.wraps(update)
    def update_or_leave(
        cache: Any, key: torch.Tensor, value: torch.Tensor, layer_idx: int, kwargs: dict[str, Any]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if cache.config._attn_implementation != NAME:
            updated: tuple[torch.Tensor, torch.Tensor] = update(
                cache, key, value, layer_idx, kwargs=kwargs
            )
            return updated
        _leave(cache, key, value, kwargs)
        return key, value

    PagedAttentionCache.update = update_or_leave


@torch.compiler.disable
def _leave(cache: Any, key: torch.Tensor, value: torch.Tensor, given: dict[str, Any]) -> None:
    step = _step_of(given)
    step.cache = cache
    step.left.add(_identity(key, value))


def _identity(key: torch.Tensor, value: torch.Tensor) -> tuple[object, ...]:
    return key.data_ptr(), key.shape, value.data_ptr(), value.shape


class _Layer:
    """Views of one layer's memory for C: one in pages, one in single rows."""

    def __init__(self, allocator: Any, layer: int) -> None:
        page = allocator.tokens_per_page
        rows = allocator.cache_tensor.flatten(0, 1)  # keys and values of all layers of the group
        first = 2 * allocator.layer_indices.index(layer)
        keys, values = rows[first * page :], rows[(first + 1) * page :]
        self.pages = _view(keys, values, page, page)
        self.rows = _view(keys, values, 1, 1)


def _view(
    keys: torch.Tensor, values: torch.Tensor, block_size: int, rows_apart: int
) -> _raw.KVView:
    """A view of [rows][heads][dim] in blocks; one begins every `rows_apart` rows."""
    return sized(
        _raw.KVView,
        layout=Layout.PLAIN,
        block_size=block_size,
        kv_heads=keys.shape[1],
        key_dim=keys.shape[2],
        value_dim=values.shape[2],
        dtype=ROWS[keys.dtype],
        value_dtype=ROWS[values.dtype],
        blocks=len(values) // rows_apart,
        k=keys.data_ptr(),
        v=values.data_ptr(),
        k_block_stride=rows_apart * keys.stride(0),
        k_row_stride=keys.stride(0),
        k_head_stride=keys.stride(1),
        v_block_stride=rows_apart * values.stride(0),
        v_row_stride=values.stride(0),
        v_head_stride=values.stride(1),
    )


def _tensor(rows: torch.Tensor) -> _raw.Tensor:
    """Rows of [rows][heads][dim] for C."""
    return _raw.Tensor(rows.data_ptr(), ROWS[rows.dtype], rows.stride(0), rows.stride(1), 0)


@dataclasses.dataclass
class _Call:
    """One layer's call: rows of [rows][heads][dim] and the params of its attention."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    out: torch.Tensor
    scale: float
    softcap: float
    sink_logits: torch.Tensor | None

    def write(self, layer: _Layer, slots: Numbers) -> None:
        into = torch_compute(), ctypes.byref(layer.pages), len(slots), address(slots)
        rows = ctypes.byref(_tensor(self.key)), ctypes.byref(_tensor(self.value))
        call(library().kv_write_slots, *into, *rows)


class _Part:
    """Sequences that attend to the same memory with the same params."""

    def __init__(
        self,
        first_rows: Numbers,
        queries: Numbers,
        lengths: Numbers,
        tables: Numbers,
        window: int = 0,
        positions: Numbers | None = None,
    ) -> None:
        lists: list[Numbers] = [
            integers(queries, np.uint32, "queries"),
            integers(lengths, np.uint64, "lengths"),
            # transformers gives -1 for slots of new rows, which nobody reads.
            integers(np.where(tables < 0, _raw.NO_BLOCK, tables), np.uint32, "tables", dims=2),
            integers(first_rows, np.uint32, "first_rows"),
        ]
        if positions is not None:
            lists.append(integers(positions, np.int64, "positions"))
        self._keep = lists
        places = [address(numbers) for numbers in lists]
        self.sequences = sized(
            _raw.KVSequences, 0, len(queries), *places[:3], tables.shape[1], *places[3:]
        )
        self.params = sized(_raw.AttentionParams, window=window)

    def attend(
        self,
        view: _raw.KVView,
        asked: _Call,
        query: torch.Tensor,
        out: torch.Tensor,
        lse: torch.Tensor | None = None,
        *,
        with_sinks: bool = True,
    ) -> None:
        params, sinks = self.params, asked.sink_logits if with_sinks else None
        params.scale, params.softcap = asked.scale, asked.softcap
        params.sink_logits = None if sinks is None else sinks.data_ptr()
        params.lse = None if lse is None else lse.data_ptr()
        self.sequences.query_heads = query.shape[1]
        structs = view, self.sequences, params, _tensor(query), _tensor(out)
        call(library().kv_attend, torch_compute(), *(ctypes.byref(each) for each in structs))


@dataclasses.dataclass
class _Batch:
    """The sequences of a forward pass in one group of layers."""

    first_rows: Numbers  # of queries, new keys and new values
    queries: Numbers
    first_slots: Numbers  # in slots
    lengths: Numbers  # in slots
    slots: Numbers  # of all keys that are seen; rings may lack those of new rows
    new_slots: Numbers  # where the new rows go

    def of(self, chosen: Numbers) -> _Batch:
        return dataclasses.replace(
            self,
            first_rows=self.first_rows[chosen],
            queries=self.queries[chosen],
            first_slots=self.first_slots[chosen],
            lengths=self.lengths[chosen],
        )

    def tables(self, step: int) -> Numbers:
        """Every `step`-th slot of each sequence, divided by `step`."""
        columns = np.arange(0, self.lengths.max(), step)
        places = self.first_slots[:, None] + columns
        slots: Numbers = self.slots[np.minimum(places, len(self.slots) - 1)]
        return slots // step


class _Pages:
    """Layers of full attention."""

    def __init__(self, allocator: Any, batch: _Batch) -> None:
        self._new_slots = batch.new_slots
        tables = batch.tables(allocator.tokens_per_page)
        self._part = _Part(batch.first_rows, batch.queries, batch.lengths, tables)

    def attend(self, layer: _Layer, asked: _Call) -> None:
        asked.write(layer, self._new_slots)
        self._part.attend(layer.pages, asked, asked.query, asked.out)


class _Rings:
    """Layers with a window. A new row replaces one that only earlier queries see. A single query
    therefore reads the ring after the write; several queries read the new rows from the caller's
    tensors."""

    def __init__(self, allocator: Any, batch: _Batch) -> None:
        self._new_slots, self._window = batch.new_slots, allocator.sliding_window
        single, old = batch.queries == 1, batch.lengths > batch.queries
        self._single, self._fresh = None, None
        if single.any():
            ones = batch.of(single)
            ones.slots = batch.slots.copy()
            ones.slots[ones.first_slots + ones.lengths - 1] = batch.new_slots[ones.first_rows]
            self._single = _Part(ones.first_rows, ones.queries, ones.lengths, ones.tables(1))
        if (fresh := ~single & ~old).any():
            new = batch.of(fresh)
            tables, window = new.first_rows[:, None], self._window
            self._fresh = _Part(new.first_rows, new.queries, new.queries, tables, window)
        self._longest = int(batch.queries.max())
        self._chunks = [
            _Chunk(batch.of(np.array([i])), self._window) for i in np.flatnonzero(~single & old)
        ]

    def attend(self, layer: _Layer, asked: _Call) -> None:
        for chunk in self._chunks:
            chunk.attend_old(layer, asked)
        asked.write(layer, self._new_slots)
        if self._single is not None:
            self._single.attend(layer.rows, asked, asked.query, asked.out)
        if self._fresh is None and not self._chunks:
            return
        # A block begins at each new row, so the new rows of any sequence are one block.
        new = _view(asked.key, asked.value, self._longest, 1)
        if self._fresh is not None:
            self._fresh.attend(new, asked, asked.query, asked.out)
        for chunk in self._chunks:
            chunk.attend_new(new, asked)


class _Chunk:
    """Several new rows of a sequence with a window. They replace old rows that their first queries
    still see, so those queries read the old rows before the write, and the results are merged."""

    def __init__(self, one: _Batch, window: int) -> None:
        first, n, begin = int(one.first_rows[0]), int(one.queries[0]), int(one.first_slots[0])
        past = int(one.lengths[0]) - n
        self._rows = slice(first, first + n)
        zero = np.zeros(1, np.uint32)
        slots = one.slots[None, begin : begin + past]
        positions = past + np.arange(n)
        self._old = _Part(zero, one.queries, one.lengths - n, slots, window, positions)
        self._new = _Part(zero, one.queries, one.queries, one.first_rows[:, None], window)

    def attend_old(self, layer: _Layer, asked: _Call) -> None:
        query, out = asked.query[self._rows], asked.out[self._rows]
        self._outs = torch.empty(2, *out.shape)
        self._lse = torch.empty(2, *out.shape[:2])
        self._old.attend(layer.rows, asked, query, self._outs[0], self._lse[0], with_sinks=False)

    def attend_new(self, new: _raw.KVView, asked: _Call) -> None:
        outs, lse = self._outs, self._lse
        self._new.attend(new, asked, asked.query[self._rows], outs[1], lse[1])
        tensors = (_raw.Tensor * 2)(*(_tensor(out) for out in outs))
        sums = pointer_array([one.data_ptr() for one in lse])
        into = *outs.shape[1:], ctypes.byref(_tensor(asked.out[self._rows])), None
        call(library().attention_merge, torch_compute(), 2, tensors, sums, *into)


class _Step:
    """A forward pass."""

    def __init__(self, rows: int) -> None:
        self.cache: Any = None  # the PagedAttentionCache, if a layer gave its rows to it
        self.rows = rows  # the rows after these are padding
        self.left: set[tuple[object, ...]] = set()  # the rows that layers gave, by _identity()
        self._groups: dict[int, _Pages | _Rings] = {}

    def group(self, allocator: Any, given: dict[str, Any]) -> _Pages | _Rings:
        if allocator.index not in self._groups:
            kind = _Rings if hasattr(allocator, "sliding_window") else _Pages
            self._groups[allocator.index] = kind(allocator, _batch_of(allocator, given))
        return self._groups[allocator.index]


def _step_of(given: dict[str, Any]) -> _Step:
    """The step is kept with a tensor that transformers makes for each forward pass."""
    ends = given["cu_seq_lens_q"]
    step: _Step | None = getattr(ends, "pagedkv", None)
    if step is None:
        step = ends.pagedkv = _Step(int(ends[-1]))
    return step


def _batch_of(allocator: Any, given: dict[str, Any]) -> _Batch:
    rows = given["cu_seq_lens_q"].numpy().astype(np.int64)
    slots = given["cu_seq_lens_k"][allocator.layer_type].numpy().astype(np.int64)
    read = given["read_index"][allocator.index].numpy()
    new = given["write_index"][allocator.index].numpy()
    used = np.diff(rows) > 0  # the others are padding
    return _Batch(
        rows[:-1][used],
        np.diff(rows)[used],
        slots[:-1][used],
        np.diff(slots)[used],
        read if len(read) else new,  # nothing was there before
        new,
    )


_layers: weakref.WeakKeyDictionary[Any, dict[int, _Layer]] = weakref.WeakKeyDictionary()


def _layer_of(cache: Any, allocator: Any, layer: int) -> _Layer:
    known = _layers.setdefault(cache, {})
    if layer not in known:
        known[layer] = _Layer(allocator, layer)
    return known[layer]


def _rows(states: torch.Tensor) -> torch.Tensor:
    """[1][heads][rows][dim] as [rows][heads][dim]."""
    rows = states.detach()[0].transpose(0, 1)
    return rows if rows.stride(-1) == 1 else rows.contiguous()


@torch.compiler.disable
def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    cache: Any = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """The attention function of models. Up to transformers 5.23 they pass the cache on."""
    if cache is None and "cu_seq_lens_q" in kwargs:
        cache = _step_of(kwargs).cache
    if cache is None:
        if s_aux is not None or softcap:
            raise NotImplementedError(
                "outside of continuous batching, attention with learned sinks or softcap needs a "
                "PagedCache, or model.set_attn_implementation('eager')"
            )
        if (arguments := getattr(attention_mask, "pagedkv", None)) is not None:
            attention_mask = sdpa_mask(**arguments)
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
    if kwargs.get("position_bias") is not None:
        raise NotImplementedError("continuous batching by pagedkv takes no position_bias")
    number: Any = module.layer_idx
    allocator = cache.layer_to_allocator[number]
    out = torch.empty(query.shape[2], query.shape[1], value.shape[3], dtype=query.dtype)
    asked = _Call(
        _rows(query),
        _rows(key),
        _rows(value),
        out,
        scaling or 0.0,
        softcap or 0.0,
        None if s_aux is None else s_aux.detach().float(),
    )
    step = _step_of(kwargs)
    if step.left and _identity(key, value) not in step.left:
        name = (cache.config.architectures or [cache.config.model_type])[0]
        reason = f"layer {number} attends to other keys or values than it gave its cache"
        raise unsupported(name, reason)
    step.group(allocator, kwargs).attend(_layer_of(cache, allocator, number), asked)
    if step.rows < len(out):
        out[step.rows :] = 0
    return out[None], None


def _mask(**arguments: Any) -> torch.Tensor:
    """Returns no mask: _attention() makes the mask of a pass without continuous batching."""
    mask = torch.empty(0, dtype=torch.bool)
    mask.pagedkv = arguments
    return mask


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, _mask)
