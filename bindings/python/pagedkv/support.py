"""What packages that build on this one use besides its classes: the C interface through ctypes, and
the checks that raise this package's errors.
"""

from __future__ import annotations

import ctypes

from ._arrays import address, batch_tensor
from ._enums import enum_number
from ._handle import Uncopied, call, integer, sized, unsigned
from ._library import library
from ._python_store import Store
from ._repr import counted
from .errors import misuse
from .generated import raw
from .kv import plan_view
from .mooncake import MooncakeStore
from .store import DirectoryStore, RedisStore

__all__ = [
    "Uncopied", "address", "batch_tensor", "call", "close_store", "counted", "enum_number",
    "integer", "library", "misuse", "open_store", "plan_view", "raw", "sized", "unsigned",
]  # fmt: skip


def open_store(store: DirectoryStore | RedisStore | MooncakeStore | Store) -> raw.Store:
    """Opens a store as a cache does. The struct keeps alive what its functions need."""
    return store._open()


def close_store(opened: raw.Store) -> None:
    """Closes what open_store() opened. No function of the store may run."""
    call(library().store_close, ctypes.byref(opened))
