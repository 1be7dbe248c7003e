"""Objects that should be closed but could not be yet: in a hook no call works, and another thread
may be using the object. They wait here, with everything that C may still call. Each later call of
the library first tries to close them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .errors import PagedKVError
from .generated.raw import Status


class Ending(NamedTuple):
    """How an object is closed, by a call that raises where it fails; what has to live
    until then.
    """

    close: Callable[[], None]
    owners: object = None
    later: bool = False
    """It is not closed while Python collects, because the thread may hold a lock that closing
    needs.
    """


# By handle. The collector may run these functions in the middle of each other and in any thread,
# and fork() may come at any time. So there is no lock, and each step is one operation of a dict.
waiting: dict[int, Ending] = {}


def close(handle: int, ending: Ending) -> None:
    """Closes an object that nobody uses any more, now if possible, else at a later call."""
    waiting[handle] = ending
    if not ending.later:
        _try(handle, ending)


def close_waiting() -> None:
    """Closes what can be closed now. A session waits for its batch, so one round may
    not be enough.
    """
    progress = True
    while progress:
        closed = [_try(handle, ending) for handle, ending in waiting.copy().items()]
        progress = any(closed)


def _try(handle: int, ending: Ending) -> bool:
    """Whether the object is closed now. An object whose cache was closed counts as closed."""
    try:
        ending.close()
    except PagedKVError as error:
        if error.status != Status.STALE_HANDLE:
            return False
    waiting.pop(handle, None)
    return True
