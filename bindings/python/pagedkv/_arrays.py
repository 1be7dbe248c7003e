"""Passes the caller's arrays to C as pkv_tensor, without a copy. An array that does not fit is
refused, and the error gives its numbers.
"""

from __future__ import annotations

import array
import ctypes
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from . import _dlpack
from ._handle import integer
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
Integers: TypeAlias = "Sequence[int] | npt.NDArray[np.integer[Any]]"
"""Integers of any type; refused if C's type cannot hold them."""
IntegerRows: TypeAlias = "Sequence[Sequence[int]] | npt.NDArray[np.integer[Any]]"
"""The same in two dimensions."""
TokenIds: TypeAlias = Integers

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
    """The array as a pkv_tensor, which keeps the array's memory alive. It also has `shape` and
    `writable`, so that nobody asks the array a second time.
    """
    return _dense(array, (rows, heads, dim), out) or _fitting(
        _memory_of(array, what), rows, heads, dim, what, out
    )


def _dense(array: Any, shape: tuple[int, int, int], out: bool) -> Tensor | None:
    """The usual case, at a third of the time."""
    if type(array) is not np.ndarray or array.shape != shape:
        return None
    dtype, flags = DENSE.get(array.dtype.str), array.flags
    if dtype is None or not flags.c_contiguous or (out and not flags.writeable):
        return None
    place = address(array) if array.size else None
    found = Tensor(place, dtype, 0, shape[1] * shape[2], shape[2], 0, array.nbytes)
    found.owner, found.shape, found.writable = array, shape, flags.writeable
    return found


def _fitting(
    memory: _dlpack.Memory, rows: int, heads: int, dim: int, what: str, out: bool
) -> Tensor:
    """Rows whose heads may also be side by side in one dimension."""
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
    # To C, 0 bytes are any number of them, but NULL has no rows.
    empty = 0 in shape
    reach = 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    found = Tensor(None if empty else memory.address, dtype, 0, *strides[-3:-1], *strides[:-3])
    found.bytes = 0 if empty else reach * (4 if dtype == Dtype.F32 else 2)
    found.owner, found.shape, found.writable = memory.owner, shape, memory.writable
    return found


class BatchRows:
    """The number of rows of each sequence, and the index of its first row (None: sequences follow
    each other without gaps): within its entry of a padded batch, or over all rows.

    C gets `c_lengths` and `c_first_rows`. Checks use the same numbers as Python's integers, whose
    sums never wrap.
    """

    def __init__(self, lengths: Integers, what: str, first_rows: Integers | None = None) -> None:
        self.c_lengths = integers(lengths, np.uint32, what, copy=True)
        self.lengths: list[int] = self.c_lengths.tolist()
        self.total = sum(self.lengths)
        """Of all sequences."""
        self.c_first_rows: npt.NDArray[np.uint32] | None = None
        self.reach = max(self.lengths, default=0)
        """The number of rows that an array needs: per entry of a padded batch, or with first rows
        in all."""
        if first_rows is not None:
            self._place(integers(first_rows, np.uint32, "first_rows", copy=True))

    def _place(self, first_rows: npt.NDArray[np.uint32]) -> None:
        if len(first_rows) != len(self.lengths):
            raise misuse(f"first_rows: {len(self.lengths)} are needed, {len(first_rows)} are there")
        self.c_first_rows = first_rows
        ends = (at + n for at, n in zip(first_rows.tolist(), self.lengths, strict=True) if n)
        self.reach = max(ends, default=0)

    def moved(self, first_rows: Integers | None) -> BatchRows:
        """The same rows at other places."""
        return BatchRows(self.c_lengths, "lengths", first_rows)


def batch_tensor(
    array: Any, rows: BatchRows, heads: int, dim: int, what: str, out: bool = False
) -> Tensor:
    """Like tensor(), for rows of several sequences. An array of four dimensions is a padded batch,
    [sequences][n][heads][dim].
    """
    gaps = rows.c_first_rows is not None
    if not gaps and (found := _dense(array, (rows.total, heads, dim), out)):
        return found
    memory = _memory_of(array, what)
    count = memory.shape[0] if memory.shape else 0
    if len(memory.shape) != 4:
        return _fitting(memory, count if gaps else rows.total, heads, dim, what, out)
    n = memory.shape[1]
    if count != len(rows.lengths) or n < rows.reach or memory.shape[2:] != (heads, dim) or n == 0:
        raise misuse(
            f"{what}: {_shown((len(rows.lengths), rows.reach, heads, dim))} (sequences, rows, "
            f"heads, dim) are needed, the array is {_shown(memory.shape)}"
        )
    return _tensor_of(memory, what, out)


