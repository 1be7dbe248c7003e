"""ggml's flash attention on the CPU, as llama.cpp calls it: it stores rows in a cache of cells,
then attends.

bench/peers builds the libraries for this CPU, from the source in the Python package
llama-cpp-python.
"""

import ctypes as c
import pathlib
import sys

import numpy as np
from peer import BaseStep, fastest

NAME = "ggml"
PACKAGE = None
LIBRARIES = pathlib.Path(sys.prefix) / "ggml" / "bin"
TYPES = {"f32": 0, "f16": 1, "bf16": 30, "int8": 8, "int4": 2}
# int8 is Q8_0 and int4 is Q4_0: a scale for 32 elements.
I64 = 27

_base = _cpu = None
_threads = 0


class _InitParams(c.Structure):
    _fields_ = [("mem_size", c.c_size_t), ("mem_buffer", c.c_void_p), ("no_alloc", c.c_bool)]


def _open():
    """Loads the libraries and declares the functions that take or return more than int."""
    global _base, _cpu
    _base = c.CDLL(str(LIBRARIES / "libggml-base.so"), c.RTLD_GLOBAL)
    _cpu = c.CDLL(str(LIBRARIES / "libggml-cpu.so"))
    pointer, size, i64 = c.c_void_p, c.c_size_t, c.c_int64
    signatures = {
        "ggml_version": (c.c_char_p,),
        "ggml_init": (pointer, _InitParams),
        "ggml_free": (None, pointer),
        "ggml_row_size": (size, c.c_int, i64),
        "ggml_get_data": (pointer, pointer),
        "ggml_nbytes": (size, pointer),
        "ggml_new_tensor_4d": (pointer, pointer, c.c_int, *[i64] * 4),
        "ggml_view_4d": (pointer, pointer, pointer, *[i64] * 4, *[size] * 4),
        "ggml_set_rows": (pointer, *[pointer] * 4),
        "ggml_flash_attn_ext": (pointer, *[pointer] * 5, *[c.c_float] * 3),
        "ggml_new_graph": (pointer, pointer),
        "ggml_build_forward_expand": (None, pointer, pointer),
        "ggml_backend_alloc_ctx_tensors": (pointer, pointer, pointer),
        "ggml_backend_buffer_free": (None, pointer),
        "ggml_backend_free": (None, pointer),
        "ggml_backend_graph_compute": (c.c_int, pointer, pointer),
    }
    for name, (result, *arguments) in signatures.items():
        function = getattr(_base, name)
        function.restype, function.argtypes = result, arguments
    _cpu.ggml_backend_cpu_init.restype = pointer
    _cpu.ggml_backend_cpu_set_n_threads.argtypes = [pointer, c.c_int]


def start(threads, library):
    global _threads
    if not LIBRARIES.exists():
        raise RuntimeError("it is not built")
    _open()
    _threads = threads


def version(library):
    if not LIBRARIES.exists():
        return ""
    _open()
    return _base.ggml_version().decode()


class _Context:
    """Tensors of one step, in a buffer of the CPU backend."""

    def __init__(self):
        self.context = _base.ggml_init(_InitParams(8 << 20, None, True))
        self.backend = _cpu.ggml_backend_cpu_init()
        _cpu.ggml_backend_cpu_set_n_threads(self.backend, _threads)
        self.buffer = None

    def tensor(self, dtype, *dims):
        dims = [*dims, *[1] * (4 - len(dims))]
        return _base.ggml_new_tensor_4d(self.context, dtype, *dims)

    def graph(self, nodes):
        graph = _base.ggml_new_graph(self.context)
        for node in nodes:
            _base.ggml_build_forward_expand(graph, node)
        return graph

    def allocate(self):
        self.buffer = _base.ggml_backend_alloc_ctx_tensors(self.context, self.backend)

    def compute(self, graph):
        if status := _base.ggml_backend_graph_compute(self.backend, graph):
            raise RuntimeError(f"ggml_backend_graph_compute: status {status}")

    def free(self):
        _base.ggml_backend_buffer_free(self.buffer)
        _base.ggml_backend_free(self.backend)
        _base.ggml_free(self.context)


def _array(tensor, dtype=np.float32):
    memory = (c.c_char * _base.ggml_nbytes(tensor)).from_address(_base.ggml_get_data(tensor))
    return np.frombuffer(memory, dtype)


