"""Lifetimes, errors, threads, and the other abilities of objects."""

from __future__ import annotations

import ctypes
import gc
import threading
import time
from typing import Any

import numpy as np
import pytest
from helpers import small, together

import pagedkv
from pagedkv.generated import raw as _raw

MODEL: dict[str, Any] = {"layers": 2, "query_heads": 2, "kv_heads": 1, "key_dim": 16, "blocks": 8}


@pytest.fixture
def cache() -> Any:
    with pagedkv.Cache(pagedkv.CacheConfig(**MODEL)) as made:
        yield made


def fill(cache: pagedkv.Cache, session: pagedkv.Session, n: int) -> None:
    """n tokens of zeros with the ids 0, 1, ..."""
    rows = np.zeros((n, 1, 16), np.float32)
    with cache.begin([session], [n]) as batch:
        for layer in range(cache.layers):
            batch.write(layer, rows, rows)
        batch.commit(range(n))


def test_what_is_closed_raises(cache: pagedkv.Cache) -> None:
    session = cache.open_session()
    session.close()
    session.close()
    assert session.closed
    for call in (
        lambda: session.length,
        session.fork,
        session.info,
        lambda: cache.begin([session], [1]),
    ):
        with pytest.raises(pagedkv.MisuseError) as stale:
            call()
        assert stale.value.status == pagedkv.Status.STALE_HANDLE


def test_a_cache_takes_its_own_with_it() -> None:
    with pagedkv.Cache(pagedkv.CacheConfig(**MODEL)) as cache:
        things: list[Any] = [cache.open_session()]
        things += [things[0].snapshot(), cache.begin(things[:1], [1])]
    for thing, method in zip(things, ("info", "fork", "slot_mapping"), strict=True):
        with pytest.raises(pagedkv.MisuseError, match="STALE_HANDLE"):
            getattr(thing, method)()
    del things, thing
    gc.collect()  # warnings are errors here: there is nothing left to close


def test_what_is_forgotten_is_closed_with_a_warning(cache: pagedkv.Cache) -> None:
    with pytest.warns(ResourceWarning, match="Session was never closed"):
        cache.open_session()
    assert cache.stats().sessions == 0


def test_a_batch_keeps_its_sessions(cache: pagedkv.Cache) -> None:
    batch = cache.begin([cache.open_session()], [3])
    gc.collect()
    assert batch.sessions[0].length == 0
    assert cache.stats().batches == 1
    batch.abort()
    batch.sessions[0].close()
    assert cache.stats().batches == 0


def test_leaving_a_batch_aborts(cache: pagedkv.Cache) -> None:
    session = cache.open_session()
    with pytest.raises(KeyError), cache.begin([session], [20]):
        raise KeyError
    assert session.length == 0
    assert cache.pool_stats().held_blocks == 0
    with (
        cache.begin([session], [1]) as batch,
        pytest.raises(pagedkv.MisuseError, match="INCOMPLETE"),
    ):
        batch.commit()
    session.close()


@pytest.mark.parametrize(
    ("status", "family"),
    [
        (100, "MisuseError"),
        (200, "OutOfBlocksError"),
        (201, "UnavailableError"),
        (112, "BatchTooLargeError"),
        (203, "UnavailableError"),
        (299, "UnavailableError"),
        (300, "CorruptError"),
        (400, "SystemCallError"),
        (500, "InternalError"),
        (999, "PagedKVError"),
    ],
)
def test_families_of_errors(status: int, family: str) -> None:
    from pagedkv.errors import error_of

    error = error_of(status, "why")
    assert type(error).__name__ == family
    assert isinstance(error, pagedkv.PagedKVError)
    assert int(error.status) == status
    assert str(error).startswith("why (")


def test_an_error_has_the_librarys_sentence(cache: pagedkv.Cache) -> None:
    session = cache.open_session()
    fill(cache, session, 7 * 16)
    with (
        cache.open_session() as other,
        pytest.raises(pagedkv.OutOfBlocksError, match=r"\d.*\(OUT_OF_BLOCKS\)") as raised,
    ):
        cache.begin([other], [17])
    session.close()
    assert raised.value.status == pagedkv.Status.OUT_OF_BLOCKS
    assert raised.value.blocks_short == 1
    assert (raised.value.group, raised.value.index) == (0, None)


def test_an_error_names_the_entry_of_the_list(cache: pagedkv.Cache) -> None:
    with cache.open_session() as one, cache.open_session() as two:
        two.suspend()
        with pytest.raises(pagedkv.UnavailableError, match="SUSPENDED") as raised:
            cache.begin([one, two], [1, 1])
    assert (raised.value.index, raised.value.group) == (1, None)