def integers(
    given: Any, dtype: Any, what: str, *, dims: int = 1, copy: bool = False
) -> npt.NDArray[Any]:
    """A dense array of this type of integers, of a list or of an array of any type of integers.
    What the type cannot hold is refused, because C would get another number.

    All checks and C must use the result and nothing else of `given`. An array that is already as
    needed is returned itself; `copy` keeps other threads from changing what was checked.
    """
    if dims == 1 and not hasattr(given, "dtype"):
        return _listed(given, dtype, what)
    found = np.asarray(given) if hasattr(given, "dtype") else _nested(given, dtype, dims, what)
    if found.ndim != dims or (found.size and found.dtype.kind not in "iu"):
        needed = "a list" if dims == 1 else f"an array of {dims} dimensions"
        raise misuse(
            f"{what}: {needed} of integers is needed, this is {found.dtype} {_shown(found.shape)}"
        )
    if found.dtype != dtype and found.size and not np.can_cast(found.dtype, dtype):
        _check_range(int(found.min()), int(found.max()), dtype, what)
    flags = found.flags
    usable = found.dtype == dtype and flags.c_contiguous and flags.aligned
    made: npt.NDArray[Any] = found if usable and not copy else found.astype(dtype, order="C")
    return made


_CODES = {np.uint32: "I", np.int32: "i", np.uint64: "Q", np.int64: "q"}


def _listed(given: Any, dtype: Any, what: str) -> npt.NDArray[Any]:
    """Twice as fast as NumPy, whose own way makes floats of some lists of large integers."""
    try:
        numbers = [*given]  # because array.array takes bytes as they are
        return np.asarray(array.array(_CODES[dtype], numbers))
    except OverflowError:
        exact = [integer(number, what) for number in numbers]
        _check_range(min(exact), max(exact), dtype, what)
        raise
    except TypeError:
        raise misuse(f"{what}: a list of integers is needed, this is {given!r:.200}") from None


def _nested(given: Any, dtype: Any, dims: int, what: str) -> npt.NDArray[Any]:
    """Lists in lists; if they are no array of these dimensions, an array of what is in them."""
    found = np.array(given, object)
    if found.ndim != dims:
        return found
    return _listed(found.ravel().tolist(), dtype, what).reshape(found.shape)


def _check_range(low: int, high: int, dtype: Any, what: str) -> None:
    limits = np.iinfo(dtype)
    if not limits.min <= low <= high <= limits.max:
        raise misuse(f"{what}: {low} to {high} is not between {limits.min} and {limits.max}")


def some_integers(given: Any, count: int, dtype: Any, what: str) -> npt.NDArray[Any]:
    """A list of this many integers."""
    found = integers(given, dtype, what)
    if len(found) != count:
        raise misuse(f"{what} must be {counted(count, 'integer')}; this is {len(found)}")
    return found


def token_ids(tokens: TokenIds, what: str = "tokens") -> npt.NDArray[np.int32]:
    """Token ids as C takes them. An array of int32 is not copied."""
    return integers(tokens, np.int32, what)


def floats(array: Any, shape: tuple[int, ...], what: str, out: bool = False) -> Floats:
    """A dense float32 array of this shape. Other arrays are copied, or refused if they are
    outputs."""
    if out and not _is_output(array, np.float32):
        raise misuse(f"{what}: a dense, writable NumPy array of float32 is needed")
    found: Floats = np.ascontiguousarray(array, dtype=np.float32)
    if found.shape != shape:
        raise misuse(f"{what}: {_shown(shape)} are needed, the array is {_shown(found.shape)}")
    return found


def block_ids(
    array: Any, shape: tuple[int, int, int | None], what: str, out: bool = False
) -> npt.NDArray[np.uint32]:
    """A dense uint32 array of this shape; a last extent of None may be any. Other arrays of
    integers are copied, or refused if they are outputs.
    """
    if out and not _is_output(array, np.uint32):
        raise misuse(f"{what}: a dense, writable NumPy array of uint32 is needed")
    found = integers(array, np.uint32, what, dims=3)
    if found.shape != (*shape[:2], found.shape[2] if shape[2] is None else shape[2]):
        needed = "".join(f"[{'n' if n is None else n}]" for n in shape)
        raise misuse(
            f"{what}: {needed} (rows, KV heads, blocks) are needed, the array is "
            f"{_shown(found.shape)}"
        )
    return found


def _is_output(array: Any, dtype: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype == dtype and array.flags.carray


def address(array: npt.NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


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
