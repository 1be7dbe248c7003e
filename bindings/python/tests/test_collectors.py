"""Objects that Python collects when they cannot be closed: in hooks, while other threads use them,
at the end of Python, in forked children. The library's next call closes them, and nothing is lost.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import pathlib
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import collectors
import helpers
import numpy as np
import pytest
import test_elsewhere
from helpers import MemoryStore, SlowStore
from test_files import extend, make
from test_store import LONG, TEXT, leave, with_store

import pagedkv
from pagedkv import _waiting
from pagedkv.generated import raw as _raw

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
HERE = pathlib.Path(__file__).parent


@pytest.fixture(autouse=True, scope="module")
def _what_others_left_is_not_looked_at() -> Iterator[None]:
    """Each collection would look at all that pytest and other tests have imported."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _only_we_collect() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Collecting(MemoryStore):
    """A store that drops its garbage and collects it in one of its methods."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where
        self.rubbish: list[Any] = []
        self.collected = 0

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name in ("put", "get", "touch", "remove", "close") and name == self.where:
            self.rubbish.clear()
            self.collected += gc.collect()
        return found


def cycle(thing: Any) -> list[Any]:
    """Makes a reference cycle, which only the collector frees."""
    knot = [thing]
    knot.append(knot)
    return knot


def closed(handle: int, getter: Any, record: Any) -> bool:
    struct = record(struct_size=ctypes.sizeof(record))
    return bool(getter(handle, ctypes.byref(struct)) == pagedkv.Status.STALE_HANDLE)


def empty(cache: pagedkv.Cache) -> None:
    stats = cache.stats()
    assert (stats.sessions, stats.snapshots, stats.batches) == (0, 0, 0)
    assert cache.pool_stats().held_blocks == 0
    assert _waiting.waiting == {}
    cache.validate()


def rubbish_of_each_kind(cache: pagedkv.Cache) -> tuple[list[Any], list[Any]]:
    """Cycles with one object of each kind, and functions that return true once it is closed."""
    session, batched = cache.open_session(), cache.open_session()
    extend(cache, session, TEXT)
    pool, other, store = pagedkv.Pool(8), make(), MemoryStore()
    stored = with_store(store)
    things = [
        session,
        session.snapshot(),
        cache.begin([batched], [20]),
        pool,
        other.kv_view(0),
        other.open_session(),
        stored,
    ]
    library = pagedkv.library()
    p, o, s = pool.handle, other.handle, stored.handle
    questions = [
        lambda: closed(p, library.pool_get_stats, _raw.PoolStats),
        lambda: closed(o, library.cache_get_stats, _raw.CacheStats),
        lambda: closed(s, library.cache_get_stats, _raw.CacheStats),
        lambda: store.closed == 1,
    ]
    return [cycle(thing) for thing in things], questions


@pytest.mark.parametrize("where", ["put", "get", "touch", "remove", "close"])
def test_what_is_collected_in_a_hook_is_closed_by_the_next_call(where: str) -> None:
    store = Collecting(where)
    with make() as watched:
        store.rubbish, questions = rubbish_of_each_kind(watched)
        with with_store(store) as cache:
            leave(cache)
            if where == "remove":
                store.values = {key: value[:-1] + b"?" for key, value in store.values.items()}
            cache.hint("prefetch", TEXT)
            cache.wait_for_prefetch(TEXT, timeout_ms=LONG)
            cache.validate()
        assert store.collected > 0
        empty(watched)
        assert [question() for question in questions] == [True] * len(questions)


def test_what_is_collected_in_a_finalizer_is_closed() -> None:
    class Dying:
        def __del__(self) -> None:
            self.things.clear()
            gc.collect()

        things: list[Any]

    with make() as watched:
        for end in (Dying.__del__, None):
            rubbish, questions = rubbish_of_each_kind(watched)
            dying = Dying()
            dying.things = rubbish
            if end is None:
                dying.things = []
                weakref.finalize(dying, rubbish.clear)
            del dying, rubbish
            gc.collect()
            empty(watched)
            assert [question() for question in questions] == [True] * len(questions)


def test_a_session_that_is_collected_before_its_batch() -> None:
    with make() as cache:
        session = cache.open_session()
        knot = cycle([session, cache.begin([session], [20])])
        del session, knot
        gc.collect()
        empty(cache)


@contextlib.contextmanager
def used_by_another_thread() -> Iterator[list[Any]]:
    """A cache and a session that another thread uses by their handles until the `with` block
    ends."""
    store = SlowStore()
    cache = with_store(store, wait_ms=LONG)
    leave(cache)
    session = cache.open_session()
    ids, matched = (ctypes.c_int32 * len(TEXT))(*TEXT), ctypes.c_uint64()
    arguments = (session.handle, len(TEXT), ids, 0, ctypes.byref(matched))
    thread = threading.Thread(target=pagedkv.library().session_admit, args=arguments)
    thread.start()
    things = [cache, session]
    del cache, session
    try:
        assert store.asked.wait(60)
        yield things
    finally:
        store.answer.set()
        thread.join()
    assert matched.value == 32


def test_what_another_thread_uses_is_closed_by_a_later_call() -> None:
    with used_by_another_thread() as things:
        cache = things[0]
        with pytest.raises(pagedkv.UnavailableError, match="BUSY"):
            things[1].close()
        assert not things[1].closed
        things.clear()
        gc.collect()  # the error referred to the session
        assert cache.stats().sessions == 1
        assert len(_waiting.waiting) == 1
    assert cache.stats().sessions == 0
    assert _waiting.waiting == {}
    cache.validate()
    cache.close()


def test_a_cache_that_another_thread_uses_is_closed_by_a_later_call() -> None:
    with used_by_another_thread() as things:
        handle = things[0].handle
        things.clear()
        gc.collect()
        assert not closed(handle, pagedkv.library().cache_get_stats, _raw.CacheStats)
    assert closed(handle, pagedkv.library().cache_get_stats, _raw.CacheStats)
    assert _waiting.waiting == {}


def test_a_sentence_is_that_of_the_call_that_failed() -> None:
    """Waiting objects are closed before a call, never between the call and reading its error
    sentence.
    """
    with used_by_another_thread() as things:
        cache = things[0]
        things.clear()
        with pytest.raises(pagedkv.MisuseError, match="TOO_LARGE") as raised:
            cache.begin([cache.open_session()], [1000])
        assert "another call" not in str(raised.value)
    cache.close()


# ---- Blocks of the engine


class Copied(MemoryStore):
    """A store that says whether it has both groups of both whole blocks of an engine."""

    def close(self) -> None:
        super().close()
        rows = [row.tobytes() for row in np.array(TEXT[:32], np.uint64).reshape(2, -1)]
        print(sum(row in value for value in self.values.values() for row in rows), "are written")


class SlowEngine(test_elsewhere.Engine):
    """Copies no block to its store until `answer` is set, and collects then. It has its cache, so
    that hooks and cache refer to each other.
    """

    def __init__(self, store: pagedkv.Store | pagedkv.DirectoryStore) -> None:
        super().__init__()
        self.asked, self.answer = threading.Event(), threading.Event()
        self.cache = test_elsewhere.make(self, store=pagedkv.StoreConfig(store))
        with self.cache.open_session() as session:
            self.step(self.cache, session, TEXT)
        assert self.asked.wait(60)

    def read(self, group: int, blocks: Any, tokens: Any, to: Any) -> None:
        self.asked.set()
        assert self.answer.wait(60)
        gc.collect()
        super().read(group, blocks, tokens, to)


def test_an_engine_that_is_forgotten_while_its_blocks_are_copied(
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = Copied()
    engine = SlowEngine(store)
    forgotten, answer = weakref.ref(engine), engine.answer
    del engine
    gc.collect()
    assert forgotten() is not None  # its hook runs
    answer.set()
    while _waiting.waiting == {}:
        gc.collect()
    pagedkv.library_version()
    assert store.closed == 1
    assert capsys.readouterr().out == "4 are written\n"
    gc.collect()
    assert forgotten() is None


def test_closing_waits_for_a_copy_in_progress(capsys: pytest.CaptureFixture[str]) -> None:
    engine = SlowEngine(Copied())
    closing = threading.Thread(target=engine.cache.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    engine.answer.set()
    closing.join()
    assert engine.cache.closed
    assert capsys.readouterr().out == "4 are written\n"


# ---- Views


def attend(view: pagedkv.KVView, tokens: int) -> Any:
    q = np.zeros((tokens, 2, 16), np.float32)
    table = np.arange(-(-tokens // 16), dtype=np.uint32).reshape(1, -1)
    return pagedkv.kv_attend(view, q, [tokens], [tokens], table, 2)


def test_a_view_keeps_its_cache() -> None:
    cache = make()
    extend(cache, cache.open_session(), TEXT)
    view = cache.kv_view(0)
    expected = attend(view, 40)
    del cache
    gc.collect()
    np.testing.assert_array_equal(attend(view, 40), expected)


def test_the_view_of_a_closed_cache_is_refused() -> None:
    cache = make()
    view = cache.kv_view(0)
    with view._reading(), pytest.raises(pagedkv.UnavailableError, match=r"1 place.*\(BUSY\)"):
        cache.close()
    assert attend(view, 40).shape == (40, 2, 16)
    cache.close()
    with pytest.raises(pagedkv.MisuseError, match=r"was closed.*\(STALE_HANDLE\)"):
        attend(view, 40)


def test_views_race_with_close() -> None:
    for _ in range(20):
        cache = make(blocks=64)
        view, started = cache.kv_view(0), threading.Barrier(3)
        refusals: list[Any] = []

        def work(
            view: pagedkv.KVView = view, started: Any = started, refusals: Any = refusals
        ) -> None:
            started.wait()
            try:
                while True:
                    attend(view, 500)
            except (pagedkv.MisuseError, pagedkv.UnavailableError) as error:
                refusals.append(error.status)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        started.wait()
        while not cache.closed:
            try:
                cache.close()
            except pagedkv.UnavailableError as error:
                assert error.status == pagedkv.Status.BUSY
        for thread in threads:
            thread.join()
        assert set(refusals) <= {pagedkv.Status.STALE_HANDLE, pagedkv.Status.BUSY}


# ---- Processes: a failure here would end Python


def run(code: str) -> str:
    head = "import gc, os, sys, threading, warnings\nwarnings.simplefilter('ignore')\n"
    head += "import pagedkv, test_collectors, test_elsewhere, test_store\n"
    head += "from test_collectors import *\n"
    result = helpers.run(sys.executable, "-c", head + code, cwd=HERE, timeout=120)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_a_cache_that_is_collected_in_a_hook_of_its_own_store() -> None:
    """The functions that C calls then, and later, exist until the cache is closed."""
    assert run(
        """
