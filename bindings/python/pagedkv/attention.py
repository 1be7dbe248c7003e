"""Variants of attention, views of K and V, and attention over memory of the caller's."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._arrays import Floats, Rows, address, counts, floats, pointer_array, tensor
from ._cache_base import CacheBase
from ._handle import unsigned
from ._library import library
from ._memory import Memory
from ._structs import fill
from .errors import misuse
from .generated import raw as _raw
from .generated.raw import SINKS_OF_LAYER, WINDOW_OF_LAYER, Dtype


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionParams:
    """The fields of pkv_attention_params. `mask` is [rows][words] of uint64: bit j of a row says
    that it sees new token j of its session."""

    scale: float = 0.0
    causal: bool = True
    window: int = WINDOW_OF_LAYER
    sinks: int = SINKS_OF_LAYER
    softcap: float = 0.0
    alibi_slopes: Sequence[float] | Floats | None = None
    sink_logits: Sequence[float] | Floats | None = None
    mask: npt.NDArray[np.uint64] | None = None

    def build(self, rows: int, query_heads: int, lse: Floats | None = None) -> _raw.AttentionParams:
        """The struct for C, which keeps alive what it points to."""
        struct = _raw.AttentionParams()
        keep: list[Any] = []
        struct.owners = keep
        library().check(
            library().attention_params_init(ctypes.byref(struct), ctypes.sizeof(struct))
        )
        fill(struct, self)
        struct.scale, struct.softcap = self.scale, self.softcap
        for name in ("alibi_slopes", "sink_logits"):
            if (given := getattr(self, name)) is not None:
                values = floats(given, (query_heads,), name)
                keep.append(values)
                setattr(struct, name, address(values))
        if self.mask is not None:
            mask = np.ascontiguousarray(self.mask)
            if mask.dtype != np.uint64 or mask.ndim != 2 or mask.shape[0] != rows:
                raise misuse(
                    f"mask: [{rows}][words] of uint64 are needed, the array is {mask.dtype} "
                    f"{mask.shape}"
                )
            keep.append(mask)
            struct.mask, struct.mask_words = address(mask), mask.shape[1]
        if lse is not None:
            struct.lse = address(floats(lse, (rows, query_heads), "lse", out=True))
        return struct


class KVView:
    """K and V of one layer in paged memory. `struct` has addresses and strides as pkv_kv_view
    describes them.

    A view of a cache keeps the cache from being collected. Where the cache was closed `attention`
    raises a MisuseError (STALE_HANDLE), and a cache whose memory `attention` reads at the moment
    cannot be closed (BUSY). Whoever reads by the addresses alone has to see to it that the cache is
    open.
    """

    def __init__(self, struct: _raw.KVView, owner: object, memory: Memory | None = None) -> None:
        self.struct = struct
        self._owner = owner
        self._memory = memory

    @classmethod
    def of_cache(cls, cache: CacheBase, layer: int) -> KVView:
        struct = _raw.KVView()
        struct.struct_size = ctypes.sizeof(struct)
        library().check(
            library().cache_kv_view(
                cache.handle, unsigned(layer, 32, "layer"), ctypes.byref(struct)
            )
        )
        return cls(struct, cache, cache._memory)

    @classmethod
    def of_arrays(cls, k: Rows, v: Rows | None, block_size: int) -> KVView:
        """Over arrays [blocks * block_size][kv_heads][dim] of your own; v None: V is in the first
        dims of K, all of them.
        """
        shapes = [
            tuple(int(n) for n in getattr(array, "shape", ()))
            for array in (k, v)
            if array is not None
        ]
        if (
            any(len(shape) != 3 for shape in shapes)
            or shapes[0][:2] != shapes[-1][:2]
            or block_size < 1
            or shapes[0][0] % block_size
        ):
            raise misuse(
                f"k and v: [blocks * {block_size}][kv_heads][dim] are needed, the arrays are "
                f"{shapes}"
            )
        struct = _raw.KVView(
            struct_size=ctypes.sizeof(_raw.KVView), layout=_raw.Layout.PLAIN, block_size=block_size
        )
        slots, struct.kv_heads, struct.key_dim = shapes[0]
        struct.value_dim, struct.blocks = shapes[-1][2], slots // block_size
        struct.owners = owners = [tensor(k, slots, struct.kv_heads, struct.key_dim, "k")]
        keys = owners[0]
        struct.k, struct.dtype = keys.data, keys.dtype
        struct.k_row_stride, struct.k_head_stride = keys.row_stride, keys.head_stride
        struct.k_block_stride = block_size * keys.row_stride
        if v is not None:
            values = tensor(v, slots, struct.kv_heads, struct.value_dim, "v")
            owners.append(values)
            struct.v, struct.value_dtype = values.data, values.dtype
            struct.v_row_stride, struct.v_head_stride = values.row_stride, values.head_stride
            struct.v_block_stride = block_size * values.row_stride
        return cls(struct, owners)

    @property
    def dtype(self) -> Dtype:
        return Dtype(self.struct.dtype)

    def _reading(self) -> contextlib.AbstractContextManager[None]:
        """The memory stays where it is meanwhile."""
        return contextlib.nullcontext() if self._memory is None else self._memory.read()


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
) -> Any:
    """Attention without a cache, over a view and block tables ([sequences][entries]) that you own.
    Shapes as for Batch.attend.
    """
    if not len(query_lengths) == len(kv_lengths) == len(block_tables) or block_tables.ndim != 2:
        raise misuse(
            f"{len(query_lengths)} query lengths, {len(kv_lengths)} kv lengths, block tables "
            f"{block_tables.shape}"
        )
    counts(query_lengths, 2**32, "query_lengths")
    counts(kv_lengths, 2**64, "kv_lengths")
    rows, view = sum(query_lengths), kv.struct
    tables = np.ascontiguousarray(block_tables, np.uint32)
    lengths, totals = (
        (ctypes.c_uint32 * len(query_lengths))(*query_lengths),
        (ctypes.c_uint64 * len(kv_lengths))(*kv_lengths),
    )
    sequences = _raw.AttentionSequences(
        ctypes.sizeof(_raw.AttentionSequences),
        unsigned(query_heads, 32, "query_heads"),
        len(lengths),
        ctypes.addressof(lengths),
        ctypes.addressof(totals),
        address(tables),
        tables.shape[1],
    )
    result: Rows | Floats = (
        np.empty((rows, query_heads, view.value_dim), np.float32) if out is None else out
    )
    queries = tensor(q, rows, query_heads, view.key_dim, "q")
    outputs = tensor(result, rows, query_heads, view.value_dim, "out", out=True)
    struct = (params or AttentionParams(window=0, sinks=0)).build(rows, query_heads, lse)
    with kv._reading():
        library().check(
            library().attention(
                ctypes.byref(view),
                ctypes.byref(sequences),
                ctypes.byref(struct),
                ctypes.byref(queries),
                ctypes.byref(outputs),
            )
        )
    return result


def merge_states(
    outs: Sequence[Rows], lse: Sequence[Floats], rows: int, heads: int, dim: int
) -> tuple[Floats, Floats]:
    """Combines results over the same queries and different positions by their lse: the merged
    outputs and their lse.
    """
    if len(outs) != len(lse):
        raise misuse(f"{len(outs)} outputs, {len(lse)} lse")
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
