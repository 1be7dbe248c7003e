"""How configurations are shown."""

from __future__ import annotations

import dataclasses
import enum
import functools
from typing import Any

import numpy as np

from ._handle import integer


class Shown:
    """A frozen dataclass whose repr is a call that makes an equal object, with the fields that
    differ from their defaults. Arrays are shown by their shape and type, because they may be long.
    Integers of NumPy and others become Python's, because sums and products of small types wrap.
    """

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for name in _integers_of(kind):
            value = getattr(self, name)
            if type(value) is not int:
                object.__setattr__(self, name, integer(value, name))

    def __repr__(self) -> str:
        shown = [
            f"{field.name}={shown_value(getattr(self, field.name))}"
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
            if field.repr and not is_default(getattr(self, field.name), field.default)
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


@functools.cache
def _integers_of(described: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(described) if field.type == "int"]


def shown_value(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, np.ndarray):
        return f"<array {value.dtype} {list(value.shape)}>"
    return repr(value)


def is_default(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))


def counted(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
