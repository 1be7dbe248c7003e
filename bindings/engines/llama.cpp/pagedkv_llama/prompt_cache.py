"""The prompt cache of libpagedkv-llama for llama-cpp-python. It works on the context itself, so
nothing is copied that is known already; see PromptCache."""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import sys
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import llama_cpp
import numpy as np
import pagedkv
from llama_cpp.llama_cache import BaseLlamaCache
from pagedkv import DirectoryStore, HintAction, MooncakeStore, RedisStore, Store
from pagedkv.errors import error_of
from pagedkv.support import call, close_store, open_store, raw, sized

from . import find_prompt_cache

_log = logging.getLogger("pagedkv_llama")
_SEQUENCE = 0  # a Llama has one


class Stats(NamedTuple):
    """pkv_llama_stats in pagedkv-llama.h."""

    block_size: int
    token_bytes: int
    end_bytes: int
    memory_bytes: int
    max_tokens: int
    cached_tokens: int
    asked_tokens: int
    found_tokens: int


class PromptCache(BaseLlamaCache):  # type: ignore[misc]
    """A cache for `Llama.set_cache`:

        llama.set_cache(PromptCache(llama, max_bytes=4 << 30, directory="prompts"))

    Texts share the memory of their common beginning, and max_bytes is never exceeded. With a
    `directory` (or another `store` of pagedkv) a later process finds what this one computed, and
    `key`, 16 to 64 secret bytes, encrypts it. A prompt waits for the store for up to `wait_ms`, 1
    or more: the blocks of long texts come from a slow disk in seconds. Texts of different salts
    share nothing: `salt` is bytes, or a function that returns those of the request that is being
    answered.

    The cache belongs to one Llama, whose context it empties now and fills when it is asked. It
    closes with the Llama. Adapters must be set before. Errors after that only cost hits, and are
    logged as warnings of the logger pagedkv_llama.

    While this is a Llama's cache, llama.save_state() copies nothing if llama-cpp-python calls it
    for the cache.
    """

    def __init__(
        self,
        llama: llama_cpp.Llama,
        max_bytes: int = 2 << 30,
        *,
        directory: str | os.PathLike[str] | None = None,
        store: DirectoryStore | RedisStore | MooncakeStore | Store | None = None,
        key: bytes | None = None,
        salt: bytes | Callable[[], bytes] = b"",
        model_id: bytes = b"",
        block_size: int = 0,
        wait_ms: int = 5000,
    ) -> None:
        super().__init__(max_bytes)
        if directory is not None and store is not None:
            raise ValueError("give a directory or a store, not both")
        if not 1 <= wait_ms < 1 << 32:
            raise ValueError(f"wait_ms is {wait_ms}; it must be from 1 to 2**32 - 1")
        if directory is not None:
            store = DirectoryStore(directory)
        self.salt = salt
        self._llama: Any = weakref.proxy(llama)
        self._has_store, self._wait_ms = store is not None, wait_ms
        self._owner = b""  # the salt of what the context has
        self._forget_context()
        config = _Config(
            ctypes.sizeof(_Config), block_size, llama.ctx, llama_cpp.llama_cpp._lib._handle,
            max_bytes, wait_ms=wait_ms,
        )  # fmt: skip
        config.key, config.key_size = key, len(key or b"")
        config.model_id, config.model_id_size = model_id or None, len(model_id)
        opened = None if store is None else open_store(store)
        if opened is not None:
            config.store = ctypes.addressof(opened)
        handle = ctypes.c_void_p()
        try:
            _call(_library().pkv_llama_open, ctypes.byref(config), ctypes.byref(handle))
        finally:
            if opened is not None:
                close_store(opened)  # nothing is left of it if the open succeeded
        self._keep = opened
        self._handle = handle
        self._closer = weakref.finalize(self, _close, handle)
        stats = self.stats()
        self._end_multiple = stats.block_size if stats.end_bytes > 0 else None
        llama._stack.callback(self._closer)
        llama.save_state = functools.partial(_save_state, weakref.ref(llama))

    # What llama-cpp-python calls before and after a completion.

    def __getitem__(self, key: Sequence[int]) -> llama_cpp.LlamaState:
        """Restores the longest known beginning of the tokens into the context, unless the context
        has as much of them. Returns an empty state, since there is nothing left to load. If
        a completion asks for the logits of its prompt, all of it is computed."""
        if self.closed:
            pass
        elif _wants_logits_of_prompt(sys._getframe(1)):
            self._compute_all()
        else:
            self._guard(self._recall, list(key))
        return _empty_state()

    def __contains__(self, key: Sequence[int]) -> bool:
        """Whether memory has a beginning of the tokens: a block or more."""
        return not self.closed and self._probe(self._prompt(key)) > 0

    def __setitem__(self, key: Sequence[int], value: llama_cpp.LlamaState) -> None:
        """Remembers what the context has, whatever is given: the last token is not in it."""
        if not self.closed:
            self._guard(self._remember)

    @property
    def cache_size(self) -> int:
        """Bytes of the keys and values in memory."""
        stats = self.stats()
        return stats.cached_tokens * stats.token_bytes

    # More than llama-cpp-python knows.

    def pin(self, tokens: Sequence[int], seconds: float = 0) -> int:
        """Keeps what is known of the tokens in memory; 0: until the close. Returns how many tokens:
        full blocks, and at most a quarter of the cache."""
        pinned = ctypes.c_uint64()
        _call(
            _library().pkv_llama_pin, self._handle, ctypes.byref(self._prompt(tokens)),
            int(seconds * 1000), ctypes.byref(pinned),
        )  # fmt: skip
        return pinned.value

    def forget(self, tokens: Sequence[int]) -> None:
        """Removes what only this text has from memory, not from a store."""
        _call(_library().pkv_llama_forget, self._handle, ctypes.byref(self._prompt(tokens)))

    def flush(self, timeout_ms: int = 60_000) -> int:
        """Waits until the store has all that was remembered. Returns how many tokens it lacks."""
        queued = ctypes.c_uint64()
        if self._has_store:
            flush = pagedkv.library().cache_flush_store
            call(flush, self._cache(), timeout_ms, ctypes.byref(queued))
        return queued.value

    def stats(self) -> Stats:
        struct = _Stats(ctypes.sizeof(_Stats))
        _call(_library().pkv_llama_get_stats, self._handle, ctypes.byref(struct))
        return Stats(*(getattr(struct, name) for name in Stats._fields))

    @property
    def closed(self) -> bool:
        return not self._closer.alive

    def close(self) -> None:
        """Waits until the store has all, and ends the cache. The Llama stays as it is."""
        self._closer()

    def _recall(self, tokens: list[int]) -> None:
        llama, salt = self._llama, self._salt()
        tokens = tokens[:-1]  # the last one is decoded to have its logits
        if salt != self._owner:
            self._empty()  # one tenant must not notice what another one has computed
        self._owner = salt
        live = llama_cpp.Llama.longest_token_prefix(llama._input_ids.tolist(), tokens)
        if self._end_multiple and live < llama.n_tokens:
            live = 0  # it cannot be cut
        if live == 0 or (live < len(tokens) and live < self._known(tokens)):
            self._empty()
            self._restore(tokens)
        if self._end_multiple:
            self._compute_end(tokens)

    def _restore(self, tokens: list[int]) -> None:
        llama, prompt, length = self._llama, self._prompt(tokens), ctypes.c_uint64()
        _call(
            _library().pkv_llama_recall, self._handle, _SEQUENCE, ctypes.byref(prompt),
            ctypes.byref(length),
        )  # fmt: skip
        llama.input_ids[: length.value] = tokens[: length.value]
        llama.n_tokens = length.value
        llama._requires_eval = True
        self._restored = length.value > 0

    def _compute_end(self, tokens: list[int]) -> None:
        """With windows or recurrent layers, a text can be restored only up to a length at which it
        was remembered (pagedkv-llama.h): so this computes a prompt up to the last such length."""
        assert self._end_multiple
        llama, end = self._llama, len(tokens) // self._end_multiple * self._end_multiple
        if llama.n_tokens < end:
            llama.eval(tokens[llama.n_tokens : end])
            self._remember()

    def _remember(self) -> None:
        llama = self._llama
        if llama.n_tokens == 0 or (self._end_multiple and llama.n_tokens % self._end_multiple):
            return
        llama._ctx.kv_cache_seq_rm(-1, llama.n_tokens, -1)
        prompt = self._prompt(llama._input_ids, self._owner)
        _call(_library().pkv_llama_remember, self._handle, _SEQUENCE, ctypes.byref(prompt))

    def _empty(self) -> None:
        """Remembers a text whose generation was interrupted, for example because a client of a
        stream has gone. Others are known already, which costs little."""
        self._guard(self._remember)
        self._forget_context()

    def _compute_all(self) -> None:
        if self._restored:
            self._empty()

    def _forget_context(self) -> None:
        self._restored = False
        self._llama.reset()
        self._llama._ctx.kv_cache_seq_rm(-1, 0, -1)

    def _guard(self, work: Callable[..., None], *arguments: Any) -> None:
        try:
            work(*arguments)
        except pagedkv.PagedKVError as error:
            _log.warning("%s", error)

    def _known(self, tokens: Sequence[int]) -> int:
        """How many tokens would be recalled, in full blocks."""
        prompt, known = self._prompt(tokens), ctypes.c_uint64()
        if not self._has_store:
            return self._probe(prompt)
        library, cache, where = pagedkv.library(), self._cache(), ctypes.byref(prompt)
        hint = sized(raw.Hint, action=HintAction.PREFETCH, end=raw.TO_END)
        call(library.hint_prompt, cache, where, ctypes.byref(hint), None)
        call(library.prefetch_wait, cache, where, self._wait_ms, ctypes.byref(known), None)
        return known.value

    def _probe(self, prompt: Any) -> int:
        cached = ctypes.c_uint64()
        probe = pagedkv.library().prefix_probe
        call(probe, self._cache(), ctypes.byref(prompt), ctypes.byref(cached))
        return cached.value

    def _cache(self) -> ctypes.c_void_p:
        cache = ctypes.c_void_p()
        _call(_library().pkv_llama_get_cache, self._handle, ctypes.byref(cache))
        return cache

    def _salt(self) -> bytes:
        return self.salt() if callable(self.salt) else self.salt

    def _prompt(self, tokens: Sequence[int], salt: bytes | None = None) -> Any:
        salt = self._salt() if salt is None else salt
        numbers, letters = np.array(tokens, np.int32), ctypes.create_string_buffer(salt, len(salt))
        prompt = sized(
            raw.Prompt, salt=ctypes.addressof(letters) if salt else None, salt_size=len(salt),
            tokens=numbers.ctypes.data, n=len(numbers),
        )  # fmt: skip
        prompt.keep = numbers, letters
        return prompt


