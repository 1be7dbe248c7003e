"""Statuses of the library as exceptions. The hundreds digit of a status is its family, and each
family has a class.
"""

from __future__ import annotations

import errno

from .generated.raw import Status


class PagedKVError(Exception):
    """A call failed and has changed nothing. `status` is the reason; the text is the library's
    sentence with its numbers.
    """

    group: int | None = None
    """The first layer group that lacks blocks."""
    index: int | None = None
    """The entry of a list that the call refused: a session, block or item."""

    def __init__(
        self, status: Status | int, sentence: str, system_error: int | None = None
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.system_error = system_error
        """With IO: the errno, if there is one."""

    def __str__(self) -> str:
        name = self.status.name if isinstance(self.status, Status) else str(self.status)
        return f"{super().__str__()} ({name})"


class MisuseError(PagedKVError, ValueError):
    """1xx: the call is wrong: correct it."""


class BatchTooLargeError(MisuseError):
    """Each session of the batch fits, but they never fit together: begin fewer at a time."""


class UnavailableError(PagedKVError):
    """2xx: not now: something has run out or is in use; try again later."""


class OutOfBlocksError(UnavailableError):
    """Not enough free blocks."""

    blocks_short: int = 0
    """How many blocks must be freed before the same call can succeed."""


class CorruptError(PagedKVError):
    """3xx: the data cannot be used: damaged, of another model, or a wrong key."""


class SystemCallError(PagedKVError):
    """4xx: the system or a server refused."""


class InternalError(PagedKVError):
    """5xx: an invariant of the library does not hold. Please report it."""


FAMILIES: dict[int, type[PagedKVError]] = {
    1: MisuseError,
    2: UnavailableError,
    3: CorruptError,
    4: SystemCallError,
    5: InternalError,
}


def error_of(status: int, sentence: str) -> PagedKVError:
    """The exception for a status; an unknown status of a newer library stays a number."""
    known = Status(status) if status in Status._value2member_map_ else status
    if status == Status.OUT_OF_BLOCKS:
        return OutOfBlocksError(known, sentence)
    if status == Status.BATCH_TOO_LARGE:
        return BatchTooLargeError(known, sentence)
    return FAMILIES.get(status // 100, PagedKVError)(known, sentence)


def errno_of(error: BaseException) -> int:
    """The errno that a hook returns for an exception."""
    number = error.errno if isinstance(error, OSError) else None
    return number if isinstance(number, int) and 0 < number < 2**31 else errno.EIO


def misuse(sentence: str) -> MisuseError:
    """An error that this package finds before it calls the library."""
    return MisuseError(Status.INVALID_ARGUMENT, sentence)
