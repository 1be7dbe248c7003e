"""Threads forget objects of every kind while other threads use them and hooks collect. In the end
nothing is left.

usage: collectors.py ROUNDS    with PAGEDKV_LIBRARY and PYTHONPATH=bindings/python
"""

from __future__ import annotations

import functools
import gc
import random
import sys
import time
import warnings
from typing import Any

import numpy as np
from helpers import MemoryStore, small, together

import pagedkv
from pagedkv import _waiting

THREADS = 4
STEPS = 60


class Collecting(MemoryStore):
    """A store in memory that collects in each of its methods."""

    def there(self) -> dict[bytes, bytes]:
        gc.collect()
        return super().there()

    def close(self) -> None:
        gc.collect()
        super().close()


def stored(store: Collecting) -> pagedkv.Cache:
    index, kept = pagedkv.PrefixConfig(), pagedkv.StoreConfig(store)
    return pagedkv.Cache(small(blocks=512, threads=1, prefix=index, store=kept))


def fill(cache: pagedkv.Cache, session: pagedkv.Session, n: int) -> None:
    rows = np.zeros((n, 1, 16), np.float32)
    with cache.begin([session], [n]) as batch:
        batch.write(0, rows, rows)
        batch.commit(range(n))


def forget(cache: pagedkv.Cache, stores: list[Collecting], draw: random.Random) -> None:
    """Makes some objects that refer to each other, and forgets them."""
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
    """Makes every session of the cache busy for a moment."""
    with cache.open_session() as session:
        cache.choose_victims([session], [10])


def step(cache: pagedkv.Cache, stores: list[Collecting], draw: random.Random) -> None:
    try:
        if draw.random() < 0.5:
            forget(cache, stores, draw)
        else:
            look(cache)
    except pagedkv.UnavailableError as error:
        if error.status != pagedkv.Status.BUSY:  # another thread uses the session or batch
            raise


def work(cache: pagedkv.Cache, stores: list[Collecting], seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(STEPS):
        step(cache, stores, draw)


def settle(cache: pagedkv.Cache, others: list[Collecting], number: int) -> None:
    """Waits until all is closed. A collection does nothing while another one runs in a hook."""
    deadline = time.monotonic() + 60
    while True:
        gc.collect()
        cache.flush_store(timeout_ms=60000)
        cache.prefix_clear(all_salts=True)
        stats = cache.stats()
        open_caches = sum(store.closed == 0 for store in others)
        left = [stats.sessions, stats.snapshots, stats.batches, cache.pool_stats().held_blocks]
        left += [open_caches, len(_waiting.waiting)]
        if not any(left):
            return
        assert time.monotonic() < deadline, (number, left, stats)


def one_round(number: int) -> None:
    stores = [Collecting()]
    cache, seeds = stored(stores[0]), range(number * THREADS, (number + 1) * THREADS)
    together([functools.partial(work, cache, stores, seed) for seed in seeds])
    settle(cache, stores[1:], number)
    cache.validate()
    cache.close()
    assert [store.closed for store in stores] == [1] * len(stores), number


def storm(rounds: int) -> None:
    before = gc.get_threshold()
    gc.set_threshold(100, 5, 5)  # so that the collector runs everywhere
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
