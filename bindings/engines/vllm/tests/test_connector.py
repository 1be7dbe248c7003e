"""The connector of pagedkv_vllm under a small engine that schedules as vLLM does: if a store loses
blocks between look-up and read, no wrong blocks are stored.

vLLM's classes are stand-ins. The keys of a token are one number that depends on all rows before it
in the engine's memory, like those of a second layer. PKV_SEED and PKV_ROUNDS choose the random
plays.
"""

from __future__ import annotations

import importlib
import logging
import os
import random
import sys
import types
from collections.abc import Iterator, Sequence
from types import SimpleNamespace as Record
from typing import Any

import numpy as np
import pytest
from helpers import LossyStore, MemoryStore

if sys.platform == "win32":
    pytest.skip("vLLM does not run on Windows", allow_module_level=True)

BLOCK, BLOCKS = 16, 400
SEED, ROUNDS = int(os.environ.get("PKV_SEED", "1")), int(os.environ.get("PKV_ROUNDS", "25"))
WRONG = -7.0  # what is left in memory


class Base:
    def __init__(self, config: Any, role: Any, kv: Any) -> None:
        self._role, self._bound = role, None

    def bind_connector_metadata(self, metadata: Any) -> None:
        self._bound = metadata

    def _get_connector_metadata(self) -> Any:
        return self._bound


@pytest.fixture
def connector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, imported on stand-ins."""
    import pagedkv_vllm as package

    def put(name: str, **values: Any) -> None:
        module = types.ModuleType(name)
        module.__dict__.update(values)
        monkeypatch.setitem(sys.modules, name, module)

    for name in (
        "vllm.distributed",
        "vllm.distributed.kv_transfer",
        "vllm.distributed.kv_transfer.kv_connector",
        "vllm.distributed.kv_transfer.kv_connector.v1",
        "vllm.v1",
        "vllm.v1.attention",
        "vllm.v1.attention.backends",
    ):
        put(name)
    put("torch", Tensor=object)
    put("vllm", __version__="0.32")
    put(
        "vllm.distributed.kv_transfer.kv_connector.v1.base",
        KVConnectorBase_V1=Base,
        KVConnectorMetadata=object,
        KVConnectorRole=Record(SCHEDULER=0, WORKER=1),
    )
    put("vllm.logger", init_logger=logging.getLogger)
    attention = Record(CPU_ATTN=Record(get_path=lambda: package.BACKEND))
    put("vllm.v1.attention.backends.registry", AttentionBackendEnum=attention)
    name = "pagedkv_vllm.connector"
    monkeypatch.delitem(sys.modules, name, raising=False)
    module: Any = importlib.import_module(name)
    monkeypatch.setattr(module, "model_digest", lambda *_: b"m" * 32)
    yield module
    sys.modules.pop(name, None)


def rows_of(tokens: Sequence[int]) -> list[float]:
    rows, row = [], 0.0
    for token in tokens:
        row = row * 0.5 + token
        rows.append(row)
    return rows


def answer_to(prompt: Sequence[int], count: int) -> list[int]:
    """The right answer."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(rows_of(tokens)[-1]))
    return tokens[len(prompt) :]


def next_token(row: float) -> int:
    return int(row * 1000) % 9 + 1


class Request:
    """The fields of vLLM's requests that the connector reads, and its state in the scheduler."""

    lora_request = mm_features = prompt_embeds = cache_salt = kv_transfer_params = None
    skip_reading_prefix_cache = False

    def __init__(self, name: str, prompt: Sequence[int], new: int) -> None:
        self.request_id, self.all_token_ids = name, list(prompt)
        self.num_prompt_tokens, self.end = len(prompt), len(prompt) + new
        self.blocks: list[int] = []
        self.computed = 0
        self.local = 0  # found in the engine's own cache
        self.known = 0  # blocks that the worker knows
        self.restarts = 0  # results of steps before the last one are dropped

    @property
    def num_tokens(self) -> int:
        return len(self.all_token_ids)


