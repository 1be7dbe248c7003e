"""Arrays of the caller as pkv_tensor: nothing is copied, and what does not fit is refused with
numbers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from . import _dlpack
from .errors import misuse
from .generated.raw import Dtype, Tensor


class SupportsDLPack(Protocol):
    """PyTorch, JAX, CuPy and others: anything in the processor's memory."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...


Rows: TypeAlias = "npt.NDArray[Any] | SupportsDLPack | memoryview"
"""Rows of f32, f16 or bf16, [rows][heads][dim] or [rows][heads * dim], the dims of a head side by
side: a NumPy array (bf16 as ml_dtypes.bfloat16 or, bit by bit, as uint16), anything with DLPack,
or a buffer."""
Floats: TypeAlias = npt.NDArray[np.float32]
TokenIds: TypeAlias = "Sequence[int] | npt.NDArray[np.integer[Any]]"

DTYPES = {"float32": Dtype.F32, "float16": Dtype.F16, "bfloat16": Dtype.BF16, "uint16": Dtype.BF16}
DENSE = {"<f4": Dtype.F32, "<f2": Dtype.F16}


def _memory_of(array: Any, what: str) -> _dlpack.Memory:
    if not isinstance(array, np.ndarray):
        if hasattr(array, "__dlpack__"):
            return _dlpack.memory_of(array)
        try:
            array = np.asarray(memoryview(array))
        except (TypeError, ValueError):
            raise TypeError(
                f"{what}: a {type(array).__name__} is no array: NumPy, DLPack or a buffer is needed"
            ) from None
    dtype = array.dtype
    size = dtype.itemsize
    strides = tuple(stride // size for stride in array.strides)
    if not dtype.isnative or any(stride % size for stride in array.strides):
        raise misuse(
            f"{what}: bytes are swapped or elements lie between others ({dtype}, byte strides "
            f"{array.strides})"
        )
    address = array.__array_interface__["data"][0]
    return _dlpack.Memory(address, dtype.name, array.shape, strides, array.flags.writeable, array)


def _shown(shape: Sequence[int]) -> str:
    return "".join(f"[{n}]" for n in shape)


def _strides(memory: _dlpack.Memory, rows: int, heads: int, dim: int, what: str) -> tuple[int, int]:
    """Row and head stride. Those of an extent of 1 may be anything in the array: nothing is ever
    read by them.
    """
    shape, strides = memory.shape, memory.strides
    if shape == (rows, heads * dim):
        row_stride, head_stride, dim_stride = strides[0], dim * strides[1], strides[1]
    elif shape == (rows, heads, dim):
        row_stride, head_stride, dim_stride = strides
    else:
        raise misuse(
            f"{what}: {_shown((rows, heads, dim))} (rows, heads, dim) are needed, the array is "
            f"{_shown(shape)}"
        )
    if heads == 1 or rows == 0:
        head_stride = dim
    extent = (heads - 1) * head_stride + dim
    if rows <= 1:
        row_stride, dim_stride = extent, dim_stride if rows else 1
    if dim_stride != 1 or head_stride < dim or row_stride < extent:
        raise misuse(
            f"{what}: element strides {strides} of {_shown(shape)}: dims must be side by side, "
            "and heads within their row"
        )
    return row_stride, head_stride


def tensor(array: Any, rows: int, heads: int, dim: int, what: str, out: bool = False) -> Tensor:
    """The array as a pkv_tensor, which keeps its memory where it is."""
    if type(array) is np.ndarray and array.shape == (
        rows,
        heads,
        dim,
    ):  # the usual case, at a third of the time
        dtype, flags = DENSE.get(array.dtype.str), array.flags
        if dtype is not None and flags.c_contiguous and (flags.writeable or not out):
            found = Tensor(address(array), dtype, 0, heads * dim, dim)
            found.owner = array
            return found
    memory = _memory_of(array, what)
    dtype = DTYPES.get(memory.dtype)
    if dtype is None:
        raise misuse(
            f"{what}: rows of float32, float16 or bfloat16 (or its bits as uint16) are needed, "
            f"the array has {memory.dtype}"
        )
    if out and not memory.writable:
        raise misuse(f"{what}: the array is read only")
    row_stride, head_stride = _strides(memory, rows, heads, dim, what)
    found = Tensor(memory.address, dtype, 0, row_stride, head_stride)
    found.owner = memory.owner
    return found


def token_ids(tokens: TokenIds, what: str = "tokens") -> npt.NDArray[np.int32]:
    """Token ids as the C side takes them; an array of int32 is taken as it is."""
    array = np.asarray(tokens)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise misuse(
            f"{what}: a list of integers is needed, this is {array.dtype} {_shown(array.shape)}"
        )
    if (
        array.dtype != np.int32
        and array.size
        and not -(2**31) <= int(array.min()) <= int(array.max()) < 2**31
    ):
        raise misuse(f"{what}: ids from {array.min()} to {array.max()} do not fit into 32 bits")
    return np.ascontiguousarray(array, dtype=np.int32)


def floats(array: Any, shape: tuple[int, ...], what: str, out: bool = False) -> Floats:
    """float32 of this shape, dense: copied where it is not (out: refused)."""
    if out:
        usable = (
            isinstance(array, np.ndarray)
            and array.dtype == np.float32
            and array.flags.c_contiguous
            and array.flags.writeable
        )
        if not usable:
            raise misuse(f"{what}: a dense, writable NumPy array of float32 is needed")
    found: Floats = np.ascontiguousarray(array, dtype=np.float32)
    if found.shape != shape:
        raise misuse(f"{what}: {_shown(shape)} are needed, the array is {_shown(found.shape)}")
    return found


def counts(numbers: Sequence[int], limit: int, what: str) -> None:
    """ctypes would cut off what does not fit."""
    if len(numbers) and not 0 <= min(numbers) <= max(numbers) < limit:
        raise misuse(f"{what}: {min(numbers)} to {max(numbers)} is not between 0 and {limit - 1}")


def address(array: npt.NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def pointer_array(handles: Sequence[int | None]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(handles))(*handles)
