"""Measures bytes per second into a store and back: a directory, a Redis and Mooncake, in turns.

usage: stores.py [--rounds N]    needs the Python of build/hosts/mooncake, PAGEDKV_LIBRARY,
                                 PAGEDKV_REDIS_LIBRARY and PYTHONPATH=bindings/python

Each round moves 4 ended sessions of 1,024 tokens (8 layers, 8 KV heads of 128 dims, bf16: 128 MiB)
into each store, and back into an empty cache. The servers listen on loopback ports and have no
other clients; Mooncake's memory is in another process, so its bytes go through TCP. In the same
turns, as many bytes go through a bare loopback connection. The fastest round of each counts.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pagedkv

LAYERS, KV_HEADS, DIM, TOKENS, SESSIONS = 8, 8, 128, 1024, 4
LONG = 60_000  # milliseconds
LENDER = """
import sys
from mooncake.store import MooncakeDistributedStore
client = MooncakeDistributedStore()
master = sys.argv[1]
assert client.setup("127.0.0.1", "P2PHANDSHAKE", 4 << 30, 0, "tcp", "", master) == 0
print("ready", flush=True)
input()
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def server(words: list[Any], port: int) -> Iterator[None]:
    quiet = subprocess.DEVNULL
    with subprocess.Popen([str(word) for word in words], stdout=quiet, stderr=quiet) as process:
        try:
            for _ in range(600):
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                assert process.poll() is None, f"{words[0]} ended"
                time.sleep(0.05)
            yield
        finally:
            process.kill()


@contextlib.contextmanager
def mooncake() -> Iterator[pagedkv.MooncakeStore]:
    found = importlib.util.find_spec("mooncake")
    assert found is not None
    assert found.submodule_search_locations is not None
    program = pathlib.Path(found.submodule_search_locations[0]) / "mooncake_master"
    port, metrics = free_port(), free_port()
    words = ["--rpc_address=127.0.0.1", f"--rpc_port={port}"]
    words += ["--metrics_host=127.0.0.1", f"--metrics_port={metrics}"]
    with server([program, *words], port):
        lends = [sys.executable, "-c", LENDER, f"127.0.0.1:{port}"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(lends, stderr=subprocess.DEVNULL, **pipes) as lender:
            try:
                assert lender.stdout is not None
                assert lender.stdout.readline() == b"ready\n"
                yield pagedkv.MooncakeStore(f"127.0.0.1:{port}")
            finally:
                lender.kill()


@contextlib.contextmanager
def redis(folder: str) -> Iterator[pagedkv.RedisStore]:
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    assert program is not None, "redis-server and valkey-server are missing"
    port = free_port()
    words = ["--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", folder]
    with server([program, *words], port):
        yield pagedkv.RedisStore(f"127.0.0.1:{port}", command_timeout_ms=20_000)


def cache_with(store: Any) -> pagedkv.Cache:
    blocks = SESSIONS * (TOKENS // 16 + 2)
    return pagedkv.Cache(
        pagedkv.CacheConfig(
            layers=LAYERS, query_heads=KV_HEADS, kv_heads=KV_HEADS, key_dim=DIM, dtype="bf16",
            blocks=blocks, prefault=True, prefix=pagedkv.PrefixConfig(),
            store=pagedkv.StoreConfig(store, max_queued_tokens=16 * blocks),
        )
    )  # fmt: skip


def text(number: int) -> list[int]:
    """A text that shares no block with that of another number."""
    return [number * 1_000_003 % 2**31 + i for i in range(TOKENS)]


def spill(store: Any, numbers: list[int]) -> tuple[float, int]:
    """Seconds until the store has the texts, and their bytes."""
    rows = np.ones((TOKENS, KV_HEADS, DIM), np.float32)
    with cache_with(store) as cache:
        sessions = [cache.open_session() for _ in numbers]
        for session, number in zip(sessions, numbers, strict=True):
            with cache.begin([session], [TOKENS]) as batch:
                for layer in range(LAYERS):
                    batch.write(layer, rows, rows)
                batch.commit(text(number))
        begin = time.perf_counter()
        for session in sessions:
            session.close()
        cache.flush_store(timeout_ms=LONG)
        seconds, stats = time.perf_counter() - begin, cache.store_stats()
    assert stats.written_items == SESSIONS * TOKENS // 16, stats
    return seconds, stats.written_bytes


def fetch(store: Any, numbers: list[int]) -> tuple[float, int]:
    with cache_with(store) as cache:
        begin = time.perf_counter()
        for number in numbers:
            cache.hint("prefetch", text(number))
        for number in numbers:
            there = cache.wait_for_prefetch(text(number), timeout_ms=LONG)
            assert there == TOKENS, f"{there} of {TOKENS} tokens came back"
        seconds = time.perf_counter() - begin
        return seconds, cache.store_stats().read_bytes


def loopback(size: int) -> float:
    """Returns how many seconds `size` bytes take through a connection of this process."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sends = socket.create_connection(listener.getsockname())
        receives = listener.accept()[0]
    data, room = bytearray(size), memoryview(bytearray(size))
    begin = time.perf_counter()
    sender = threading.Thread(target=sends.sendall, args=(data,))
    sender.start()
    at = 0
    while at < size:
        at += receives.recv_into(room[at:])
    sender.join()
    seconds = time.perf_counter() - begin
    sends.close()
    receives.close()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stores: dict[str, Any] = {
            "directory": pagedkv.DirectoryStore(f"{folder}/store"),
            "redis": stack.enter_context(redis(folder)),
            "mooncake": stack.enter_context(mooncake()),
        }
        best = dict.fromkeys([(name, what) for name in stores for what in ("spill", "fetch")], 0.0)
        bare = 0.0
        for number in range(rounds):
            for name, store in stores.items():
                numbers = list(range(number * SESSIONS + 1, (number + 1) * SESSIONS + 1))
                for what, move in (("spill", spill), ("fetch", fetch)):
                    seconds, size = move(store, numbers)
                    best[name, what] = max(best[name, what], size / seconds)
            bare = max(bare, size / loopback(size))
    print("| store | spill, GB/s | fetch, GB/s |\n|---|---|---|")
    for name in stores:
        print(f"| {name} | {best[name, 'spill'] / 1e9:.2f} | {best[name, 'fetch'] / 1e9:.2f} |")
    print(f"| bare loopback | {bare / 1e9:.2f} | {bare / 1e9:.2f} |")


if __name__ == "__main__":
    main()
