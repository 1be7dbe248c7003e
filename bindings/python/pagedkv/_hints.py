"""Hints: what an engine knows about the future of cached tokens."""

from __future__ import annotations

import ctypes
from typing import Any

from ._enums import enum_number
from ._handle import as_record, call, sized, unsigned
from .generated import raw as _raw
from .generated.raw import HintAction, Retention
from .generated.records import HintResult


def give(
    function: Any,
    target: tuple[Any, ...],
    action: HintAction | str,
    first: int,
    end: int | None,
    retention: Retention | str,
    duration_ms: int,
) -> HintResult:
    """Gives a hint about a text or a session."""
    hint, result = sized(_raw.Hint), sized(_raw.HintResult)
    hint.action = enum_number(action, HintAction, "action")
    hint.first = unsigned(first, 64, "first")
    if end is not None:
        hint.end = unsigned(end, 64, "end")
    elif hint.action != HintAction.EXPECT_RETURN:
        hint.end = _raw.TO_END
    hint.retention = enum_number(retention, Retention, "retention")
    hint.duration_ms = unsigned(duration_ms, 64, "duration_ms")
    call(function, *target, ctypes.byref(hint), ctypes.byref(result))
    return as_record(HintResult, result)
