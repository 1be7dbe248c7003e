"""Prefix events over sockets on loopback, as routers read them, with losses, restarts and
strangers.
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers import ON_WINDOWS, free_port, needs_fork, output, small, together

import pagedkv

pytest.importorskip("msgspec", reason="msgspec: NO events were published")
pytest.importorskip("zmq", reason="pyzmq: NO events were published")

import msgspec  # noqa: E402
import zmq  # noqa: E402

from pagedkv.events import (  # noqa: E402
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EventBatch,
    EventPublisher,
    EventSubscriber,
    FollowedCache,
    encode_batch,
)

FREE = "tcp://127.0.0.1:*"
SOON = 30_000  # ms: no test waits this long unless it fails


def ids_only(blocks: int = 64, events: int = 4096, **prefix: Any) -> pagedkv.Cache:
    index = pagedkv.PrefixConfig(max_events=events, **prefix)
    return pagedkv.Cache(small(blocks=blocks, storage="external", prefix=index))


def compute(cache: pagedkv.Cache, text: list[int], salt: bytes | None = None) -> int:
    """Computes a text in a session and closes it. Returns how many tokens were cached."""
    with cache.open_session(salt=salt) as session:
        matched = session.admit(text)
        if matched < len(text):
            with cache.begin([session], [len(text) - matched]) as batch:
                batch.commit(text[matched:])
    return matched


def tell(
    cache: pagedkv.Cache, followed: FollowedCache, text: list[int], salt: bytes | None = None
) -> int:
    """Adds a text, computes it, and publishes the changes. Returns the number of events."""
    followed.add_text(text, salt)
    compute(cache, text, salt)
    return followed.poll()


def publisher(**options: Any) -> EventPublisher:
    return EventPublisher(FREE, replay_endpoint=FREE, **{"heartbeat_ms": 50, **options})


def subscriber(to: EventPublisher, **options: Any) -> EventSubscriber:
    return EventSubscriber(to.endpoint, to.replay_endpoint, **options)


class Lossy:
    """A publisher's socket on a network that loses the next `lose` batches, heartbeats included. A
    test that counts losses must turn off heartbeats, and first wait for the subscription."""

    def __init__(self, made: EventPublisher) -> None:
        self.socket: Any = made._sender._events
        self.lose = 0
        made._sender._events = self  # type: ignore[assignment]

    def send_multipart(self, frames: Any) -> None:
        if self.lose:
            self.lose -= 1
        else:
            self.socket.send_multipart(frames)

    def close(self) -> None:
        self.socket.close()


class View:
    """A router's view of one engine: for each rank, hashes and their tokens."""

    def __init__(self, source: EventSubscriber) -> None:
        self.source = source
        self.ranks: dict[int | None, dict[Any, list[int]]] = {}
        self.batches: list[EventBatch] = []

    def take(self, batch: EventBatch) -> None:
        self.batches.append(batch)
        known = self.ranks.setdefault(batch.data_parallel_rank, {})
        for event in batch.events:
            if isinstance(event, AllBlocksCleared):
                if batch.data_parallel_rank is None:
                    self.ranks.clear()
                known = self.ranks.setdefault(batch.data_parallel_rank, {})
                known.clear()
            elif isinstance(event, BlockRemoved):
                for one in event.block_hashes:
                    known.pop(one, None)
            else:
                size = event.block_size
                assert len(event.token_ids) == size * len(event.block_hashes)
                for index, one in enumerate(event.block_hashes):
                    known[one] = event.token_ids[index * size : (index + 1) * size]

    def subscribe(self, to: EventPublisher) -> None:
        """Publishes empty batches until one arrives, and waits for the last of them. From then on
        none is lost."""
        sender = to._sender

        def arrived() -> bool:
            if self.source._newest is None:
                sender.send(encode_batch([], None))
            return self.source._newest == sender._next - 1

        self.until(arrived)

    def until(self, done: Any) -> None:
        end = time.monotonic() + SOON / 1000
        while not done():
            assert time.monotonic() < end, self.ranks
            for batch in self.source.receive(50):
                self.take(batch)

    def known(self, rank: int | None = 0) -> dict[Any, list[int]]:
        return self.ranks.get(rank, {})


