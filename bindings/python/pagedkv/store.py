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
from ._structs import durability, fill, path_for_c, point_to_bytes, text_for_c
from .generated import configs
from .generated import raw as _raw
from .mooncake import MooncakeStore


@dataclasses.dataclass(frozen=True, repr=False)
class DirectoryStore(configs.DirectoryConfig):
    """A directory of files. `durable`: put returns only when its files are on disk."""

    path: str | os.PathLike[str]
    durable: bool = False

    def _open(self) -> _raw.Store:
        config, store = sized(_raw.DirectoryConfig), sized(_raw.Store)
        fill(config, self)
        config.durability = durability(self.durable)
        path = path_for_c(self.path)
        config.path = ctypes.addressof(path)
        call(library().store_open_directory, ctypes.byref(config), ctypes.byref(store))
        return store


class RedisStore(configs.RedisConfig):
    """A Redis or Valkey server, or a cluster of them, by libpagedkv-redis, which
    PAGEDKV_REDIS_LIBRARY may name. Later failures only cost hits.
    """

    def _open(self) -> _raw.Store:
        config = sized(_raw.RedisConfig)
        fill(config, self)
        for field in dataclasses.fields(self):
            given = getattr(self, field.name)
            if str(field.type).startswith("str"):
                setattr(config, field.name, text_for_c(given, field.name))
            elif given is not None and str(field.type).startswith("Path"):
                setattr(config, field.name, path_for_c(given, field.name).value)
        return redis_library().open(config)


@dataclasses.dataclass(frozen=True, repr=False)
class StoreConfig(configs.StoreConfig):
    """The store of a CacheConfig. Each cache opens a directory, a server or Mooncake for itself,
    and closes its store.
    """

    store: DirectoryStore | RedisStore | MooncakeStore | Store
    fingerprint: bytes | None = None
    secret_key: bytes | None = dataclasses.field(default=None, repr=False)

    @contextlib.contextmanager
    def opened(self) -> Iterator[_raw.StoreConfig]:
        """The struct for C, with an open store, which is closed at the end of `with` unless a cache
        has taken it.
        """
        struct = sized(_raw.StoreConfig)
        fill(struct, self)
        point_to_bytes(struct, "fingerprint", self.fingerprint)
        point_to_bytes(struct, "secret_key", self.secret_key)
        store = self.store._open()
        struct.store, struct.owner = ctypes.addressof(store), store
        try:
            yield struct
        finally:
            call(library().store_close, ctypes.byref(store))