def test_the_gil_is_released() -> None:
    """A thread continues to count while another one is in a long call."""
    config = small(query_heads=8, kv_heads=8, key_dim=128, blocks=256, threads=1)
    with pagedkv.Cache(config) as cache:
        session = cache.open_session()
        n = 4096
        rows = np.zeros((n, 8, 128), np.float32)
        batch = cache.begin([session], [n])
        batch.write(0, rows, rows)
        stamps: list[float] = []
        stop = threading.Event()

        def count() -> None:
            while not stop.wait(0.001):
                stamps.append(time.perf_counter())

        counter = threading.Thread(target=count)
        counter.start()
        begin = time.perf_counter()
        batch.attend(0, rows)
        end = time.perf_counter()
        stop.set()
        counter.join()
        batch.abort()
    # If a call held the interpreter, no thread could count during the call.
    seconds = end - begin
    inside = [stamp for stamp in stamps if 0.1 < (stamp - begin) / seconds < 0.9]
    assert len(inside) > 3, f"{len(inside)} of {len(stamps)} stamps in a call of {seconds:.3f} s"


def test_sessions_of_many_threads(cache: pagedkv.Cache) -> None:
    def work() -> None:
        for n in range(1, 16):
            with cache.open_session() as session:
                fill(cache, session, n)
                assert session.tokens().tolist() == list(range(n))

    together([work] * 4)
    cache.validate()


def test_the_logger_gets_levels_and_text() -> None:
    """Whether the library logs anything depends on the system, so the test calls the hook
    itself."""
    lines: list[tuple[pagedkv.LogLevel, str]] = []
    config = pagedkv.CacheConfig(**MODEL, logger=lambda level, line: lines.append((level, line)))
    with pagedkv.Cache(config) as cache:
        lines.clear()
        struct = config.build()
        gc.collect()
        logger = _raw.Logger.from_address(struct.logger)
        hook = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
        hook(logger.log)(logger.user, 2, b"one line")
        assert lines == [(pagedkv.LogLevel.INFO, "one line")]
        cache.validate()


def test_reports(cache: pagedkv.Cache) -> None:
    assert cache.info().storage == pagedkv.Storage.INTERNAL
    assert isinstance(cache.info().isa, pagedkv.Isa)
    assert cache.pool_stats().blocks == cache.pool_stats(0).blocks == 8
    assert "pagedkv" in cache.metrics()
    assert pagedkv.library_version() >= pagedkv.__version__
    with pytest.raises(pagedkv.MisuseError, match="OUT_OF_RANGE"):
        cache.pool_stats(1)


def test_sessions_in_full(cache: pagedkv.Cache) -> None:
    with cache.open_session() as session:
        session.reserve(40)
        assert session.info().blocks == 3
        rows = np.arange(3 * 16, dtype=np.float32).reshape(3, 1, 16)
        with cache.begin([session], [3]) as batch:
            for layer in range(2):
                batch.write(layer, rows, rows + 1)
            batch.commit()
        with cache.begin([session], [1]) as batch:
            batch.write(0, rows[:1], rows[:1])
            assert session.length == 3
            assert (session.read(0, 3, 1)[0] == rows[:1]).all()
            with pytest.raises(pagedkv.MisuseError, match="OUT_OF_RANGE"):
                session.read(1, 3, 1)
            batch.write(1, rows[:1], rows[:1])
            batch.commit()
        assert len(session) == 4
        assert session.tokens().tolist() == [pagedkv.UNKNOWN_TOKEN] * 4
        session.set_tokens(1, [7, 8])
        assert session.tokens(1, 2).tolist() == [7, 8]
        # It would need 4 TiB of memory.
        with pytest.raises(pagedkv.MisuseError, match=r"has 4.*\(OUT_OF_RANGE\)"):
            session.tokens(1, 2**40)
        half, room = np.empty((3, 16), np.float16), np.empty((3, 1, 16), np.float32)
        k, v = session.read(1, 1, 3, half, room)
        np.testing.assert_array_equal(v[:2, 0], rows[1:, 0] + 1)
        np.testing.assert_array_equal(k, np.concatenate([rows[1:, 0], rows[:1, 0]]))
        session.set_priority(-5)
        assert session.info().priority == -5