def blocks_of(text: list[int], salt: bytes | None = None) -> dict[int, list[int]]:
    hashes = pagedkv.prefix_hash_blocks(text, 16, salt).tolist()
    return {found: text[16 * i : 16 * i + 16] for i, found in enumerate(hashes)}


@pytest.fixture
def told() -> Iterator[Any]:
    """A cache, its follower, and a router's view."""
    with ids_only() as cache, publisher() as made, subscriber(made) as source:
        yield cache, made.follow(cache), View(source)


def test_a_router_knows_what_is_cached(told: Any) -> None:
    cache, followed, view = told
    text = list(range(100))
    followed.add_text(text)
    compute(cache, text)
    assert followed.poll() == 1  # consecutive blocks are one event
    view.until(lambda: view.known() == blocks_of(text))
    longer = text[:50] + list(range(1000, 1040))
    followed.add_text(longer)
    assert compute(cache, longer) >= 48
    followed.poll()
    view.until(lambda: view.known() == blocks_of(text) | blocks_of(longer))
    stored = [event for batch in view.batches for event in batch.events][-1]
    assert stored.parent_block_hash == list(blocks_of(text))[2]
    cache.prefix_clear()
    followed.poll()
    view.until(lambda: view.known() == {})
    assert followed.published_blocks == 0
    assert followed.poll() == 0


def test_texts_may_be_told_later(told: Any) -> None:
    cache, followed, view = told
    text, gone = list(range(64)), list(range(500, 532))
    compute(cache, text)
    compute(cache, gone)
    assert followed.poll() == 0  # their tokens are unknown
    followed.add_text(text)
    assert followed.poll() == 1
    view.until(lambda: view.known() == blocks_of(text))
    cache.prefix_clear()
    followed.add_text(gone)
    assert followed.poll() == 2  # stored and removed: in this order
    view.until(lambda: view.known() == {} and followed.published_blocks == 0)


def test_what_is_evicted_is_removed(told: Any) -> None:
    cache, followed, view = told
    texts = [list(range(1000 * n, 1000 * n + 160)) for n in range(20)]
    for text in texts:
        tell(cache, followed, text)
    probed: dict[int, list[int]] = {}
    for text in texts:
        probed |= blocks_of(text[: cache.prefix_probe(text)])
    assert 0 < len(probed) <= 64 < 20 * 10
    view.until(lambda: view.known() == probed)


def test_salts_are_told_as_vllm_does(told: Any) -> None:
    cache, followed, view = told
    text = list(range(48))
    for salt in (b"ann", None):
        tell(cache, followed, text, salt)
    view.until(lambda: view.known() == blocks_of(text, b"ann") | blocks_of(text))
    told = {
        event.block_hashes[0]: event
        for batch in view.batches
        for event in batch.events
        if isinstance(event, BlockStored)
    }
    ann, nobody = (told[next(iter(blocks_of(text, salt)))] for salt in (b"ann", None))
    assert ann.extra_keys == [["ann"], None, None]
    assert nobody.extra_keys is None
    assert ann.parent_block_hash is None


def test_several_caches_have_a_rank_each() -> None:
    room: Any = np.uint8(9)
    rank: Any = np.uint8(1)
    with publisher(replay_batches=room) as made, ids_only() as first, ids_only() as second:
        followed = [made.follow(first), made.follow(second, rank=rank)]
        with pytest.raises(pagedkv.MisuseError, match="followed as rank 1"):
            made.follow(first, rank=1)
        for cache, one in zip((first, second), followed, strict=True):
            tell(cache, one, list(range(32)))
        compute(second, list(range(100)))
        with subscriber(
            made, high_water_mark=room
        ) as source:  # late, so it gets all that is cached
            view = View(source)
            both = blocks_of(list(range(32)))
            view.until(lambda: view.ranks == {0: both, 1: both})
            followed[0].close()
            view.until(lambda: view.ranks == {0: {}, 1: both})


