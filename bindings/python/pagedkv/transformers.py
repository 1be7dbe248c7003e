"""The KV cache and the attention of Hugging Face transformers, by pagedkv.

    from pagedkv.transformers import PagedCache

    model.generate(**inputs, past_key_values=PagedCache(model))  # cache= since transformers 5.24

Works with decoder models whose attention goes through transformers' AttentionInterface: full and
sliding-window layers, grouped-query heads, softcap and learned sinks (Llama, Mistral, Qwen2, Qwen3,
Gemma 2 and 3, GPT-OSS). Beams, crop and assisted generation share and give back blocks. Needs
torch and transformers 5.
"""

from __future__ import annotations

import copy
import ctypes
import inspect
import os
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.cache_utils import Cache as TransformersCache
from transformers.cache_utils import CacheLayerMixin
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from ._arrays import batch_tensor
from ._cache_base import LayerShape
from ._continuous import install_continuous as install_continuous
from ._handle import Uncopied, unsigned
from ._library import library
from ._structs import path_for_c
from ._torch_threads import torch_runner
from .attention import AttentionParams, BoolMask
from .batch import Batch
from .cache import Cache
from .config import CacheConfig, LayerGroup
from .generated import raw as _raw
from .generated.raw import WINDOW_OF_LAYER, Dtype, Rotation
from .session import Session

NAME = "pagedkv"
"""The attention implementation that models are set to."""

_DTYPES = {torch.float32: Dtype.F32, torch.float16: Dtype.F16, torch.bfloat16: Dtype.BF16}
_crops_by_length = "max_length" in inspect.signature(TransformersCache.crop).parameters


def install(model: PreTrainedModel) -> None:
    """Makes a model attend by pagedkv wherever it is given a PagedCache, and as before (sdpa)
    where not. PagedCache does this itself."""
    if model.config._attn_implementation != NAME:
        model.set_attn_implementation(NAME)


