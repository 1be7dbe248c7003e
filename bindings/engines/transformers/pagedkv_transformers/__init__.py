"""The KV cache and the attention of Hugging Face transformers, by pagedkv.

    from pagedkv_transformers import PagedCache

    model.generate(**inputs, past_key_values=PagedCache(model))  # cache= since transformers 5.24

Works with decoder models whose attention goes through transformers' AttentionInterface: full and
sliding-window layers, grouped-query heads, softcap and learned sinks (Llama, Mistral, Qwen2, Qwen3,
Gemma 2, 3 and 4, GPT-OSS); others raise an UnsupportedModelError. Beams, crop and assisted
generation share and give back blocks. Needs torch and transformers 5.
"""

from __future__ import annotations

import copy
import inspect
import os
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from pagedkv import (
    Batch,
    BatchTooLargeError,
    Cache,
    CacheConfig,
    DtypeLike,
    OutOfBlocksError,
    Rotation,
    Session,
    Status,
)
from pagedkv.support import Uncopied, counted, misuse, unsigned
from transformers import PreTrainedModel
from transformers.cache_utils import Cache as TransformersCache

from ._model_attention import NAME as NAME
from ._model_layers import UnsupportedModelError as UnsupportedModelError
from ._model_layers import cache_config, top_blocks_by_layer
from ._model_pass import PagedLayer as PagedLayer
from ._model_pass import WatchedCache
from ._model_pass import cache_argument as cache_argument
from ._model_pass import install as install
from ._model_rows import ForwardPass as ForwardPass
from ._model_rows import Variant as Variant

# Spare blocks of each sequence: its last block is not full, and a fork copies that block.
_SPARE_BLOCKS = 2
_crops_by_length = "max_length" in inspect.signature(TransformersCache.crop).parameters


