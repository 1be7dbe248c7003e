"""K and V of one layer in paged memory, a cache's or your own, and calls that write rows to it."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from ._arrays import (
    BatchRows,
    Floats,
    IntegerRows,
    Integers,
    Rows,
    address,
    batch_tensor,
    integers,
    some_integers,
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

    def __init__(
        self,
        struct: _raw.KVView,
        owner: object,
        memory: Memory | None = None,
        read_only: str | None = None,
    ) -> None:
        """`read_only` says why nobody may write to it; None: anybody may."""
        self.struct = struct
        self._owner = owner
        self._memory = memory
        self._read_only = read_only

    @classmethod
    def of_cache(cls, cache: CacheBase, layer: int) -> KVView:
        struct = sized(_raw.KVView)
        number = unsigned(layer, 32, "layer")
        call(library().cache_get_kv_view, cache.handle, number, ctypes.byref(struct))
        reason = "it shows a cache's memory, which only batches may write"
        return cls(struct, cache, cache._memory, reason)

    @classmethod
    def of_arrays(cls, k: Rows, v: Rows | None, block_size: int) -> KVView:
        """A view of your own arrays [blocks * block_size][kv_heads][dim]. v None: V is the same as
        K. Of read-only arrays the view is read only, too.
        """
        size = unsigned(block_size, 32, "block_size")
        given = [array for array in (k, v) if array is not None]
        shapes = [tuple(int(n) for n in getattr(array, "shape", ())) for array in given]
        if (
            any(len(shape) != 3 for shape in shapes)
            or shapes[0][:2] != shapes[-1][:2]
            or size < 1
            or shapes[0][0] % size
        ):
            raise misuse(
                f"k and v: [blocks * {size}][kv_heads][dim] are needed, the arrays are " f"{shapes}"
            )
        struct = sized(_raw.KVView, layout=Layout.PLAIN, block_size=size)
        (slots, heads, dim), value_dim = shapes[0], shapes[-1][2]
        for name, extent in (("kv_heads", heads), ("key_dim", dim), ("value_dim", value_dim)):
            setattr(struct, name, unsigned(extent, 32, name))
        struct.blocks = slots // size
        struct.latent = v is None
        struct.owners = owners = [tensor(k, slots, heads, dim, "k")]
        keys = owners[0]
        struct.k, struct.dtype = keys.data, keys.dtype
        struct.k_row_stride, struct.k_head_stride = keys.row_stride, keys.head_stride
        struct.k_block_stride = size * keys.row_stride
        if v is not None:
            values = tensor(v, slots, heads, value_dim, "v")
            owners.append(values)
            struct.v, struct.value_dtype = values.data, values.dtype
            struct.v_row_stride, struct.v_head_stride = values.row_stride, values.head_stride
            struct.v_block_stride = size * values.row_stride
        writable = all(owner.writable for owner in owners)
        return cls(struct, owners, read_only=None if writable else "its arrays are read only")

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
        """A view of new memory of zeros, laid out like a cache's, in any stored type. Experimental:
        `key_rotation` and `value_rotation`, as in LayerGroup.
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

    def _writable(self) -> _raw.KVView:
        """The struct, for a call that writes to the memory."""
        if self._read_only is not None:
            raise misuse(f"the view cannot be written: {self._read_only}")
        return self.struct


def plan_view(view: _raw.KVView, begin: int | None = None) -> int:
    """Fills in strides, and addresses in memory that begins at this address. Returns the size of
    the view in bytes.
    """
    view.k = begin
    return number(library().kv_view_init, ctypes.byref(view))


class Sequences:
    """pkv_kv_sequences for C, which keeps alive what it points to."""

    def __init__(
        self,
        query_lengths: Integers,
        kv_lengths: Integers,
        block_tables: IntegerRows,
        query_heads: int,
        first_rows: Integers | None,
        query_positions: Integers | None,
    ) -> None:
        self.rows = BatchRows(query_lengths, "query_lengths", first_rows)
        lengths, first = self.rows.c_lengths, self.rows.c_first_rows
        totals = integers(kv_lengths, np.uint64, "kv_lengths")
        tables = integers(block_tables, np.uint32, "block_tables", dims=2)
        count = len(lengths)
        if not count == len(totals) == len(tables):
            raise misuse(
                f"{count} query lengths, {len(totals)} kv lengths, block tables {tables.shape}"
            )
        self._keep: list[Any] = [tables, totals]
        heads = unsigned(query_heads, 32, "query_heads")
        places = address(lengths), address(totals), address(tables)
        self.struct = sized(_raw.KVSequences, heads, count, *places, tables.shape[1])
        if first is not None:
            self.struct.first_rows = address(first)
        if query_positions is not None:
            positions = some_integers(query_positions, self.rows.total, np.int64, "query_positions")
            self._keep.append(positions)
            self.struct.query_positions = address(positions)


