"""The attention of vLLM's CPU engine, by libpagedkv. vLLM manages the blocks and the schedule; rows
are written and read in place. What all layers of a step share is prepared once.
"""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any, ClassVar

import torch
from pagedkv import Dtype, Layout
from pagedkv.support import library, plan_view, raw, sized
from pagedkv.torch import ROWS, torch_compute
from vllm.logger import init_logger
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionImpl,
    AttentionMetadataBuilder,
    AttentionType,
    CommonAttentionMetadata,
    MultipleOf,
)
from vllm.v1.kv_cache_interface import AttentionSpec, KVCacheLayout, KVQuantMode

logger = init_logger("vllm.pagedkv")

TILE = 16  # tokens of a tile of the packed layout
MAX_HEAD_SIZE = 576

STORED = {
    "float16": Dtype.F16,
    "bfloat16": Dtype.BF16,
    "fp8": Dtype.FP8_E4M3,
    "fp8_e4m3": Dtype.FP8_E4M3,
    "fp8_e5m2": Dtype.FP8_E5M2,
    "int8_per_token_head": Dtype.INT8,
    "int4_per_token_head": Dtype.INT4,
}
"""vLLM's names for stored types; "auto" is the model's type."""

QUANTISED = {
    KVQuantMode.INT8_PER_TOKEN_HEAD: Dtype.INT8,
    KVQuantMode.INT4_PER_TOKEN_HEAD: Dtype.INT4,
}


