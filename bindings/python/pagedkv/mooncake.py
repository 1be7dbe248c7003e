"""Mooncake Store behind a cache's memory. It is a distributed store in memory that its clients
lend.

It is in the Python packages mooncake-transfer-engine and mooncake-transfer-engine-non-cuda, which
also have its server, `mooncake_master`.
"""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import importlib
import mmap
import os
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

from ._exit import keep
from ._handle import Uncopied, unsigned
from ._library import LibraryNotFoundError
from ._python_store import table_of
from ._repr import Shown
from ._structs import text_for_c
from .errors import SystemCallError, misuse
from .generated import raw as _raw
from .generated.raw import Status

# Mooncake's error codes, which its Python functions return as numbers.
CODES = {
    -101: "SEGMENT_NOT_FOUND",
    -200: "NO_AVAILABLE_HANDLE",
    -600: "INVALID_PARAMS",
    -701: "INVALID_READ",
    -703: "REPLICA_IS_NOT_READY",
    -704: "OBJECT_NOT_FOUND",
    -705: "OBJECT_ALREADY_EXISTS",
    -706: "OBJECT_HAS_LEASE",
    -707: "LEASE_EXPIRED",
    -800: "TRANSFER_FAIL",
    -900: "RPC_FAIL",
    -901: "RPC_TIMEOUT",
}
INVALID_PARAMS, TRANSFER_FAIL = -600, -800
# The errno if the master or the memory of the store cannot be reached.
UNREACHABLE = {-101: errno.EHOSTUNREACH, -800: errno.EHOSTUNREACH, -900: errno.ECONNREFUSED}
UNREACHABLE[-901] = errno.ETIMEDOUT

# Mooncake gives up a transfer after 60 s, and the transfer may still write into its memory. A
# transfer that fails earlier has ended.
GIVEN_UP_SECONDS = 30.0

PROTOCOLS = ("tcp", "rdma")


@dataclasses.dataclass(frozen=True, repr=False)
class MooncakeStore(Shown):
    """Mooncake Store, a distributed store in memory, by the module `mooncake.store`.

    `master` is the host:port of its `mooncake_master`. This process lends `segment_bytes` of its
    memory (a multiple of 16 MiB; 0: none); items that others put there are lost when the cache is
    closed. Others connect to `local_hostname`. Each item has `replicas` copies on different
    machines. `rdma_devices` are names separated by commas, by default all devices.

    If the master cannot be reached within `connect_timeout_ms`, creating the cache fails; with
    `connect_later` it only costs hits. Later failures only cost hits.
    """

    master: str = "127.0.0.1:50051"
    local_hostname: str = "127.0.0.1"
    metadata_server: str = "P2PHANDSHAKE"
    protocol: str = "tcp"
    rdma_devices: str = ""
    segment_bytes: int = 0
    replicas: int = 1
    key_prefix: str = "pagedkv-"
    connect_timeout_ms: int = 500
    connect_later: bool = False

    def _open(self) -> _raw.Store:
        _check(self)
        _mooncake()
        client = _Client(self)
        if not self.connect_later:
            try:
                client.connect()
            except OSError as error:
                sentence = f"{error.strerror} (errno {error.errno})"
                raise SystemCallError(Status.IO, sentence, error.errno) from None
        return table_of((client.put, client.get, client.touch, client.remove), client.close)


def _check(config: MooncakeStore) -> None:
    """Refuses wrong values here, because Mooncake retries some for a minute and crashes with
    others."""
    names = ("master", "local_hostname", "metadata_server", "protocol", "rdma_devices")
    for name in (*names, "key_prefix"):
        value = getattr(config, name)
        if not isinstance(value, str):
            raise misuse(f"{name}: {value!r} is not a str")
        text_for_c(value, name)
        if not value and name not in ("rdma_devices", "key_prefix"):
            raise misuse(f"{name} is empty")
    _address(config.master)
    if config.protocol not in PROTOCOLS:
        raise misuse(f"protocol: {config.protocol!r} is none of {', '.join(PROTOCOLS)}")
    if unsigned(config.segment_bytes, 64, "segment_bytes") % (16 << 20):
        raise misuse(f"segment_bytes: {config.segment_bytes} is not a multiple of 16 MiB")
    if not 1 <= unsigned(config.replicas, 32, "replicas") <= 1024:
        raise misuse(f"replicas: {config.replicas} is not between 1 and 1024")
    if unsigned(config.connect_timeout_ms, 32, "connect_timeout_ms") == 0:
        raise misuse("connect_timeout_ms is 0")


def _address(master: str) -> tuple[str, int]:
    host, colon, port = master.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        raise misuse(f"master: {master!r} is not host:port, with a port from 1 to 65535")
    return host, int(port)


def _mooncake() -> Any:
    try:
        return importlib.import_module("mooncake.store")
    except ImportError as error:
        problem = "cannot import mooncake.store: pip install mooncake-transfer-engine-non-cuda"
        raise LibraryNotFoundError(f"{problem}, and Debian's libibverbs1: {error}") from None


def _named(code: int) -> str:
    return f"{CODES.get(code, 'an error')} ({code})"


