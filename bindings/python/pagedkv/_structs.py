"""Structs for C, filled from their descriptions in Python."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import os
import sys
from typing import Any

import numpy as np

from ._handle import sized, unsigned
from .errors import misuse
from .generated import raw as _raw
from .generated.raw import Durability

BITS: dict[Any, int] = {ctypes.c_uint32: 32, ctypes.c_uint64: 64, ctypes.c_int: 31}
BITS[ctypes.c_float] = 0


def fill(struct: ctypes.Structure, described: Any) -> None:
    """Copies the fields of a dataclass to the C fields of these names; None keeps the default."""
    for name, bits in _numbers(type(struct), described.__class__):
        value = getattr(described, name)
        if value is not None:
            setattr(struct, name, unsigned(value, bits, name) if bits else value)


@functools.cache
def _numbers(struct: Any, described: Any) -> list[tuple[str, int]]:
    """The numeric fields that both have, and their width in C in bits; 0: a float."""
    given = {field.name for field in dataclasses.fields(described)}
    return [
        (name, BITS[kind]) for name, kind, *_ in struct._fields_ if name in given and kind in BITS
    ]


def durability(durable: bool) -> Durability:
    return Durability.ON if unsigned(durable, 1, "durable") else Durability.OFF


def point_to_bytes(struct: Any, name: str, given: bytes | None) -> None:
    """The field and its size; the caller keeps the bytes alive."""
    if given is not None:
        setattr(struct, name, ctypes.cast(ctypes.c_char_p(given), ctypes.c_void_p))
        setattr(struct, f"{name}_size", len(given))


def point_to_matrices(struct: Any, key: Any, value: Any, keep: list[Any]) -> None:
    """The two matrices of a rotation, for a struct with its dims; `keep` keeps them alive."""
    if key is None and value is None:
        return
    matrices = sized(_raw.RotationMatrices)
    for side_name, given, dim in (("key", key, 0), ("value", value, struct.value_dim)):
        name = f"{side_name}_rotation"
        if given is None:
            continue
        side = dim or struct.key_dim
        try:
            matrix = np.ascontiguousarray(given, np.float32)
        except (TypeError, ValueError) as wrong:
            raise misuse(f"{name} is not a matrix of numbers: {wrong}") from None
        if matrix.shape != (side, side):
            raise misuse(f"{name}: [{side}][{side}] is needed, the matrix is {matrix.shape}")
        keep.append(matrix)
        setattr(matrices, side_name, matrix.ctypes.data)
    keep.append(matrices)
    struct.rotation_matrices = ctypes.addressof(matrices)


def path_for_c(path: str | os.PathLike[str], name: str = "path") -> ctypes.Array[ctypes.c_char]:
    """The bytes of a path, with a NUL at the end. Refuses a path that contains a NUL."""
    text = path.__fspath__() if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise misuse(f"{name}: a str or an os.PathLike of one is needed, not {path!r}")
    try:
        # On Windows, os.fsencode() encodes lone surrogates, which are not UTF-8.
        encoded = text.encode() if sys.platform == "win32" else os.fsencode(text)
    except UnicodeEncodeError as wrong:
        raise misuse(f"{name}: {path!r} cannot be encoded in {wrong.encoding}") from None
    if b"\0" in encoded:
        raise misuse(f"{name}: there is a NUL in {path!r}")
    return ctypes.create_string_buffer(encoded)


def text_for_c(text: str | None, name: str) -> bytes | None:
    """None becomes NULL. Refuses a text that contains a NUL, where C would end it. No error repeats
    the text, because it may be a password.
    """
    if text is not None and "\0" in text:
        raise misuse(f"{name}: it contains a NUL")
    try:
        return None if text is None else text.encode()
    except UnicodeEncodeError as wrong:
        place = wrong.start
    raise misuse(f"{name}: character {place} cannot be encoded in UTF-8")
