"""Stores in a real server, which listens on a loopback port and ends with the test."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from helpers import connect, free_port, listens, until
from test_package import run
from test_store import TEXT, check_text, leave, with_store

import pagedkv

SERVER = shutil.which("redis-server") or shutil.which("valkey-server")
pytestmark = pytest.mark.skipif(
    "PAGEDKV_REDIS_LIBRARY" not in os.environ, reason="PAGEDKV_REDIS_LIBRARY names no library"
)


@pytest.fixture
def port(tmp_path: pathlib.Path) -> Iterator[int]:
    if SERVER is None:
        pytest.skip("redis-server and valkey-server are missing: bash tests/install-deps test")
    port = free_port()
    words = [SERVER, "--port", str(port), "--requirepass", "secret", "--bind", "127.0.0.1"]
    words += ["--save", "", "--dir", str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as server:
        until(lambda: listens(port))
        yield port
        server.terminate()


def test_a_text_comes_back_from_a_server(port: int) -> None:
    store = pagedkv.RedisStore(
        f"redis://:secret@127.0.0.1:{port}", key_prefix="a:", ttl_seconds=1000
    )
    assert "secret" not in repr(store)
    with with_store(store) as cache:
        leave(cache)
        assert cache.store_stats().written_items == 2
    with connect(port) as connection:
        connection.sendall(b"AUTH secret\r\nRANDOMKEY\r\n")
        time.sleep(0.2)
        reply = connection.recv(4096)
        key = reply[reply.index(b"a:") : reply.index(b"a:") + 34]  # the prefix and 32 bytes
        connection.sendall(b"*2\r\n$3\r\nTTL\r\n$34\r\n" + key + b"\r\n")
        assert 0 < int(connection.recv(4096).decode().strip().removeprefix(":")) <= 1000
    named = dataclasses.replace(store, servers=f"127.0.0.1:{port}", password="secret")
    with with_store(named, wait_ms=60000) as cache:
        check_text(cache)
    with with_store(dataclasses.replace(store, key_prefix="b:")) as cache:
        cache.hint("prefetch", TEXT)
        assert cache.wait_for_prefetch(TEXT, timeout_ms=60000) == 0


def test_refusals_are_sentences_of_the_plugin(port: int) -> None:
    for store, sentence in (
        (pagedkv.RedisStore(f"127.0.0.1:{port}", user="nobody", password="wrong"), "WRONGPASS"),
        (
            pagedkv.RedisStore("127.0.0.1:1", connect_timeout_ms=100),
            "127.0.0.1:1: Connection refused",
        ),
    ):
        with pytest.raises(pagedkv.SystemCallError, match=sentence):
            with_store(store)
    with pytest.raises(pagedkv.MisuseError, match="max_pipeline_bytes"):
        with_store(pagedkv.RedisStore(max_pipeline_bytes=1))
    with pytest.raises(pagedkv.MisuseError, match="password: it contains a NUL"):
        with_store(pagedkv.RedisStore(password="a\0b"))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"tls": True, "tls_server_name": "a\0b"}, "tls_server_name: it contains a NUL"),
        ({"tls": True, "tls_ca_file": "a\0b"}, "tls_ca_file: there is a NUL in"),
    ],
)
def test_tls_that_cannot_be(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(pagedkv.MisuseError, match=sentence):
        with_store(pagedkv.RedisStore("127.0.0.1:1", **given))


def test_a_server_may_come_later() -> None:
    with with_store(pagedkv.RedisStore(f"127.0.0.1:{free_port()}", connect_later=True)) as cache:
        cache.hint("prefetch", TEXT)
        assert cache.wait_for_prefetch(TEXT, timeout_ms=60000) == 0


def test_a_plugin_that_is_none_is_a_clear_sentence(tmp_path: pathlib.Path) -> None:
    for path in (tmp_path / "gone.so", "libm.so.6"):
        result = run(
            "import pagedkv; pagedkv.RedisStore()._open()",
            PAGEDKV_LIBRARY=pagedkv.library().path,
            PAGEDKV_REDIS_LIBRARY=str(path),
        )
        sentence = "cannot open libpagedkv-redis: name it with PAGEDKV_REDIS_LIBRARY"
        assert f"LibraryNotFoundError: {sentence}" in result.stderr
