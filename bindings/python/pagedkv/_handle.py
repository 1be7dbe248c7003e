"""The parts that all objects of the library share: a handle, closing, and reports."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import operator
import sys
import warnings
from collections.abc import Callable
from typing import Any, NoReturn, SupportsIndex, TypeVar

from . import _waiting
from ._library import library, opened
from .errors import PagedKVError, misuse
from .generated import raw as _raw

Record = TypeVar("Record")
Struct = TypeVar("Struct", bound=ctypes.Structure)
Self = TypeVar("Self", bound="Closable")


class Uncopied:
    """An object that cannot be copied, because the copy would close what the original uses: `copy`,
    `deepcopy` and `pickle` are refused."""

    _instead = ""
    """The part of the error sentence that names another way to a second object."""

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} objects cannot be copied or pickled, because the copy would "
            f"close what the original uses{self._instead}"
        )


class Closable(Uncopied):
    """An object that is closed once, by hand or at the end of `with`."""

    _closed = True

    def close(self) -> None:
        raise NotImplementedError

    def _shown(self) -> str:
        """The part of repr() about an open object."""
        raise NotImplementedError

    def __bool__(self) -> bool:
        """An object is true, even if its length is 0."""
        return True

    def __repr__(self) -> str:
        if self._closed:
            return f"<{type(self).__name__}, closed>"
        try:
            return f"<{type(self).__name__}: {self._shown()}>"
        except PagedKVError as error:  # its cache is closed, or another thread uses it
            status = getattr(error.status, "name", error.status)
            return f"<{type(self).__name__}: {status}>"

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()


class Handle(Closable):
    """An object of the library. Close it, or use it in `with`; a forgotten one is closed when
    collected, with a ResourceWarning.

    An object that cannot be closed when it is collected (in a hook, or while another thread uses
    it) is closed at the next call of the library.

    The handle is an index and a generation, never an address: using an object after it or its cache
    was closed raises a MisuseError with the status STALE_HANDLE.
    """

    _close_function = ""

    def __init__(self, function: Any, *arguments: Any) -> None:
        """Calls the function that makes the object. C writes the handle into this object, so an
        exception between two lines, such as Ctrl-C, cannot lose it."""
        self._made = ctypes.c_void_p()
        self._closed = False
        call(function, *arguments, ctypes.byref(self._made))

    @property
    def _handle(self) -> int:
        return self._made.value or 0

    @property
    def handle(self) -> int:
        """For functions of `library()` that this package has no method for."""
        return self._handle

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Closes the object; the second call does nothing. After an error the object is still
        open."""
        if not self._closed:
            library()
            self._closer()()
            self._closed = True

    def _shown(self) -> str:
        return f"handle {self._handle:#x}"

    def _lives(self) -> bool:
        """Whether the object is open; closing a cache also closes its objects."""
        return not self._closed and self._made.value is not None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.close_if_open()

    def close_if_open(self) -> None:
        """Closes the object if it is open: an exception such as Ctrl-C can come after the library
        has closed it and before this object records that."""
        try:
            if self._lives():
                self.close()
        except PagedKVError as error:
            if error.status != _raw.Status.STALE_HANDLE:
                raise
            self._closed = True

    def _closer(self) -> Callable[[], None]:
        """Returns a function that closes the object or raises. The function does not keep this
        Python object alive."""
        return functools.partial(_close, self._close_function, self._handle)

    def _ending(self) -> _waiting.Ending:
        return _waiting.Ending(self._closer())

    def _abandon(self) -> None:
        """Closes a forgotten object, now or at a later call of the library."""
        if self._lives():
            self._closed = True
            _waiting.close(self._handle, self._ending())

    # At the end of a free-threaded Python, objects may go after the globals of this module.
    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing() and self._lives():
            self._abandon()
            warnings.warn(f"{type(self).__name__} was never closed", ResourceWarning, stacklevel=2)


def _close(function: str, handle: int) -> None:
    call(getattr(opened(), function), handle)


def call(function: Any, *arguments: Any) -> None:
    """Calls a function of the library; raises if it fails."""
    opened().check(function(*arguments))


def reference(struct: ctypes.Structure | None) -> Any:
    """A pointer to the struct, or NULL for None."""
    return None if struct is None else ctypes.byref(struct)


def number(function: Any, *arguments: Any, kind: Any = ctypes.c_uint64) -> int:
    """Calls a function that fills the number in its last argument, and returns that number."""
    found = kind()
    call(function, *arguments, ctypes.byref(found))
    return int(found.value)


def sized(kind: type[Struct], *values: Any, **fields: Any) -> Struct:
    """A struct for C with its size filled in. Fields that are not given are 0, their default."""
    return kind(ctypes.sizeof(kind), *values, **fields)


def report(record: type[Record], function: Any, *arguments: Any) -> Record:
    """Calls a function that fills the struct in its last argument, and returns that as a record."""
    struct = sized(getattr(_raw, record.__name__))
    call(function, *arguments, ctypes.byref(struct))
    return as_record(record, struct)


def as_record(record: type[Record], struct: ctypes.Structure) -> Record:
    """Converts a field: arrays of bytes become bytes, numbers of enums become members."""
    values = {}
    for field in dataclasses.fields(record):  # type: ignore[arg-type]
        kind = {"int": int, "builtins.bytes": bytes}.get(str(field.type)) or getattr(
            _raw, str(field.type).removeprefix("raw.")
        )
        values[field.name] = kind(getattr(struct, field.name))
    return record(**values)


def integer(value: SupportsIndex, what: str) -> int:
    """Returns an int; also accepts the integers of NumPy and PyTorch."""
    try:
        return operator.index(value)
    except (TypeError, RuntimeError):  # PyTorch's
        raise misuse(f"{what}: an integer is needed, this is {value!r}") from None


def unsigned(value: SupportsIndex, bits: int, what: str) -> int:
    """Refuses numbers that are too large, because ctypes would truncate them."""
    number = integer(value, what)
    if not 0 <= number < 1 << bits:
        raise misuse(f"{what}: {number} is not between 0 and 2^{bits} - 1")
    return number


def signed32(value: SupportsIndex, what: str) -> int:
    number = integer(value, what)
    if not -(2**31) <= number < 2**31:
        raise misuse(f"{what}: {number} is not between -(2^31) and 2^31 - 1")
    return number
