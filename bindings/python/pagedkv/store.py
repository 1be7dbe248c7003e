"""The store behind a cache's memory. It keeps blocks of the prefix index for later texts with the
same prefix.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
from collections.abc import Iterator

from ._handle import call, sized
from ._library import library
from ._python_store import Store
from ._redis import redis_library
from ._repr import Shown
from ._structs import durability, fill, path_for_c, point_to_bytes, text_for_c
from .errors import PagedKVError
from .generated import raw as _raw
from .mooncake import MooncakeStore


@dataclasses.dataclass(frozen=True, repr=False)
class DirectoryStore(Shown):
    """A directory of files, created if it does not exist. Several caches and processes may use it
    at once.
    """

    path: str | os.PathLike[str]
    max_bytes: int = 0
    durable: bool = False

    def _open(self) -> _raw.Store:
        config, store = sized(_raw.DirectoryConfig), _raw.Store()
        fill(config, self)
        config.durable = durability(self.durable)
        path = path_for_c(self.path)
        config.path = ctypes.addressof(path)
        call(library().store_open_directory, ctypes.byref(config), ctypes.byref(store))
        return store


@dataclasses.dataclass(frozen=True, repr=False)
class RedisStore(Shown):
    """A Redis or Valkey server, or a cluster of them, by libpagedkv-redis, which
    PAGEDKV_REDIS_LIBRARY may name.

    `servers` is "host:port,host:port" or "redis://[[user]:password@]host:port[/database]", with TLS
    "rediss://...". Later failures only cost hits. None and 0 are the defaults of
    pkv_redis_config, such as 127.0.0.1:6379.

    With TLS (without a URL: `tls`) the server's certificate is verified with the CAs in
    `tls_ca_file` or `tls_ca_directory`, by default those of the system. It must name the server,
    or `tls_server_name`. `tls_insecure_no_verify` accepts any certificate. A server that requires
    a client certificate gets `tls_certificate_file` and `tls_key_file`, both PEM.
    """

    servers: str | None = dataclasses.field(default=None, repr=False)  # may have a password
    user: str | None = None
    password: str | None = dataclasses.field(default=None, repr=False)
    key_prefix: str | None = None
    ttl_seconds: int = 0
    connect_timeout_ms: int = 0
    command_timeout_ms: int = 0
    max_pipeline_bytes: int = 0
    connect_later: bool = False
    tls: bool = False
    tls_ca_file: str | os.PathLike[str] | None = None
    tls_ca_directory: str | os.PathLike[str] | None = None
    tls_certificate_file: str | os.PathLike[str] | None = None
    tls_key_file: str | os.PathLike[str] | None = None
    tls_server_name: str | None = None
    tls_insecure_no_verify: bool = False

    def _open(self) -> _raw.Store:
        config = sized(_raw.RedisConfig)
        fill(config, self)
        for name in ("servers", "user", "password", "key_prefix", "tls_server_name"):
            setattr(config, name, text_for_c(getattr(self, name), name))
        for name in ("tls_ca_file", "tls_ca_directory", "tls_certificate_file", "tls_key_file"):
            path = getattr(self, name)
            setattr(config, name, None if path is None else path_for_c(path, name).value)
        return redis_library().open(config)


@dataclasses.dataclass(frozen=True, repr=False)
class StoreConfig(Shown):
    """The store of a CacheConfig. Each cache opens a directory, a server or Mooncake for itself,
    and closes its store.
    """

    store: DirectoryStore | RedisStore | MooncakeStore | Store
    wait_ms: int = 0
    fingerprint: bytes | None = None
    secret_key: bytes | None = dataclasses.field(default=None, repr=False)
    buffer_bytes: int = 0
    max_queued_blocks: int = 0

    @contextlib.contextmanager
    def opened(self) -> Iterator[_raw.StoreConfig]:
        """The struct for C, with an open store. A cache that is created inside `with` closes the
        store; if creating fails, this closes it.
        """
        struct = sized(_raw.StoreConfig)
        fill(struct, self)
        point_to_bytes(struct, "fingerprint", self.fingerprint)
        point_to_bytes(struct, "secret_key", self.secret_key)
        store = self.store._open()
        struct.store, struct.owner = ctypes.addressof(store), store
        try:
            yield struct
        except PagedKVError:
            call(library().store_close, ctypes.byref(store))
            raise