gc.disable()
for where in ("put", "get", "touch"):
    entered = threading.Event()
    class Own(test_store.MemoryStore):
        def hook(self, name):
            if name == where and not entered.is_set():
                rubbish.clear()
                gc.collect()
                entered.set()
        def put(self, items):
            self.hook("put")
            super().put(items)
        def get(self, keys):
            self.hook("get")
            return super().get(keys)
        def touch(self, keys):
            self.hook("touch")
            return super().touch(keys)
    store, rubbish = Own(), []
    cache = test_store.with_store(store)
    if where != "put":
        test_store.leave(cache)
        entered.clear()
    session = cache.open_session()
    rubbish.append(cycle(cache))
    if where == "put":
        test_store.extend(cache, session, test_store.TEXT)
    else:
        cache.hint("prefetch", test_store.TEXT)
    del session, cache
    assert entered.wait(60)
    pagedkv.library_version()
    while store.closed == 0:                     # another call of the store may be in progress
        pagedkv.library_version()
    assert test_collectors._waiting.waiting == {}
    print(where, store.closed)
"""
    ).split() == ["put", "1", "get", "1", "touch", "1"]


def test_objects_of_every_kind_that_are_there_when_python_ends() -> None:
    assert (
        run(
            """
watched = test_collectors.make(logger=lambda level, sentence: None, clock=lambda: 0)
kept = test_collectors.rubbish_of_each_kind(watched)[0]
lost = test_collectors.rubbish_of_each_kind(watched)[0]
del lost
store = test_store.MemoryStore()
store.close = lambda: print("closed")
cycle(test_store.with_store(store))              # never collected: that comes after the end
threading.current_thread().kept = kept
print("end")
"""
        )
        == "end\nclosed\n"
    )


def test_copies_in_progress_when_the_cache_is_collected_or_python_ends(
    tmp_path: pathlib.Path,
) -> None:
    """One cache is collected in a hook of its own engine; another one is there at the end."""
    assert (
        run(
            f"""
