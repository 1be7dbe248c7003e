"""The states of layers that keep a state instead of keys and values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ._memory import Hold

StateBytes = npt.NDArray[np.uint8]


class SessionStates(NamedTuple):
    """The states of one session of a batch in one layer, as bytes in the cache's memory; use
    `.view(numpy.float32)`, for example. Valid until the batch ends. The cache cannot be closed
    before they are collected.
    """

    before: StateBytes | None
    """The session's current state, to read; None: it has no token yet."""
    tokens: list[int]
    """Indices of the session's new tokens after which a state is kept."""
    after: list[StateBytes]
    """Where to write these states, before the commit."""


class _Shown:
    """Bytes at an address, as NumPy's array interface."""

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