def test_batches_in_full(cache: pagedkv.Cache) -> None:
    with cache.open_session() as one, cache.open_session() as two:
        fill(cache, one, 20)
        with one.fork() as fork, cache.begin([fork, two], [2, 3]) as batch:
            assert batch.rows == 5
            copies = batch.block_copies()
            assert copies.tolist() == [[one.block_table()[1], fork.block_table()[1]]]
            slots = batch.slot_mapping()
            assert slots[0] == fork.block_table()[1] * 16 + 4
            indptr, indices, last = batch.kv_indices()
            assert indptr.tolist() == [0, 2, 3]
            assert indices.tolist() == [*fork.block_table(), *two.block_table()]
            assert last.tolist() == [6, 3]
            assert {array.dtype for array in (indptr, indices, last)} == {np.dtype(np.int32)}
            by_slot = batch.kv_indices(unit=pagedkv.IndexUnit.SLOTS)
            assert by_slot.indptr.tolist() == [0, 22, 25]
            rows = np.zeros((5, 1, 16), np.float32)
            for layer in range(2):
                batch.write(layer, rows, rows)
            mask = pagedkv.BitMask(np.array([[1], [2], [1], [3], [5]], np.uint64))
            params = pagedkv.AttentionParams(mask=mask)
            batch.attend(0, np.zeros((5, 2, 16), np.float32), params=params)
            batch.accept(1, [0, 2])
            batch.commit([1, 2, 3, 4, 5])
            assert fork.length == 22
            assert two.tokens().tolist() == [3, 5]


def test_a_pool_alone() -> None:
    with pagedkv.Pool(4) as pool:
        blocks = pool.alloc(3)
        assert blocks.tolist() == [0, 1, 2]
        pool.retain(blocks[:1])
        assert (pool.stats().references, pool.stats().shared_blocks) == (4, 1)
        with pytest.raises(pagedkv.OutOfBlocksError, match="OUT_OF_BLOCKS"):
            pool.alloc(2)
        pool.release(blocks)
        pool.release([0])
        with pytest.raises(pagedkv.MisuseError, match="NOT_HELD"):
            pool.release(blocks)
        assert pool.stats().free_blocks == 4
        pool.validate()


def test_objects_show_what_they_are(cache: pagedkv.Cache) -> None:
    session = cache.open_session()
    fill(cache, session, 20)
    assert repr(session) == "<Session: 20 tokens in 2 blocks>"
    info = cache.info()
    threads = "1 thread" if info.threads == 1 else f"{info.threads} threads"
    shown = f"2 layers, 2 of 8 blocks of 16 tokens held, 1 session, {info.isa.name}, {threads}"
    assert repr(cache) == f"<Cache: {shown}>"
    with cache.begin([session], [1]) as batch:
        assert repr(batch) == "<Batch: 1 row of 1 session>"
    assert repr(batch) == "<Batch, closed>"
    with session.snapshot() as snapshot:
        assert repr(snapshot) == "<Snapshot: 20 tokens>"
    session.suspend()
    assert repr(session) == "<Session: 0 tokens in 0 blocks, suspended>"
    view = cache.kv_view(0)
    assert repr(view) == (
        "<KVView: 8 blocks of 16 tokens, 1 KV head of 16 and 16 dims, F32, PACKED>"
    )
    with pagedkv.Pool(8) as pool, pagedkv.Compute(1, "scalar") as compute:
        assert repr(pool) == "<Pool: 0 of 8 blocks held>"
        assert repr(compute) == "<Compute: 1 thread, SCALAR>"
    assert repr(pagedkv.library()).startswith(f"<libpagedkv {pagedkv.__version__}: ")
    cache.close()
    assert repr(cache) == "<Cache, closed>"
    assert repr(session) == "<Session: STALE_HANDLE>"


def test_configs_show_what_was_given() -> None:
    config = pagedkv.CacheConfig(
        groups=[pagedkv.LayerGroup(2, 4, 2, 32, dtype="f16", blocks=8)],
        prefix=pagedkv.PrefixConfig(max_events=3),
        store=pagedkv.StoreConfig(pagedkv.DirectoryStore("/d"), secret_key=b"secret of 16 byte"),
    )
    expected = (
        "CacheConfig(groups=[LayerGroup(layers=2, query_heads=4, kv_heads=2, key_dim=32, "
        "dtype=Dtype.F16, blocks=8)], prefix=PrefixConfig(max_events=3), "
        "store=StoreConfig(store=DirectoryStore(path='/d')))"
    )
    assert repr(config) == expected
    assert repr(pagedkv.RedisStore("redis://:secret@host", password="secret")) == "RedisStore()"
    params = pagedkv.AttentionParams(window=3, mask=pagedkv.TreeMask(np.zeros(3, np.int32)))
    assert repr(params) == "AttentionParams(window=3, mask=TreeMask(parents=<array int32 [3]>))"
