"""libpagedkv through ctypes: the few calls that a step needs."""

import ctypes as c
import pathlib
import re

import numpy as np
from peer import Unsupported

NAME = "pagedkv"
PACKAGE = None
BLOCK = 16

_lib = None
_threads = 0


class Config(c.Structure):
    _fields_ = (
        [("struct_size", c.c_uint32), ("storage", c.c_int), ("layout", c.c_int)]
        + [
            (n, c.c_uint32)
            for n in ("block_size", "layers", "query_heads", "kv_heads", "key_dim", "value_dim")
        ]
        + [
            ("dtype", c.c_int),
            ("window", c.c_uint32),
            ("group_count", c.c_uint32),
            ("groups", c.c_void_p),
        ]
        + [
            ("blocks", c.c_uint64),
            ("memory_bytes", c.c_uint64),
            ("threads", c.c_uint32),
            ("isa", c.c_int),
        ]
        + [
            ("huge_pages", c.c_int),
            ("prefault", c.c_uint32),
            ("allocator", c.c_void_p),
            ("logger", c.c_void_p),
        ]
    )


class Tensor(c.Structure):
    _fields_ = [
        ("data", c.c_void_p),
        ("dtype", c.c_int),
        ("reserved", c.c_uint32),
        ("row_stride", c.c_int64),
        ("head_stride", c.c_int64),
    ]


def _dtypes():
    """The numbers of pkv_dtype, from the header: an element type that it does not name is not
    offered.
    """
    header = pathlib.Path(__file__).parents[2] / "include" / "pagedkv" / "common.h"
    return {
        n.lower(): int(i)
        for n, i in re.findall(r"\bPKV_(F32|F16|BF16|INT8)\s*=\s*(\d+)", header.read_text())
    }


def start(threads, library):
    global _lib, _threads
    _lib, _threads = c.CDLL(library), threads
    for function in ("pkv_status_string", "pkv_last_error", "pkv_version_string"):
        getattr(_lib, function).restype = c.c_char_p


def version(library):
    start(1, library)
    return _lib.pkv_version_string().decode()


def _call(function, *args):
    if status := getattr(_lib, function)(*args):
        raise Unsupported(
            f"{_lib.pkv_status_string(status).decode()}: {_lib.pkv_last_error().decode()}"
        )


def _tensor(rows, dtype="f32"):
    return c.byref(Tensor(rows.ctypes.data, _dtypes()[dtype], 0, 0, 0))


def _encoded(rows, dtype):
    """Rows of a step have the element type of K and V, as the other engines' have; beside int8 they
    are float32.
    """
    if dtype == "f16":
        return rows.astype(np.float16)
    if dtype == "bf16":
        bits = rows.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return rows


def _decoded(rows, dtype):
    return (
        (rows.astype(np.uint32) << 16).view(np.float32)
        if dtype == "bf16"
        else rows.astype(np.float32)
    )


class Step:
    def __init__(self, shape, dtype, rows):
        if dtype not in _dtypes():
            raise Unsupported(f"pkv_dtype has no {dtype}")
        config = Config()
        _call("pkv_cache_config_init", c.byref(config), c.c_size_t(c.sizeof(config)))
        config.layers = 1
        config.query_heads, config.kv_heads, config.key_dim = (
            shape.query_heads,
            shape.kv_heads,
            shape.dim,
        )
        config.dtype = _dtypes()[dtype]
        config.blocks = sum(length // BLOCK + 2 for length in shape.lengths)
        config.block_size, config.threads, config.prefault = BLOCK, _threads, 1
        self.cache, self.batch = c.c_void_p(), c.c_void_p()
        _call("pkv_cache_create", c.byref(config), c.byref(self.cache))

        sessions = (c.c_void_p * shape.sessions)()
        for i, length in enumerate(shape.lengths):
            session = c.c_void_p()
            _call("pkv_session_open", self.cache, None, c.byref(session))
            sessions[i] = session
            if past := length - shape.new:
                k, v = _tensor(rows.k[i]), _tensor(rows.v[i])
                _call("pkv_session_prefill", session, c.c_uint32(0), c.c_size_t(past), k, v)
        new = (c.c_uint32 * shape.sessions)(*[shape.new] * shape.sessions)
        # The batch stays open, so that every repetition finds the sessions at the same length; the
        # end of the process aborts it.
        _call(
            "pkv_batch_begin",
            self.cache,
            c.c_size_t(shape.sessions),
            sessions,
            new,
            None,
            c.byref(self.batch),
        )
        self.dtype = dtype if dtype in ("f16", "bf16") else "f32"
        self.rows = [
            _encoded(r, dtype)
            for r in (
                rows.new(shape, rows.k),
                rows.new(shape, rows.v),
                rows.q,
                np.zeros_like(rows.q),
            )
        ]
        self.tensors = [_tensor(r, self.dtype) for r in self.rows]

    def write(self):
        _call("pkv_batch_write", self.batch, c.c_uint32(0), self.tensors[0], self.tensors[1])

    def attend(self):
        _call("pkv_batch_attend", self.batch, c.c_uint32(0), None, self.tensors[2], self.tensors[3])

    def step(self):
        self.write()
        self.attend()

    def calls(self):
        return {"step": self.step, "attend only": self.attend}

    def output(self):
        return _decoded(self.rows[3], self.dtype)

    def close(self):
        _call("pkv_cache_destroy", self.cache)
