"""K and V of one layer in paged memory, a cache's or your own, and calls that write rows to it."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._arrays import (
    Floats,
    Rows,
    address,
    batch_tensor,
    number_array,
    place_rows,
    positions64,
    tensor,
)
from ._cache_base import CacheBase
from ._enums import DtypeLike, enum_number
from ._handle import call, number, reference, sized, unsigned
from ._library import library
from ._memory import Memory
from ._repr import counted
from ._structs import point_to_matrices
from .compute import Compute, handle_of
from .errors import misuse
from .generated import raw as _raw
from .generated.raw import Dtype, Layout, Rotation


class KVView:
    """K and V of one layer in paged memory. `struct` has addresses and strides as pkv_kv_view
    describes them.

    A view keeps its cache from being collected. If the cache was closed, `attention` raises a
    MisuseError (STALE_HANDLE); while `attention` reads its memory, the cache cannot be closed
    (BUSY). Code that reads from the addresses itself must keep the cache open.
    """

    def __init__(self, struct: _raw.KVView, owner: object, memory: Memory | None = None) -> None:
        self.struct = struct
        self._owner = owner
        self._memory = memory

    @classmethod
    def of_cache(cls, cache: CacheBase, layer: int) -> KVView:
        struct = sized(_raw.KVView)
        number = unsigned(layer, 32, "layer")
        call(library().cache_get_kv_view, cache.handle, number, ctypes.byref(struct))
        return cls(struct, cache, cache._memory)

    @classmethod
    def of_arrays(cls, k: Rows, v: Rows | None, block_size: int) -> KVView:
        """A view of your own arrays [blocks * block_size][kv_heads][dim]. v None: V is the same as
        K.
        """
        given = [array for array in (k, v) if array is not None]
        shapes = [tuple(int(n) for n in getattr(array, "shape", ())) for array in given]
        if (
            any(len(shape) != 3 for shape in shapes)
            or shapes[0][:2] != shapes[-1][:2]
            or block_size < 1
            or shapes[0][0] % block_size
        ):
            raise misuse(
                f"k and v: [blocks * {block_size}][kv_heads][dim] are needed, the arrays are "
                f"{shapes}"
            )
        struct = sized(_raw.KVView, layout=Layout.PLAIN, block_size=block_size)
        slots, struct.kv_heads, struct.key_dim = shapes[0]
        struct.value_dim, struct.blocks = shapes[-1][2], slots // block_size
        struct.latent = v is None
        struct.owners = owners = [tensor(k, slots, struct.kv_heads, struct.key_dim, "k")]
        keys = owners[0]
        struct.k, struct.dtype = keys.data, keys.dtype
        struct.k_row_stride, struct.k_head_stride = keys.row_stride, keys.head_stride
        struct.k_block_stride = block_size * keys.row_stride
        if v is not None:
            values = tensor(v, slots, struct.kv_heads, struct.value_dim, "v")
            owners.append(values)
            struct.v, struct.value_dtype = values.data, values.dtype
            struct.v_row_stride, struct.v_head_stride = values.row_stride, values.head_stride
            struct.v_block_stride = block_size * values.row_stride
        return cls(struct, owners)

    @classmethod
    def allocate(
        cls,
        blocks: int,
        block_size: int,
        kv_heads: int,
        key_dim: int,
        value_dim: int = 0,
        dtype: DtypeLike = Dtype.F32,
        value_dtype: DtypeLike | None = None,
        layout: Layout | str = Layout.PACKED,
        latent: bool = False,
        rotation: Rotation | str = Rotation.NONE,
        key_rotation: npt.ArrayLike | None = None,
        value_rotation: npt.ArrayLike | None = None,
    ) -> KVView:
        """A view of new memory of zeros, laid out like a cache's, in any stored type. With rotation
        MATRIX, the matrices are [key_dim][key_dim] and [value_dim][value_dim], and orthogonal.
        """
        struct = sized(_raw.KVView)
        given = {
            "layout": enum_number(layout, Layout, "layout"),
            "block_size": block_size,
            "kv_heads": kv_heads,
            "key_dim": key_dim,
            "value_dim": value_dim,
            "dtype": enum_number(dtype, Dtype, "dtype"),
            "value_dtype": enum_number(
                0 if value_dtype is None else value_dtype, Dtype, "value_dtype"
            ),
            "blocks": blocks,
            "rotation": enum_number(rotation, Rotation, "rotation"),
            "latent": latent,
        }
        if value_dtype is not None:
            given["value_dtype"] = enum_number(value_dtype, Dtype, "value_dtype")
        for name, value in given.items():
            setattr(struct, name, unsigned(value, 31, name))
        owners: list[Any] = []
        struct.owners = owners
        point_to_matrices(struct, key_rotation, value_rotation, owners)
        memory = np.zeros(plan_view(struct) + 63, np.uint8)
        plan_view(struct, -(-address(memory) // 64) * 64)
        return cls(struct, memory)

    def __repr__(self) -> str:
        view = self.struct
        kinds = " and ".join(
            Dtype(kind).name for kind in dict.fromkeys((view.dtype, view.value_dtype)) if kind
        )
        return (
            f"<KVView: {view.blocks} blocks of {view.block_size} tokens, "
            f"{counted(view.kv_heads, 'KV head')} of {view.key_dim} and {view.value_dim} dims, "
            f"{kinds}, {Layout(view.layout).name}>"
        )

    @property
    def dtype(self) -> Dtype:
        return Dtype(self.struct.dtype)

    def _reading(self) -> contextlib.AbstractContextManager[None]:
        """Keeps the memory in place inside `with`."""
        return contextlib.nullcontext() if self._memory is None else self._memory.read()


def plan_view(view: _raw.KVView, begin: int | None = None) -> int:
    """Fills in strides, and addresses in memory that begins at this address. Returns the size of
    the view in bytes.
    """
    view.k = begin
    return number(library().kv_view_plan, ctypes.byref(view))


class Sequences:
    """pkv_kv_sequences for C, which keeps alive what it points to."""

    def __init__(
        self,
        query_lengths: Sequence[int],
        kv_lengths: Sequence[int],
        block_tables: npt.NDArray[np.uint32],
        query_heads: int,
        first_rows: Sequence[int] | None,
        query_positions: Sequence[int] | None,
    ) -> None:
        count = len(query_lengths)
        if not count == len(kv_lengths) == len(block_tables) or block_tables.ndim != 2:
            raise misuse(
                f"{count} query lengths, {len(kv_lengths)} kv lengths, block tables "
                f"{block_tables.shape}"
            )
        lengths = number_array(query_lengths, "query_lengths")
        totals = number_array(kv_lengths, "kv_lengths", ctypes.c_uint64)
        self.rows, first = place_rows(list(query_lengths), first_rows)
        tables = np.ascontiguousarray(block_tables, np.uint32)
        self._keep: list[Any] = [tables, lengths, totals, first]
        heads = unsigned(query_heads, 32, "query_heads")
        places = ctypes.addressof(lengths), ctypes.addressof(totals), address(tables)
        self.struct = sized(_raw.KVSequences, heads, count, *places, tables.shape[1])
        if first is not None:
            self.struct.first_rows = ctypes.addressof(first)
        if query_positions is not None:
            positions = positions64(query_positions, self.rows.total, "query_positions")
            self._keep.append(positions)
            self.struct.query_positions = address(positions)


def kv_write(
    kv: KVView,
    k: Rows,
    v: Rows | None,
    query_lengths: Sequence[int],
    kv_lengths: Sequence[int],
    block_tables: npt.NDArray[np.uint32],
    *,
    first_rows: Sequence[int] | None = None,
    query_positions: Sequence[int] | None = None,
    compute: Compute | None = None,
) -> None:
    """Stores the rows of the last positions of each sequence (or of `query_positions`) in your own
    memory. The arguments are those of kv_attend(). v None: values are in the dims of k.
    """
    sequences = Sequences(query_lengths, kv_lengths, block_tables, 1, first_rows, query_positions)
    view, rows = kv.struct, sequences.rows
    keys = batch_tensor(k, rows, view.kv_heads, view.key_dim, "k")
    values = None if v is None else batch_tensor(v, rows, view.kv_heads, view.value_dim, "v")
    with kv._reading():
        into = handle_of(compute), ctypes.byref(view), ctypes.byref(sequences.struct)
        call(library().kv_write, *into, ctypes.byref(keys), reference(values))


def kv_write_slots(
    kv: KVView,
    slots: Sequence[int] | npt.NDArray[np.int64],
    k: Rows,
    v: Rows | None = None,
    *,
    compute: Compute | None = None,
) -> None:
    """Stores a row of k and v ([rows][kv_heads][dim]) in each slot, block * block_size + offset;
    rows with the slot NO_SLOT are padding. v None: values are in the dims of k.
    """
    view, numbers = kv.struct, positions64(slots, len(slots), "slots")
    keys = tensor(k, len(numbers), view.kv_heads, view.key_dim, "k")
    values = None if v is None else tensor(v, len(numbers), view.kv_heads, view.value_dim, "v")
    with kv._reading():
        into = handle_of(compute), ctypes.byref(view), len(numbers), address(numbers)
        call(library().kv_write_slots, *into, ctypes.byref(keys), reference(values))


def kv_read_slots(
    kv: KVView, slots: Sequence[int] | npt.NDArray[np.int64], *, compute: Compute | None = None
) -> tuple[Floats, Floats]:
    """Keys [rows][kv_heads][key_dim] and values [rows][kv_heads][value_dim] of these slots, as
    float32; zeros for NO_SLOT.
    """
    view, numbers = kv.struct, positions64(slots, len(slots), "slots")
    shapes = [(len(numbers), view.kv_heads, dim) for dim in (view.key_dim, view.value_dim)]
    k, v = (np.zeros(shape, np.float32) for shape in shapes)
    rows = [
        ctypes.byref(tensor(array, *shape, "rows", out=True))
        for array, shape in zip((k, v), shapes, strict=True)
    ]
    with kv._reading():
        source = handle_of(compute), ctypes.byref(view), len(numbers), address(numbers)
        call(library().kv_read_slots, *source, *rows)
    return k, v
