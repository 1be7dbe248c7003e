"""libpagedkv through ctypes: the few calls that a step needs, with the declarations that were
generated for the Python package.
"""

import ctypes as c
import pathlib
import sys

import numpy as np
from peer import BaseStep, Unsupported

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bindings" / "python"))
from pagedkv.generated import raw  # noqa: E402

NAME = "pagedkv"
PACKAGE = None
BLOCK = 16

isa = "auto"

_lib = None
_threads = 0


def start(threads, library):
    global _lib, _threads
    _lib, _threads = raw.Functions(c.CDLL(str(library))), threads


def version(library):
    start(1, library)
    found = _lib.version()
    return f"{found // 1000000}.{found // 1000 % 1000}.{found % 1000}"


def _call(function, *args):
    if status := getattr(_lib, function)(*args):
        raise Unsupported(f"{_lib.status_name(status).decode()}: {_lib.last_error().decode()}")


def _tensor(rows, dtype="f32"):
    return c.byref(raw.Tensor(rows.ctypes.data, raw.Dtype[dtype.upper()], 0, 0, 0))


def _encoded(rows, dtype):
    """Rows of a step have the element type of K and V, as in other engines; beside int8 they are
    float32.
    """
    if dtype == "f16":
        return rows.astype(np.float16)
    if dtype == "bf16":
        bits = rows.view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return rows


def _decoded(rows, dtype):
    if dtype == "bf16":
        return (rows.astype(np.uint32) << 16).view(np.float32)
    return rows.astype(np.float32)


class Step(BaseStep):
    def __init__(self, shape, dtype, rows):
        model = raw.LayerGroup(
            c.sizeof(raw.LayerGroup),
            layers=1,
            query_heads=shape.query_heads,
            kv_heads=shape.kv_heads,
            key_dim=shape.dim,
            dtype=raw.Dtype[dtype.upper()],
            blocks=sum(length // BLOCK + 2 for length in shape.lengths),
        )
        config = raw.CacheConfig(
            c.sizeof(raw.CacheConfig),
            groups=c.addressof(model),
            block_size=BLOCK,
            isa=raw.Isa[isa.upper()],
            threads=_threads,
            prefault=1,
        )
        self.cache, self.batch = c.c_void_p(), c.c_void_p()
        batch = c.byref(self.batch)
        _call("cache_create", c.byref(config), c.byref(self.cache))

        sessions = (c.c_void_p * shape.sessions)()
        for i, length in enumerate(shape.lengths):
            session = c.c_void_p()
            _call("session_open", self.cache, None, c.byref(session))
            sessions[i] = session
            if past := length - shape.new:
                k, v = _tensor(rows.k[i]), _tensor(rows.v[i])
                count = c.byref(c.c_uint32(past))
                _call("batch_begin", self.cache, 1, c.byref(session), count, batch)
                _call("batch_write", self.batch, 0, k, v)
                _call("batch_commit", self.batch, 0, None)
        new = (c.c_uint32 * shape.sessions)(*[shape.new] * shape.sessions)
        # The batch stays open, so that every repetition finds the sessions at the same length; the
        # end of the process aborts it.
        _call("batch_begin", self.cache, shape.sessions, sessions, new, batch)
        self.dtype = dtype if dtype in ("f16", "bf16") else "f32"
        k, v = (rows.new(shape, part) for part in (rows.k, rows.v))
        self.rows = [_encoded(r, dtype) for r in (k, v, rows.q, np.zeros_like(rows.q))]
        self.tensors = [_tensor(r, self.dtype) for r in self.rows]

    def write(self):
        _call("batch_write", self.batch, 0, self.tensors[0], self.tensors[1])

    def attend(self):
        _call("batch_attend", self.batch, 0, None, self.tensors[2], self.tensors[3], None)

    def run(self):
        self.write()
        self.attend()

    def calls(self):
        return {"step": self.run, "attend only": self.attend}

    def output(self):
        return _decoded(self.rows[3], self.dtype)

    def close(self):
        _call("cache_destroy", self.cache)
