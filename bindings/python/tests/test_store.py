"""The store behind a cache's memory: in a directory, and in Python."""

from __future__ import annotations

import logging
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from helpers import MemoryStore, SlowStore, output, small
from test_files import extend, make, same

import pagedkv

TEXT = list(range(40))
WHOLE_BLOCKS = 32
LONG = 60000  # milliseconds


@pytest.fixture(params=["directory", "Python"])
def store(
    request: pytest.FixtureRequest, tmp_path: pathlib.Path
) -> pagedkv.DirectoryStore | pagedkv.Store:
    directory = request.param == "directory"
    return pagedkv.DirectoryStore(tmp_path / "store") if directory else MemoryStore()


def with_store(
    store: pagedkv.DirectoryStore | pagedkv.RedisStore | pagedkv.MooncakeStore | pagedkv.Store,
    **more: Any,
) -> pagedkv.Cache:
    return make(prefix=pagedkv.PrefixConfig(), store=pagedkv.StoreConfig(store, **more))


def leave(cache: pagedkv.Cache, salt: bytes | None = None) -> None:
    """Writes the blocks of a session that computed the text to the store, and drops them from
    memory."""
    with cache.open_session(salt=salt) as session:
        extend(cache, session, TEXT)
    assert cache.flush_store(timeout_ms=LONG) == 0
    cache.prefix_clear(all_salts=True)
    assert cache.prefix_stats().cached_tokens == 0


def check_text(cache: pagedkv.Cache) -> None:
    """A new session matches a part of the text and computes the rest; outputs are the same as
    without a store.
    """
    with make() as plain, plain.open_session() as computed, cache.open_session() as found:
        extend(plain, computed, TEXT)
        assert found.admit(TEXT) == WHOLE_BLOCKS
        extend(cache, found, TEXT[WHOLE_BLOCKS:])
        same(found, computed)


def test_a_text_comes_back_after_its_memory_was_cleared(store: Any) -> None:
    with with_store(store) as cache:
        leave(cache)
        cache.hint("prefetch", TEXT)
        assert cache.wait_for_prefetch(TEXT, timeout_ms=LONG) == WHOLE_BLOCKS
        check_text(cache)
        stats = cache.store_stats()
        assert (stats.written_items, stats.read_items) == (2, 2)
        assert (stats.corrupt_items, stats.failures, stats.down) == (0, 0, 0)
        # Blocks, K and V, layers, tokens, dims, bytes.
        assert stats.read_bytes == stats.written_bytes > 2 * 2 * 2 * 16 * 16 * 4
        cache.validate()


def test_a_text_comes_back_in_another_cache(store: Any) -> None:
    with with_store(store) as cache, cache.open_session() as session:
        extend(cache, session, TEXT)
    with with_store(store, wait_ms=LONG) as cache:  # without a prefetch
        check_text(cache)


def test_a_suspended_session_gets_its_text_back(store: Any) -> None:
    with with_store(store) as cache, cache.open_session() as session:
        extend(cache, session, TEXT)
        session.suspend()
        assert cache.flush_store(timeout_ms=LONG) == 0
        cache.prefix_clear()
        cache.hint("prefetch", session.tokens(0, len(TEXT)))
        assert cache.wait_for_prefetch(TEXT, timeout_ms=LONG) == WHOLE_BLOCKS
        assert session.resume() == (WHOLE_BLOCKS, len(TEXT))


@pytest.mark.parametrize(
    "other",
    [{"fingerprint": b"two"}, {"secret_key": bytes(16)}, {}],
    ids=["fingerprint", "key", "salt"],
)
def test_what_is_not_the_same_shares_nothing(other: dict[str, Any]) -> None:
    store, salt = MemoryStore(), b"somebody" if not other else None
    options = {"fingerprint": b"one\0", "secret_key": bytes(range(16))}
    with with_store(store, **options) as cache:
        leave(cache)
    for changed, text, expected in ((other, salt, 0), ({}, None, WHOLE_BLOCKS)):
        with with_store(store, **options | changed) as cache:
            cache.hint("prefetch", TEXT, text)
            assert cache.wait_for_prefetch(TEXT, text, timeout_ms=LONG) == expected


def test_salts_reach_the_store() -> None:
    with with_store(MemoryStore()) as cache:
        leave(cache, b"salt")
        cache.hint("prefetch", TEXT, b"salt")
        assert cache.wait_for_prefetch(TEXT, b"salt", timeout_ms=LONG) == WHOLE_BLOCKS


def test_a_cancelled_prefetch_is_waited_for_no_more() -> None:
    store = SlowStore()
    with with_store(store, buffer_bytes=1) as cache:  # block by block
        leave(cache)
        cache.hint("prefetch", TEXT)
        assert store.asked.wait(60)
        assert cache.wait_for_prefetch(TEXT, timeout_ms=1) == 0
        cache.cancel_prefetch(TEXT)
        assert (
            cache.wait_for_prefetch(TEXT, timeout_ms=LONG) == 0
        ), "although the store stands still"
        store.answer.set()