@pytest.mark.parametrize("form", ["map", "array"])
def test_lost_batches_are_replayed(form: Any) -> None:
    with (
        ids_only() as cache,
        publisher(form=form, heartbeat_ms=0) as made,
        subscriber(made) as source,
    ):
        followed, view = made.follow(cache), View(source)
        view.subscribe(made)
        view.until(lambda: 0 in view.ranks)
        lossy, lost = Lossy(made), list(range(16))
        lossy.lose = 1
        tell(cache, followed, lost)
        view.until(lambda: lossy.lose == 0)
        assert not source.receive(100)
        later = list(range(100, 116))
        tell(cache, followed, later)
        view.until(lambda: view.known() == blocks_of(lost) | blocks_of(later))
        assert source.lost_batches == 0
        assert len(view.batches) == 3


def test_what_is_too_old_for_a_replay_comes_as_all_that_is_cached() -> None:
    with ids_only() as cache, publisher(replay_batches=2) as made, subscriber(made) as source:
        followed, view = made.follow(cache), View(source)
        view.until(lambda: 0 in view.ranks)
        Lossy(made).lose = 5
        expected: dict[int, list[int]] = {}
        for n in range(6):
            text = list(range(100 * n, 100 * n + 16))
            expected |= blocks_of(text)
            tell(cache, followed, text)
        view.until(lambda: view.known() == expected)
        assert source.lost_batches > 0


def test_without_a_replay_a_router_forgets() -> None:
    with (
        ids_only() as cache,
        publisher(heartbeat_ms=0) as made,
        EventSubscriber(made.endpoint) as source,
    ):
        followed, view = made.follow(cache), View(source)
        view.subscribe(made)

        def publish(first: int) -> dict[int, list[int]]:
            text = list(range(first, first + 16))
            tell(cache, followed, text)
            return blocks_of(text)

        known = publish(0)
        view.until(lambda: view.known() == known)
        Lossy(made).lose = 1
        publish(10000)
        known = publish(20000)
        view.until(lambda: view.known() == known)
        assert source.lost_batches == 1


def test_events_that_the_cache_overwrote() -> None:
    """After lost events the publisher asks the cache about the added texts."""
    with ids_only(events=4) as cache, publisher() as made, subscriber(made) as source:
        followed, view = made.follow(cache), View(source)
        text, branch = list(range(160)), list(range(80)) + list(range(500, 580))
        untold = list(range(3000, 3064))
        for one in (text, branch):
            followed.add_text(one)
            compute(cache, one)
        compute(cache, untold)
        followed.poll()
        assert followed.lost_events > 0
        view.until(lambda: view.known() == blocks_of(text) | blocks_of(branch))
        followed.add_text(untold)
        followed.poll()
        view.until(lambda: view.known() == blocks_of(text) | blocks_of(branch) | blocks_of(untold))
        cache.prefix_clear()
        followed.poll()
        view.until(lambda: view.known() == {})


def tell_one_text(endpoint: str, replay_endpoint: str, first: int) -> None:
    """A worker process: caches one text and publishes it until it is killed."""
    cache = ids_only()
    publisher = EventPublisher(endpoint, replay_endpoint=replay_endpoint, heartbeat_ms=50)
    followed = publisher.follow(cache)
    text = list(range(first, first + 64))
    tell(cache, followed, text)
    time.sleep(100)


def test_a_worker_is_killed_and_comes_back() -> None:
    """A worker is killed and another one, with another text, starts at the same addresses. The
    router gets no message of the end, but forgets the old text when the new worker publishes.
    """
    context = multiprocessing.get_context("spawn")
    ends = [f"tcp://127.0.0.1:{free_port()}" for _ in range(2)]
    with EventSubscriber(*ends, replay_timeout_ms=500) as source:
        view = View(source)
        for first in (0, 7000):
            worker = context.Process(target=tell_one_text, args=(*ends, first), daemon=True)
            worker.start()
            expected = blocks_of(list(range(first, first + 64)))
            # Killing the worker during a replay would cut the replay off.
            view.until(lambda e=expected: view.known() == e and source._wanted is None)
            worker.kill()
            worker.join()
            view.until(lambda: source.silent_seconds > 0.2)
            assert view.known() == expected  # a stale route, which costs a miss


