"""The end of Python: objects that would call into it are closed before."""

from __future__ import annotations

import atexit
import ctypes
import time
import weakref

from . import _waiting
from ._handle import Handle

# How long a cache that a daemon thread uses is waited for.
PATIENCE = 5.0

_caches: weakref.WeakSet[Handle] = weakref.WeakSet()


def close_at_exit(cache: Handle) -> None:
    """Closes caches before Python ends: it ends threads that call into it while it shuts down, so a
    cache's threads must be gone by then."""
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