class _Staging:
    """Memory that is registered with Mooncake, for the bytes of one call at a time.

    Bytes are copied between it and the cache's buffers. These are not registered themselves,
    because a transfer that was given up may write while the cache uses its buffer for something
    else.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._memory: mmap.mmap | None = None
        self._address = 0

    def take(self, client: Any, sizes: Sequence[int]) -> list[int]:
        """Returns an address for each size, with room for that many bytes."""
        total = sum(sizes)
        if self._memory is None or len(self._memory) < total:
            if self._memory is not None:
                client.unregister_buffer(self._address)
            self._memory = None
            memory = mmap.mmap(-1, max(1 << 20, 1 << (total - 1).bit_length()))
            address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            code = client.register_buffer(address, len(memory))
            if code:
                problem = f"{len(memory)} bytes could not be registered: {_named(code)}"
                raise OSError(errno.ENOMEM, problem)
            self._memory, self._address = memory, address
        addresses, at = [], self._address
        for size in sizes:
            addresses.append(at)
            at += size
        return addresses

    def abandon(self) -> None:
        """Abandons the memory to a transfer that may still use it."""
        keep(self._memory)
        self._memory = None


class _Client(Uncopied):
    """The functions of a table, for one cache."""

    def __init__(self, config: MooncakeStore) -> None:
        self._config = config
        self._process = os.getpid()
        self._connecting = threading.Lock()
        self._client: Any = None
        self._replicate: Any = None
        self._writing, self._reading = _Staging(), _Staging()

    def connect(self) -> Any:
        """The client of Mooncake. Without a master its setup would try for a minute and a half, so
        this first checks that there is one.
        """
        # The threads of a client are not in a forked child.
        if os.getpid() != self._process:
            raise OSError(errno.ECHILD, "a forked child cannot use the store of its parent")
        with self._connecting:
            if self._client is None:
                self._client = self._set_up()
            return self._client

    def _set_up(self) -> Any:
        config, mooncake = self._config, _mooncake()
        try:
            timeout = config.connect_timeout_ms / 1000
            socket.create_connection(_address(config.master), timeout).close()
        except OSError as error:
            problem = f"no Mooncake master at {config.master}: {error.strerror or error}"
            raise OSError(error.errno or errno.EHOSTUNREACH, problem) from None
        client = mooncake.MooncakeDistributedStore()
        code = client.setup(
            config.local_hostname,
            config.metadata_server,
            int(config.segment_bytes),
            0,  # the size of Mooncake's own buffers, which only its functions with bytes need
            config.protocol,
            config.rdma_devices,
            config.master,
        )
        if code:
            client.close()
            problem = f"Mooncake's setup with the master {config.master} and a segment of"
            raise OSError(errno.EIO, f"{problem} {config.segment_bytes} bytes: {_named(code)}")
        self._replicate = mooncake.ReplicateConfig()
        self._replicate.replica_num = int(config.replicas)
        return client

    def _names(self, items: Sequence[Any]) -> list[str]:
        return [self._config.key_prefix + bytes(item.name).hex() for item in items]

    def put(self, items: Sequence[Any]) -> int:
        client, sizes = self.connect(), [item.size for item in items]
        if not items:
            return 0
        with self._writing.lock:
            addresses = self._writing.take(client, sizes)
            for item, address in zip(items, addresses, strict=True):
                ctypes.memmove(address, item.data, item.size)
            begin = time.monotonic()
            codes = client.batch_put_from(self._names(items), addresses, sizes, self._replicate)
            self._release(self._writing, codes, begin)
        for item, code in zip(items, codes, strict=True):
            if code:
                item.size = 0
        return self._count(codes, sum(code == 0 for code in codes))

    def get(self, items: Sequence[Any]) -> int:
        client, rooms, names = self.connect(), [item.size for item in items], self._names(items)
        if not items:
            return 0
        with self._reading.lock:
            addresses = self._reading.take(client, rooms)
            begin = time.monotonic()
            found = client.batch_get_into(names, addresses, rooms)
            for item, address, room, size in zip(items, addresses, rooms, found, strict=True):
                item.size = max(size, 0)
                # The size that Mooncake reports may be wrong: item.data has only this much room.
                ctypes.memmove(item.data, address, min(item.size, room))
            self._release(self._reading, found, begin)
        for i, size in enumerate(found):
            if size == INVALID_PARAMS:  # The item is larger than its room.
                items[i].size = max(client.get_size(names[i]), 0)
        return self._count(found, sum(item.size > 0 for item in items))

    def touch(self, items: Sequence[Any]) -> int:
        client, names = self.connect(), self._names(items)
        if not items:
            return 0
        known = client.batch_is_exist(names)  # which Mooncake counts as a use
        there = [name for name, code in zip(names, known, strict=True) if code == 1]
        copies = client.batch_get_replica_desc(there) if there else {}
        for item, name in zip(items, names, strict=True):
            item.size = max((_bytes(copy) for copy in copies.get(name, ())), default=0)
        return self._count(known, sum(item.size > 0 for item in items))

    def remove(self, items: Sequence[Any]) -> int:
        client = self.connect()
        if not items:
            return 0
        # A reader has a lease for a short time on what it read; without force, the item would stay.
        codes = client.batch_remove(self._names(items), True)
        return self._count(codes, sum(code == 0 for code in codes))

    def close(self) -> None:
        client, self._client = self._client, None
        if os.getpid() != self._process:
            keep(client)  # Its destructor would end what the parent uses.
        elif client is not None:
            client.close()

    @staticmethod
    def _release(staging: _Staging, codes: Sequence[int], begin: float) -> None:
        if TRANSFER_FAIL in codes and time.monotonic() - begin > GIVEN_UP_SECONDS:
            staging.abandon()

    @staticmethod
    def _count(codes: Sequence[int], done: int) -> int:
        """The result of a function that did a part of its work. If it did nothing because the store
        cannot be reached, the cache does not call the store for a while.
        """
        for code in codes:
            if done == 0 and code in UNREACHABLE:
                raise OSError(UNREACHABLE[code], f"Mooncake: {_named(code)}")
        return done


def _bytes(copy: Any) -> int:
    """The size of an item, from one of its copies."""
    return (
        int(copy.get_memory_descriptor().buffer_descriptor.size) if copy.is_memory_replica() else 0
    )