def test_numbers_that_begin_again() -> None:
    """Numbers of an engine that counts from 0 after each start, like vLLM's, and of batches that a
    replay already brought.
    """
    with zmq.Context() as context, context.socket(zmq.PUB) as engine:
        port = engine.bind_to_random_port("tcp://127.0.0.1")
        with EventSubscriber(f"tcp://127.0.0.1:{port}") as source:

            def send(number: int, found: int) -> None:
                stored = BlockStored([found], None, [found], 1)
                engine.send_multipart((b"", number.to_bytes(8, "big"), encode_batch([stored], 0)))

            view, number = View(source), 0
            while not view.known():  # until the subscription has arrived
                send(number, 7)
                number += 1
                for batch in source.receive(10):
                    view.take(batch)
            source._expected = number + 2  # as after a replay
            for n in range(3):
                send(number + n, n)
            view.until(lambda: set(view.known()) == {7, 2})
            send(0, 9)
            view.until(lambda: set(view.known()) == {9})
            assert source.lost_batches == 0
            for number, lost in ((8, 7), (9 + 65536 * 60_000, 7), (12 + 65536 * 60_000, 9)):
                send(number, number)
                view.until(lambda number=number: set(view.known()) == {number})
                assert source.lost_batches == lost


def test_a_restart_loses_no_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers of a new publisher begin much higher: it was started hours later."""
    endpoint, replay = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
    now = time.time()
    with EventSubscriber(endpoint, replay) as source:
        view = View(source)
        for first in (0, 100, 200):
            text = list(range(first, first + 32))
            monkeypatch.setattr(time, "time", lambda first=first: now + 100 * first)
            with (
                ids_only() as cache,
                EventPublisher(endpoint, replay_endpoint=replay, heartbeat_ms=20) as made,
            ):
                tell(cache, made.follow(cache), text)
                view.until(lambda text=text: view.known() == blocks_of(text))
        assert source.lost_batches == 0


def test_texts_that_are_not_cached_take_little_memory() -> None:
    with ids_only() as cache, publisher() as made:
        followed = made.follow(cache)
        tracemalloc.start()
        try:
            for first in range(0, 1 << 21, 1 << 18):
                followed.add_text(np.arange(first, first + (1 << 18), dtype=np.int32))
            assert len(followed._blocks) == 1 << 16
            assert tracemalloc.get_traced_memory()[0] < 40 << 20
        finally:
            tracemalloc.stop()


def test_a_closed_cache_is_forgotten(told: Any) -> None:
    cache, followed, view = told
    tell(cache, followed, list(range(32)))
    view.until(view.known)
    cache.close()
    with pytest.raises(pagedkv.MisuseError, match="STALE_HANDLE"):
        followed.poll()
    view.until(lambda: view.known() == {})
    with pytest.raises(pagedkv.MisuseError, match="no longer followed"):
        followed.poll()
    followed.close()


def test_a_router_hears_of_the_end() -> None:
    with ids_only() as cache:
        with publisher() as made:
            source = subscriber(made)
            view = View(source)
            followed = made.follow(cache)
            tell(cache, followed, list(range(32)))
            view.until(view.known)
            followed.add_text(range(100, 116))  # published to subscribers of now
            compute(cache, list(range(100, 116)))
            followed.poll()
            view.until(lambda: len(view.known()) == 3)
        view.until(lambda: not view.known())
        source.close()
        for call in (followed.poll, lambda: followed.add_text([1]), lambda: made.follow(cache)):
            with pytest.raises(pagedkv.MisuseError, match="is closed"):
                call()
        made.close()
        with pytest.raises(pagedkv.MisuseError, match="EventSubscriber is closed"):
            source.receive()
        assert "closed" in repr(made)


def test_refusals_are_sentences() -> None:
    with EventPublisher(FREE) as made:
        with pytest.raises(pagedkv.SystemCallError, match="cannot bind.*in use") as refused:
            EventPublisher(made.endpoint)
        assert refused.value.system_error == zmq.EADDRINUSE
        with ids_only(events=0) as cache, pytest.raises(pagedkv.MisuseError, match="no events"):
            made.follow(cache)
        with pytest.raises(pagedkv.MisuseError, match="rank: -1"), ids_only() as cache:
            made.follow(cache, rank=-1)
        with ids_only() as cache:
            followed = made.follow(cache)
            for tokens in ([1.5], [[1]], [2**40]):
                with pytest.raises(pagedkv.MisuseError, match="tokens"):
                    followed.add_text(tokens)  # type: ignore[arg-type]
            followed.add_text([])
            followed.add_text(range(15))
            assert followed.poll() == 0
    for arguments, sentence in (
        ({"endpoint": "nonsense"}, "endpoint: cannot bind 'nonsense'"),
        ({"endpoint": "tcp://127.0.0.1:99999"}, "cannot bind"),
        ({"endpoint": FREE, "replay_endpoint": "x://y"}, "replay_endpoint: cannot bind"),
        ({"endpoint": FREE, "topic": "x" * 256}, "topic has 256 bytes"),
        ({"endpoint": FREE, "form": "xml"}, "form"),
        ({"endpoint": FREE, "replay_batches": 0}, "replay_batches"),
        ({"endpoint": FREE, "replay_batches": -1}, "replay_batches"),
        ({"endpoint": FREE, "high_water_mark": 2**40}, "high_water_mark"),
        ({"endpoint": FREE, "idle_blocks": -1}, "idle_blocks"),
    ):
        with pytest.raises(pagedkv.MisuseError, match=sentence):
            EventPublisher(**arguments)
    with pytest.raises(pagedkv.MisuseError, match="cannot connect"):
        EventSubscriber("nonsense")
    with (
        pytest.raises(pagedkv.MisuseError, match="timeout_ms"),
        EventSubscriber("tcp://127.0.0.1:1") as source,
    ):
        source.receive(-1)


def test_topics() -> None:
    with (
        publisher(topic="kv@a") as made,
        ids_only() as cache,
        subscriber(made, topic="kv@") as source,
        EventSubscriber(made.endpoint, topic="other") as deaf,
    ):
        followed, view = made.follow(cache), View(source)
        for n in range(20):
            text = list(range(100 * n, 100 * n + 16))
            tell(cache, followed, text)
            assert not deaf.receive(5)
        view.until(lambda: len(view.known()) == 20)


def test_a_long_message_ends_its_connection(told: Any) -> None:
    """It takes no memory of the publisher and gets no answer."""
    made = told[1]._sender
    with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.setsockopt(zmq.LINGER, 0)
        monitor = stranger.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        stranger.connect(made.replay_endpoint)
        stranger.send_multipart([b"", bytes(1 << 20)])
        assert monitor.poll(SOON)
        stranger.disable_monitor()
        monitor.close()


def test_strangers_at_the_sockets(told: Any) -> None:
    """The publisher checks requests for a replay; the subscriber checks what it receives."""
    cache, followed, view = told
    made = followed._sender
    context: zmq.Context[Any] = zmq.Context()
    with context.socket(zmq.DEALER) as stranger:
        stranger.connect(made.replay_endpoint)
        for frames in ([b"x"], [b"", b"short"], [b"x", b"12345678"], [b""] * 9, [b"", b"x" * 99]):
            stranger.send_multipart(frames)
        stranger.send_multipart([b"", (2**64 - 1).to_bytes(8, "big")])
        assert stranger.poll(SOON)
        assert stranger.recv_multipart() == [b"", b"\xff" * 8, b""]  # an empty replay: only its end
        assert not stranger.poll(20)
    text = list(range(32))
    tell(cache, followed, text)
    view.until(lambda: view.known() == blocks_of(text))
    with context.socket(zmq.PUB) as liar:
        port = liar.bind_to_random_port("tcp://127.0.0.1")
        with EventSubscriber(f"tcp://127.0.0.1:{port}") as source:
            good = encode_batch([BlockStored([1], None, [5], 1)], 0)
            bad = [b"", b"\xc1", b"\x93", good[:-3], b"\x90" * 100, encode_batch([]) + b"x"]
            bad += [b"\x91" * 10000, msgspec.msgpack.encode([1.0, [{"type": "Nothing"}], 0])]
            received: list[EventBatch] = []
            for number in range(400):
                liar.send_multipart([b"", number.to_bytes(8, "big"), bad[number % len(bad)]])
                liar.send_multipart([b"", b"short", good])
                liar.send_multipart([b""])
                received += source.receive(5)
                if source.bad_messages > 40:
                    break
            assert source.bad_messages > 40
            assert all(batch.events == [AllBlocksCleared()] for batch in received)
    context.term()


class _VllmBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """The definition of vLLM 0.32, field by field (vllm/distributed/kv_events.py)."""

    ts: float
    events: list[_VllmStored | _VllmRemoved | _VllmCleared]
    data_parallel_rank: int | None = None


class _VllmStored(msgspec.Struct, omit_defaults=True, gc=False, tag="BlockStored"):
    block_hashes: list[bytes | int]
    parent_block_hash: bytes | int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[Any, ...] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None
    ownership: str | None = None
    session_id: str | None = None


class _VllmRemoved(msgspec.Struct, omit_defaults=True, gc=False, tag="BlockRemoved"):
    block_hashes: list[bytes | int]
    medium: str | None
    group_idx: int | None = None
    locality: str | None = None
    ownership: str | None = None


class _VllmCleared(msgspec.Struct, omit_defaults=True, gc=False, tag="AllBlocksCleared"):
    pass


def batch_type_of_vllm() -> Any:
    """vLLM's own if it is installed, else the definition above."""
    if importlib.util.find_spec("vllm") is not None:
        from vllm.distributed.kv_events import KVEventBatch

        return KVEventBatch
    return _VllmBatch


