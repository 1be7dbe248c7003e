"""The states of layers that keep one in place of keys and values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ._memory import Hold

StateBytes = npt.NDArray[np.uint8]


class SessionStates(NamedTuple):
    """The states of one session of a batch in one layer, as bytes in the memory of the cache: take
    them by `.view(numpy.float32)`. Good until the batch ends; the cache cannot be closed before
    they are collected.
    """

    before: StateBytes | None
    """The state that the session has, to be read; None: it has no token yet."""
    tokens: list[int]
    """Indices among the session's new tokens: after each of these a state is kept."""
    after: list[StateBytes]
    """Where to write these states, before the commit."""


class _Shown:
    """Bytes at an address, in the form that NumPy takes."""

    def __init__(self, at: int, size: int, writable: bool, hold: Hold) -> None:
        self._hold = hold
        self.__array_interface__: dict[str, Any] = {
            "version": 3,
            "shape": (size,),
            "typestr": "|u1",
            "data": (at, not writable),
        }


def shown(at: int, size: int, writable: bool, hold: Hold) -> StateBytes:
    """An array of the bytes at an address, which keeps `hold` alive."""
    return np.asarray(_Shown(at, size, writable, hold))
