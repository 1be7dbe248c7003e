"""Saves sessions to files, which caches of the same model can load, in other processes, too."""

from __future__ import annotations

import ctypes
import dataclasses
import os
from collections.abc import Sequence
from typing import Any, TypeAlias

from ._block_io import causes_of_errors
from ._handle import Uncopied, call, report, signed32, sized, unsigned
from ._library import library, opened
from ._structs import path_for_c, point_to_bytes
from .cache import Cache
from .generated import raw as _raw
from .generated.raw import Durability, Status, StreamKind
from .generated.records import FileInfo
from .session import Session, Snapshot

Source: TypeAlias = "str | os.PathLike[str] | int | bytes"
"""A path, an open descriptor, or (loading) the bytes of a file."""


def _stream(source: Source) -> _raw.Stream:
    stream = sized(_raw.Stream)
    if isinstance(source, int):
        stream.kind, stream.descriptor = StreamKind.DESCRIPTOR, signed32(source, "descriptor")
    elif isinstance(source, bytes):
        stream.owner = ctypes.create_string_buffer(source, len(source))
        stream.kind, stream.size = StreamKind.BUFFER, len(source)
        stream.data = ctypes.addressof(stream.owner)
    else:
        stream.owner = path_for_c(source)
        stream.kind, stream.path = StreamKind.PATH, ctypes.addressof(stream.owner)
    return stream


def _config(
    fingerprint: bytes | None,
    secret_key: bytes | None,
    prefix_index: bool = False,
    durable: bool = True,
    trust_salts: bool = False,
    max_tokens: int = 0,
) -> Any:
    config = sized(_raw.FileConfig)
    config.prefix_index = unsigned(prefix_index, 32, "prefix_index")
    on = unsigned(durable, 1, "durable")
    config.durability = Durability.DEFAULT if on else Durability.OFF
    config.trust_salts = unsigned(trust_salts, 32, "trust_salts")
    config.max_tokens = unsigned(max_tokens, 64, "max_tokens")
    config.owners = owners = {"fingerprint": fingerprint, "secret_key": secret_key}
    for name, given in owners.items():
        point_to_bytes(config, name, given)
    return config


@causes_of_errors()
def save(
    cache: Cache,
    sequences: Sequence[Session | Snapshot],
    to: str | os.PathLike[str] | int | None = None,
    *,
    prefix_index: bool = False,
    fingerprint: bytes | None = None,
    secret_key: bytes | None = None,
    durable: bool = True,
) -> bytes | None:
    """Saves sequences, and the prefix index if asked for, to a path or a descriptor; None: returns
    the bytes of the file. With a key of 16 to 64 bytes the file is encrypted."""
    kept = tuple(sequences)
    items = (_raw.FileItem * max(len(kept), 1))()
    for i, sequence in enumerate(kept):
        kind = "snapshot" if isinstance(sequence, Snapshot) else "session"
        setattr(items[i], kind, sequence.handle)
        items[i].label = i
    config = _config(fingerprint, secret_key, prefix_index, durable)

    given, size = (cache.handle, len(kept), items, ctypes.byref(config)), ctypes.c_uint64()
    if to is not None:
        stream = _stream(to)
        call(library().file_save, *given, ctypes.byref(stream), ctypes.byref(size))
        return None
    while True:  # what is saved may change between the two calls
        stream = _stream(bytes(size.value))
        status = library().file_save(*given, ctypes.byref(stream), ctypes.byref(size))
        if status != Status.BUFFER_TOO_SMALL:
            opened().check(status)
            return bytes(stream.owner.raw[: size.value])


@causes_of_errors()
def load(
    cache: Cache,
    source: Source,
    *,
    prefix_index: bool = False,
    fingerprint: bytes | None = None,
    secret_key: bytes | None = None,
    trust_salts: bool = False,
    max_tokens: int = 0,
) -> list[Session]:
    """Opens every sequence of a file as a session, in the order of `save`. After an error the cache
    is unchanged.

    max_tokens limits the tokens of all of them, each of which takes memory even where sequences
    share blocks; the default is 64 times as many as the cache can hold, and those of the file, each
    once.

    A file with salted texts needs a key, or trust_salts: without a key, anyone who can write the
    file can choose its salts."""
    config = _config(
        fingerprint, secret_key, prefix_index, trust_salts=trust_salts, max_tokens=max_tokens
    )
    stream = _stream(source)
    count = ctypes.c_size_t(4096)  # large, because a descriptor cannot be read twice
    while True:
        capacity = count.value
        found = _OpenedSessions(cache, capacity)
        room = capacity, found.handles, None, ctypes.byref(count)
        given = cache.handle, ctypes.byref(config), ctypes.byref(stream)
        status = library().file_load(*given, *room)
        if status != Status.BUFFER_TOO_SMALL or isinstance(source, int):
            opened().check(status)
            return [found.take(i) for i in range(count.value)]


class _OpenedSessions(Uncopied):
    """Has the handles that C writes. Those that nobody took, because Ctrl-C came first, are closed
    when this is collected; a handle that was also taken cannot be closed twice.
    """

    handles: Any = ()

    def __init__(self, cache: Cache, capacity: int) -> None:
        self._cache = cache
        self.handles = (ctypes.c_void_p * max(capacity, 1))()

    def take(self, i: int) -> Session:
        session = Session._of(self._cache, self.handles[i])
        self.handles[i] = None
        return session

    def __del__(self) -> None:
        for handle in self.handles:
            if handle:
                Session._of(self._cache, handle)._abandon()


def file_info(
    source: Source, *, fingerprint: bytes | None = None, secret_key: bytes | None = None
) -> FileInfo:
    """Reads the header of a file; needs no cache."""
    config, stream = _config(fingerprint, secret_key), _stream(source)
    found = report(FileInfo, library().file_inspect, ctypes.byref(config), ctypes.byref(stream))
    return dataclasses.replace(found, fingerprint=found.fingerprint[: found.fingerprint_size])