class PagedKVBackend(AttentionBackend):
    """What vLLM needs to know before it makes layers and memory."""

    forward_includes_kv_cache_update: bool = True
    supported_dtypes: ClassVar[list[torch.dtype]] = list(ROWS)
    supported_kv_cache_dtypes: ClassVar[list[Any]] = ["auto", *STORED]

    @staticmethod
    def get_name() -> str:
        return "CPU_ATTN"  # the backend that it replaces: vLLM accepts only a fixed list of names

    @staticmethod
    def get_impl_cls() -> type[PagedKVImpl]:
        return PagedKVImpl

    @staticmethod
    def get_builder_cls() -> type[PagedKVMetadataBuilder]:
        return PagedKVMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[int | MultipleOf]:
        return [MultipleOf(TILE)]

    @classmethod
    def supports_head_size(cls, head_size: int) -> bool:
        return head_size % 16 == 0 and 16 <= head_size <= MAX_HEAD_SIZE

    @classmethod
    def supported_kv_cache_layouts(cls) -> tuple[KVCacheLayout, ...]:
        return (KVCacheLayout.LBHNC, KVCacheLayout.BLHNC)  # a block is contiguous

    @classmethod
    def customize_spec(cls, spec: AttentionSpec) -> AttentionSpec:
        """int8 and int4 rows end in their scales."""
        dtype = QUANTISED.get(spec.kv_quant_mode)
        if dtype is None or spec.state_content_bytes is not None:
            return spec
        view = planned_view(1, TILE, 1, spec.head_size, dtype)
        return dataclasses.replace(spec, state_content_bytes=page_bytes(view) // TILE)

    @classmethod
    def supports_sink(cls) -> bool:
        return True

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return True

    @classmethod
    def supports_non_causal(cls) -> bool:
        return True


@dataclasses.dataclass
class PagedKVMetadata:
    """A step's arguments for C; `keep` owns what they point to."""

    num_actual_tokens: int
    causal: bool
    slots: int
    query_lengths: int
    kv_lengths: int
    block_tables: int
    block_table_stride: int
    count: int
    keep: tuple[torch.Tensor, ...]


class PagedKVMetadataBuilder(AttentionMetadataBuilder[PagedKVMetadata]):
    def __init__(
        self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(
        self,
        common_prefix_len: int,
        common_attn_metadata: CommonAttentionMetadata,
        fast_build: bool = False,
    ) -> PagedKVMetadata:
        common = common_attn_metadata
        if isinstance(common.causal, torch.Tensor):
            raise NotImplementedError("pagedkv attends causally or not in all requests of a step")
        query_lengths = common.query_start_loc.diff()
        kv_lengths = common.seq_lens.to(torch.int64)
        tables, slots = common.block_table_tensor, common.slot_mapping
        if tables.dtype != torch.int32 or tables.stride(1) != 1 or slots.dtype != torch.int64:
            raise TypeError(f"block tables of {tables.dtype}, slots of {slots.dtype}")
        return PagedKVMetadata(
            num_actual_tokens=common.num_actual_tokens,
            causal=common.causal,
            slots=slots.data_ptr(),
            query_lengths=query_lengths.data_ptr(),
            kv_lengths=kv_lengths.data_ptr(),
            block_tables=tables.data_ptr(),
            block_table_stride=tables.stride(0),
            count=common.num_reqs,
            keep=(query_lengths, kv_lengths, tables, slots),
        )


class PagedKVImpl(AttentionImpl[PagedKVMetadata]):
    """One layer. The structs of its calls are made once; a call fills in what differs."""

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int | None = None,
        alibi_slopes: list[float] | None = None,
        sliding_window: int | None = None,
        kv_cache_dtype: str = "auto",
        logits_soft_cap: float | None = None,
        attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None,
        sinks: torch.Tensor | None = None,
    ) -> None:
        if attn_type != AttentionType.DECODER:
            raise NotImplementedError(
                f"pagedkv attends in decoders; this layer is of an {attn_type}"
            )
        if not PagedKVBackend.supports_head_size(head_size):
            raise ValueError(
                f"heads have {head_size} dims; pagedkv takes multiples of 16 up to {MAX_HEAD_SIZE}"
            )
        if kv_cache_dtype not in PagedKVBackend.supported_kv_cache_dtypes:
            raise ValueError(
                f"kv_cache_dtype is {kv_cache_dtype}; pagedkv stores auto, {', '.join(STORED)}"
            )
        found = library()
        logger.info_once("attention by pagedkv %s, from %s", found.version_text(), found.path)
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.num_kv_heads = num_kv_heads or num_heads
        self.kv_cache_dtype = kv_cache_dtype
        self.sliding_window = sliding_window
        self.writes = kv_sharing_target_layer_name is None
        self.sinks = sinks
        self._slopes = (ctypes.c_float * num_heads)(*alibi_slopes) if alibi_slopes else None
        self._view = raw.KVView()
        self._cache: int | None = None  # where the memory of the view is
        self._params = self._new_params(logits_soft_cap or 0.0)
        self._sequences = sized(raw.KVSequences, num_heads)
        self._tensors = [raw.Tensor() for _ in range(4)]
        self._write, self._attend = library().kv_write_slots, library().kv_attend
        self._check = library().check

    def _new_params(self, softcap: float) -> raw.AttentionParams:
        params = sized(raw.AttentionParams, window=self.sliding_window or 0, softcap=softcap)
        if self._slopes is not None:
            params.alibi_slopes = ctypes.addressof(self._slopes)
        return params

    def forward(
        self,
        layer: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: PagedKVMetadata | None,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Writes the new keys and values, [tokens][KV heads][dim], and attends."""
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("pagedkv does not quantise results")
        if attn_metadata is None:  # vLLM measures memory
            return output
        if kv_cache.data_ptr() != self._cache:
            self._bind(layer, kv_cache, query.dtype)
        step, context = attn_metadata, torch_compute()
        q, k, v, out = self._tensors
        view = ctypes.byref(self._view)
        if self.writes and key is not None:
            if self._scaled:
                key, value = key / layer._k_scale_float, value / layer._v_scale_float
            _fill(k, key)
            _fill(v, value)
            rows = step.num_actual_tokens, step.slots, ctypes.byref(k), ctypes.byref(v)
            self._check(self._write(context, view, *rows))
        _fill(q, query)
        _fill(out, output)
        sequences, params = self._sequences, self._params
        sequences.count = step.count
        sequences.query_lengths, sequences.kv_lengths = step.query_lengths, step.kv_lengths
        sequences.block_tables = step.block_tables
        sequences.block_table_stride = step.block_table_stride
        params.bidirectional = not step.causal
        given = ctypes.byref(sequences), ctypes.byref(params), ctypes.byref(q), ctypes.byref(out)
        self._check(self._attend(context, view, *given, None))
        if self._scaled:
            output[: step.num_actual_tokens].mul_(layer._v_scale_float)
        return output

    def _bind(self, layer: Any, kv_cache: torch.Tensor, rows: torch.dtype) -> None:
        """Describes vLLM's memory, [blocks][KV heads][tokens][bytes of K and V], which holds tiles.
        By now the weights are loaded, and with them sinks and scales.
        """
        blocks, kv_heads, tokens, _ = kv_cache.shape
        dtype = STORED.get(self.kv_cache_dtype, ROWS[rows])
        view = planned_view(
            blocks, tokens, kv_heads, self.head_size, dtype, memory=kv_cache.data_ptr()
        )
        block = kv_cache[0]
        if page_bytes(view) != block.numel() * block.element_size() or not block.is_contiguous():
            raise ValueError(
                f"a block of {tuple(block.shape)} {block.dtype} with strides {block.stride()} is "
                f"not a run of {page_bytes(view)} bytes, which {dtype.name} needs"
            )
        stride = kv_cache.stride(0) * kv_cache.element_size()
        view.k_block_stride = view.v_block_stride = stride // unit(dtype)
        view.k_bytes = view.v_bytes = 0  # those of the plan were for blocks side by side
        self._view, self._cache = view, kv_cache.data_ptr()
        if self.sinks is not None:
            self._sink_logits = self.sinks.detach().to(torch.float32).contiguous()
            self._params.sink_logits = self._sink_logits.data_ptr()
        # The scales of a checkpoint; fp8 keys and values are divided by them.
        fp8 = dtype in (Dtype.FP8_E4M3, Dtype.FP8_E5M2)
        self._scaled = fp8 and (layer._k_scale_float, layer._v_scale_float) != (1.0, 1.0)
        self._params.scale = self.scale * (layer._k_scale_float if self._scaled else 1.0)


def _fill(tensor: raw.Tensor, rows: torch.Tensor) -> None:
    """[tokens][heads][dim], possibly a part of a wider tensor."""
    if rows.stride(2) != 1:
        raise ValueError(f"dims of a head are {rows.stride(2)} elements apart, not side by side")
    tensor.data, tensor.dtype = rows.data_ptr(), ROWS[rows.dtype]
    tensor.row_stride, tensor.head_stride = rows.stride(0), rows.stride(1)


def planned_view(
    blocks: int, tokens: int, kv_heads: int, dim: int, dtype: Dtype, memory: int | None = None
) -> raw.KVView:
    shape = {"block_size": tokens, "kv_heads": kv_heads, "key_dim": dim, "blocks": blocks}
    view = sized(raw.KVView, layout=Layout.PACKED, dtype=dtype, **shape)
    plan_view(view, memory)
    return view


def page_bytes(view: raw.KVView) -> int:
    """The bytes of a block with all heads, K and V."""
    return int(view.k_block_stride) * unit(Dtype(view.dtype))


def unit(dtype: Dtype) -> int:
    """The bytes of one element of the strides."""
    return {Dtype.F32: 4, Dtype.F16: 2, Dtype.BF16: 2}.get(dtype, 1)
