"""Many threads share objects. On a free-threaded Python (tests/free-threaded) no lock separates
them. Each call works or reports that another thread uses the object.
"""

from __future__ import annotations

import functools
import gc
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import MemoryStore, output, together
from test_objects import MODEL, fill

import pagedkv
from pagedkv import _waiting

THREADS = 6
IN_THE_WAY = (pagedkv.Status.BUSY, pagedkv.Status.STALE_HANDLE)


def repeated(work: Callable[[int], None], times: int = 30) -> None:
    """Runs work(i) this many times in thread i, all threads at once."""

    def run(i: int) -> None:
        for _ in range(times):
            work(i)

    together([functools.partial(run, i) for i in range(THREADS)])


def may_be_in_the_way(call: Callable[[], Any]) -> Any:
    """The call's result, or None if another thread was faster."""
    try:
        return call()
    except (pagedkv.MisuseError, pagedkv.UnavailableError) as error:
        if error.status not in IN_THE_WAY:
            raise
        return None


def test_the_first_call_of_many_threads() -> None:
    """The first call finds and opens the library; many threads may make it at once."""
    code = (
        "import helpers, pagedkv\n"
        "found = []\n"
        f"helpers.together([lambda: found.append(pagedkv.library_version())] * {THREADS})\n"
        f"assert len(found) == {THREADS} and len(set(found)) == 1, found\n"
    )
    output(sys.executable, "-c", code, cwd=pathlib.Path(__file__).parent)


def test_configs_and_parameters_that_threads_share() -> None:
    config = pagedkv.CacheConfig(
        **MODEL, prefix=pagedkv.PrefixConfig(), logger=lambda _level, _line: None
    )
    params = pagedkv.AttentionParams(scale=0.5)
    rows = np.ones((4, 2, 16), np.float32)

    def work(_i: int) -> None:
        with pagedkv.Cache(config) as cache, cache.open_session() as session:
            batch = cache.begin([session], [4])
            batch.write(0, rows[:, :1], rows[:, :1])
            assert (batch.attend(0, rows, params=params) == 1).all()
            batch.abort()

    repeated(work)


def test_one_session_in_many_threads() -> None:
    with pagedkv.Cache(pagedkv.CacheConfig(**MODEL)) as cache:
        session = cache.open_session()

        def work(_i: int) -> None:
            may_be_in_the_way(lambda: fill(cache, session, 1))
            may_be_in_the_way(lambda: session.trim(0))
            with pytest.raises(pagedkv.MisuseError) as raised:
                cache.layer_shape(99)
            assert "99" in str(raised.value)

        repeated(work)
        cache.validate()
        session.close()


def test_one_object_that_many_threads_close() -> None:
    with pagedkv.Cache(pagedkv.CacheConfig(**MODEL)) as cache:
        for _ in range(30):
            session = cache.open_session()
            things: list[Any] = [session.snapshot(), session]

            def work(_i: int, things: list[Any] = things) -> None:
                for thing in things:
                    may_be_in_the_way(thing.close)

            repeated(work, times=1)
            assert cache.stats().sessions == cache.stats().snapshots == 0


def test_objects_that_are_forgotten_in_other_threads() -> None:
    """Objects made in one thread are dropped in another one, and in cycles."""
    with pagedkv.Cache(pagedkv.CacheConfig(**MODEL)) as cache:
        shelf: list[Any] = []

        def work(i: int) -> None:
            if i % 2:
                session = cache.open_session()
                shelf.append([session, may_be_in_the_way(session.fork)])
                shelf[-1:] = [[shelf[-1:], session]]
            else:
                shelf.clear()

        with pytest.warns(ResourceWarning):
            repeated(work)
            shelf.clear()
            gc.collect()
            assert cache.pool_stats().held_blocks == 0  # This call closes what waited.
        assert cache.stats().sessions == 0
        assert not _waiting.waiting


def test_sessions_of_many_threads_over_a_store_in_python() -> None:
    store = MemoryStore()
    config = pagedkv.CacheConfig(
        **MODEL, prefix=pagedkv.PrefixConfig(), store=pagedkv.StoreConfig(store)
    )
    with pagedkv.Cache(config) as cache:

        def work(i: int) -> None:
            with cache.open_session() as session:
                text = [i % 3] * 16
                session.admit(text[:-1])
                rows = np.full((16 - session.length, 1, 16), i % 3, np.float32)
                try:
                    with cache.begin([session], [len(rows)]) as batch:
                        for layer in range(cache.layers):
                            batch.write(layer, rows, rows)
                        batch.commit(text[session.length :])
                except pagedkv.OutOfBlocksError:
                    return
                k, _ = session.read(0)
                assert (k == i % 3).all()

        repeated(work)
        assert cache.flush_store(timeout_ms=60000) == 0
        cache.validate()
    assert store.there()