class PagedCache(Uncopied, TransformersCache):
    """Keys and values of a batch of sequences in blocks of a pagedkv cache.

    `tokens` is the room of each sequence, by default the model's maximum; memory is taken as it is
    used. `dtype` is what keys and values are stored as, by default what the model computes in, and
    `rotation` how they are rotated before.
    With `top_blocks` a pass over one new token of each sequence reads, in layers without a window,
    only so many blocks of `block_size` tokens for each KV head: those whose keys may matter most,
    besides the first one and the last two. Passes over more tokens read all.
    With `memory_directory` keys and values live in a file there, whose room is taken at once, and
    of which the system keeps in memory what it has room for.
    Attention runs on PyTorch's threads, or on `threads` of the library's own.

    `copy.deepcopy` forks: the copy holds the same sequences and shares their blocks until one of
    the two writes. Both take new blocks from the same memory.
    """

    _instead = ": copy.deepcopy() forks a PagedCache"

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        tokens: int | None = None,
        dtype: Dtype | None = None,
        value_dtype: Dtype | None = None,
        rotation: Rotation | str = Rotation.NONE,
        top_blocks: int = 0,
        block_size: int = 16,
        threads: int = 0,
        memory_directory: str | os.PathLike[str] | None = None,
    ) -> None:
        config = model.config.get_text_config(decoder=True)
        self.windows = layer_windows(config)
        self._text_config = config
        super().__init__(layers=[PagedLayer(self, i) for i in range(len(self.windows))])
        self.tokens = tokens or int(getattr(config, "max_position_embeddings", 4096))
        self._storage, self._threads = (dtype, value_dtype, rotation), threads
        self.top_blocks = unsigned(top_blocks, 32, "top_blocks")
        self.block_size = unsigned(block_size, 32, "block_size")
        if memory_directory is not None:
            path_for_c(memory_directory, "memory_directory")  # refuses what is none
        self._memory_directory = memory_directory
        self._attending = config.num_hidden_layers
        self._cache: Cache | None = None
        self._sharers: weakref.WeakSet[PagedCache] = weakref.WeakSet()
        self._sessions: list[Session] = []
        self._step: ForwardPass | None = None
        self._length = self._new_tokens = 0
        install(model)

    def close(self) -> None:
        """Gives all memory back, where copies share it once the last of them is closed. The cache
        then holds nothing, as after reset().
        """
        self.reset()
        self._sharers.discard(self)
        if self._cache is not None and not self._sharers:
            self._cache.close()
        self._cache, self._sharers = None, weakref.WeakSet()

    def __deepcopy__(self, memo: dict[int, Any]) -> PagedCache:
        self._abort()
        copied: PagedCache = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__, _sessions=[], layers=[])
        for layer in self.layers:
            copied.layers.append(copy.copy(layer))
            copied.layers[-1]._owner = copied
        try:
            for session in self._sessions:
                copied._sessions.append(session.fork())
        except BaseException:
            copied.reset()
            raise
        if self._cache is not None:
            self._sharers.add(copied)
        memo[id(self)] = copied
        return copied

    @property
    def cache(self) -> Cache:
        """The cache of pagedkv, for its statistics, files and stores."""
        if self._cache is None:
            raise RuntimeError("the cache is made by the first forward pass, which tells the batch")
        return self._cache

    @property
    def sessions(self) -> Sequence[Session]:
        """One for each sequence of the batch."""
        return tuple(self._sessions)

    # ---- What layers and the attention function call ----

    @property
    def length(self) -> int:
        """Tokens of the passes that ended. One that is under way, or failed, does not count."""
        return self._length

    def write(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """Writes the rows of a forward pass, [batch][kv_heads][n][head_dim]."""
        self._begin(layer, key).write(layer, key, value)

    def attend(self, layer: int, query: torch.Tensor, variant: Variant) -> torch.Tensor:
        """Attention of a forward pass over the rows of a layer, which may be another one's than
        the queries: [batch][n][query_heads][value_dim]. The last layer's ends the pass."""
        step = self._step
        if step is None or layer not in step.written:
            raise RuntimeError(f"layer {layer} attends before it was updated")
        out = step.attend(layer, query, variant)
        if step.attended == self._attending:
            step.batch.commit()
            self._length += self._new_tokens
            self._step = None
        return out

    # ---- What generate() calls ----

    def reset(self) -> None:
        self._abort()
        for session in self._sessions:
            session.close()
        self._sessions, self._length = [], 0

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        self._select(beam_idx.tolist())

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        self._select(torch.arange(len(self._sessions))[indices].tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        self._select([i for i in range(len(self._sessions)) for _ in range(repeats)])

    def crop(self, tokens: int) -> None:
        """Removes the last `tokens` tokens (before transformers 5.20: keeps the first ones; a
        negative number removes)."""
        self._abort()
        keep = tokens if _crops_by_length and tokens >= 0 else self._length - abs(tokens)
        if keep >= self._length:
            return
        for session in self._sessions:
            session.trim(max(0, keep))
        self._length = max(0, keep)

    @property
    def batch_size(self) -> int:
        return len(self._sessions) or -1

    # ---- Inside ----

    def _begin(self, layer: int, key: torch.Tensor) -> ForwardPass:
        """Begins a step if this is the first layer of a forward pass."""
        if self._step is not None and layer not in self._step.written:
            return self._step
        self._abort()  # of a pass that ended in an exception
        check_pass(self._text_config, key)
        count, new_tokens = key.shape[0], key.shape[2]
        if self._cache is None:
            # A sequence ends in a block that is not full, and a fork of it copies that one.
            blocks = count * (-(-self.tokens // self.block_size) + 2)
            self._cache = Cache(
                cache_config(
                    self._text_config,
                    key.dtype,
                    *self._storage,
                    threads=self._threads,
                    block_size=self.block_size,
                    blocks=blocks,
                    memory_directory=self._memory_directory,
                )
            )
            self._sharers = weakref.WeakSet([self])
        if not self._sessions:
            self._sessions = [self._cache.open_session() for _ in range(count)]
        if len(self._sessions) != count:
            raise ValueError(
                f"the cache has {len(self._sessions)} sequences, the batch has {count}: call "
                "reset() before another batch"
            )
        top_blocks = self.top_blocks if new_tokens == 1 else 0
        self._step = ForwardPass(
            self._cache.begin(self._sessions, [new_tokens] * count),
            top_blocks=top_blocks_by_layer(self.windows, top_blocks),
        )
        self._new_tokens = new_tokens
        return self._step

    def _abort(self) -> None:
        if self._step is not None:
            self._step.batch.abort()
        self._step = None

    def _select(self, indices: Sequence[int]) -> None:
        """Makes the batch out of some of its sequences; one that comes several times is forked."""
        self._abort()
        chosen = [self._sessions[i] for i in indices]
        taken: set[int] = set()
        new = []
        for session in chosen:
            new.append(session.fork() if id(session) in taken else session)
            taken.add(id(session))
        for session in self._sessions:
            if id(session) not in taken:
                session.close()
        self._sessions = new


def layer_windows(config: Any) -> list[int]:
    """The sliding window of each layer that has keys, 0 for none. Layers behind them (of Gemma 3n)
    attend to the keys of these."""
    kinds = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None) or 0
    with_keys = config.num_hidden_layers - (getattr(config, "num_kv_shared_layers", 0) or 0)
    if kinds is None:
        return [window] * with_keys
    kinds = kinds[:with_keys]
    known = {"full_attention": 0, "sliding_attention": window}
    if other := set(kinds) - known.keys():
        raise NotImplementedError(f"layers of {', '.join(sorted(other))} have no paged cache yet")
    return [known[kind] for kind in kinds]


def top_blocks_by_layer(windows: Sequence[int], top_blocks: int) -> list[int]:
    """How many blocks each layer chooses: one with a window reads all that it sees."""
    return [0 if window else top_blocks for window in windows]


def cache_config(
    config: Any,
    computed: torch.dtype,
    dtype: Dtype | None = None,
    value_dtype: Dtype | None = None,
    rotation: Rotation | str = Rotation.NONE,
    *,
    threads: int = 0,
    **options: Any,
) -> CacheConfig:
    """The cache of a model with this text config that computes in a type, and may store another
    one: a group for each size of window. `threads` is as for PagedCache; `options` are other
    fields of CacheConfig."""
    windows = layer_windows(config)
    kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head_dim = getattr(config, "head_dim", None)
    groups = []
    for window in dict.fromkeys(windows):
        indices = [i for i, w in enumerate(windows) if w == window]
        groups.append(
            LayerGroup(
                layers=len(indices),
                layer_indices=indices,
                query_heads=config.num_attention_heads,
                kv_heads=kv_heads,
                key_dim=head_dim or config.hidden_size // config.num_attention_heads,
                dtype=dtype or _DTYPES[computed],
                value_dtype=value_dtype,
                rotation=rotation,
                window=window,
            )
        )
    runner = None if threads else torch_runner()
    return CacheConfig(groups=groups, threads=threads, runner=runner, **options)


class LayersOwner(Protocol):
    """What a PagedLayer writes to, and the attention function asks."""

    windows: Sequence[int]

    @property
    def length(self) -> int: ...

    def write(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> None: ...

    def attend(self, layer: int, query: torch.Tensor, variant: Variant) -> torch.Tensor: ...


class PagedLayer(CacheLayerMixin):
    """One layer of a PagedCache."""

    supports_early_init = False

    def __init__(self, owner: LayersOwner, layer: int) -> None:
        super().__init__()
        self._owner, self._layer = owner, layer

    @property
    def is_sliding(self) -> bool:
        return self._owner.windows[self._layer] != 0

    @property
    def is_croppable(self) -> bool:  # blocks that left a window are gone
        return not self.is_sliding

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes the rows. Returns them as they are, marked for the attention function."""
        self._owner.write(self._layer, key_states, value_states)
        marked = key_states.view_as(key_states)
        marked.pagedkv = (self._owner, self._layer)
        return marked, value_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        return self._owner.length

    def get_max_length(self) -> int:
        return -1


class Variant(NamedTuple):
    """Which attention a layer asks for."""

    scale: float
    softcap: float
    sinks: torch.Tensor | None
    mask: torch.Tensor | None


class ForwardPass:
    """A forward pass over sessions: what its layers write and attend, and how far they are.

    Tensors of layers are [batch][heads][n][dim]: a padded batch, an entry for each session, or (in
    a packed pass) one entry with the rows of all sessions. `top_blocks`, if given, is for each
    layer how many chosen blocks it reads, 0 for all.
    """

    def __init__(
        self, batch: Batch, packed: bool = False, top_blocks: Sequence[int] | None = None
    ) -> None:
        self.batch, self._packed, self._top_blocks = batch, packed, top_blocks
        self.written: set[int] = set()
        self.attended = 0
        self._operands: dict[str, _Operand] = {}
        self._params: dict[tuple[Any, ...], tuple[Variant, _raw.AttentionParams]] = {}

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
        lib.check(lib.batch_attend(self.batch.handle, layer, params, queries, outputs))
        self.attended += 1
        return out

    def _operand(self, what: str, states: torch.Tensor, heads: int, dim: int) -> Any:
        """The tensor for C. Layers bring tensors of one shape and the same strides: what was
        checked of the first holds for all, and only the address changes."""
        found = self._operands.get(what)
        if found is None or found.layout != (states.shape, states.stride(), states.dtype):
            rows = states.detach()
            rows = rows[0].transpose(0, 1) if self._packed else rows.transpose(1, 2)
            # Heads may lie apart only in a padded batch.
            if rows.stride(-1) != 1 or (self._packed and rows.stride(0) < heads * dim):
                rows = rows.contiguous()
            struct = batch_tensor(rows, self.batch.batch_rows, heads, dim, what)
            found = _Operand((states.shape, states.stride(), states.dtype), struct)
            if rows.data_ptr() == states.data_ptr():
                self._operands[what] = found
            return ctypes.byref(struct)
        found.struct.data = states.data_ptr()
        return ctypes.byref(found.struct)

    def _built(self, variant: Variant, top_blocks: int, shape: LayerShape) -> _raw.AttentionParams:
        """The params for C: most layers of a pass ask for the same."""
        scale, softcap, sinks, mask = variant
        key = (scale, softcap, id(sinks), id(mask), top_blocks)
        found = self._params.get(key)
        if found is None:
            # A mask that is not ours hides what causality and the window hide, too.
            whole = mask is not None and not hasattr(mask, "pagedkv")
            params = AttentionParams(
                scale=scale,
                softcap=softcap,
                causal=not whole,
                window=0 if whole else WINDOW_OF_LAYER,
                sink_logits=None if sinks is None else sinks.detach().float().numpy(),
                bool_mask=_bool_mask(mask),
                top_blocks=top_blocks,
            )
            rows = self.batch.batch_rows
            found = variant, params.build(rows.total, shape.query_heads, shape.kv_heads, batch=rows)
            self._params[key] = found  # with the variant, so that no other tensor gets its ids
        return found[1]


class _Operand(NamedTuple):
    """A tensor for C, and the shape, strides and type that it was made for."""

    layout: tuple[Any, ...]
    struct: _raw.Tensor


def check_pass(config: Any, key: torch.Tensor) -> None:
    """Refuses a forward pass that would not come to pagedkv's attention."""
    if key.device.type != "cpu":
        raise ValueError(f"pagedkv computes on processors, this model is on {key.device}")
    if config._attn_implementation != NAME:
        raise RuntimeError(
            f"a PagedCache needs the attention {NAME!r}, the model was set to "
            f"{config._attn_implementation!r}: call pagedkv.transformers.install"
        )
    if key.dtype not in _DTYPES:
        raise TypeError(f"keys of float32, float16 or bfloat16 are needed, not {key.dtype}")


# ---- The attention function and its masks ----


class _Mask(NamedTuple):
    """What `_mask` was asked for, and whether padding hides anything."""

    arguments: dict[str, Any]
    padded: bool


def _mask(**arguments: Any) -> torch.Tensor | None:
    """What hides padding, [batch][1][1][columns]: causality and windows are pagedkv's. A mask that
    is more than that has all rows. Without a PagedCache the mask of sdpa is made of this one."""
    if not arguments.get("allow_is_causal_skip", True):
        return sdpa_mask(**arguments)
    columns = arguments["kv_length"]
    padding = arguments.get("attention_mask")
    padded = padding is not None and not bool(padding.all())
    if padding is not None and padded:
        padding = padding[:, arguments.get("kv_offset", 0) :][:, :columns].to(torch.bool)
        padding = torch.nn.functional.pad(padding, (0, columns - padding.shape[1]))
        mask = padding[:, None, None, :]
    else:
        mask = torch.ones(1, 1, 1, 1, dtype=torch.bool)
    mask.pagedkv = _Mask(arguments, padded)
    return mask


def _bool_mask(mask: torch.Tensor | None) -> BoolMask | None:
    ours = getattr(mask, "pagedkv", None)
    if mask is None or (ours is not None and not ours.padded):
        return None
    if mask.dtype != torch.bool:
        raise TypeError(f"masks of bool are needed, this one is {mask.dtype}")
    return BoolMask(mask[:, 0].contiguous().numpy())


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """What models call as their attention."""
    marked = getattr(key, "pagedkv", None)
    if marked is None:  # no cache, or another one
        if s_aux is not None or softcap:
            raise NotImplementedError(
                "attention with learned sinks or softcap needs a PagedCache: without one, call "
                "model.set_attn_implementation('eager')"
            )
        if (ours := getattr(attention_mask, "pagedkv", None)) is not None:
            attention_mask = sdpa_mask(**ours.arguments)
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
    cache, layer = marked
    variant = Variant(scaling or 0.0, softcap or 0.0, s_aux, attention_mask)
    return cache.attend(layer, query, variant), None


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, _mask)