def _empty_state() -> llama_cpp.LlamaState:
    nothing = np.empty(0, np.intc)
    return llama_cpp.LlamaState(nothing, np.empty((0, 0), np.single), 0, b"", 0, 0)


def _wants_logits_of_prompt(caller: types.FrameType) -> bool:
    wants = caller.f_locals
    return _completes(caller) and wants["echo"] and wants["logprobs"] is not None


def _completes(caller: types.FrameType) -> bool:
    return caller.f_code.co_name == "_create_completion"


def _save_state(reference: weakref.ref[llama_cpp.Llama]) -> llama_cpp.LlamaState:
    """A completion asks for a copy of the whole context and of the logits only to give it to the
    cache, which reads the context itself. All other callers get their copy."""
    llama: Any = reference()
    ours = isinstance(llama.cache, PromptCache) and not llama.cache.closed
    if ours and _completes(sys._getframe(1)):
        return _empty_state()
    return type(llama).save_state(llama)


class _Config(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32), ("block_size", ctypes.c_uint32),
        ("context", ctypes.c_void_p), ("library", ctypes.c_void_p), ("max_bytes", ctypes.c_uint64),
        ("store", ctypes.c_void_p), ("key", ctypes.c_char_p), ("key_size", ctypes.c_uint64),
        ("model_id", ctypes.c_char_p), ("model_id_size", ctypes.c_uint64),
        ("wait_ms", ctypes.c_uint32), ("reserved", ctypes.c_uint32),
    ]  # fmt: skip