class Step(BaseStep):
    def __init__(self, shape, dtype, rows):
        self.shape, self.type = shape, TYPES[dtype]
        self.context = _Context()
        tensor = self.context.tensor
        width, self.longest = shape.kv_heads * shape.dim, max(shape.lengths)
        cells = shape.sessions * self.longest
        self.caches = [tensor(self.type, width, cells) for _ in range(2)]
        self.q = tensor(TYPES["f32"], shape.query_heads * shape.dim, shape.rows)
        self.new = [tensor(TYPES["f32"], width, shape.rows) for _ in range(2)]
        self.cells = tensor(I64, shape.rows)
        # A decode step of sessions of one length hides nothing.
        hides = shape.ragged or not shape.decode
        self.mask = hides and tensor(TYPES["f16"], self.longest, shape.new, 1, shape.sessions)
        fill, sources, all_cells = self._fill(cells)
        ways = [self._streams()] + ([self._each_session()] if shape.sessions > 1 else [])
        graphs = [self.context.graph(self._stores() + outputs) for outputs in ways]
        self.context.allocate()

        if self.mask:
            self._hide()
        _array(self.q)[:] = rows.q.ravel()
        new_cells = [
            i * self.longest + np.arange(length - shape.new, length)
            for i, length in enumerate(shape.lengths)
        ]
        _array(self.cells, np.int64)[:] = np.concatenate(new_cells)
        _array(all_cells, np.int64)[:] = np.arange(cells)
        for source, new, part in zip(sources, self.new, (rows.k, rows.v)):
            _array(new)[:] = rows.new(shape, part).ravel()
            padded = _array(source).reshape(shape.sessions, self.longest, width)
            padded[:] = 0
            for i, length in enumerate(shape.lengths):
                padded[i, : length - shape.new] = part[i][: length - shape.new].reshape(-1, width)
        self.context.compute(fill)
        chosen = fastest(range(len(ways)), lambda way: lambda: self.context.compute(graphs[way]))
        self.graph, self.outputs = graphs[chosen], ways[chosen]

    def _fill(self, cells):
        width = self.shape.kv_heads * self.shape.dim
        sources = [self.context.tensor(TYPES["f32"], width, cells) for _ in range(2)]
        all_cells = self.context.tensor(I64, cells)
        nodes = [
            _base.ggml_set_rows(self.context.context, cache, source, all_cells)
            for cache, source in zip(self.caches, sources)
        ]
        return self.context.graph(nodes), sources, all_cells

    def _stores(self):
        return [
            _base.ggml_set_rows(self.context.context, cache, new, self.cells)
            for cache, new in zip(self.caches, self.new)
        ]

    def _attention(self, session, count, length):
        """The node that attends for `count` sessions from `session` on."""
        shape, context = self.shape, self.context.context
        head = _base.ggml_row_size(self.type, shape.dim)
        cell = head * shape.kv_heads
        stream = cell * self.longest
        dims = (shape.dim, length, shape.kv_heads, count)
        k, v = (
            _base.ggml_view_4d(context, cache, *dims, cell, head, stream, session * stream)
            for cache in self.caches
        )
        q_head, q_row = shape.dim * 4, shape.query_heads * shape.dim * 4
        stream = q_row * shape.new
        dims = (shape.dim, shape.new, shape.query_heads, count)
        q = _base.ggml_view_4d(context, self.q, *dims, q_row, q_head, stream, session * stream)
        # A session by itself has no padding to hide.
        mask = self.mask if self.mask and not (shape.decode and count == 1) else None
        return _base.ggml_flash_attn_ext(context, q, k, v, mask, shape.dim**-0.5, 0.0, 0.0)

    def _streams(self):
        """All sessions in one node, padded to the longest."""
        return [self._attention(0, self.shape.sessions, self.longest)]

    def _each_session(self):
        """A node for each session: for decode steps ggml then divides the tokens among threads."""
        return [self._attention(i, 1, length) for i, length in enumerate(self.shape.lengths)]

    def _hide(self):
        shape = self.shape
        mask = _array(self.mask, np.float16).reshape(shape.sessions, shape.new, self.longest)
        for i, length in enumerate(shape.lengths):
            past = length - shape.new + np.arange(shape.new)[:, None]
            mask[i] = np.where(np.arange(self.longest) <= past, 0, -np.inf)

    def run(self):
        self.context.compute(self.graph)

    def output(self):
        parts = [_array(tensor) for tensor in self.outputs]
        return np.concatenate(parts).reshape(-1, self.shape.query_heads, self.shape.dim)

    def close(self):
        self.context.free()
