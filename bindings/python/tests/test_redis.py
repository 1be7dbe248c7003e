"""Stores in a real server, which listens on a loopback port and ends with the test."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import pathlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest
from test_package import run
from test_store import TEXT, check_text, leave, with_store

import pagedkv
from pagedkv._redis import RedisConfig, redis_library

SERVER = shutil.which("redis-server") or shutil.which("valkey-server")
pytestmark = pytest.mark.skipif("PAGEDKV_REDIS_LIBRARY" not in os.environ, reason="PAGEDKV_REDIS_LIBRARY names no library")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask(port: int, *words: str) -> str:
    """The first bytes of a reply."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall((" ".join(words) + "\r\n").encode())
        return connection.recv(4096).decode()


@pytest.fixture
def port(tmp_path: pathlib.Path) -> Iterator[int]:
    if SERVER is None:
        pytest.skip("there is no redis-server or valkey-server here: bash tests/install-deps test")
    port = free_port()
    options = {"--port": str(port), "--bind": "127.0.0.1", "--save": "", "--dir": str(tmp_path), "--requirepass": "secret"}
    with subprocess.Popen([SERVER, *(word for pair in options.items() for word in pair)], stdout=subprocess.DEVNULL) as server:
        for _ in range(600):
            try:
                ask(port, "PING")
                break
            except OSError:
                time.sleep(0.05)
        yield port
        server.terminate()


def test_a_text_comes_back_from_a_server(port: int) -> None:
    store = pagedkv.RedisStore(f"redis://:secret@127.0.0.1:{port}", key_prefix="a:", ttl_seconds=1000)
    assert "secret" not in repr(store)
    with with_store(store) as cache:
        leave(cache)
        assert cache.store_stats().written_items == 2
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(b"AUTH secret\r\nRANDOMKEY\r\n")
        time.sleep(0.2)
        reply = connection.recv(4096)
        key = reply[reply.index(b"a:") : reply.index(b"a:") + 34]  # the prefix and 32 bytes
        connection.sendall(b"*2\r\n$3\r\nTTL\r\n$34\r\n" + key + b"\r\n")
        assert 0 < int(connection.recv(4096).decode().strip().removeprefix(":")) <= 1000
    with with_store(dataclasses.replace(store, servers=f"127.0.0.1:{port}", password="secret"), wait_ms=60000) as cache:
        check_text(cache)
    with with_store(dataclasses.replace(store, key_prefix="b:")) as cache:
        cache.prefetch(TEXT)
        assert cache.wait_prefetched(TEXT, timeout_ms=60000) == 0


def test_refusals_are_sentences_of_the_plugin(port: int) -> None:
    for store, sentence in (
        (pagedkv.RedisStore(f"127.0.0.1:{port}", user="nobody", password="wrong"), "WRONGPASS"),
        (pagedkv.RedisStore("127.0.0.1:1", connect_timeout_ms=100), "127.0.0.1:1: Connection refused"),
    ):
        with pytest.raises(pagedkv.SystemCallError, match=sentence):
            with_store(store)
    with pytest.raises(pagedkv.MisuseError, match="pipeline_bytes"):
        with_store(pagedkv.RedisStore(pipeline_bytes=1))
    with pytest.raises(pagedkv.MisuseError, match="password: there is a NUL in it"):
        with_store(pagedkv.RedisStore(password="a\0b"))


def test_a_server_may_come_later() -> None:
    with with_store(pagedkv.RedisStore(f"127.0.0.1:{free_port()}", connect_later=True)) as cache:
        cache.prefetch(TEXT)
        assert cache.wait_prefetched(TEXT, timeout_ms=60000) == 0


def test_defaults_lie_where_c_has_put_them() -> None:
    """They differ from field to field, so that one in the wrong place is seen."""
    defaults, described = redis_library().defaults(), pagedkv.RedisStore()
    assert (defaults.struct_size, defaults.reserved) == (ctypes.sizeof(RedisConfig), 0)
    for field in dataclasses.fields(described):
        default = getattr(defaults, field.name)
        assert (default.decode() if isinstance(default, bytes) else default) == getattr(described, field.name), field.name


def test_a_plugin_that_is_none_is_a_clear_sentence(tmp_path: pathlib.Path) -> None:
    for path in (tmp_path / "gone.so", "libm.so.6"):
        result = run(
            "import pagedkv; pagedkv.RedisStore()._open()",
            PAGEDKV_LIBRARY=os.environ["PAGEDKV_LIBRARY"],
            PAGEDKV_REDIS_LIBRARY=str(path),
        )
        assert "LibraryNotFoundError: cannot open libpagedkv-redis: name it with PAGEDKV_REDIS_LIBRARY" in result.stderr
