"""Routes each request to the worker that has its prefix. There are four worker processes, each with
a cache. The router learns from their events what they have; it is compared with a round-robin
router.

usage: router.py [TRACE] [--requests N] [--workers N] [--blocks N] [--speed X]

TRACE has JSON lines in Mooncake's format; without it, chats are made up. Hits are those of real
caches (ids only). Times are modelled: a worker computes one prompt at a time, in 8 ms plus 0.02 ms
for each token that was not cached. With --speed X requests arrive X times as fast.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

import pagedkv
from pagedkv.events import AllBlocksCleared, BlockRemoved, EventPublisher, EventSubscriber

BLOCK = 64  # tokens
FREE = "tcp://127.0.0.1:*"


class Request(NamedTuple):
    arrival: float  # seconds
    tokens: Any


def text(hash_ids: list[int], length: int, number: int) -> Any:
    """512 tokens for each id, and a unique tail."""
    ids = np.repeat(np.array(hash_ids, np.int64), 512)[:length] * 512
    ids[:] += np.arange(len(ids)) % 512
    tail = 2**30 + number * 8192 + np.arange(max(length - len(ids), 0))
    return np.concatenate([ids, tail]).astype(np.int64).astype(np.int32)


def read(path: str, limit: int) -> list[Request]:
    with open(path) as lines:
        rows = [json.loads(line) for _, line in zip(range(limit), lines, strict=False)]
    return [
        Request(row["timestamp"] / 1000, text(row["hash_ids"], row["input_length"], number))
        for number, row in enumerate(rows)
    ]


def make_up(count: int) -> list[Request]:
    """Chats that begin with one of four system prompts and grow with each turn."""
    draw, requests = random.Random(1), list[Request]()
    while len(requests) < count:
        chat, begun = [draw.randrange(4)], draw.uniform(0, count / 8)
        for turn in range(draw.randrange(1, 8)):
            chat = [*chat, *(draw.randrange(4, 2**20) for _ in range(draw.randrange(1, 4)))]
            requests.append(Request(begun + 20.0 * turn, text(chat, 512 * len(chat), 0)))
    return sorted(requests, key=lambda request: request.arrival)[:count]


def work(pipe: Connection, blocks: int) -> None:
    """An engine without a model: it returns how many tokens of each prompt were cached."""
    prefix = pagedkv.PrefixConfig(max_events=1 << 16)
    config = pagedkv.CacheConfig(
        layers=1, query_heads=1, kv_heads=1, key_dim=16, blocks=blocks, block_size=BLOCK,
        storage="external", prefix=prefix,
    )  # fmt: skip
    with pagedkv.Cache(config) as cache, EventPublisher(FREE, replay_endpoint=FREE) as publisher:
        followed = publisher.follow(cache)
        pipe.send((publisher.endpoint, publisher.replay_endpoint))
        while (prompt := pipe.recv()) is not None:
            followed.add_text(prompt)
            with cache.open_session() as session:
                cached = session.admit(prompt[:-1])
                with cache.begin([session], [len(prompt) - cached]) as batch:
                    batch.commit(prompt[cached:])
            followed.poll()
            pipe.send(cached)


class Worker:
    """A process, the router's view of its cache, and the modelled time at which it is free."""

    def __init__(self, blocks: int) -> None:
        self.pipe, other = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=work, args=(other, blocks), daemon=True)
        self.process.start()
        self.events = EventSubscriber(*self.pipe.recv())
        self.known: set[Any] = set()
        self.free_at = 0.0

    def learn(self) -> None:
        for batch in self.events.receive():
            for event in batch.events:
                if isinstance(event, AllBlocksCleared):
                    self.known.clear()
                elif isinstance(event, BlockRemoved):
                    self.known.difference_update(event.block_hashes)
                else:
                    self.known.update(event.block_hashes)

    def likely_cached(self, hashes: list[int]) -> int:
        for index, found in enumerate(hashes):
            if found not in self.known:
                return index * BLOCK
        return len(hashes) * BLOCK


def seconds(computed: int) -> float:
    return 0.008 + 0.00002 * computed


def choose(workers: list[Worker], request: Request, now: float) -> Worker:
    """The worker that would have the first token soonest, after waiting and computing."""
    hashes = pagedkv.prefix_hash_blocks(request.tokens, BLOCK).tolist()

    def expected(worker: Worker) -> float:
        worker.learn()
        missing = len(request.tokens) - worker.likely_cached(hashes)
        return max(worker.free_at, now) + seconds(missing)

    return min(workers, key=expected)


def serve(requests: list[Request], by_prefix: bool, options: argparse.Namespace) -> None:
    workers = [Worker(options.blocks) for _ in range(options.workers)]
    asked, hits, first_tokens = 0, 0, []
    for number, request in enumerate(requests):
        now = request.arrival / options.speed
        worker = choose(workers, request, now) if by_prefix else workers[number % len(workers)]
        worker.pipe.send(request.tokens)
        cached = worker.pipe.recv()
        worker.free_at = max(worker.free_at, now) + seconds(len(request.tokens) - cached)
        asked, hits = asked + len(request.tokens), hits + cached
        first_tokens.append(worker.free_at - now)
    for worker in workers:
        worker.pipe.send(None)
        worker.process.join()
        worker.events.close()
    p50, p90, p99 = np.percentile(first_tokens, [50, 90, 99])
    print(
        f"{'by prefix' if by_prefix else 'in turn':>10}: {hits / asked:6.1%} of {asked:,} tokens "
        f"cached; time to first token {np.mean(first_tokens):.3f} s on average, {p50:.3f} p50, "
        f"{p90:.3f} p90, {p99:.3f} p99"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\nusage")[0])
    parser.add_argument("trace", nargs="?", help="a trace in Mooncake's JSON lines")
    parser.add_argument("--requests", type=int, default=1000, help="number of requests")
    parser.add_argument("--workers", type=int, default=4, help="worker processes")
    parser.add_argument("--blocks", type=int, default=8192, help="blocks of 64 tokens per worker")
    parser.add_argument("--speed", type=float, default=1.0, help="factor of the request rate")
    options = parser.parse_args()
    requests = read(options.trace, options.requests) if options.trace else make_up(options.requests)
    print(f"{len(requests)} requests, {options.workers} workers of {options.blocks} blocks")
    for by_prefix in (False, True):
        serve(requests, by_prefix, options)


if __name__ == "__main__":
    main()
