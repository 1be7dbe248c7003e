"""Hooks in Python that copy blocks which only the engine can read."""

from __future__ import annotations

import abc
import contextlib
import ctypes
import logging
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._handle import sized
from .errors import PagedKVError, errno_of, misuse
from .generated import raw as _raw

Ids = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]

_IDS = ctypes.POINTER(ctypes.c_uint32)
_BEGIN = (ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_size_t, _IDS)
_READ = ctypes.CFUNCTYPE(*_BEGIN, _IDS, ctypes.c_void_p)
_WRITE = ctypes.CFUNCTYPE(*_BEGIN, ctypes.c_void_p)


class BlockIO(abc.ABC):
    """Copies blocks of opaque layer groups, for example between a device and memory.

    A cache with a store calls `read` from one thread of its own and `write` from another; `save`
    and `load` call them in the thread that saves or loads. No step waits for a call. The arrays are
    only valid during the call. No method may call the library, nor wait for a thread that does.

    An exception is a miss of a store. In a save or a load it is the cause of the error, whose
    system_error is the errno of an OSError, or EIO. What is no OSError is logged, too.

    What a step computes must be complete for `read` once the step is committed, and `write` must
    not overtake kernels that were started before.
    """

    @abc.abstractmethod
    def read(self, group: int, blocks: Ids, tokens: Ids, to: Bytes) -> None:
        """Copies blocks to `to`, [n][bytes of a block], which is 0. Block i holds tokens[i] tokens;
        bytes of other slots may be those of other sequences, so leave them 0.
        """

    @abc.abstractmethod
    def write(self, group: int, blocks: Ids, source: Bytes) -> None:
        """Copies `source`, [n][bytes of a block], to blocks."""


def hooks_of(io: BlockIO, block_bytes: Sequence[int]) -> _raw.BlockIo:
    """The struct for C, which keeps alive what it points to. block_bytes: by group."""
    if not isinstance(io, BlockIO):
        raise misuse(f"block_io: a BlockIO is needed, this is {io!r}")

    def rows(group: int, n: int, at: int) -> Bytes:
        size = block_bytes[group]
        memory: Any = (ctypes.c_uint8 * (n * size)).from_address(at)
        found: Bytes = np.frombuffer(memory, np.uint8)
        return found.reshape(n, size)

    def read(_user: int, group: int, n: int, blocks: Any, tokens: Any, to: int) -> int:
        numbers = _numbers(blocks, n), _numbers(tokens, n)
        return _guarded(lambda: io.read(group, *numbers, rows(group, n, to)))

    def write(_user: int, group: int, n: int, blocks: Any, source: int) -> int:
        return _guarded(lambda: io.write(group, _numbers(blocks, n), rows(group, n, source)))

    hooks = _READ(read), _WRITE(write)
    addresses = (ctypes.cast(hook, ctypes.c_void_p).value for hook in hooks)
    struct = sized(_raw.BlockIo, 0, None, *addresses)
    struct.owners = hooks
    return struct


def _numbers(at: Any, n: int) -> Ids:
    return np.ctypeslib.as_array(at, (n,))


class _Raised(threading.local):
    last: BaseException | None = None


_raised = _Raised()


def _guarded(copy: Callable[[], None]) -> int:
    """Exceptions do not reach C. Even Ctrl-C and SystemExit count as errors, because the bytes are
    not there.
    """
    try:
        copy()
    except BaseException as error:
        if not isinstance(error, OSError | KeyboardInterrupt):
            logging.getLogger("pagedkv").exception("a block_io failed")
        traceback.clear_frames(error.__traceback__)  # they refer to memory that is C's
        of_copy = error.__traceback__ and error.__traceback__.tb_next
        _raised.last = error.with_traceback(of_copy)
        return -errno_of(error)
    return 0


@contextlib.contextmanager
def causes_of_errors() -> Iterator[None]:
    """Around a call that may call hooks in this thread. What a hook raised is the cause of the
    call's error; Ctrl-C and SystemExit are raised again.
    """
    _raised.last = None
    try:
        yield
    except PagedKVError as error:
        cause, _raised.last = _raised.last, None
        if cause is None or isinstance(cause, Exception):
            raise error from cause
        raise cause from None
