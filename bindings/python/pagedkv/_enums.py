"""Enums of the library. A caller may give a member or its name; stored types also as types of
NumPy, ml_dtypes and PyTorch.
"""

from __future__ import annotations

import enum
from typing import Any, TypeAlias, TypeVar

import numpy as np

from ._handle import signed32
from .errors import misuse
from .generated.raw import Dtype

Member = TypeVar("Member", bound=enum.IntEnum)

DtypeLike: TypeAlias = "Dtype | str | Any"
"""A Dtype: a member, its name ("bf16"), or a type or its name in NumPy, ml_dtypes
or PyTorch (np.float16, ml_dtypes.bfloat16, torch.float8_e5m2, "bfloat16")."""

# Other libraries' types that mean exactly what we store. INT8 and INT4 have scales of their own, so
# these names give only the width. Unsigned bytes and the fp8 variants that end in "uz" are not
# stored.
TYPES = {
    "float32": Dtype.F32,
    "float16": Dtype.F16,
    "bfloat16": Dtype.BF16,
    "int8": Dtype.INT8,
    "int4": Dtype.INT4,
    "float8_e4m3fn": Dtype.FP8_E4M3,
    "float8_e5m2": Dtype.FP8_E5M2,
}


def enum_number(value: Any, kind: type[enum.IntEnum], what: str) -> int:
    """The number for C. The library refuses numbers that are not members."""
    return signed32(member(value, kind, what), what)


def member(value: Any, kind: type[Member], what: str) -> Member | Any:
    """The member for a name or a type; integers and None are returned unchanged."""
    name = value if isinstance(value, str) else _type_name(value) if kind is Dtype else None
    if name is None and (value is None or hasattr(value, "__index__")):
        return value
    if name is not None:
        found = kind.__members__.get(name.upper())
        if found is None and kind is Dtype and name in TYPES:
            return TYPES[name]
        if found is not None:
            return found
    names = ", ".join(each.name.lower() for each in kind)
    raise misuse(f"{what}: {name or value!r} is none of {names}")


def _type_name(value: Any) -> str | None:
    """The name of a type of NumPy, ml_dtypes or PyTorch."""
    if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        return str(value).removeprefix("torch.")
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return np.dtype(value).name if np.dtype(value).isnative else str(np.dtype(value))
    of_jax = getattr(value, "dtype", None)
    return str(of_jax) if isinstance(value, type) and isinstance(of_jax, np.dtype) else None
