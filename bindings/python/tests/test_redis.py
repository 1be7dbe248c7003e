"""Stores in a real server, which listens on a loopback port and ends with the test."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from helpers import connect, free_port, listens, output, until
from test_package import run
from test_store import TEXT, check_text, leave, with_store

import pagedkv

SERVER = shutil.which("redis-server") or shutil.which("valkey-server")
pytestmark = pytest.mark.skipif(
    "PAGEDKV_REDIS_LIBRARY" not in os.environ, reason="PAGEDKV_REDIS_LIBRARY names no library"
)


@contextlib.contextmanager
def served(port: int, folder: pathlib.Path, options: dict[str, object]) -> Iterator[None]:
    """A server with these options, once it listens."""
    given = {"bind": "127.0.0.1", "save": "", "dir": folder} | options
    words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    with subprocess.Popen([str(SERVER), *words], stdout=subprocess.DEVNULL) as server:

        def is_there() -> bool:
            assert server.poll() is None, "it has ended, perhaps because it has no TLS"
            return listens(port)

        until(is_there)
        yield
        server.terminate()


@pytest.fixture
def port(tmp_path: pathlib.Path) -> Iterator[int]:
    if SERVER is None:
        pytest.skip("redis-server and valkey-server are missing: bash tests/install-deps test")
    port = free_port()
    with served(port, tmp_path, {"port": port, "requirepass": "secret"}):
        yield port


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
        assert cache.wait_prefetched(TEXT, timeout_ms=60000) == 0


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


@pytest.fixture
def tls(tmp_path: pathlib.Path) -> Iterator[tuple[int, pathlib.Path, pathlib.Path]]:
    """A port with TLS, and the self-signed certificate and key of its server."""
    if SERVER is None or shutil.which("openssl") is None:
        pytest.skip("redis-server or openssl is missing here: bash tests/install-deps test")
    certificate, key, port = tmp_path / "server.crt", tmp_path / "server.key", free_port()
    options = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1".split()
    names = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1,DNS:kv.example"]
    output("openssl", *options, *names, "-keyout", key, "-out", certificate)
    given = {"port": 0, "tls-port": port, "tls-cert-file": certificate, "tls-key-file": key}
    with served(port, tmp_path, given | {"tls-ca-cert-file": certificate}):
        yield port, certificate, key


def test_tls_checks_who_is_there(tls: tuple[int, pathlib.Path, pathlib.Path]) -> None:
    port, certificate, key = tls
    url = f"rediss://127.0.0.1:{port}"
    # The server requires a client certificate, and accepts its own.
    right = pagedkv.RedisStore(
        url, tls_ca_file=certificate, tls_certificate_file=certificate, tls_key_file=str(key)
    )
    with with_store(right) as cache:
        leave(cache)
        assert cache.store_stats().written_items == 2
    for same in (
        dataclasses.replace(right, servers=f"127.0.0.1:{port}", tls=True),
        dataclasses.replace(right, tls_server_name="kv.example"),
        dataclasses.replace(right, tls_ca_file=None, tls_insecure_no_verify=True),
    ):
        with with_store(same, wait_ms=60000) as cache:
            check_text(cache)
    folder = certificate.parent
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"tls_server_name": "other.example"}, "ostname mismatch"),
        ({"tls_ca_file": None}, "certificate is refused"),
        ({"tls_ca_file": None, "tls_ca_directory": folder}, "certificate is refused"),
        ({"tls_certificate_file": None, "tls_key_file": None}, "TLS: "),
        ({"tls_ca_file": folder / "gone"}, "tls_ca_file: .*errno 2"),
    ]
    for changed, sentence in wrong:
        with pytest.raises(pagedkv.SystemCallError, match=sentence):
            with_store(dataclasses.replace(right, **changed))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"tls_ca_file": "a"}, "tls_ca_file is given, but"),
        ({"tls_server_name": "a"}, "tls_server_name is given, but"),
        ({"tls_insecure_no_verify": True}, "tls_insecure_no_verify is 1, but"),
        ({"tls": 2}, "tls is 2"),
        ({"tls": -1}, "tls"),
        ({"tls": True, "tls_key_file": "a"}, "given together"),
        ({"tls": True, "tls_server_name": "a b"}, "tls_server_name"),
        ({"tls": True, "tls_server_name": "a\0b"}, "tls_server_name: it contains a NUL"),
        ({"tls": True, "tls_ca_file": "a\0b"}, "tls_ca_file: there is a NUL in"),
        ({"tls": True, "tls_ca_directory": ""}, "tls_ca_directory is empty"),
        (
            {"tls": True, "tls_insecure_no_verify": True, "tls_ca_file": "a"},
            "nothing would be checked",
        ),
    ],
)
def test_tls_that_cannot_be(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(pagedkv.MisuseError, match=sentence):
        with_store(pagedkv.RedisStore("127.0.0.1:1", **given))


def test_a_server_may_come_later() -> None:
    with with_store(pagedkv.RedisStore(f"127.0.0.1:{free_port()}", connect_later=True)) as cache:
        cache.hint("prefetch", TEXT)
        assert cache.wait_prefetched(TEXT, timeout_ms=60000) == 0


def test_a_plugin_that_is_none_is_a_clear_sentence(tmp_path: pathlib.Path) -> None:
    for path in (tmp_path / "gone.so", "libm.so.6"):
        result = run(
            "import pagedkv; pagedkv.RedisStore()._open()",
            PAGEDKV_LIBRARY=pagedkv.library().path,
            PAGEDKV_REDIS_LIBRARY=str(path),
        )
        sentence = "cannot open libpagedkv-redis: name it with PAGEDKV_REDIS_LIBRARY"
        assert f"LibraryNotFoundError: {sentence}" in result.stderr
