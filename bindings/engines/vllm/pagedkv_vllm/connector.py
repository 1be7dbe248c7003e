"""A KV connector. It writes the blocks that vLLM computed to a store, and reads them when a later
prompt has the same prefix, also after a restart or in another process.

    --kv-transfer-config '{"kv_connector": "PagedKVConnector", "kv_role": "kv_both",
      "kv_connector_module_path": "pagedkv_vllm.connector",
      "kv_connector_extra_config": {"directory": "/var/cache/kv"}}'

The scheduler's part finds which blocks of a request to load and which to store; the worker's part
copies them. A step waits for its reads, never for writes.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import pathlib
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import pagedkv
import torch
import vllm
from pagedkv import DirectoryStore, HintAction, RedisStore
from pagedkv.hints import NO_HINTS, read_request
from pagedkv.support import Uncopied, counted
from pagedkv.weights import contents_digest, digest, weights_files
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
)
from vllm.logger import init_logger
from vllm.v1.attention.backends.registry import AttentionBackendEnum

from . import BACKEND, __version__
from .block_store import BlockStore, Bytes, block_names, block_of
from .lost_blocks import Computed, LostBlocks

logger = init_logger("vllm.pagedkv")

OPTIONS = ("directory", "redis", "fingerprint", "queue_bytes")
QUEUE_BYTES = 512 << 20
USE_BYTES = 4 << 10  # what the use of a block counts as in the queue

Transfer = list[tuple[bytes, int]]
"""Names of blocks, and their places in vLLM's memory."""


@dataclasses.dataclass
class Transfers(KVConnectorMetadata):
    """The work of a worker in a step; loads are listed by request."""

    loads: list[Transfer] = dataclasses.field(default_factory=list)
    saves: Transfer = dataclasses.field(default_factory=list)
    computed: list[Computed] = dataclasses.field(default_factory=list)
    finished: set[str] = dataclasses.field(default_factory=set)
    used: list[list[bytes]] = dataclasses.field(default_factory=list)  # texts that are finished


@dataclasses.dataclass
class Tracked:
    """A request that the scheduler has seen."""

    request: Any
    root: bytes
    names: list[bytes] = dataclasses.field(default_factory=list)
    blocks: list[int] = dataclasses.field(default_factory=list)
    cached: int = 0  # blocks that vLLM itself has
    found: int = 0  # blocks after these to load
    stored: int = 0  # blocks that are in the store, or on their way
    kept: int = sys.maxsize  # blocks before what a hint drops; others are not stored


