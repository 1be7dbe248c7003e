"""The KV cache and the attention of Hugging Face transformers, by pagedkv.

    from pagedkv.transformers import PagedCache

    model.generate(**inputs, past_key_values=PagedCache(model))

Works with decoder models whose attention goes through transformers' AttentionInterface: full and
sliding-window layers, grouped-query heads, softcap and learned sinks (Llama, Mistral, Qwen2, Qwen3,
Gemma 2 and 3, GPT-OSS). Beams, crop and assisted generation share and give back blocks. Needs
torch and transformers 5.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.cache_utils import Cache as TransformersCache
from transformers.cache_utils import CacheLayerMixin
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from .attention import AttentionParams, BoolMask
from .batch import Batch
from .cache import Cache
from .config import CacheConfig, LayerGroup
from .generated.raw import WINDOW_OF_LAYER, Dtype
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


class PagedCache(TransformersCache):
    """Keys and values of a batch of sequences in blocks of a pagedkv cache.

    `tokens` is the room of each sequence, by default the model's maximum; memory is taken as it is
    used. `dtype` is what keys and values are stored as, by default what the model computes in.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        tokens: int | None = None,
        dtype: Dtype | None = None,
        value_dtype: Dtype | None = None,
        threads: int = 0,
    ) -> None:
        config = model.config.get_text_config(decoder=True)
        self.windows = _windows(config)
        self._text_config = config
        super().__init__(layers=[PagedLayer(self, i) for i in range(len(self.windows))])
        self.tokens = tokens or int(getattr(config, "max_position_embeddings", 4096))
        self._shape = (config.num_attention_heads, _kv_heads(config), _head_dim(config))
        self._storage, self._threads = (dtype, value_dtype), threads
        self._cache: Cache | None = None
        self._sessions: list[Session] = []
        self._step: _Step | None = None
        self._length = 0
        install(model)

    def close(self) -> None:
        """Gives all memory back. The cache then holds nothing, as after reset()."""
        self.reset()
        if self._cache is not None:
            self._cache.close()
        self._cache = None

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
        self._begin(layer, key)
        step = self._step
        assert step is not None
        step.batch.write(layer, _rows(key), _rows(value))
        step.written.add(layer)

    def attend(
        self, layer: int, query: torch.Tensor, params: AttentionParams, value_dim: int
    ) -> torch.Tensor:
        """Attention of a forward pass: [batch][n][query_heads][value_dim]. The last layer's ends
        the pass."""
        step = self._step
        if step is None or layer not in step.written:
            raise RuntimeError(f"layer {layer} attends before it was updated")
        rows = _rows(query)
        out = torch.empty(*rows.shape[:3], value_dim, dtype=query.dtype)
        step.batch.attend(layer, rows, out, params)
        step.attended.add(layer)
        if len(step.attended) == len(self.layers):
            step.batch.commit()
            self._length += step.new_tokens
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

    def _begin(self, layer: int, key: torch.Tensor) -> None:
        """Begins a step if this is the first layer of a forward pass."""
        if self._step is not None and layer not in self._step.written:
            return
        self._abort()  # of a pass that ended in an exception
        if key.device.type != "cpu":
            raise ValueError(f"pagedkv computes on processors, this model is on {key.device}")
        if self._text_config._attn_implementation != NAME:
            raise RuntimeError(
                f"a PagedCache needs the attention {NAME!r}, the model was set to "
                f"{self._text_config._attn_implementation!r}: call pagedkv.transformers.install"
            )
        count, new_tokens = key.shape[0], key.shape[2]
        if key.dtype not in _DTYPES:
            raise TypeError(f"keys of float32, float16 or bfloat16 are needed, not {key.dtype}")
        if self._cache is None:
            self._cache = Cache(self._config(count, key.dtype))
        if not self._sessions:
            self._sessions = [self._cache.open_session() for _ in range(count)]
        if len(self._sessions) != count:
            raise ValueError(
                f"the cache has {len(self._sessions)} sequences, the batch has {count}: call "
                "reset() before another batch"
            )
        batch = self._cache.begin(self._sessions, [new_tokens] * count)
        self._step = _Step(batch, new_tokens)

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

    def _config(self, sequences: int, dtype: torch.dtype) -> CacheConfig:
        query_heads, kv_heads, head_dim = self._shape
        stored, stored_values = self._storage
        # A sequence ends in a block that is not full, and a fork of it copies that one.
        blocks = sequences * (-(-self.tokens // 16) + 2)
        groups = []
        for window in dict.fromkeys(self.windows):
            indices = [i for i, w in enumerate(self.windows) if w == window]
            groups.append(
                LayerGroup(
                    layers=len(indices),
                    layer_indices=indices,
                    query_heads=query_heads,
                    kv_heads=kv_heads,
                    key_dim=head_dim,
                    dtype=stored or _DTYPES[dtype],
                    value_dtype=stored_values,
                    window=window,
                    blocks=blocks,
                )
            )
        return CacheConfig(groups=groups, threads=self._threads)


class PagedLayer(CacheLayerMixin):
    """One layer of a PagedCache."""

    supports_early_init = False

    def __init__(self, owner: PagedCache, layer: int) -> None:
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


class _Step:
    """A forward pass: which layers have been written and attended so far."""

    def __init__(self, batch: Batch, new_tokens: int) -> None:
        self.batch, self.new_tokens = batch, new_tokens
        self.written: set[int] = set()
        self.attended: set[int] = set()


def _rows(states: torch.Tensor) -> torch.Tensor:
    """[batch][heads][n][dim] as [batch][n][heads][dim], which is how pagedkv takes rows."""
    rows = states.detach().transpose(1, 2)
    return rows if rows.stride(-1) == 1 else rows.contiguous()


def _windows(config: Any) -> list[int]:
    """The sliding window of each layer, 0 for none."""
    kinds = getattr(config, "layer_types", None)
    window = getattr(config, "sliding_window", None) or 0
    if kinds is None:
        return [window] * config.num_hidden_layers
    if getattr(config, "num_kv_shared_layers", 0):
        raise NotImplementedError("layers that share the keys of others have no paged cache yet")
    known = {"full_attention": 0, "sliding_attention": window}
    if other := set(kinds) - known.keys():
        raise NotImplementedError(f"layers of {', '.join(sorted(other))} have no paged cache yet")
    return [known[kind] for kind in kinds]


def _kv_heads(config: Any) -> int:
    return getattr(config, "num_key_value_heads", None) or config.num_attention_heads


def _head_dim(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


# ---- The attention function and its masks ----


def _mask(**arguments: Any) -> torch.Tensor | None:
    """What hides padding, [batch][1][1][columns]: causality and windows are pagedkv's. A mask that
    is more than that has all rows."""
    if not arguments.get("allow_is_causal_skip", True):
        return sdpa_mask(**arguments)
    columns = arguments["kv_length"]
    padding = arguments.get("attention_mask")
    if padding is None or bool(padding.all()):
        return None
    padding = padding[:, arguments.get("kv_offset", 0) :][:, :columns].to(torch.bool)
    mask = torch.nn.functional.pad(padding, (0, columns - padding.shape[1]))[:, None, None, :]
    mask.pagedkv = arguments
    return mask


def _bool_mask(mask: torch.Tensor | None) -> BoolMask | None:
    if mask is None:
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
        if (arguments := getattr(attention_mask, "pagedkv", None)) is not None:
            attention_mask = sdpa_mask(**arguments)
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
    cache, layer = marked
    # A mask that is not ours hides what causality and the window hide, too.
    whole = attention_mask is not None and not hasattr(attention_mask, "pagedkv")
    params = AttentionParams(
        scale=scaling or 0.0,
        softcap=softcap or 0.0,
        causal=not whole,
        window=0 if whole else WINDOW_OF_LAYER,
        sink_logits=None if s_aux is None else s_aux.detach().float().numpy(),
        bool_mask=_bool_mask(attention_mask),
    )
    return cache.attend(layer, query, params, value.shape[-1]), None


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, _mask)
