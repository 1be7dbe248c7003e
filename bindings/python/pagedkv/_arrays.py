"""Passes the caller's arrays to C as pkv_tensor, without a copy. An array that does not fit is
refused, and the error gives its numbers.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from . import _dlpack
from ._library import opened
from ._repr import counted
from .errors import misuse
from .generated.raw import Dtype, Status, Tensor


class SupportsDLPack(Protocol):
    """An array of PyTorch, JAX, CuPy or others, in the CPU's memory."""

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
        if type(array).__module__ == "torch" and array.is_cpu and not array.requires_grad:
            return _memory_of_torch(array)  # the same as through DLPack, in a quarter of the time
        if hasattr(array, "__dlpack__"):
            return _dlpack.memory_of(array)
        try:
            array = np.asarray(memoryview(array))
        except (TypeError, ValueError):
            raise TypeError(
                f"{what}: a {type(array).__name__} is not an array: give NumPy, DLPack or a buffer"
            ) from None
    dtype = array.dtype
    size = dtype.itemsize
    strides = tuple(stride // size for stride in array.strides)
    if not dtype.isnative or any(stride % size for stride in array.strides):
        raise misuse(
            f"{what}: bytes are swapped, or strides are not multiples of the element size "
            f"({dtype}, byte strides {array.strides})"
        )
    address = array.__array_interface__["data"][0]
    return _dlpack.Memory(address, dtype.name, array.shape, strides, array.flags.writeable, array)


def _memory_of_torch(tensor: Any) -> _dlpack.Memory:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return _dlpack.Memory(
        tensor.data_ptr(), dtype, tuple(tensor.shape), tensor.stride(), True, tensor
    )


def _shown(shape: Sequence[int]) -> str:
    return "".join(f"[{n}]" for n in shape)


def tensor(array: Any, rows: int, heads: int, dim: int, what: str, out: bool = False) -> Tensor:
    """The array as a pkv_tensor, which keeps the array's memory alive."""
    if type(array) is np.ndarray and array.shape == (
        rows,
        heads,
        dim,
    ):  # the usual case, at a third of the time
        dtype, flags = DENSE.get(array.dtype.str), array.flags
        if dtype is not None and flags.c_contiguous and (flags.writeable or not out):
            found = Tensor(address(array), dtype, heads * dim, dim, 0)
            found.owner = array
            return found
    memory = _memory_of(array, what)
    if memory.shape == (rows, heads * dim):
        row, last = memory.strides
        memory = memory._replace(shape=(rows, heads, dim), strides=(row, dim * last, last))
    if memory.shape != (rows, heads, dim):
        raise misuse(
            f"{what}: {_shown((rows, heads, dim))} (rows, heads, dim) are needed, the array is "
            f"{_shown(memory.shape)}"
        )
    return _tensor_of(memory, what, out)


def _tensor_of(memory: _dlpack.Memory, what: str, out: bool) -> Tensor:
    """Rows, or with four dimensions a padded batch. C refuses rows and heads that overlap."""
    shape = memory.shape
    # The stride of an axis with one entry is never used and may be anything.
    strides = [
        stride if n > 1 and 0 not in shape else dense
        for n, stride, dense in zip(
            shape, memory.strides, _dlpack.dense_strides(shape), strict=True
        )
    ]
    if strides[-1] != 1 or min(strides) < 1:
        raise misuse(
            f"{what}: element strides {memory.strides} of {_shown(shape)}: dims must be side by "
            "side, and the other strides positive"
        )
    dtype = DTYPES.get(memory.dtype)
    if dtype is None:
        raise misuse(
            f"{what}: rows of float32, float16 or bfloat16 (or its bits as uint16) are needed, "
            f"the array has {memory.dtype}"
        )
    if out and not memory.writable:
        raise misuse(f"{what}: the array is read only")
    found = Tensor(memory.address, dtype, *strides[-3:-1], *strides[:-3])
    found.owner = memory.owner
    return found


@dataclasses.dataclass(frozen=True)
class BatchRows:
    """The number of rows of each sequence, and the index of its first row: within its entry of a
    padded batch, or over all rows.
    """

    lengths: Sequence[int]
    first_rows: Sequence[int] | None = None

    @functools.cached_property
    def total(self) -> int:
        """Of all sequences."""
        return sum(self.lengths)

    @functools.cached_property
    def reach(self) -> int:
        """The number of rows that an array needs: per entry of a padded batch, or in all."""
        first = self.first_rows or [0] * len(self.lengths)
        ends = [at + n for at, n in zip(first, self.lengths, strict=True) if n]
        return max(ends, default=0)


def place_rows(
    lengths: Sequence[int], first_rows: Sequence[int] | None
) -> tuple[BatchRows, ctypes.Array[Any] | None]:
    """The rows of a batch, and their first rows for C. None: sequences follow each other without
    gaps."""
    if first_rows is None:
        return BatchRows(lengths), None
    numbers = number_array(first_rows, "first_rows")
    if len(numbers) != len(lengths):
        raise misuse(f"first_rows: {len(lengths)} are needed, {len(numbers)} are there")
    return BatchRows(lengths, list(first_rows)), numbers


def batch_tensor(
    array: Any, rows: BatchRows, heads: int, dim: int, what: str, out: bool = False
) -> Tensor:
    """Like tensor(), for rows of several sequences. An array of four dimensions is a padded batch,
    [sequences][n][heads][dim].
    """
    if getattr(array, "ndim", 0) != 4:
        count = rows.total if rows.first_rows is None else int(array.shape[0])
        if count < (rows.total if rows.first_rows is None else rows.reach):
            raise misuse(f"{what}: the array has {counted(count, 'row')}; it needs {rows.reach}")
        return tensor(array, count, heads, dim, what, out)
    memory = _memory_of(array, what)
    count, n = memory.shape[:2]
    if (
        count != len(rows.lengths)
        or n < rows.reach
        or tuple(memory.shape[2:]) != (heads, dim)
        or n == 0
    ):
        raise misuse(
            f"{what}: {_shown((len(rows.lengths), rows.reach, heads, dim))} (sequences, rows, "
            f"heads, dim) are needed, the array is {_shown(memory.shape)}"
        )
    return _tensor_of(memory, what, out)


def token_ids(tokens: TokenIds, what: str = "tokens") -> npt.NDArray[np.int32]:
    """Token ids as C takes them. An array of int32 is not copied."""
    if isinstance(tokens, list):
        # Twice as fast as NumPy. What it refuses gets a sentence below.
        with contextlib.suppress(TypeError, OverflowError):
            tokens = array.array("i", tokens)
    ids = np.asarray(tokens)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        shown = f"{ids.dtype} {_shown(ids.shape)}" if ids.ndim else repr(tokens)
        raise misuse(f"{what}: a list of integers is needed, this is {shown}")
    if (
        ids.dtype != np.int32
        and ids.size
        and not -(2**31) <= int(ids.min()) <= int(ids.max()) < 2**31
    ):
        raise misuse(f"{what}: ids from {ids.min()} to {ids.max()} do not fit into 32 bits")
    return np.ascontiguousarray(ids, dtype=np.int32)


def floats(array: Any, shape: tuple[int, ...], what: str, out: bool = False) -> Floats:
    """A dense float32 array of this shape. Other arrays are copied, or refused if they are
    outputs."""
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
    """Refuses numbers that are too large, because ctypes would truncate them."""
    if len(numbers) and not 0 <= min(numbers) <= max(numbers) < limit:
        raise misuse(f"{what}: {min(numbers)} to {max(numbers)} is not between 0 and {limit - 1}")


def block_ids(
    array: Any, shape: tuple[int, int, int | None], what: str, out: bool = False
) -> npt.NDArray[np.uint32]:
    """A dense uint32 array of this shape; a last extent of None may be any. Other arrays are
    copied, or refused if they are outputs.
    """
    if out:
        usable = isinstance(array, np.ndarray) and array.flags.c_contiguous
        if not usable or not array.flags.writeable:
            raise misuse(f"{what}: a dense, writable NumPy array of uint32 is needed")
    found: npt.NDArray[Any] = np.asarray(array)
    wanted = shape if shape[2] is not None or found.ndim != 3 else (*shape[:2], found.shape[2])
    if found.dtype != np.uint32 or found.shape != wanted:
        needed = "".join(f"[{'n' if n is None else n}]" for n in shape)
        raise misuse(
            f"{what}: {needed} (rows, KV heads, blocks) of uint32 are needed, the array is "
            f"{found.dtype} {_shown(found.shape)}"
        )
    return np.ascontiguousarray(found)


def positions64(
    numbers: Sequence[int] | npt.NDArray[np.integer[Any]], count: int, what: str
) -> npt.NDArray[np.int64]:
    """A list of 64-bit positions of this length."""
    array = np.asarray(numbers)
    if array.shape != (count,) or (array.size and array.dtype.kind not in "iu"):
        raise misuse(
            f"{what} must be {counted(count, 'integer')}; this is {array.dtype} {array.shape}"
        )
    return np.ascontiguousarray(array, np.int64)


def uint32s(
    numbers: Sequence[int] | npt.NDArray[np.integer[Any]], count: int, what: str
) -> npt.NDArray[np.uint32]:
    """A list of this length of numbers that fit into 32 bits."""
    array = np.asarray(numbers)
    if array.shape != (count,) or (array.size and array.dtype.kind not in "iu"):
        raise misuse(
            f"{what} must be {counted(count, 'integer')}; this is {array.dtype} {array.shape}"
        )
    if array.size and (array.min() < 0 or array.max() > 0xFFFFFFFF):
        raise misuse(f"{what}: numbers from 0 to 2^32 - 1 are needed, this has others: {array}")
    return np.ascontiguousarray(array, np.uint32)


def address(array: npt.NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def number_array(numbers: Sequence[int], what: str, kind: Any = ctypes.c_uint32) -> Any:
    """A list of unsigned numbers for C."""
    code = {ctypes.c_uint32: "I", ctypes.c_uint64: "Q"}[kind]
    try:
        # Ten times as fast as (kind * n)(*numbers), and refuses what that would truncate.
        found = array.array(code, [*numbers])
    except OverflowError:
        counts(numbers, 1 << 8 * ctypes.sizeof(kind), what)
        raise
    return (kind * len(found)).from_buffer(found)


def pointer_array(handles: Sequence[int]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(handles)).from_buffer(array.array("Q", handles))


def growing(
    dtype: Any, function: Any, *arguments: Any, arrays: int = 1
) -> tuple[npt.NDArray[Any], ...]:
    """Arrays from a function that returns BUFFER_TOO_SMALL and their length if they are too
    short."""
    count = ctypes.c_size_t(64)
    while True:
        capacity = count.value
        found = np.empty((arrays, capacity), dtype)
        places = [address(array) for array in found]
        status = function(*arguments, capacity, *places, ctypes.byref(count))
        if status != Status.BUFFER_TOO_SMALL:
            opened().check(status)
            return tuple(array[: count.value] for array in found)