def test_vllm_reads_what_is_sent(told: Any) -> None:
    cache, followed, _ = told
    decoder = msgspec.msgpack.Decoder(batch_type_of_vllm())
    text = list(range(40))
    with zmq.Context() as context, context.socket(zmq.SUB) as router:
        router.setsockopt(zmq.SUBSCRIBE, b"")
        router.connect(followed._sender.endpoint)
        time.sleep(0.2)
        tell(cache, followed, text, b"ann")
        cache.prefix_clear(b"ann")
        followed.poll()
        events: list[Any] = []
        while not (events and type(events[-1]).__name__.endswith("Removed")):
            assert router.poll(SOON)
            topic, number, payload = router.recv_multipart()
            assert topic == b""
            assert len(number) == 8
            batch = decoder.decode(payload)
            assert batch.data_parallel_rank == (0 if batch.events else None)
            events += batch.events
    stored, removed = events[-2:]
    hashes = list(blocks_of(text, b"ann"))
    assert stored.block_hashes == removed.block_hashes[::-1] == hashes
    assert stored.token_ids == text[:32]
    assert (stored.parent_block_hash, stored.block_size, stored.medium) == (None, 16, "GPU")
    assert stored.extra_keys == [("ann",), None]
    assert decoder.decode(encode_batch([AllBlocksCleared()], 0)).events


