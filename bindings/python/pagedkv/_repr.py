"""How configurations are shown."""

from __future__ import annotations

import dataclasses
import enum
import functools
from typing import Any

import numpy as np

from ._enums import member
from ._handle import integer
from .generated import raw as _raw


class Shown:
    """A frozen dataclass whose repr is a call that makes an equal object, with the fields that
    differ from their defaults. Arrays are shown by their shape and type, because they may be long.
    Integers of NumPy and others become Python's, because sums and products of small types wrap.
    Names of enums become members.
    """

    def __init_subclass__(cls) -> None:
        """Adds what generated bases say about their fields."""
        bases = [base for base in cls.__mro__[1:] if base.__module__.endswith(".configs")]
        docs = [cls.__doc__, *(base.__doc__ for base in bases)]
        cls.__doc__ = "\n\n    ".join(doc.strip() for doc in docs if doc)

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for name, enum_kind in _numbers_of(kind):
            value = getattr(self, name)
            if enum_kind is not None:
                object.__setattr__(self, name, member(value, enum_kind, name))
            elif type(value) is not int:
                object.__setattr__(self, name, integer(value, name))

    def __repr__(self) -> str:
        shown = [
            f"{field.name}={shown_value(getattr(self, field.name))}"
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
            if field.repr and not is_default(getattr(self, field.name), field.default)
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


@functools.cache
def _numbers_of(described: Any) -> list[tuple[str, Any]]:
    """The fields that are integers, with None, or enums."""
    kinds = [(field.name, str(field.type).split(" ")[0]) for field in dataclasses.fields(described)]
    known: dict[str, Any] = {"int": None, "DtypeLike": _raw.Dtype}
    known |= {name: kind for name, kind in vars(_raw).items() if hasattr(kind, "__members__")}
    return [(name, known[kind]) for name, kind in kinds if kind in known]


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
