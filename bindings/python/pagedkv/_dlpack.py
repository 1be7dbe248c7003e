"""Reads an object's memory through DLPack (dmlc.github.io/dlpack), which has bfloat16; NumPy has
not."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

CPU = 1
READ_ONLY = 1
DTYPES = {(2, 32): "float32", (2, 16): "float16", (4, 16): "bfloat16"}


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    ]


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


class Memory(NamedTuple):
    """Where an array is. Strides count elements. `owner` keeps it alive."""

    address: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    writable: bool
    owner: object


def _export(array: Any) -> Any:
    try:
        return array.__dlpack__(max_version=(1, 0))
    except TypeError:  # before DLPack 1.0, which has no read-only flag
        return array.__dlpack__()


def memory_of(array: Any) -> Memory:
    """The capsule frees the memory when it is deleted, so it is the owner."""
    capsule = _export(array)
    writable = True
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(_pointer_of(capsule, b"dltensor_versioned"))
        tensor, writable = managed.tensor, not managed.flags & READ_ONLY
    else:
        tensor = _DLTensor.from_address(_pointer_of(capsule, b"dltensor"))
    if tensor.device_type != CPU:
        raise TypeError(
            f"an array in the memory of DLPack device {tensor.device_type}; the library needs it "
            "in the CPU's"
        )
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = (
        tuple(tensor.strides[i] for i in range(tensor.ndim))
        if tensor.strides
        else dense_strides(shape)
    )
    dtype = DTYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    return Memory(
        (tensor.data or 0) + tensor.byte_offset,
        dtype or f"DLPack type {tensor.code} of {tensor.bits} bits",
        shape,
        strides,
        writable,
        capsule,
    )


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for i in range(len(shape) - 1, 0, -1):
        strides[i - 1] = strides[i] * shape[i]
    return tuple(strides)
