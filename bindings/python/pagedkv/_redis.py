"""Opens libpagedkv-redis, a separate library, by ctypes: include/pagedkv/redis.h."""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib

from ._handle import sized
from ._library import LibraryNotFoundError, file_name, library
from .errors import error_of
from .generated import raw as _raw

NAME = file_name("pagedkv-redis")


class RedisLibrary:
    """The functions of libpagedkv-redis, which has its own error sentences."""

    def __init__(self, opened: ctypes.CDLL) -> None:
        self._open, self._last_error = opened.pkv_redis_open, opened.pkv_redis_last_error
        self._open.argtypes = [ctypes.POINTER(_raw.RedisConfig), ctypes.POINTER(_raw.Store)]
        self._last_error.restype = ctypes.c_char_p

    def _check(self, status: int) -> None:
        if status:
            raise error_of(status, self._last_error().decode(errors="replace"))

    def open(self, config: _raw.RedisConfig) -> _raw.Store:
        store = sized(_raw.Store)
        self._check(self._open(ctypes.byref(config), ctypes.byref(store)))
        return store


@functools.cache
def redis_library() -> RedisLibrary:
    """$PAGEDKV_REDIS_LIBRARY; else the one in this package or beside libpagedkv; else where the
    dynamic linker finds it.
    """
    named = os.environ.get("PAGEDKV_REDIS_LIBRARY")
    folders = (pathlib.Path(__file__).parent, pathlib.Path(library().path).parent)
    path = named or next(
        (str(folder / NAME) for folder in folders if (folder / NAME).exists()), NAME
    )
    try:
        return RedisLibrary(ctypes.CDLL(path))
    except (OSError, AttributeError) as error:
        problem = "cannot open libpagedkv-redis: name it with PAGEDKV_REDIS_LIBRARY, or install it"
        raise LibraryNotFoundError(f"{problem}: {error}") from None
