"""Rows of the layers of a transformers model, written and attended in a step of pagedkv."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from pagedkv import AttentionParams, Batch, BoolMask, ChosenBlocks, LayerShape
from pagedkv.support import batch_tensor, library, raw


class Variant(NamedTuple):
    """The attention that a layer needs."""

    scale: float
    softcap: float
    sinks: torch.Tensor | None
    mask: torch.Tensor | None
    """bool, [batch or 1][1][n or 1][columns]."""
    causal: bool = True
    window: int = 0


class ForwardPass:
    """A forward pass over sessions: writes and attends the rows of its layers.

    Tensors of layers are [batch][heads][n][dim]: a padded batch, an entry for each session, or (in
    a packed pass) one entry with the rows of all sessions. `top_blocks`, if given, is for each
    layer how many chosen blocks each 64 tokens read, 0 for all.
    """

    def __init__(
        self, batch: Batch, packed: bool = False, top_blocks: Sequence[int] | None = None
    ) -> None:
        self.batch, self._packed, self._top_blocks = batch, packed, top_blocks
        self.new_tokens = int(batch.batch_rows.lengths[0])  # of each sequence, unless packed
        self.written: set[int] = set()
        self.attended: set[int] = set()
        self._operands: dict[str, _Operand] = {}
        self._params: dict[tuple[Any, ...], tuple[Variant, raw.AttentionParams]] = {}

    def write(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> None:
        shape, lib = self.batch.cache.layer_shape(layer), library()
        keys = self._operand("key", key, shape.kv_heads, shape.key_dim)
        values = self._operand("value", value, shape.kv_heads, shape.value_dim)
        lib.check(lib.batch_write(self.batch.handle, layer, keys, values))
        self.written.add(layer)

    def attend(self, layer: int, query: torch.Tensor, variant: Variant) -> torch.Tensor:
        """The result is [batch][n][heads][dim]."""
        shape, lib = self.batch.cache.layer_shape(layer), library()
        queries = self._operand("query", query, shape.query_heads, shape.key_dim)
        out = query.new_empty((query.shape[0], query.shape[2], query.shape[1], shape.value_dim))
        outputs = self._operand("out", out.transpose(1, 2), shape.query_heads, shape.value_dim)
        top_blocks = 0 if self._top_blocks is None else self._top_blocks[layer]
        params = ctypes.byref(self._built(variant, top_blocks, shape))
        lib.check(lib.batch_attend(self.batch.handle, layer, params, queries, outputs, None))
        self.attended.add(layer)
        return out

    def _operand(self, what: str, states: torch.Tensor, heads: int, dim: int) -> Any:
        """The tensor for C. All layers bring tensors of the same shape and strides, so only the
        first is checked; for the others only the address changes."""
        layout = (states.shape, states.stride(), states.dtype, heads, dim)
        found = self._operands.get(what)
        if found is None or found.layout != layout:
            rows = states.detach()
            rows = rows[0].transpose(0, 1) if self._packed else rows.transpose(1, 2)
            if rows.stride(-1) != 1 or 0 in rows.stride():  # 0: repeated by expand()
                rows = rows.contiguous()
            struct = batch_tensor(rows, self.batch.batch_rows, heads, dim, what)
            found = _Operand(layout, struct)
            if rows.data_ptr() == states.data_ptr():
                self._operands[what] = found
            return ctypes.byref(struct)
        found.struct.data = states.data_ptr()
        return ctypes.byref(found.struct)

    def _built(self, variant: Variant, top_blocks: int, shape: LayerShape) -> raw.AttentionParams:
        """The params for C: most layers of a pass ask for the same."""
        sinks, mask = variant.sinks, variant.mask
        key = (variant._replace(sinks=None, mask=None), id(sinks), id(mask), top_blocks, shape)
        found = self._params.get(key)
        if found is None:
            params = AttentionParams(
                scale=variant.scale,
                causal=variant.causal,
                window=variant.window,
                softcap=variant.softcap,
                sink_logits=None if sinks is None else sinks.detach().float().numpy(),
                mask=None if mask is None else BoolMask(mask[:, 0].contiguous().numpy()),
                chosen_blocks=(
                    ChosenBlocks(top_blocks, tokens_per_choice=64) if top_blocks else None
                ),
            )
            rows = self.batch.batch_rows
            found = variant, params.build(rows, shape.query_heads, shape.kv_heads)
            self._params[key] = found  # keeps the variant and its ids alive
        return found[1]


class _Operand(NamedTuple):
    """A tensor for C, and the tensor that it was made for."""

    layout: tuple[Any, ...]
    struct: raw.Tensor