class _Stats(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32), ("block_size", ctypes.c_uint32),
        *((name, ctypes.c_uint64) for name in Stats._fields[1:]),
    ]  # fmt: skip


@functools.cache
def _library() -> ctypes.CDLL:
    """It needs libpagedkv, which must be the one of the package pagedkv."""
    pagedkv.library()
    opened = ctypes.CDLL(find_prompt_cache())
    pointer = ctypes.c_void_p
    arguments = {
        "open": [pointer, pointer],
        "close": [pointer],
        "remember": [pointer, ctypes.c_int32, pointer],
        "recall": [pointer, ctypes.c_int32, pointer, pointer],
        "forget": [pointer, pointer],
        "pin": [pointer, pointer, ctypes.c_uint64, pointer],
        "get_stats": [pointer, pointer],
        "get_cache": [pointer, pointer],
    }
    for name, kinds in arguments.items():
        getattr(opened, f"pkv_llama_{name}").argtypes = kinds
    opened.pkv_llama_last_error.restype = ctypes.c_char_p
    return opened


def _call(function: Any, *arguments: Any) -> None:
    if status := function(*arguments):
        raise error_of(status, _library().pkv_llama_last_error().decode(errors="replace"))


def _close(handle: ctypes.c_void_p) -> None:
    _call(_library().pkv_llama_close, handle)
