"""Objects that could not be closed yet, because no call works in a hook, or another thread uses the
object. They wait here, with everything that C may still call. Each later call of the library first
tries to close them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .errors import PagedKVError
from .generated.raw import Status


class Ending(NamedTuple):
    """A function that closes an object or raises, and what must live until then."""

    close: Callable[[], None]
    owners: object = None
    later: bool = False
    """Do not close it during garbage collection, because the thread may hold a lock that closing
    needs.
    """


# By handle. The collector may run these functions inside each other and in any thread, and fork()
# may come at any time. So there is no lock, and each step is one operation of a dict. It is never
# dict.copy(): before Python 3.12 the collector may run in the middle of a copy.
waiting: dict[int, Ending] = {}


def close(handle: int, ending: Ending) -> None:
    """Closes a forgotten object, now if possible, else at a later call."""
    waiting[handle] = ending
    if not ending.later:
        _try(handle, ending)


def close_waiting() -> None:
    """Closes the objects that can be closed now. A session waits for its batch, so one round may
    not be enough.
    """
    progress = True
    while progress:
        closed = [_close_if_waiting(handle) for handle in list(waiting)]
        progress = any(closed)


def _close_if_waiting(handle: int) -> bool:
    ending = waiting.get(handle)
    return ending is not None and _try(handle, ending)


def _try(handle: int, ending: Ending) -> bool:
    """Tries to close the object; returns whether it is closed. Closing a cache closes its
    objects."""
    try:
        ending.close()
    except PagedKVError as error:
        if error.status != Status.STALE_HANDLE:
            return False
    waiting.pop(handle, None)
    return True