gc.disable()
ready = threading.Event()
class Own(test_elsewhere.Engine):
    def read(self, *arguments):
        assert ready.wait(60)
        rubbish.clear()
        gc.collect()
        super().read(*arguments)
engine, rubbish = Own(), []
cache = test_elsewhere.make(engine, store=pagedkv.StoreConfig(Copied()))
with cache.open_session() as session:
    engine.step(cache, session, TEXT)
rubbish.append(cycle(cache))
handle = cache.handle
del cache, session
ready.set()
while not closed(handle, pagedkv.library().cache_get_stats, test_collectors._raw.CacheStats):
    pass                                         # the hook may not have begun
assert test_collectors._waiting.waiting == {{}}

other = SlowEngine(pagedkv.DirectoryStore({str(tmp_path)!r} + "/store"))
threading.Timer(0.1, other.answer.set).start()
print("end")
"""
        )
        == "4 are written\nend\n"
    )
    assert len(list(tmp_path.rglob("*.kv"))) == 4


def test_a_cache_that_a_daemon_thread_uses_when_python_ends() -> None:
    """A cache that a daemon thread uses cannot be closed. Python still ends, and what C might call
    is not freed before."""
    run(
        """
import pagedkv._exit
pagedkv._exit.PATIENCE = 0.1
store = SlowStore()
cache = test_store.with_store(store, wait_ms=test_store.LONG)
test_store.leave(cache)
session = cache.open_session()
threading.Thread(target=session.admit, args=(test_store.TEXT,), daemon=True).start()
assert store.asked.wait(60)
"""
    )


@helpers.needs_fork
@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit()"])
def test_children_close_what_they_inherit(end: str) -> None:
    assert (
        run(
            f"""
