"""Statuses of the library as exceptions. The hundreds digit of a status is its family, and each
family has a class.
"""

from __future__ import annotations

from .generated.raw import Status


class PagedKVError(Exception):
    """A call failed and has changed nothing. `status` is why; the text is the library's sentence
    with its numbers.
    """

    def __init__(self, status: Status | int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status

    def __str__(self) -> str:
        name = self.status.name if isinstance(self.status, Status) else str(self.status)
        return f"{super().__str__()} ({name})"


class MisuseError(PagedKVError, ValueError):
    """1xx: fix the call."""


class ExhaustedError(PagedKVError):
    """2xx: free something, then try again; that cannot help a request that is TOO_LARGE."""


class OutOfBlocksError(ExhaustedError):
    """Not enough free blocks."""

    blocks_short: int | None = None
    """How many must be freed before the same call can work, where the call tells."""


class BatchTooLargeError(ExhaustedError):
    """Each session of the batch fits, but never all at once: begin fewer of them at a time."""


class CorruptError(PagedKVError):
    """3xx: the data is bad."""


class SystemCallError(PagedKVError):
    """4xx: the operating system said no."""


class InternalError(PagedKVError):
    """5xx: an invariant of the library does not hold. Please report it."""


FAMILIES: dict[int, type[PagedKVError]] = {
    1: MisuseError,
    2: ExhaustedError,
    3: CorruptError,
    4: SystemCallError,
    5: InternalError,
}


def error_of(status: int, sentence: str) -> PagedKVError:
    """The exception for a status; one of a newer library keeps its number."""
    known = Status(status) if status in Status._value2member_map_ else status
    if status == Status.OUT_OF_BLOCKS:
        return OutOfBlocksError(known, sentence)
    if status == Status.BATCH_TOO_LARGE:
        return BatchTooLargeError(known, sentence)
    return FAMILIES.get(status // 100, PagedKVError)(known, sentence)


def misuse(sentence: str) -> MisuseError:
    """What this package refuses before the library sees it."""
    return MisuseError(Status.INVALID_ARGUMENT, sentence)