class Engine:
    """Continuous batching with a prefix cache. `ahead` steps are scheduled before the results of an
    earlier one are known, as by vLLM's asynchronous scheduling."""

    def __init__(self, connector: Any, store: MemoryStore, *, chunk: int = 1000, ahead: int = 0):
        connector._store_of = lambda options: store
        kind = Record(block_size=BLOCK, page_size_bytes=BLOCK * 8)
        kv = Record(kv_cache_groups=[Record(kv_cache_spec=kind, layer_names=["0"])])
        config = Record(kv_transfer_config=Record(kv_connector_extra_config={"directory": ""}))
        role, make = connector.KVConnectorRole, connector.PagedKVConnector
        self.scheduler, self.worker = (
            make(config, role.SCHEDULER, kv),
            make(config, role.WORKER, kv),
        )
        self.memory = np.full((BLOCKS, BLOCK), WRONG)
        self.worker._pages = [self.memory.view(np.uint8).reshape(BLOCKS, -1)]
        self.cached: dict[tuple[int, ...], int] = {}  # a block by its text
        self.used, self.chunk, self.ahead = 0, chunk, ahead
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.finished: set[str] = set()
        self.failed_steps = 0

    def serve(self, requests: Sequence[Request]) -> None:
        self.waiting += requests
        steps: list[tuple[dict[Request, tuple[int, list[int]]], set[int]]] = []
        while self.waiting or self.running:
            if counts := self._schedule():
                steps.append(self._run(counts))
            if len(steps) > self.ahead or (steps and not counts):
                self._update(*steps.pop(0))
        for step in steps:
            self._update(*step)

    def close(self) -> None:
        self.worker.shutdown()
        self.scheduler.shutdown()

    def _schedule(self) -> dict[Request, int]:
        counts, room = {}, self.chunk
        for request in self.running:
            count = min(request.num_tokens - request.computed, room)
            if count > 0:
                counts[request] = count
                room -= count
        while self.waiting and room > 0:
            request = self.waiting.pop(0)
            self._admit(request)
            counts[request] = min(request.num_tokens - request.computed, room)
            room -= counts[request]
            self.running.append(request)
        for request, count in counts.items():
            self._grow(request, request.computed + count)
        return counts

    def _admit(self, request: Request) -> None:
        text = tuple(request.all_token_ids)
        while request.local + BLOCK < len(text):
            block = self.cached.get(text[: request.local + BLOCK])
            if block is None:
                break
            request.blocks.append(block)
            request.local += BLOCK
        external, _ = self.scheduler.get_num_new_matched_tokens(request, request.local)
        request.computed = request.local + external
        self._grow(request, request.computed)
        self.scheduler.update_state_after_alloc(request, None, external)

    def _grow(self, request: Request, end: int) -> None:
        """Takes blocks, and shares them before they are computed or loaded."""
        while len(request.blocks) * BLOCK < end:
            request.blocks.append(self.used)
            self.used += 1
        text = tuple(request.all_token_ids)
        for at in range(end // BLOCK):
            self.cached.setdefault(text[: (at + 1) * BLOCK], request.blocks[at])

    def _run(self, counts: dict[Request, int]) -> Any:
        """The worker's part of a step, in vLLM's order of calls."""
        new = [request for request in counts if not request.known]
        old = [request for request in counts if request.known]
        output = Record(
            scheduled_new_reqs=[
                Record(
                    req_id=request.request_id,
                    num_computed_tokens=request.computed,
                    block_ids=(request.blocks.copy(),),
                )
                for request in new
            ],
            scheduled_cached_reqs=Record(
                req_ids=[request.request_id for request in old],
                num_computed_tokens=[request.computed for request in old],
                new_block_ids=[(request.blocks[request.known :],) for request in old],
                resumed_req_ids=set(),
            ),
            num_scheduled_tokens={request.request_id: n for request, n in counts.items()},
            finished_req_ids=self.finished,
        )
        self.finished = set()
        for request in counts:
            request.known = len(request.blocks)
        self.worker.bind_connector_metadata(self.scheduler.build_connector_meta(output))
        self.worker.start_load_kv(None)
        drawn: dict[Request, tuple[int, list[int]]] = {}
        for request, count in counts.items():
            rows = self.memory[request.blocks].reshape(-1)
            end = request.computed + count
            for i in range(request.computed, end):
                rows[i] = (rows[i - 1] * 0.5 if i else 0) + request.all_token_ids[i]
            self.memory[request.blocks] = rows.reshape(-1, BLOCK)
            tokens = [next_token(rows[end - 1])] if end == request.num_tokens else []
            drawn[request] = request.restarts, tokens
            request.computed = end
        self.worker.wait_for_save()
        return drawn, self.worker.get_block_ids_with_load_errors()

    def _update(self, drawn: dict[Request, tuple[int, list[int]]], invalid: set[int]) -> None:
        """As vLLM's _update_requests_with_invalid_blocks(): one request computes a shared block
        again, the others use it."""
        self.failed_steps += bool(invalid)
        marked: set[int] = set()
        for request in self.running:
            lost = [i for i, block in enumerate(request.blocks) if block in invalid]
            if lost:
                own = [i for i in lost if request.blocks[i] not in marked]
                marked |= {request.blocks[i] for i in lost}
                request.computed = own[0] * BLOCK if own else request.local
                request.restarts += 1
        for request, (restarts, tokens) in drawn.items():
            if restarts == request.restarts:
                request.all_token_ids += tokens
            if request.num_tokens == request.end and request in self.running:
                self.running.remove(request)
                self.finished.add(request.request_id)


def play(connector: Any, draw: random.Random) -> None:
    """Prompts with common beginnings, in engines that are started again; the store loses some."""
    store = LossyStore()
    text = [draw.randrange(1, 9) for _ in range(8 * BLOCK)]
    for run in range(6):
        last = run >= 4
        store.loses = set() if last else {store.reads + draw.randrange(20) for _ in range(run)}
        options = {"chunk": draw.choice((20, 90, 1000)), "ahead": draw.choice((0, 0, 1, 2))}
        engine = Engine(connector, store, **options)
        requests, prompts = [], []
        for number in range(draw.randrange(1, 4)):
            prompt = text[: draw.randrange(1, len(text))]
            prompt = prompt + [draw.randrange(1, 9) for _ in range(draw.randrange(1, 3 * BLOCK))]
            prompts.append(text if last else prompt)
            requests.append(Request(f"{run}.{number}", prompts[-1], draw.randrange(1, 20)))
        engine.serve(requests)
        for request, prompt in zip(requests, prompts, strict=True):
            answer = request.all_token_ids[len(prompt) :]
            assert answer == answer_to(prompt, len(answer)), (run, options)
        engine.close()


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("lost", range(7))
def test_blocks_computed_over_lost_ones_are_not_stored(
    connector: Any, lost: int, ahead: int
) -> None:
    draw = random.Random(lost)
    text = [draw.randrange(1, 9) for _ in range(12 * BLOCK)]
    longer = text + text[: BLOCK + 4]
    store, beginning = LossyStore(), text[: 7 * BLOCK + 1]

    def served(prompts: list[list[int]]) -> tuple[int, Any]:
        engine = Engine(connector, store, ahead=ahead)
        requests = [Request(str(i), prompt, 3) for i, prompt in enumerate(prompts)]
        engine.serve(requests)
        engine.close()
        for request, prompt in zip(requests, prompts, strict=True):
            assert request.all_token_ids[len(prompt) :] == answer_to(prompt, 3)
        return engine.failed_steps, engine.worker.stats

    assert served([beginning])[1] == {"stored": 7}
    store.loses = {store.reads + lost}
    # The second request uses all blocks of the first one.
    failed, stats = served([text, longer])
    assert failed == 1
    assert stats["wrong"] >= 5
    store.loses = set()
    for _ in range(2):
        failed, stats = served([longer])
        assert failed == 0
        assert stats["found"] == 13


class FullStore(MemoryStore):
    """Deletes what was not used for longest."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity

    def put(self, items: Sequence[tuple[bytes, bytes]]) -> None:
        for key, value in items:
            self.values[key] = value
            if len(self.values) > self.capacity:
                del self.values[next(iter(self.values))]

    def get(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        for key in keys:
            if key in self.values:
                self.values[key] = self.values.pop(key)
        return super().get(keys)

    def touch(self, keys: Sequence[bytes]) -> Sequence[int]:
        self.get(keys)
        return super().touch(keys)


@pytest.mark.parametrize("chunk", [3 * BLOCK, 1000])
def test_a_full_store_loses_ends_before_beginnings(connector: Any, chunk: int) -> None:
    """Also where a text is stored in several steps, or its beginning is never read."""
    draw = random.Random(chunk)
    system, text, other = ([draw.randrange(1, 9) for _ in range(n * BLOCK)] for n in (4, 10, 6))
    store = FullStore(12)

    def found(prompts: list[list[int]]) -> int:
        engine = Engine(connector, store, chunk=chunk)
        for number, prompt in enumerate(prompts):
            engine.serve([Request(str(number), prompt, 2)])
        engine.serve([Request("last", [1], 1)])  # vLLM learns in a later step what has finished
        engine.close()
        return int(engine.worker.stats.get("found", 0))

    assert found([text]) == found([other]) == 0
    assert found([text]) == 6
    # The beginning of all but the first prompt is in the engine's own memory.
    prompts = [system + [draw.randrange(1, 9) for _ in range(2 * BLOCK)] for _ in range(20)]
    found(prompts)
    assert found([[*system, 1]]) == 4


def test_changed_weights_use_no_stored_blocks(connector: Any) -> None:
    text, store = [1 + i % 8 for i in range(5 * BLOCK)], MemoryStore()
    found = []
    for reset in (False, False, True, False):
        engine = Engine(connector, store)
        if reset:
            assert engine.scheduler.reset_cache()
        engine.serve([Request("a", text, 1)])
        engine.close()
        found.append(engine.worker.stats.get("found", 0))
    assert found == [0, 4, 0, 4]


def test_plays_with_a_store_that_loses_blocks(connector: Any) -> None:
    for number in range(ROUNDS):
        seed = SEED + number
        try:
            play(connector, random.Random(seed))
        except BaseException:
            print(f"PKV_SEED={seed} PKV_ROUNDS=1")
            raise


def test_blocks_that_are_computed_again_are_right_again() -> None:
    from pagedkv_vllm.lost_blocks import Computed, LostBlocks

    lost = LostBlocks(BLOCK)
    lost.add(1)
    # Tokens 32 to 40 are computed over block 1; tokens 41 to 50 continue in a wrong block.
    lost.follow([Computed("a", 32, 41, [0, 1, 2], True), Computed("b", 0, 20, [7, 8], True)], [])
    assert lost == {1, 2}
    lost.follow([Computed("a", 41, 51, [3], False), Computed("b", 20, 40, [9], False)], [])
    assert lost == {1, 2, 3}
    lost.follow([Computed("a", 16, 40, [], False)], ["b"])
    assert lost == {3}
    lost.follow([Computed("c", 0, 10, [3], True)], ["a"])
    assert not lost
    lost.add(5)
    lost.follow([Computed("d", 20, 40, [4, 5, 6], True)], ["c"])
    assert lost == {5, 6}, "the other tokens of block 5 are wrong"
