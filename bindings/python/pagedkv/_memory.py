"""Guards a cache's memory for calls that get its address instead of the handle of the cache."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

from ._handle import Uncopied
from ._repr import counted
from .errors import MisuseError, UnavailableError
from .generated.raw import Status


class Memory(Uncopied):
    """Keeps a cache from being closed while a call reads its memory, and keeps calls from reading
    the memory of a closed cache.

    Readers and closers announce themselves before they look for each other, so at least one sees
    the other; if both do, both are refused. There is no lock, because fork() could leave a lock
    locked forever. Each entry records its process, because a child does not have the threads of its
    parent.
    """

    def __init__(self) -> None:
        self._readers: list[int] = []
        self._closers: list[int] = []
        self._closed = False

    @contextlib.contextmanager
    def read(self) -> Iterator[None]:
        """Raises if the cache is closed, or is being closed."""
        me = os.getpid()
        self._readers.append(me)
        try:
            if self._closed:
                raise MisuseError(
                    Status.STALE_HANDLE,
                    "the cache that this view shows was closed, and its memory is gone",
                )
            if me in self._closers:
                raise UnavailableError(
                    Status.BUSY, "another thread closes the cache that this view shows"
                )
            yield
        finally:
            self._readers.remove(me)

    def hold(self) -> Hold:
        """Reads the memory until the result is collected."""
        return Hold(self)

    def close(self, destroy: Callable[[], None]) -> None:
        """Calls the function that destroys the cache, or raises BUSY while a call reads its
        memory."""
        me = os.getpid()
        self._closers.append(me)
        try:
            readers = self._readers.count(me)
            if readers:
                raise UnavailableError(
                    Status.BUSY,
                    "kv_attend() or arrays of states use the cache's memory, in "
                    f"{counted(readers, 'place')}",
                )
            destroy()
            self._closed = True
        finally:
            self._closers.remove(me)


class Hold(Uncopied):
    """Keeps a cache's memory alive; arrays over the memory refer to it."""

    def __init__(self, memory: Memory) -> None:
        self._reading = contextlib.ExitStack()
        self._reading.enter_context(memory.read())

    def __del__(self) -> None:
        self._reading.close()
