"""Closes objects that call Python before the interpreter ends."""

from __future__ import annotations

import atexit
import ctypes
import time
import weakref

from . import _waiting
from ._handle import Handle

# How long to wait for a daemon thread that uses a cache.
PATIENCE = 5.0

_caches: weakref.WeakSet[Handle] = weakref.WeakSet()


def close_at_exit(cache: Handle) -> None:
    """Closes caches before Python shuts down, because Python then ends every thread that calls into
    it, and a cache's threads are among them."""
    _caches.add(cache)


@atexit.register
def _close_all() -> None:
    for cache in list(_caches):
        cache._abandon()
    deadline = time.monotonic() + PATIENCE
    _waiting.close_waiting()
    while _waiting.waiting and time.monotonic() < deadline:
        time.sleep(0.001)
        _waiting.close_waiting()
    keep(list(_waiting.waiting.values()))


def keep(owners: object) -> None:
    """Objects that C may still call are never freed."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(owners))