def test_problems_of_a_store_in_python_cost_hits_only(caplog: pytest.LogCaptureFixture) -> None:
    for problem in (
        ConnectionRefusedError(111, "refused"),
        OSError("no number"),
        KeyError("a mistake"),
    ):
        store = MemoryStore()
        store.problem = problem
        with with_store(store, wait_ms=LONG) as cache, cache.open_session() as session:
            leave(cache)
            assert cache.store_stats().failures > 0
            assert cache.store_stats().down == 1
            assert session.admit(TEXT) == 0
        assert store.closed == 1
    assert {(record.name, record.levelno) for record in caplog.records} == {
        ("pagedkv", logging.ERROR)
    }
    assert "a mistake" in caplog.text
    assert "refused" not in caplog.text


def test_wrong_answers_of_a_store_in_python(caplog: pytest.LogCaptureFixture) -> None:
    class Short(MemoryStore):
        def get(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
            return []

    with with_store(Short()) as cache:
        leave(cache)
        cache.hint("prefetch", TEXT)
        assert cache.wait_for_prefetch(TEXT, timeout_ms=LONG) == 0
        assert cache.store_stats().failures == 1
    assert "zip()" in caplog.text

    class Stranger(MemoryStore):
        def put(self, items: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
            return [b"another"]

    with with_store(Stranger()) as cache:
        leave(cache)
        assert cache.store_stats().written_items == 0
        assert cache.store_stats().failures == 1
    assert "put returned b'another', which is none of its keys" in caplog.text


def test_a_store_in_python_says_what_it_did_not_store() -> None:
    class Choosy(MemoryStore):
        offered, refuses = 0, True

        def put(self, items: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
            self.offered += len(items)
            refused = [key for key, _ in items[:1]] if self.refuses else []
            self.values.update(item for item in items if item[0] not in refused)
            return refused

    store = Choosy()
    with with_store(store) as cache:
        for written, offered in ((1, 2), (2, 3)):
            leave(cache)
            stats = cache.store_stats()
            assert (stats.written_items, store.offered, len(store.values)) == (
                written,
                offered,
                written,
            )
            assert (stats.lost_tokens, stats.failures, stats.down) == (16, 1, 0)
            store.refuses = False


def test_whoever_has_a_store_closes_it_once() -> None:
    store = MemoryStore()
    config: Any = {"prefix": pagedkv.PrefixConfig(), "store": pagedkv.StoreConfig(store)}
    assert small(**config).sizes().blocks == 16
    assert store.closed == 0
    for wrong in ({"prefix": None}, {"storage": pagedkv.Storage.EXTERNAL}):
        with pytest.raises(pagedkv.PagedKVError, match="a store needs"):
            make(**config | wrong)
    assert store.closed == 2
    make(**config).close()
    assert store.closed == 3


def test_wrong_arguments(tmp_path: pathlib.Path) -> None:
    store = pagedkv.DirectoryStore(tmp_path)
    (tmp_path / "file").touch()
    for wrong, sentence in (
        ({"secret_key": b"short"}, r"a key of 5 bytes.*\(INVALID_ARGUMENT\)"),
        ({"secret_key": b""}, "a key of 0 bytes"),
        ({"fingerprint": bytes(65)}, r"\(INVALID_ARGUMENT\)"),
        ({"wait_ms": 2**32}, "wait_ms: 4294967296 is not between"),
        ({"max_queued_tokens": -1}, "max_queued_tokens: -1 is not between"),
        ({"store": pagedkv.DirectoryStore(tmp_path / "file")}, r"\(IO\)"),
        ({"store": pagedkv.DirectoryStore(tmp_path / "gone/store")}, r"\(IO\)"),
        ({"store": pagedkv.DirectoryStore("a\0b")}, "there is a NUL"),
        ({"store": pagedkv.DirectoryStore(tmp_path, max_bytes=-1)}, "max_bytes: -1"),
    ):
        with pytest.raises(pagedkv.PagedKVError, match=sentence):
            with_store(**{"store": store} | wrong)
    assert "secret" not in repr(pagedkv.StoreConfig(store, secret_key=b"secret" * 3))
    with make() as cache:
        for call in (
            lambda: cache.wait_for_prefetch(TEXT, timeout_ms=0),
            lambda: cache.cancel_prefetch(TEXT),
            lambda: cache.flush_store(timeout_ms=0),
            cache.store_stats,
        ):
            with pytest.raises(pagedkv.MisuseError, match="has no store"):
                call()
    with with_store(store) as cache:
        with pytest.raises(pagedkv.MisuseError, match="timeout_ms: -1"):
            cache.flush_store(timeout_ms=-1)
        with pytest.raises(pagedkv.MisuseError, match="is not between"):
            cache.hint("prefetch", [2**31])


def test_a_cache_that_is_open_when_python_ends() -> None:
    """The store is slow, so that many blocks still wait when Python ends."""
    code = """
import time
import test_store

class Slow(test_store.MemoryStore):
    def put(self, items):
        time.sleep(0.2)
        super().put(items)

    def close(self):
        print(len(self.values), "values")

cache = test_store.with_store(Slow())
with cache.open_session() as session:
    test_store.extend(cache, session, test_store.TEXT)
"""
    here = pathlib.Path(__file__).parent
    assert output(sys.executable, "-c", code, cwd=here) == "2 values\n"
