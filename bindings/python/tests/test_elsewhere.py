"""Layer groups whose blocks only the engine can read: hooks in Python."""

from __future__ import annotations

import errno
import pathlib
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import MemoryStore

import pagedkv

SIZE = 16
BYTES = 8 * SIZE
LONG = 60000  # milliseconds
TEXT = list(range(1, 41))


class Engine(pagedkv.BlockIO):
    """Keeps a number for each slot of two groups, which stands for keys and values."""

    def __init__(self, blocks: int = 16) -> None:
        self.slots = np.zeros((2, blocks, SIZE), np.uint64)
        self.calls: list[tuple[str, int]] = []
        self.threads: set[int] = set()
        self.error: BaseException | None = None

    def _enter(self, name: str, blocks: Any) -> None:
        self.calls.append((name, len(blocks)))
        self.threads.add(threading.get_ident())
        if self.error is not None:
            raise self.error

    def read(self, group: int, blocks: Any, tokens: Any, to: Any) -> None:
        self._enter("read", blocks)
        assert not to.any()
        for row, block, count in zip(to.view(np.uint64), blocks, tokens, strict=True):
            row[:count] = self.slots[group, block, :count]

    def write(self, group: int, blocks: Any, source: Any) -> None:
        self._enter("write", blocks)
        self.slots[group, blocks] = source.view(np.uint64)

    def step(self, cache: pagedkv.Cache, session: pagedkv.Session, tokens: list[int]) -> None:
        with cache.begin([session], [len(tokens)]) as batch:
            for group in range(2):
                for before, after in batch.block_copies(group):
                    self.slots[group, after] = self.slots[group, before]
                self.slots[group].reshape(-1)[batch.slot_mapping(group)] = tokens
            batch.commit(tokens)

    def check(self, session: pagedkv.Session, tokens: list[int]) -> None:
        assert session.length == len(tokens)
        for group in range(2):
            table = session.block_table(group)
            held = self.slots[group, table].reshape(-1)[: len(tokens)]
            assert held.tolist() == tokens


def make(engine: Engine, **more: Any) -> pagedkv.Cache:
    blocks = len(engine.slots[0])
    group = pagedkv.LayerGroup(layers=1, kind="opaque_kv", layer_bytes=BYTES, blocks=blocks)
    return pagedkv.Cache(
        pagedkv.CacheConfig(
            groups=[group] * 2,
            storage="external",
            prefix=pagedkv.PrefixConfig(),
            block_io=engine,
            **more,
        )
    )


def leave(cache: pagedkv.Cache, engine: Engine) -> None:
    with cache.open_session() as session:
        engine.step(cache, session, TEXT)
    assert cache.flush_store(timeout_ms=LONG) == 0
    cache.prefix_clear(all_salts=True)


def check_blocks_come_back(store: pagedkv.StoreConfig) -> None:
    engine = Engine()
    with make(engine, store=store) as cache:
        leave(cache, engine)
        engine.slots[:] = 0
        with cache.open_session() as session:
            assert session.admit(TEXT) == 32
            engine.step(cache, session, TEXT[32:])
            engine.check(session, TEXT)
        assert cache.stats().block_io_failures == cache.stats().block_io_blocks == 0
    assert {name for name, _ in engine.calls} == {"read", "write"}
    assert threading.get_ident() not in engine.threads


def test_blocks_go_to_a_store_and_come_back() -> None:
    check_blocks_come_back(pagedkv.StoreConfig(MemoryStore(), wait_ms=LONG))


def test_blocks_go_to_a_file_and_come_back(tmp_path: pathlib.Path) -> None:
    engine, other = Engine(), Engine(9)
    with make(engine) as cache, make(other) as loading, cache.open_session() as session:
        engine.step(cache, session, TEXT)
        pagedkv.save(cache, [session], tmp_path / "file")
        assert engine.calls == [("read", 3)] * 2
        (loaded,) = pagedkv.load(loading, tmp_path / "file")
        with loaded:
            other.check(loaded, TEXT)
    assert other.calls == [("write", 3)] * 2
    assert engine.threads == {threading.get_ident()}


@pytest.mark.parametrize(
    ("error", "number"),
    [
        (OSError(errno.ENOSPC, "full"), errno.ENOSPC),
        (OSError("device lost", "there is no number"), errno.EIO),
        (KeyError("a bug"), errno.EIO),
    ],
)
def test_an_exception_is_an_io_error(
    tmp_path: pathlib.Path, error: Exception, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine()
    with make(engine) as cache, cache.open_session() as session:
        engine.step(cache, session, TEXT)
        engine.error = error
        with pytest.raises(pagedkv.SystemCallError, match="block_io: read of 3 blocks") as failed:
            pagedkv.save(cache, [session], tmp_path / "file")
        assert failed.value.system_error == number
        assert failed.value.__cause__ is error
        assert not (tmp_path / "file").exists()
        assert ("a block_io failed" in caplog.text) == isinstance(error, KeyError)


@pytest.mark.parametrize("error", [OSError(errno.EIO, "gone"), SystemExit(3)])
def test_an_error_of_a_store_thread_is_a_miss(error: BaseException) -> None:
    engine, lines = Engine(), []
    store = pagedkv.StoreConfig(MemoryStore())
    with make(engine, store=store, logger=lambda _, line: lines.append(line)) as cache:
        engine.error = error
        leave(cache, engine)
        assert cache.stats().block_io_failures == 1
        assert any("block_io: read of" in line for line in lines)
        engine.error = None
        leave(cache, engine)
        assert cache.stats().block_io_failures == 1


@pytest.mark.parametrize("ends", [KeyboardInterrupt(), SystemExit(3)])
def test_a_hook_can_end_the_program(tmp_path: pathlib.Path, ends: BaseException) -> None:
    engine = Engine()
    with make(engine) as cache, cache.open_session() as session:
        engine.step(cache, session, TEXT)
        pagedkv.save(cache, [session], tmp_path / "file")
        engine.error = ends
        with pytest.raises(type(ends)) as raised:
            pagedkv.save(cache, [session], tmp_path / "other")
        assert raised.value is ends
        assert not (tmp_path / "other").exists()
        with pytest.raises(type(ends)):
            pagedkv.load(cache, tmp_path / "file")
        assert cache.stats().sessions == 1


def test_no_hook_may_call_the_library(tmp_path: pathlib.Path) -> None:
    engine = Engine()
    with make(engine) as cache, cache.open_session() as session:
        engine.step(cache, session, TEXT)
        answers: list[str] = []

        def ask(*_: Any) -> None:
            with pytest.raises(pagedkv.PagedKVError) as refused:
                cache.stats()
            answers.append(pagedkv.Status(refused.value.status).name)

        read: Callable[..., None] = ask
        engine.read = read  # type: ignore[method-assign]
        pagedkv.save(cache, [session], tmp_path / "file")
        assert answers == ["REENTRANT"] * 2


def test_a_class_is_no_block_io() -> None:
    group = pagedkv.LayerGroup(layers=1, kind="opaque_kv", layer_bytes=BYTES, blocks=4)
    wrong: Any = Engine
    config = pagedkv.CacheConfig(groups=[group], storage="external", block_io=wrong)
    with pytest.raises(pagedkv.MisuseError, match="a BlockIO is needed, this is <class"):
        pagedkv.Cache(config)