def test_a_slow_subscriber_and_one_that_never_reads() -> None:
    """The publisher does not wait for slow subscribers, keeps a bounded number of batches for them,
    and they end up with the right view."""
    with (
        ids_only(blocks=256) as cache,
        publisher(high_water_mark=10, replay_batches=20) as made,
        subscriber(made, high_water_mark=10) as slow,
        subscriber(made, high_water_mark=1),
    ):
        followed, view = made.follow(cache), View(slow)
        view.until(lambda: 0 in view.ranks)
        begun, expected = time.monotonic(), dict[int, list[int]]()
        for n in range(200):
            text = list(range(n * 2000, n * 2000 + 1000))[: 16 * (1 + n % 3)]
            tell(cache, followed, text)
            expected |= blocks_of(text)
        assert time.monotonic() - begun < 5
        assert len(made._sender._kept) == 20
        known = set[int]()
        for n in range(200):
            text = list(range(n * 2000, n * 2000 + 48))
            known |= set(blocks_of(text[: cache.prefix_probe(text)]))
        view.until(lambda: set(view.known()) == known)


@needs_fork
def test_a_forked_child_cannot_use_it(told: Any) -> None:
    _, followed, view = told
    read, write = os.pipe()
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:  # like a replay, so the child inherits a locked lock
        with followed._lock:
            held.set()
            let_go.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(SOON // 1000)  # ends it if it waits
        said = []
        for call in (followed.poll, lambda: followed.add_text([1]), lambda: view.source.receive()):
            try:
                call()
                said.append("worked")
            except pagedkv.MisuseError as error:
                said.append(getattr(error.status, "name", "?"))
        view.source.close()
        os.write(write, " ".join(said).encode())
        os._exit(0)
    let_go.set()
    holder.join()
    os.waitpid(child, 0)
    os.close(write)
    assert os.read(read, 100) == b"WRONG_PROCESS WRONG_PROCESS WRONG_PROCESS"
    os.close(read)
    followed.add_text(range(16))
    followed.poll()


CROWD = """
import sys, zmq
context = zmq.Context()
crowd = [context.socket(zmq.SUB) for _ in range(60)]
for one in crowd:
    one.setsockopt(zmq.SUBSCRIBE, b"")
    one.connect(sys.argv[1])
for one in crowd:
    one.recv_multipart()
print(flush=True)
input()
"""


def test_a_crowd_is_killed_as_it_closes() -> None:
    """Batches that were on their way to dead subscribers delay nothing."""
    for _ in range(6):
        with ids_only() as cache, publisher(heartbeat_ms=5) as made:
            followed = made.follow(cache)
            crowd = subprocess.Popen(
                [sys.executable, "-c", CROWD, made.endpoint],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
            with crowd:
                assert crowd.stdout is not None
                assert crowd.stdout.read(1)
                crowd.kill()
                time.sleep(0.002)
                followed.close()
                made.close()
        made._sender._thread.join(SOON / 1000)
        assert not made._sender._thread.is_alive()


def test_what_is_forgotten_is_closed() -> None:
    before = set(threading.enumerate())
    with pytest.warns(ResourceWarning, match="EventPublisher was never closed"):
        EventPublisher(FREE)
    with pytest.warns(ResourceWarning, match="EventSubscriber was never closed"):
        EventSubscriber("tcp://127.0.0.1:1")
    gc.collect()
    end = time.monotonic() + SOON / 1000
    while set(threading.enumerate()) - before:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_python_ends_with_a_publisher_open() -> None:
    code = (
        "from pagedkv.events import *\n"
        f"p = EventPublisher('{FREE}', replay_endpoint='{FREE}')\n"
        "s = EventSubscriber(p.endpoint, p.replay_endpoint)\n"
        "s.receive(100)\n"
    )
    output(sys.executable, "-c", code, timeout=60, cwd=pathlib.Path(__file__).parents[1])


def test_threads_tell_and_poll_at_once() -> None:
    """Each engine has its own cache; a router in another thread ends up with the right view."""
    with publisher() as made, subscriber(made) as source:
        caches = [ids_only(blocks=32) for _ in range(3)]
        followed = [made.follow(cache, rank) for rank, cache in enumerate(caches)]

        def play(rank: int) -> None:
            for n in range(60):
                text = list(range(rank * 10**6 + 100 * n, rank * 10**6 + 100 * n + 50))
                tell(caches[rank], followed[rank], text)

        together([functools.partial(play, rank) for rank in range(3)])
        view = View(source)
        for rank, cache in enumerate(caches):
            expected: set[int] = set()
            for n in range(60):
                text = list(range(rank * 10**6 + 100 * n, rank * 10**6 + 100 * n + 50))
                expected |= set(blocks_of(text[: cache.prefix_probe(text)]))
            view.until(lambda r=rank, e=expected: set(view.known(r)) == e)
            cache.close()


def test_a_publisher_is_heard_though_nothing_happens() -> None:
    made = publisher()
    with subscriber(made) as source:
        for _ in range(10):
            assert source.receive(60) == []
            assert source.silent_seconds < 5
        made.close()
        source.receive(500)
        assert source.silent_seconds > 0.2


def test_a_subscriber_shows_what_it_lost() -> None:
    with publisher() as made:
        with subscriber(made) as source:
            assert repr(source) == f"<EventSubscriber: {made.endpoint}, 0 batches lost>"
        assert repr(source) == "<EventSubscriber, closed>"


@pytest.mark.skipif(ON_WINDOWS, reason="Wine 8 does not count handles")
def test_no_descriptors_are_left() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with publisher() as made, subscriber(made) as source:
            source.receive(10)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before
