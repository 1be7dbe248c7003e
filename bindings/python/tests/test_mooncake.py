"""Stores in Mooncake: a real master on a loopback port, and clients in processes of their own."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import test_elsewhere
from helpers import free_port, listens, needs_fork, output, until
from test_files import extend, make
from test_package import run
from test_store import LONG, TEXT, WHOLE_BLOCKS, check_text, leave, with_store

import pagedkv
from pagedkv.generated import raw as _raw
from pagedkv.mooncake import _Client

HERE = pathlib.Path(__file__).parent
FOUND = importlib.util.find_spec("mooncake")
SEGMENT = 32 << 20
# Seconds after which the master forgets a client that is silent.
CLIENT_TTL = 3

needs_mooncake = pytest.mark.skipif(
    FOUND is None, reason="mooncake is not installed here: bash tests/install-hosts build/hosts"
)


class Master:
    def __init__(self, folder: pathlib.Path) -> None:
        assert FOUND is not None
        assert FOUND.submodule_search_locations is not None
        self.port, self.folder = free_port(), folder
        self.program = pathlib.Path(FOUND.submodule_search_locations[0]) / "mooncake_master"
        self.start()

    def start(self) -> None:
        options = {
            "rpc_address": "127.0.0.1",
            "rpc_port": self.port,
            "metrics_host": "127.0.0.1",
            "metrics_port": free_port(),
            "client_ttl": CLIENT_TTL,
        }
        with (self.folder / "master.log").open("ab") as log:
            words = [f"--{name}={value}" for name, value in options.items()]
            self.process = subprocess.Popen([self.program, *words], stdout=log, stderr=log)
        until(self.listens)

    def listens(self) -> bool:
        assert self.process.poll() is None, (self.folder / "master.log").read_text()
        return listens(self.port)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def store(self, **options: Any) -> pagedkv.MooncakeStore:
        return pagedkv.MooncakeStore(f"127.0.0.1:{self.port}", **options)


@pytest.fixture
def master(tmp_path: pathlib.Path) -> Iterator[Master]:
    master = Master(tmp_path)
    yield master
    master.kill()


@contextlib.contextmanager
def process(code: str) -> Iterator[subprocess.Popen[str]]:
    """Another Python process that runs the code, prints a line, and then waits."""
    begin = "import pagedkv, test_store\n"
    words = [sys.executable, "-c", begin + code + "\nprint('done', flush=True)\ninput()"]
    streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, cwd=HERE, **streams) as other:
        assert other.stdout is not None
        try:
            assert other.stdout.readline() == "done\n"
            yield other
        finally:
            other.kill()


def compute_elsewhere(store: pagedkv.MooncakeStore) -> Any:
    return process(
        f"cache = test_store.with_store(pagedkv.{store!r})\n"
        "test_store.leave(cache)\n"
        "assert cache.store_stats().written_items == 2, cache.store_stats()"
    )


def found(cache: pagedkv.Cache) -> int:
    cache.prefix_clear(all_salts=True)
    cache.hint("prefetch", TEXT)
    return cache.wait_for_prefetch(TEXT, timeout_ms=LONG)


def until_it_stores(cache: pagedkv.Cache) -> None:
    def stores() -> bool:
        leave(cache)
        return found(cache) == WHOLE_BLOCKS

    until(stores)


@needs_mooncake
@pytest.mark.parametrize("lender", ["reader", "writer"])
def test_what_one_process_computed_another_finds(master: Master, lender: str) -> None:
    """Bytes go over the network to or from the memory of the process that lends it."""
    lends, borrows = master.store(segment_bytes=SEGMENT), master.store()
    here, there = (lends, borrows) if lender == "reader" else (borrows, lends)
    with with_store(here) as cache, compute_elsewhere(there):
        assert found(cache) == WHOLE_BLOCKS
        check_text(cache)
        stats = cache.store_stats()
        assert (stats.read_items, stats.corrupt_items, stats.failures, stats.down) == (2, 0, 0, 0)


@needs_mooncake
@pytest.mark.parametrize(
    "options",
    [{"secret_key": bytes(range(16))}, {"buffer_bytes": 1}, {}],
    ids=["secret_key", "block by block", "replicas"],
)
def test_a_text_comes_back_after_its_memory_was_cleared(
    master: Master, options: dict[str, Any]
) -> None:
    store = master.store(segment_bytes=SEGMENT, replicas=1 if options else 3)
    with with_store(store, **options) as cache:
        leave(cache)
        assert found(cache) == WHOLE_BLOCKS
        check_text(cache)
        leave(cache)
        assert cache.store_stats().known_items > 0
        cache.validate()


@needs_mooncake
def test_blocks_that_only_an_engine_can_read_come_back(master: Master) -> None:
    store = master.store(segment_bytes=SEGMENT)
    config = pagedkv.StoreConfig(store, wait_ms=LONG)
    test_elsewhere.check_blocks_come_back(config)


@needs_mooncake
def test_an_item_that_is_larger_than_its_room_tells_its_size(master: Master) -> None:
    """No cache asks like this, but a store must answer."""
    memory = ctypes.create_string_buffer(b"0123456789" * 4, 40)
    items: Any = (_raw.StoreItem * 2)()
    for item, letter in zip(items, (b"a", b"b"), strict=True):
        item.name[:] = letter * 32
        item.data, item.size = ctypes.addressof(memory), 40
    client = _Client(master.store(segment_bytes=SEGMENT))
    assert (client.put(items), client.put(items), client.put([])) == (2, 2, 0)
    items[0].size = 10
    assert client.get(items) == 2
    assert [item.size for item in items] == [40, 40]
    assert (client.remove(items), client.touch(items), client.get(items)) == (2, 0, 0)
    assert [item.size for item in items] == [0, 0]
    client.close()


class Liar:
    """A Mooncake client that reports more bytes than there was room for."""

    def register_buffer(self, _address: int, _size: int) -> int:
        return 0

    def batch_get_into(
        self, names: list[str], _addresses: list[int], rooms: list[int]
    ) -> list[int]:
        return [room + 1000 for room in rooms[: len(names)]]


class Refuser(Liar):
    """A Mooncake client that stores every other item."""

    def batch_put_from(self, names: list[str], *_: Any) -> list[int]:
        return [0 if i % 2 else -200 for i in range(len(names))]


def test_put_says_which_items_it_did_not_store() -> None:
    client = _Client(pagedkv.MooncakeStore())
    client._client = Refuser()
    memory = (ctypes.c_ubyte * 40)()
    items = [_raw.StoreItem(data=ctypes.addressof(memory), size=40) for _ in range(4)]
    assert client.put(items) == 2
    assert [item.size for item in items] == [0, 40, 0, 40]


def test_no_more_is_copied_than_there_is_room_for() -> None:
    client = _Client(pagedkv.MooncakeStore())
    client._client = Liar()
    memory = (ctypes.c_ubyte * 2000)(*b"x" * 2000)
    item = _raw.StoreItem(data=ctypes.addressof(memory), size=40)
    assert client.get([item]) == 1
    assert item.size == 1040
    assert bytes(memory) == bytes(40) + b"x" * 1960


@needs_mooncake
def test_memory_that_is_lost_costs_hits_only(master: Master) -> None:
    with with_store(master.store()) as cache:
        with compute_elsewhere(master.store(segment_bytes=SEGMENT)) as lender:
            assert found(cache) == WHOLE_BLOCKS
            before = cache.store_stats()
            lender.send_signal(signal.SIGKILL)
            lender.wait()
            begin = time.monotonic()
            assert found(cache) == 0
            assert time.monotonic() - begin < 10
            lost = cache.store_stats()
        assert lost.asked_items - before.asked_items > lost.read_items - before.read_items == 0
        assert lost.failures > before.failures
        assert lost.corrupt_items == 0
        with make() as plain, plain.open_session() as computed, cache.open_session() as session:
            assert session.admit(TEXT) == 0
            extend(plain, computed, TEXT)
            extend(cache, session, TEXT)
        # After the master has noticed, the memory of other clients is enough.
        with compute_elsewhere_later(master.store(segment_bytes=SEGMENT)):
            until(lambda: found(cache) == WHOLE_BLOCKS)
            check_text(cache)


def compute_elsewhere_later(store: pagedkv.MooncakeStore) -> Any:
    """Computes until the store gives the text back."""
    return process(
        "import time, test_mooncake\n"
        f"cache = test_store.with_store(pagedkv.{store!r})\n"
        "while test_mooncake.found(cache) == 0:\n"
        "    test_store.leave(cache)\n"
        "    time.sleep(0.2)"
    )


@needs_mooncake
def test_a_master_that_dies_costs_hits_and_no_step_waits(master: Master) -> None:
    with with_store(master.store(segment_bytes=SEGMENT)) as cache:
        leave(cache)
        assert found(cache) == WHOLE_BLOCKS
        master.kill()
        longest = 0.0
        for number in range(40):
            begin = time.monotonic()
            with cache.open_session() as session:
                extend(cache, session, [100 + number, *TEXT])
            cache.hint("prefetch", TEXT)
            longest = max(longest, time.monotonic() - begin)
            time.sleep(0.05)
        # A put tries for 4 s.
        assert longest < 1.5
        until(lambda: cache.store_stats().failures > 0)
        assert found(cache) == 0
        assert cache.store_stats().corrupt_items == 0

        master.start()

        until_it_stores(cache)  # it has lost its items
        check_text(cache)
        assert cache.store_stats().down == 0
        cache.validate()


@needs_mooncake
def test_a_master_may_come_later(master: Master) -> None:
    master.kill()
    begin = time.monotonic()
    with pytest.raises(pagedkv.SystemCallError, match=r"no Mooncake master at .*111") as refused:
        with_store(master.store())
    assert refused.value.system_error == errno.ECONNREFUSED
    assert time.monotonic() - begin < 5
    with with_store(master.store(segment_bytes=SEGMENT, connect_later=True)) as cache:
        assert found(cache) == 0
        master.start()
        until_it_stores(cache)
        check_text(cache)


@needs_mooncake
@needs_fork
def test_a_forked_child_leaves_the_store_alone(master: Master) -> None:
    with with_store(master.store(segment_bytes=SEGMENT)) as cache:
        leave(cache)
        child = os.fork()
        if child == 0:
            status = 1
            with contextlib.suppress(BaseException):
                cache.close()
                status = 0
            os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert found(cache) == WHOLE_BLOCKS
        check_text(cache)


@needs_mooncake
def test_a_cache_that_is_open_when_python_ends(master: Master) -> None:
    store = master.store(segment_bytes=SEGMENT)
    with with_store(store) as cache:
        code = (
            "import pagedkv, test_store\n"
            f"cache = test_store.with_store(pagedkv.{master.store()!r})\n"
            "with cache.open_session() as session:\n"
            "    test_store.extend(cache, session, test_store.TEXT)"
        )
        output(sys.executable, "-c", code, cwd=HERE)
        assert found(cache) == WHOLE_BLOCKS


@needs_mooncake
def test_the_example_of_the_guide_finds_its_text(master: Master) -> None:
    words = [sys.executable, str(HERE.parent / "examples/mooncake_store.py")]
    words.append(f"127.0.0.1:{master.port}")
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([*words, "64"], **pipes) as lender:
        assert lender.stdout is not None
        assert lender.stdout.readline() == "0 of 1000 tokens were there\n"
        assert output(*words) == "992 of 1000 tokens were there\n"
        lender.communicate("\n", timeout=60)
        assert lender.returncode == 0


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"master": ""}, "master is empty"),
        ({"master": "127.0.0.1"}, "is not host:port"),
        ({"master": "127.0.0.1:0"}, "port from 1 to 65535"),
        ({"master": "127.0.0.1:99999"}, "port from 1 to 65535"),
        ({"master": ":50051"}, "is not host:port"),
        ({"master": None}, "master: None is not a str"),
        ({"master": "a\0b:1"}, "master: it contains a NUL"),
        ({"local_hostname": ""}, "local_hostname is empty"),
        ({"metadata_server": b"P2PHANDSHAKE"}, "is not a str"),
        ({"protocol": "udp"}, "protocol: 'udp' is none of tcp, rdma"),
        ({"key_prefix": "a\0"}, "key_prefix: it contains a NUL"),
        ({"segment_bytes": -1}, "segment_bytes: -1 is not between"),
        ({"segment_bytes": 2**64}, "segment_bytes: .* is not between"),
        ({"segment_bytes": 1000}, "segment_bytes: 1000 is not a multiple of 16 MiB"),
        ({"segment_bytes": 1.5}, "segment_bytes"),
        ({"replicas": 0}, "replicas: 0 is not between 1 and 1024"),
        ({"replicas": "1"}, "replicas"),
        ({"connect_timeout_ms": 0}, "connect_timeout_ms is 0"),
        ({"connect_timeout_ms": 2**32}, "connect_timeout_ms: 4294967296 is not between"),
    ],
)
def test_values_that_cannot_be(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises((pagedkv.MisuseError, TypeError), match=sentence):
        with_store(dataclasses.replace(pagedkv.MooncakeStore(), **given))


def test_a_package_that_is_missing_is_a_clear_sentence() -> None:
    result = run(
        "import sys; sys.modules['mooncake'] = None\n"
        "import pagedkv; pagedkv.MooncakeStore()._open()",
        PAGEDKV_LIBRARY=pagedkv.library().path,
    )
    assert "LibraryNotFoundError: cannot import mooncake.store: pip install" in result.stderr
