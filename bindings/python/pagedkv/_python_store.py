"""A store in Python, and the function table through which C calls it."""

from __future__ import annotations

import abc
import ctypes
import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ._handle import sized, unsigned
from .errors import errno_of
from .generated import raw as _raw

_ITEMS = ctypes.POINTER(_raw.StoreItem)
_HOOK = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_size_t, _ITEMS)
CLOSE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Store(abc.ABC):
    """A store in Python: bytes under keys of 32 bytes.

    A cache calls it from two threads of its own: `put` from one, the other methods from both. No
    step waits for it. An OSError means that the store cannot be reached; the cache then does not
    call it for a while. No method may call the library. A cache that is still open when Python ends
    is closed then.
    """

    @abc.abstractmethod
    def put(self, items: Sequence[tuple[bytes, bytes]]) -> Iterable[bytes] | None:
        """Stores values under keys; an existing value may be kept. Returns the keys that it did not
        store; None if it stored all. Stored values may be lost at any time.
        """

    @abc.abstractmethod
    def get(self, keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """Returns the value of each key; None for a missing one."""

    @abc.abstractmethod
    def touch(self, keys: Sequence[bytes]) -> Sequence[int]:
        """Returns the size of each key's value; 0 for a missing one. This is a use of the keys, as
        `put` and `get` are, for a store that deletes what was not used for longest.
        """

    @abc.abstractmethod
    def remove(self, keys: Sequence[bytes]) -> None:
        """Removes keys whose values were found to be corrupt."""

    def close(self) -> None:  # noqa: B027  (most stores have nothing to do)
        """The cache calls this last."""

    def _open(self) -> _raw.Store:
        return hooks_of(self)


def hooks_of(store: Store) -> _raw.Store:
    calls = [functools.partial(call, store) for call in (_put, _get, _touch, _remove)]
    return table_of(calls, store.close)


def table_of(calls: Sequence[Callable[[Any], int]], close_store: Callable[[], None]) -> _raw.Store:
    """The table of put, get, touch and remove, each of which takes C's items and returns how many
    it stored, found or removed. It keeps alive what it points to.
    """
    owners = [_HOOK(functools.partial(_guarded, call)) for call in calls]
    close = CLOSE(lambda _user: _close(close_store))
    table = sized(_raw.Store, 0, None, *(_address(hook) for hook in (*owners, close)))
    table.owners = [*owners, close]
    return table


def _address(hook: Any) -> int | None:
    return ctypes.cast(hook, ctypes.c_void_p).value


def _guarded(call: Callable[[Any], int], _user: int | None, n: int, items: Any) -> int:
    """Exceptions do not reach C, not even SystemExit. An OSError means that the store cannot be
    reached; others are bugs.
    """
    try:
        return call(items[:n])
    except BaseException as error:
        if not isinstance(error, OSError):
            logging.getLogger("pagedkv").exception("a store failed")
        return -errno_of(error)


def _keys(items: Sequence[Any]) -> list[bytes]:
    return [bytes(item.name) for item in items]


def _put(store: Store, items: Sequence[Any]) -> int:
    keys, values = _keys(items), [ctypes.string_at(item.data, item.size) for item in items]
    left_out = set(store.put(list(zip(keys, values, strict=True))) or ())
    if unknown := left_out.difference(keys):
        raise ValueError(f"put returned {unknown.pop()!r}, which is none of its keys")
    for item, key in zip(items, keys, strict=True):
        if key in left_out:
            item.size = 0
    return sum(item.size > 0 for item in items)


def _get(store: Store, items: Sequence[Any]) -> int:
    found = [value or b"" for value in store.get(_keys(items))]
    for item, value in zip(items, found, strict=True):
        ctypes.memmove(item.data, value, min(item.size, len(value)))
        item.size = len(value)
    return sum(map(bool, found))


def _touch(store: Store, items: Sequence[Any]) -> int:
    sizes = [unsigned(size, 64, "size") for size in store.touch(_keys(items))]
    for item, size in zip(items, sizes, strict=True):
        item.size = size
    return sum(map(bool, sizes))


def _remove(store: Store, items: Sequence[Any]) -> int:
    store.remove(_keys(items))
    return len(items)


def _close(close_store: Callable[[], None]) -> None:
    try:
        close_store()
    except BaseException:
        logging.getLogger("pagedkv").exception("a store could not be closed")