class PagedKVConnector(KVConnectorBase_V1):
    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        options = dict(vllm_config.kv_transfer_config.kv_connector_extra_config)
        _check(options, kv_cache_config)
        # A block that was lost is computed again; by default vLLM would fail the request.
        vllm_config.kv_transfer_config.kv_load_failure_policy = "recompute"
        spec = kv_cache_config.kv_cache_groups[0].kv_cache_spec
        self._block_size = spec.block_size
        layers = len(kv_cache_config.kv_cache_groups[0].layer_names)
        self._store = BlockStore(_store_of(options), layers * spec.page_size_bytes)
        if role == KVConnectorRole.SCHEDULER:
            self._model = model_digest(
                vllm_config, kv_cache_config, str(options.get("fingerprint", ""))
            )
            self._tracked: dict[str, Tracked] = {}
        else:
            self._pages: list[Bytes] = []  # by layer: [blocks][bytes]
            self._errors: set[int] = set()
            self._lost = LostBlocks(self._block_size)
            self._queue = _Queue(int(options.get("queue_bytes", QUEUE_BYTES)))

    @property
    def stats(self) -> dict[str, int]:
        """Blocks: stored, known (before), found, corrupt, not stored, wrong (computed over blocks
        that were lost, so not stored); failures of the store."""
        return dict(self._store.stats)

    # ---- The scheduler's part ----

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int, bool]:
        tracked = self._track(request)
        if tracked is None or request.skip_reading_prefix_cache:
            return 0, False
        tracked.cached, tracked.found = num_computed_tokens // self._block_size, 0
        # The last token is always computed, because its output is needed.
        names = self._names(tracked, (request.num_tokens - 1) // self._block_size)[tracked.cached :]
        missing = self._store.missing(names) if names else []
        tracked.found = missing[0] if missing else len(names)
        return tracked.found * self._block_size, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if (tracked := self._tracked.get(request.request_id)) is not None:
            tracked.found = num_external_tokens // self._block_size
            tracked.stored = max(tracked.stored, tracked.cached + tracked.found)

    def build_connector_meta(self, scheduler_output: Any) -> Transfers:
        transfers = Transfers(
            computed=computed_in(scheduler_output), finished=set(scheduler_output.finished_req_ids)
        )
        for computed in transfers.computed:
            self._schedule(transfers, computed)
        for request_id in transfers.finished:
            if (tracked := self._tracked.pop(request_id, None)) is not None:
                transfers.used.append(tracked.names[: tracked.stored])
        return transfers

    def reset_cache(self) -> bool:
        """vLLM calls this after its weights were changed, if its caller asks for it. The new ones
        have no name that another process could know."""
        self._model = digest([self._model, os.urandom(32)])
        self._tracked.clear()
        return True

    def _schedule(self, transfers: Transfers, computed: Computed) -> None:
        """The blocks of a request that the step loads and completes."""
        tracked = self._tracked.get(computed.request_id)
        if tracked is None:
            return
        if computed.starts:
            tracked.blocks = []
        tracked.blocks += computed.new_blocks
        if tracked.found:
            first, end = tracked.cached, tracked.cached + tracked.found
            transfers.loads.append(
                list(zip(tracked.names[first:end], tracked.blocks[first:end], strict=True))
            )
            tracked.found = 0
        # vLLM computes blocks again that could not be loaded. They were not stored.
        tracked.stored = min(tracked.stored, computed.first // self._block_size)
        # Speculative tokens in the step are not the request's yet.
        known = min(computed.end, tracked.request.num_tokens)
        complete = min(known // self._block_size, tracked.kept)
        if complete > tracked.stored:
            names = self._names(tracked, complete)
            new = slice(tracked.stored, complete)
            # From the end to the beginning: see BlockStore.
            transfers.saves += list(zip(names[new], tracked.blocks[new], strict=True))[::-1]
            tracked.stored = complete

    def _track(self, request: Any) -> Tracked | None:
        """None for a request whose keys and values depend on more than its tokens."""
        if request.lora_request or request.mm_features or request.prompt_embeds is not None:
            return None
        if request.request_id not in self._tracked:
            salt = (request.cache_salt or "").encode()
            tracked = Tracked(request, digest([self._model, salt]))
            tracked.kept = first_dropped(request) // self._block_size
            self._tracked[request.request_id] = tracked
        return self._tracked[request.request_id]

    def _names(self, tracked: Tracked, count: int) -> list[bytes]:
        tokens = tracked.request.all_token_ids
        return block_names(tracked.root, tokens, self._block_size, count, tracked.names)

    # ---- The worker's part ----

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        # Layers that share their memory count as one.
        tensors = {cache.data_ptr(): cache for cache in kv_caches.values()}
        self._pages = [_pages_of(cache) for cache in tensors.values()]
        size = sum(pages.shape[1] for pages in self._pages)
        if size != self._store.size:
            raise ValueError(
                f"a block of {counted(len(self._pages), 'layer')} has {size} bytes, not "
                f"{self._store.size}"
            )

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        for names in self._metadata().used:
            # Its ends were stored last, and vLLM's own memory may have had its beginning.
            size = len(names) * USE_BYTES
            if names and self._queue.has_room(size):
                self._queue.submit(size, self._store.missing, names)
        for load in self._metadata().loads:
            self._lost.difference_update(block for _, block in load)
            found = self._store.get([name for name, _ in load])
            for (_, block), memory in zip(load, found, strict=False):
                for pages, part in zip(self._pages, self._parts(memory), strict=True):
                    pages[block] = part
            lost = [block for _, block in load[len(found) :]]
            if lost:
                logger.warning(
                    "%d of %d blocks are missing or corrupt in the store and are computed again",
                    len(lost),
                    len(load),
                )
            self._errors.update(lost)
            self._lost.update(lost)

    def wait_for_save(self) -> None:
        metadata = self._metadata()
        self._lost.follow(metadata.computed, metadata.finished)
        for name, block in metadata.saves:
            if block in self._lost:
                self._store.stats["wrong"] += 1
                continue
            if not self._queue.has_room(self._store.size):
                self._store.stats["not stored"] += 1
                continue
            memory = self._store.new_block()
            for pages, part in zip(self._pages, self._parts(memory), strict=True):
                part[:] = pages[block]
            self._queue.submit(self._store.size, self._store.put, name, memory)

    def get_block_ids_with_load_errors(self) -> set[int]:
        errors, self._errors = self._errors, set()
        return errors

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Does nothing: all layers are loaded when start_load_kv returns."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """Does nothing: all layers are saved at the end of the step."""

    def shutdown(self) -> None:
        """Returns when all is written."""
        if self._role == KVConnectorRole.WORKER:
            self._queue.close()
        if self._store.stats:
            logger.info("blocks of the store: %s", dict(self._store.stats))
        self._store.close()

    def _metadata(self) -> Transfers:
        metadata = self._get_connector_metadata()
        assert isinstance(metadata, Transfers)
        return metadata

    def _parts(self, memory: Bytes) -> Iterable[Bytes]:
        """The bytes of a block of the store: the sum over the layers."""
        ends = np.cumsum([pages.shape[1] for pages in self._pages])
        return np.split(block_of(memory), ends[:-1])


class _Queue(Uncopied):
    """A thread of low priority that writes, and the number of bytes that wait for it."""

    def __init__(self, limit: int) -> None:
        self._limit, self._bytes, self._lock = limit, 0, threading.Lock()
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "pagedkv-store", _lower_priority)

    def has_room(self, size: int) -> bool:
        with self._lock:
            return self._bytes + size <= self._limit

    def submit(self, size: int, function: Any, *arguments: Any) -> None:
        with self._lock:
            self._bytes += size
        self._thread.submit(function, *arguments).add_done_callback(lambda done: self._end(size))

    def _end(self, size: int) -> None:
        with self._lock:
            self._bytes -= size

    def close(self) -> None:
        self._thread.shutdown()


def _lower_priority() -> None:
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)


def first_dropped(request: Any) -> int:
    """Where a request's hints drop its text: what follows can be found only with it."""
    try:
        read = read_request(request)
    except ValueError as error:  # of the client, so it must not end the engine
        logger.warning("request %s: %s", request.request_id, error)
        read = NO_HINTS
    if read.rejected:
        count = counted(len(read.rejected), "hint")
        logger.warning("request %s: %s cannot be read", request.request_id, count)
    drops = (hint.first for hint in read.hints if hint.action == HintAction.DROP)
    return min(drops, default=sys.maxsize)


def computed_in(output: Any) -> list[Computed]:
    """What a step computes, in the order in which vLLM scheduled the requests: a request may use
    blocks that those before it compute in the same step."""
    started = {
        new.req_id: (new.num_computed_tokens, new.block_ids, True)
        for new in output.scheduled_new_reqs
    }
    cached = output.scheduled_cached_reqs
    resumed = cached.resumed_req_ids
    continued = {
        request_id: (computed, blocks, request_id in resumed)
        for request_id, computed, blocks in zip(
            cached.req_ids, cached.num_computed_tokens, cached.new_block_ids, strict=True
        )
    }
    every = started | continued
    made = []
    for request_id, count in output.num_scheduled_tokens.items():
        first, blocks, starts = every[request_id]
        made.append(Computed(request_id, first, first + count, blocks[0] if blocks else [], starts))
    return made


def _check(options: dict[str, Any], kv_cache_config: Any) -> None:
    if unknown := set(options) - set(OPTIONS):
        known = ", ".join(OPTIONS)
        raise ValueError(f"PagedKVConnector has the options {known}, not {', '.join(unknown)}")
    if ("directory" in options) == ("redis" in options):
        raise ValueError('PagedKVConnector needs "directory" or "redis", one of the two')
    if AttentionBackendEnum.CPU_ATTN.get_path() != BACKEND:
        raise ValueError(
            "PagedKVConnector stores the blocks of pagedkv's attention: set VLLM_PLUGINS=pagedkv"
        )
    if (groups := len(kv_cache_config.kv_cache_groups)) != 1:
        raise ValueError(
            f"this model's layers are in {groups} groups of blocks, PagedKVConnector stores those "
            "of one: add --disable-hybrid-kv-cache-manager"
        )


def _store_of(options: dict[str, Any]) -> DirectoryStore | RedisStore:
    """A store from a path or an address, or from the fields of DirectoryStore or RedisStore."""
    kind, name = (DirectoryStore, "directory") if "directory" in options else (RedisStore, "redis")
    given = options[name]
    return kind(**given) if isinstance(given, dict) else kind(given)


def model_digest(vllm_config: Any, kv_cache_config: Any, fingerprint: str = "") -> bytes:
    """What keys and values depend on besides the tokens: the weights, and everything that says how
    they are read and used.
    """
    if getattr(vllm_config.cache_config, "calculate_kv_scales", False):
        raise ValueError(
            "--calculate-kv-scales: the scales come from the first request of a process, so its "
            "blocks would be wrong in another one"
        )
    if (workers := vllm_config.parallel_config.world_size) != 1:
        raise ValueError(
            f"the model is on {workers} workers; PagedKVConnector stores the blocks of one"
        )
    group, load = kv_cache_config.kv_cache_groups[0], vllm_config.load_config
    described = [
        pagedkv.__version__,
        __version__,
        vllm.__version__,
        fingerprint,
        group.kv_cache_spec,
        group.layer_names,
        vllm_config.cache_config.cache_dtype,
        getattr(vllm_config.model_config, "disable_sliding_window", None),
        load.load_format,
        load.ignore_patterns,
        load.model_loader_extra_config,
    ]
    models: list[Any] = [vllm_config.model_config]
    drafter = getattr(vllm_config.speculative_config, "draft_model_config", None)
    if drafter is not None and drafter is not vllm_config.model_config:
        models.append(drafter)  # the blocks contain its layers, too
    for model in models:
        described += [
            b"" if fingerprint else _weights_of(model),
            model.dtype,
            model.quantization,
            model.quantization_config,
            model.max_model_len,  # LongRoPE's factors depend on it
            model.model_impl,
            model.hf_config.to_json_string(),
        ]
    return digest(str(part).encode() for part in described)


def _weights_of(model: Any) -> bytes:
    """A digest of the files, wherever they are, or the revision of a model from a hub."""
    if files := weights_files(pathlib.Path(model.model)):
        begin, size = time.monotonic(), sum(file.stat().st_size for file in files)
        found = contents_digest((file.name, file) for file in files)
        logger.info("hashed %.2f GB of weights in %.1f s", size / 1e9, time.monotonic() - begin)
        return found
    commit = getattr(model.hf_config, "_commit_hash", None)
    if commit is None:
        raise ValueError(f'the weights of {model.model} are unknown: give a "fingerprint" of them')
    return digest([model.model.encode(), commit.encode()])


def _pages_of(cache: torch.Tensor) -> Bytes:
    """vLLM's memory of a layer as [blocks][bytes]."""
    block = cache[0]
    if not block.is_contiguous():
        raise ValueError(f"a block has strides {block.stride()}, so its bytes are not contiguous")
    size = block.numel() * block.element_size()
    flat = cache.view(torch.uint8)
    return torch.as_strided(flat, (cache.shape[0], size), (flat.stride(0), 1)).numpy()