gc.disable()
watched = make()
rubbish, questions = rubbish_of_each_kind(watched)
store = test_store.MemoryStore()
stored = test_store.with_store(store)
use = used_by_another_thread()
things = use.__enter__()
cache = things.pop(0)
things.clear()                                   # the session waits in the parent, and in the child
assert len(test_collectors._waiting.waiting) == 1
sys.stdout.flush()
child = os.fork()
if child == 0:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(use))  # it would wait for the parent's thread
    rubbish.clear()
    gc.collect()
    pagedkv.library_version()
    assert test_collectors._waiting.waiting == {{}}
    stored.close()
    cache.close()
    with make() as own:
        extend(own, own.open_session(), TEXT)
        own.validate()
    {end}
assert os.waitpid(child, 0)[1] == 0
use.__exit__(None, None, None)
rubbish.clear()
gc.collect()
empty(watched)
assert all(question() for question in questions) and store.closed == 0
stored.close()
print("parent", store.closed)
"""
        )
        == "parent 1\n"
    )


def test_the_collector_runs_anywhere_in_close_waiting() -> None:
    def refuse() -> None:
        raise pagedkv.UnavailableError(pagedkv.Status.BUSY, "it is used")

    class Dying:
        def __del__(self) -> None:
            for handle in (3, 4):
                _waiting.waiting.pop(handle)

    threshold = gc.get_threshold()
    try:
        for allocations in range(30):
            for handle in range(5):
                _waiting.waiting[handle] = _waiting.Ending(refuse)
            cycle(Dying())
            count = gc.get_count()[0]
            gc.set_threshold(count + allocations)
            gc.enable()
            _waiting.close_waiting()
            gc.disable()
            gc.collect()
            assert list(_waiting.waiting) == [0, 1, 2]
    finally:
        gc.set_threshold(*threshold)
        _waiting.waiting.clear()


def test_many_threads_that_forget_everything() -> None:
    gc.enable()
    collectors.storm(rounds=3)