class PagedCache(Uncopied, WatchedCache):
    """The keys and values of a batch of sequences, in blocks of a pagedkv cache.

    `tokens` limits the tokens of a sequence, padding included; the default is the model's
    max_position_embeddings. The cache has room for this many tokens of each sequence in the first
    batch, or in a larger one after reset(). Memory is taken as it is used. `dtype` is the stored
    type of keys and values, by default that of the model; `rotation` is applied before. With
    `top_blocks`, a pass over one new token of each sequence reads only this many blocks of
    `block_size` tokens for each KV head in layers without a window: those whose keys may matter
    most, besides the first one and the last two. With `prompt_blocks`, a pass over more tokens
    does the same for every 64 tokens, which choose together. By default both read all blocks. With
    `memory_directory` keys and values are in a file there, which takes its disk space at once; the
    OS keeps as much of it in memory as fits. Attention runs on PyTorch's threads, or on `threads`
    threads of the library.

    `copy.deepcopy` forks: the copy has the same sequences and shares their blocks until either
    writes. Both take new blocks from the same memory.
    """

    _instead = ": copy.deepcopy() forks a PagedCache"

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        tokens: int | None = None,
        dtype: DtypeLike | None = None,
        value_dtype: DtypeLike | None = None,
        rotation: Rotation | str = Rotation.NONE,
        top_blocks: int = 0,
        prompt_blocks: int = 0,
        block_size: int = 16,
        threads: int = 0,
        memory_directory: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(model)
        config = self._text_config
        if tokens is None:
            tokens = getattr(config, "max_position_embeddings", None) or 4096
        self.tokens = unsigned(tokens, 32, "tokens")
        if self.tokens == 0:
            raise misuse("tokens is 0; it must be 1 or more")
        self._storage, self._threads = (dtype, value_dtype, rotation), threads
        self.top_blocks = unsigned(top_blocks, 32, "top_blocks")
        self.prompt_blocks = unsigned(prompt_blocks, 32, "prompt_blocks")
        self.block_size = unsigned(block_size, 32, "block_size") or 16
        self._memory_directory = memory_directory
        self._config(1, torch.float32).sizes()  # refuses what no cache can have
        self._cache: Cache | None = None
        self._sharers: weakref.WeakSet[PagedCache] = weakref.WeakSet()
        self._sessions: list[Session] = []
        self._room = 0  # the number of sequences that the cache has room for
        self._length = self._new_tokens = 0

    def close(self) -> None:
        """Frees all memory; memory that copies share is freed when the last of them is closed.
        The cache is empty then, as after reset().
        """
        self.reset()
        self._leave()

    def _leave(self) -> None:
        """Leaves the memory to the copies that share it."""
        self._sharers.discard(self)
        if self._cache is not None and not self._sharers:
            self._cache.close()
        self._cache, self._sharers = None, weakref.WeakSet()

    def __deepcopy__(self, memo: dict[int, Any]) -> PagedCache:
        self.abort_pass()
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

    # ---- For layers and the attention function ----

    @property
    def length(self) -> int:
        """The number of tokens of finished passes. A pass in progress, or one that failed, does not
        count."""
        return self._length

    # ---- For generate() ----

    def reset(self) -> None:
        self.abort_pass()
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
        """Removes the last `-tokens` tokens; with a window at most those of the last pass. (Before
        transformers 5.20 a positive number is how many tokens stay.)"""
        self.abort_pass()
        if tokens > 0 and not _crops_by_length:
            raise ValueError(f"crop({tokens}): a negative number removes tokens")
        keep = tokens if _crops_by_length and tokens >= 0 else self._length + tokens
        if keep >= self._length:
            return
        for session in self._sessions:
            session.trim(max(0, keep))
        self._length = max(0, keep)

    @property
    def batch_size(self) -> int:
        return len(self._sessions) or -1

    # ---- Internal ----

    def _make_step(self, key: torch.Tensor) -> ForwardPass:
        count, new_tokens = key.shape[0], key.shape[2]
        if not self._sessions:
            self._open(count, key.dtype)
        if len(self._sessions) != count:
            raise ValueError(
                f"the cache has {counted(len(self._sessions), 'sequence')}, the batch has {count}: "
                "call reset() before another batch"
            )
        batch = self._begin(new_tokens)
        self._new_tokens = new_tokens
        top_blocks = self.top_blocks if new_tokens == 1 else self.prompt_blocks
        return ForwardPass(batch, top_blocks=top_blocks_by_layer(self.windows, top_blocks))

    def _begin(self, new_tokens: int) -> Batch:
        count, total = len(self._sessions), self._length + new_tokens
        if total > self.tokens:
            raise OutOfBlocksError(
                Status.OUT_OF_BLOCKS,
                f"a sequence would hold {counted(total, 'token')}, and this PagedCache was made "
                f"for {self.tokens}: make it with tokens={total} or more",
            )
        try:
            return self.cache.begin(self._sessions, [new_tokens] * count)
        except (OutOfBlocksError, BatchTooLargeError):
            raise OutOfBlocksError(
                Status.OUT_OF_BLOCKS,
                f"there is no room for {counted(count, 'sequence')} of {counted(total, 'token')} "
                f"in the memory for {self._room} of {self.tokens}, which copies share: close() "
                f"copies, or make the PagedCache with tokens={self._tokens_for(total)}",
            ) from None

    def _tokens_for(self, total: int) -> int:
        """A value of `tokens` with which all sequences fit, those of copies included, even if they
        share no blocks. The sequences of this cache have `total` tokens."""
        blocks = 0
        for cache in self._sharers:
            length = total if cache is self else cache._length
            blocks += len(cache._sessions) * (-(-length // self.block_size) + 1)
        return max(total, (-(-blocks // self._room) - _SPARE_BLOCKS) * self.block_size)

    def _commit(self, step: ForwardPass) -> None:
        step.batch.commit()
        self._length += self._new_tokens

    def _open(self, count: int, computed: torch.dtype) -> None:
        """Opens sessions for a batch, in a cache that is large enough for it."""
        if count > self._room:
            self._leave()
        if self._cache is None:
            self._cache = Cache(self._config(count, computed))
            self._room, self._sharers = count, weakref.WeakSet([self])
        self._sessions = [self._cache.open_session() for _ in range(count)]

    def _config(self, count: int, computed: torch.dtype) -> CacheConfig:
        """A cache with room for a batch of `count` sequences."""
        blocks = count * (-(-self.tokens // self.block_size) + _SPARE_BLOCKS)
        return cache_config(
            self._text_config,
            computed,
            *self._storage,
            threads=self._threads,
            block_size=self.block_size,
            blocks=blocks,
            memory_directory=self._memory_directory,
        )

    def _select(self, indices: Sequence[int]) -> None:
        """Replaces the batch with some of its sequences; a sequence that is listed several times is
        forked."""
        self.abort_pass()
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