def kv_write(
    kv: KVView,
    k: Rows,
    v: Rows | None,
    query_lengths: Integers,
    kv_lengths: Integers,
    block_tables: IntegerRows,
    *,
    first_rows: Integers | None = None,
    query_positions: Integers | None = None,
    compute: Compute | None = None,
) -> None:
    """Stores the rows of the last positions of each sequence (or of `query_positions`) in your own
    memory. The arguments are those of kv_attend(). v None: values are in the dims of k.
    """
    sequences = Sequences(query_lengths, kv_lengths, block_tables, 1, first_rows, query_positions)
    view, rows = kv._writable(), sequences.rows
    keys = batch_tensor(k, rows, view.kv_heads, view.key_dim, "k")
    values = None if v is None else batch_tensor(v, rows, view.kv_heads, view.value_dim, "v")
    with kv._reading():
        into = handle_of(compute), ctypes.byref(view), ctypes.byref(sequences.struct)
        call(library().kv_write, *into, ctypes.byref(keys), reference(values))


def kv_read(
    kv: KVView,
    query_lengths: Integers,
    kv_lengths: Integers,
    block_tables: IntegerRows,
    *,
    query_positions: Integers | None = None,
    compute: Compute | None = None,
) -> tuple[Floats, Floats]:
    """Keys [rows][kv_heads][key_dim] and values [rows][kv_heads][value_dim] of the positions that
    kv_write() stores, as float32.
    """
    sequences = Sequences(query_lengths, kv_lengths, block_tables, 1, None, query_positions)
    k, v, tensors = _new_rows(kv.struct, sequences.rows.total)
    with kv._reading():
        source = handle_of(compute), ctypes.byref(kv.struct), ctypes.byref(sequences.struct)
        call(library().kv_read, *source, *map(ctypes.byref, tensors))
    return k, v


def kv_write_slots(
    kv: KVView, slots: Integers, k: Rows, v: Rows | None = None, *, compute: Compute | None = None
) -> None:
    """Stores a row of k and v ([rows][kv_heads][dim]) in each slot, block * block_size + offset;
    rows with the slot NO_SLOT are padding. v None: values are in the dims of k.
    """
    view, numbers = kv._writable(), integers(slots, np.int64, "slots")
    keys = tensor(k, len(numbers), view.kv_heads, view.key_dim, "k")
    values = None if v is None else tensor(v, len(numbers), view.kv_heads, view.value_dim, "v")
    with kv._reading():
        into = handle_of(compute), ctypes.byref(view), len(numbers), address(numbers)
        call(library().kv_write_slots, *into, ctypes.byref(keys), reference(values))


def kv_read_slots(
    kv: KVView, slots: Integers, *, compute: Compute | None = None
) -> tuple[Floats, Floats]:
    """Keys [rows][kv_heads][key_dim] and values [rows][kv_heads][value_dim] of these slots, as
    float32; zeros for NO_SLOT.
    """
    view, numbers = kv.struct, integers(slots, np.int64, "slots")
    k, v, tensors = _new_rows(view, len(numbers))
    with kv._reading():
        source = handle_of(compute), ctypes.byref(view), len(numbers), address(numbers)
        call(library().kv_read_slots, *source, *map(ctypes.byref, tensors))
    return k, v


def _new_rows(view: _raw.KVView, count: int) -> tuple[Floats, Floats, list[_raw.Tensor]]:
    """Rows of zeros for keys and values, and their tensors for C."""
    shapes = [(count, view.kv_heads, dim) for dim in (view.key_dim, view.value_dim)]
    k, v = (np.zeros(shape, np.float32) for shape in shapes)
    pairs = zip((k, v), shapes, strict=True)
    return k, v, [tensor(array, *shape, "rows", out=True) for array, shape in pairs]
