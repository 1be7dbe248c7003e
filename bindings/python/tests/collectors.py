"""Threads that forget objects of every kind while others use them and hooks collect. In the end
nothing is left.

usage: collectors.py ROUNDS    with PAGEDKV_LIBRARY and PYTHONPATH=bindings/python
"""

from __future__ import annotations

import gc
import random
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

import pagedkv
from pagedkv import _waiting

THREADS = 4
STEPS = 60
MODEL: dict[str, Any] = {
    "layers": 1,
    "query_heads": 2,
    "kv_heads": 1,
    "key_dim": 16,
    "blocks": 512,
    "threads": 1,
}


class Collecting(pagedkv.Store):
    """A store in memory that collects in each of its methods."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.closed = 0

    def put(self, items: Sequence[tuple[bytes, bytes]]) -> None:
        gc.collect()
        self.values.update(items)

    def get(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        gc.collect()
        return [self.values.get(key) for key in keys]

    def probe(self, keys: Sequence[bytes]) -> Sequence[int]:
        gc.collect()
        return [len(self.values.get(key, b"")) for key in keys]

    def drop(self, keys: Sequence[bytes]) -> None:
        gc.collect()

    def close(self) -> None:
        gc.collect()
        self.closed += 1


def stored(store: Collecting) -> pagedkv.Cache:
    return pagedkv.Cache(
        pagedkv.CacheConfig(
            **MODEL, prefix=pagedkv.PrefixConfig(), store=pagedkv.StoreConfig(store)
        )
    )


def fill(cache: pagedkv.Cache, session: pagedkv.Session, n: int) -> None:
    rows = np.zeros((n, 1, 16), np.float32)
    with cache.begin([session], [n]) as batch:
        batch.write(0, rows, rows)
        batch.commit(range(n))


def forget(cache: pagedkv.Cache, stores: list[Collecting], draw: random.Random) -> None:
    """Makes some objects that know each other, and lets go of them."""
    session = cache.open_session()
    fill(cache, session, draw.randrange(1, 40))
    knot: list[Any] = [session]
    kind = draw.randrange(6)
    if kind == 0:
        knot.append(session.snapshot())
    elif kind == 1:
        knot.append(cache.begin([session], [draw.randrange(20)]))
    elif kind == 2:
        knot.append(session.fork())
    elif kind == 3:
        knot.append(pagedkv.Pool(16))
    elif kind == 4:
        knot.append(cache.kv_view(0))
    else:
        stores.append(Collecting())
        other = stored(stores[-1])
        fill(other, other.open_session(), 40)
        knot.append(other)
    if draw.random() < 0.8:
        knot.append(knot)


def look(cache: pagedkv.Cache) -> None:
    """Every session of the cache is busy for a moment."""
    with cache.open_session() as session:
        cache.choose_victims([session], [10])


def step(cache: pagedkv.Cache, stores: list[Collecting], draw: random.Random) -> None:
    try:
        if draw.random() < 0.5:
            forget(cache, stores, draw)
        else:
            look(cache)
    except pagedkv.MisuseError as error:
        if (
            error.status != pagedkv.Status.BUSY
        ):  # another thread looks into the session or its batch
            raise


def work(
    cache: pagedkv.Cache, stores: list[Collecting], seed: int, failures: list[BaseException]
) -> None:
    draw = random.Random(seed)
    try:
        for _ in range(STEPS):
            step(cache, stores, draw)
    except BaseException as error:
        failures.append(error)


def settle(cache: pagedkv.Cache, others: list[Collecting], number: int) -> None:
    """Waits until all is closed: a collection does nothing while another one runs, in some hook."""
    deadline = time.monotonic() + 60
    while True:
        gc.collect()
        cache.flush_store(timeout_ms=60000)
        cache.prefix_clear(all_salts=True)
        stats = cache.stats()
        open_caches = sum(store.closed == 0 for store in others)
        left = (
            stats.sessions,
            stats.snapshots,
            stats.batches,
            stats.used_blocks,
            open_caches,
            len(_waiting.waiting),
        )
        if not any(left):
            return
        assert time.monotonic() < deadline, (number, left, stats)


def one_round(number: int) -> None:
    stores, failures = [Collecting()], list[BaseException]()
    cache = stored(stores[0])
    threads = [
        threading.Thread(target=work, args=(cache, stores, number * THREADS + i, failures))
        for i in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    settle(cache, stores[1:], number)
    cache.validate()
    cache.close()
    assert [store.closed for store in stores] == [1] * len(stores), number


def storm(rounds: int) -> None:
    before = gc.get_threshold()
    gc.set_threshold(100, 5, 5)  # so that the collector runs in the middle of everything
    try:
        for number in range(rounds):
            one_round(number)
    finally:
        gc.set_threshold(*before)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].isdigit():
        sys.exit(__doc__)
    warnings.simplefilter("ignore", ResourceWarning)
    storm(int(sys.argv[1]))
    print(f"{sys.argv[1]} rounds of {THREADS} threads: nothing is left")
