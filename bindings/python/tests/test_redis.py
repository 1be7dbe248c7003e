"""Stores in a real server, which listens on a loopback port and ends with the test."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import pathlib
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from helpers import free_port
from test_package import ROOT, run
from test_store import TEXT, check_text, leave, with_store

import pagedkv
from pagedkv._redis import RedisConfig

HEADER = ROOT.parents[1] / "include/pagedkv/redis.h"
SERVER = shutil.which("redis-server") or shutil.which("valkey-server")
pytestmark = pytest.mark.skipif(
    "PAGEDKV_REDIS_LIBRARY" not in os.environ, reason="PAGEDKV_REDIS_LIBRARY names no library"
)


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
    options = {
        "--port": str(port),
        "--bind": "127.0.0.1",
        "--save": "",
        "--dir": str(tmp_path),
        "--requirepass": "secret",
    }
    with subprocess.Popen(
        [SERVER, *(word for pair in options.items() for word in pair)], stdout=subprocess.DEVNULL
    ) as server:
        for _ in range(600):
            try:
                ask(port, "PING")
                break
            except OSError:
                time.sleep(0.05)
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
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(b"AUTH secret\r\nRANDOMKEY\r\n")
        time.sleep(0.2)
        reply = connection.recv(4096)
        key = reply[reply.index(b"a:") : reply.index(b"a:") + 34]  # the prefix and 32 bytes
        connection.sendall(b"*2\r\n$3\r\nTTL\r\n$34\r\n" + key + b"\r\n")
        assert 0 < int(connection.recv(4096).decode().strip().removeprefix(":")) <= 1000
    with with_store(
        dataclasses.replace(store, servers=f"127.0.0.1:{port}", password="secret"), wait_ms=60000
    ) as cache:
        check_text(cache)
    with with_store(dataclasses.replace(store, key_prefix="b:")) as cache:
        cache.prefetch(TEXT)
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
    with pytest.raises(pagedkv.MisuseError, match="pipeline_bytes"):
        with_store(pagedkv.RedisStore(pipeline_bytes=1))
    with pytest.raises(pagedkv.MisuseError, match="password: there is a NUL in it"):
        with_store(pagedkv.RedisStore(password="a\0b"))


@pytest.fixture
def tls(tmp_path: pathlib.Path) -> Iterator[tuple[int, pathlib.Path, pathlib.Path]]:
    """A port with TLS, and the certificate and the key of its server, which is its own CA."""
    if SERVER is None or shutil.which("openssl") is None:
        pytest.skip("redis-server or openssl is missing here: bash tests/install-deps test")
    certificate, key, port = tmp_path / "server.crt", tmp_path / "server.key", free_port()
    options = [
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "1",
    ]
    names = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1,DNS:kv.example"]
    made = ["openssl", "req", *options, *names, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(made, check=True, capture_output=True)
    words = {"port": 0, "tls-port": port, "tls-cert-file": certificate, "tls-key-file": key}
    words |= {"tls-ca-cert-file": certificate, "bind": "127.0.0.1", "save": "", "dir": tmp_path}
    command = [
        SERVER,
        *(word for name, value in words.items() for word in (f"--{name}", str(value))),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert server.poll() is None, "the server has no TLS"
            time.sleep(0.05)
        yield port, certificate, key
        server.terminate()


def test_tls_checks_who_is_there(tls: tuple[int, pathlib.Path, pathlib.Path]) -> None:
    port, certificate, key = tls
    url = f"rediss://127.0.0.1:{port}"
    # The server asks for a certificate, and takes its own.
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
    for wrong, sentence in (
        (dataclasses.replace(right, tls_server_name="other.example"), "ostname mismatch"),
        (dataclasses.replace(right, tls_ca_file=None), "certificate is refused"),
        (
            dataclasses.replace(right, tls_ca_file=None, tls_ca_directory=certificate.parent),
            "certificate is refused",
        ),
        (dataclasses.replace(right, tls_certificate_file=None, tls_key_file=None), "TLS: "),
        (
            dataclasses.replace(right, tls_ca_file=certificate.parent / "gone"),
            "tls_ca_file: .*errno 2",
        ),
    ):
        with pytest.raises(pagedkv.SystemCallError, match=sentence):
            with_store(wrong)


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
        ({"tls": True, "tls_server_name": "a\0b"}, "tls_server_name: there is a NUL in it"),
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
        cache.prefetch(TEXT)
        assert cache.wait_prefetched(TEXT, timeout_ms=60000) == 0


@pytest.mark.skipif(not HEADER.exists(), reason="not in a clone")
def test_the_fields_are_those_of_the_header() -> None:
    pattern = r"typedef struct pkv_redis_config \{(.*?)\n\}"
    (body,) = re.findall(pattern, HEADER.read_text(), re.S)
    kinds = {"uint32_t ": ctypes.c_uint32, "uint64_t ": ctypes.c_uint64}
    assert RedisConfig._fields_ == [
        (name, kinds.get(kind, ctypes.c_char_p))
        for kind, name in re.findall(r"^  (uint32_t |uint64_t |const char\* )(\w+);", body, re.M)
    ]


def test_a_plugin_that_is_none_is_a_clear_sentence(tmp_path: pathlib.Path) -> None:
    for path in (tmp_path / "gone.so", "libm.so.6"):
        result = run(
            "import pagedkv; pagedkv.RedisStore()._open()",
            PAGEDKV_LIBRARY=pagedkv.library().path,
            PAGEDKV_REDIS_LIBRARY=str(path),
        )
        assert (
            "LibraryNotFoundError: cannot open libpagedkv-redis: name it with PAGEDKV_REDIS_LIBRARY"
            in result.stderr
        )
