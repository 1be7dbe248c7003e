"""ggml's flash attention on the CPU, as llama.cpp calls it: it stores rows in a cache of cells,
then attends under a mask. ik_peer.py calls the ggml of ik_llama.cpp in the same way.

bench/peers builds the libraries for this CPU, from the source in the Python package
llama-cpp-python: they are as fast as prebuilt ones of each instruction set, or faster.
"""

import ctypes as c
import pathlib
import sys
from types import SimpleNamespace

import numpy as np
from peer import BaseStep, Unsupported, fastest

NAME = "ggml"
PACKAGE = None
LIBRARIES = pathlib.Path(sys.prefix) / "ggml" / "bin"
# int8 is Q8_0 and int4 is Q4_0: a scale for 32 elements.
TYPES = {"f32": 0, "f16": 1, "bf16": 30, "int8": 8, "int4": 2}
F32, F16, I64 = 0, 1, 27
MASK_ROWS = 16  # ik_llama.cpp wants a multiple of them.

_engine = None


class _InitParams(c.Structure):
    _fields_ = [("mem_size", c.c_size_t), ("mem_buffer", c.c_void_p), ("no_alloc", c.c_bool)]


def _declared(base, cpu):
    pointer, size, i64 = c.c_void_p, c.c_size_t, c.c_int64
    signatures = {
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
        "ggml_backend_cpu_init": (pointer,),
        "ggml_backend_cpu_set_n_threads": (None, pointer, c.c_int),
    }
    found = SimpleNamespace()
    for name, (result, *arguments) in signatures.items():
        function = getattr(cpu if name.startswith("ggml_backend_cpu") else base, name)
        function.restype, function.argtypes = result, arguments
        setattr(found, name.removeprefix("ggml_"), function)
    return found


def use(base, cpu, threads, types=tuple(TYPES), streams=True):
    """Steps then call these libraries (or one), which have these types; with `streams`, sessions
    may be the fourth dimension.
    """
    global _engine
    _engine = _declared(base, cpu)
    vars(_engine).update(threads=threads, types=types, streams=streams)


def _open(name, *mode):
    return c.CDLL(str(LIBRARIES / name), *mode)


def start(threads, library):
    if not LIBRARIES.exists():
        raise RuntimeError("it is not built")
    use(_open("libggml-base.so", c.RTLD_GLOBAL), _open("libggml-cpu.so"), threads)


def version(library):
    if not LIBRARIES.exists():
        return ""
    base = _open("libggml-base.so")
    base.ggml_version.restype = c.c_char_p
    return base.ggml_version().decode()


class _Context:
    """Tensors of one step, in a buffer of the CPU backend."""

    def __init__(self):
        self.context = _engine.init(_InitParams(8 << 20, None, True))
        self.backend = _engine.backend_cpu_init()
        _engine.backend_cpu_set_n_threads(self.backend, _engine.threads)
        self.buffer = None

    def tensor(self, dtype, *dims):
        dims = [*dims, *[1] * (4 - len(dims))]
        return _engine.new_tensor_4d(self.context, dtype, *dims)

    def graph(self, nodes):
        graph = _engine.new_graph(self.context)
        for node in nodes:
            _engine.build_forward_expand(graph, node)
        return graph

    def allocate(self):
        self.buffer = _engine.backend_alloc_ctx_tensors(self.context, self.backend)

    def compute(self, graph):
        if status := _engine.backend_graph_compute(self.backend, graph):
            raise RuntimeError(f"ggml_backend_graph_compute: status {status}")

    def free(self):
        _engine.backend_buffer_free(self.buffer)
        _engine.backend_free(self.backend)
        _engine.free(self.context)


def _array(tensor, dtype=np.float32):
    memory = (c.c_char * _engine.nbytes(tensor)).from_address(_engine.get_data(tensor))
    return np.frombuffer(memory, dtype)


class Step(BaseStep):
    def __init__(self, shape, dtype, rows):
        if dtype not in _engine.types:
            raise Unsupported(f"its flash attention has no {dtype} keys and values")
        self.shape, self.type = shape, TYPES[dtype]
        self.context = _Context()
        tensor = self.context.tensor
        width, self.longest = shape.kv_heads * shape.dim, max(shape.lengths)
        cells = shape.sessions * self.longest
        self.caches = [tensor(self.type, width, cells) for _ in range(2)]
        self.q = tensor(F32, shape.query_heads * shape.dim, shape.rows)
        self.new = [tensor(F32, width, shape.rows) for _ in range(2)]
        self.cells = tensor(I64, shape.rows)
        self.masks = []
        fill, sources, all_cells = self._fill(cells)
        ways = [self._each_session()]
        if shape.sessions > 1:
            ways.append(self._streams() if _engine.streams else self._unified())
        graphs = [self.context.graph(self._stores() + outputs) for outputs in ways]
        self.context.allocate()

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
        self._hide()
        self.context.compute(fill)
        chosen = fastest(range(len(ways)), lambda way: lambda: self.context.compute(graphs[way]))
        self.graph, self.outputs = graphs[chosen], ways[chosen]

    def _fill(self, cells):
        width = self.shape.kv_heads * self.shape.dim
        sources = [self.context.tensor(F32, width, cells) for _ in range(2)]
        all_cells = self.context.tensor(I64, cells)
        nodes = [
            _engine.set_rows(self.context.context, cache, source, all_cells)
            for cache, source in zip(self.caches, sources)
        ]
        return self.context.graph(nodes), sources, all_cells

    def _stores(self):
        return [
            _engine.set_rows(self.context.context, cache, new, self.cells)
            for cache, new in zip(self.caches, self.new)
        ]

    def _attention(self, first, streams, queries, cells):
        """The node that attends from session `first` on, with this many rows and cells in each
        stream.
        """
        shape, context = self.shape, self.context.context
        head = _engine.row_size(self.type, shape.dim)
        cell = head * shape.kv_heads
        session = cell * self.longest
        dims = (shape.dim, cells, shape.kv_heads, streams)
        k, v = (
            _engine.view_4d(context, cache, *dims, cell, head, session, first * session)
            for cache in self.caches
        )
        head, row = shape.dim * 4, shape.query_heads * shape.dim * 4
        dims = (shape.dim, queries, shape.query_heads, streams)
        begin = first * shape.new * row
        q = _engine.view_4d(context, self.q, *dims, row, head, row * queries, begin)
        mask = self.context.tensor(F16, cells, -(-queries // MASK_ROWS) * MASK_ROWS, 1, streams)
        self.masks.append((mask, first, streams, queries, cells))
        return _engine.flash_attn_ext(context, q, k, v, mask, shape.dim**-0.5, 0.0, 0.0)

    def _streams(self):
        """All sessions in one node, padded to the longest."""
        return [self._attention(0, self.shape.sessions, self.shape.new, self.longest)]

    def _unified(self):
        """All sessions in one node, in which each query sees the cells of its session only."""
        cells = self.shape.sessions * self.longest
        return [self._attention(0, 1, self.shape.rows, cells)]

    def _each_session(self):
        """A node for each session: for decode steps ggml then divides the tokens among threads."""
        lengths = self.shape.lengths
        return [self._attention(i, 1, self.shape.new, length) for i, length in enumerate(lengths)]

    def _hide(self):
        shape = self.shape
        begins = np.repeat(np.arange(shape.sessions) * self.longest, shape.new)
        ends = _array(self.cells, np.int64) + 1
        for mask, first, streams, queries, cells in self.masks:
            rows = first * shape.new + np.arange(streams * queries).reshape(streams, queries, 1)
            cell = (first + np.arange(streams)).reshape(streams, 1, 1) * self.longest
            cell = cell + np.arange(cells)
            seen = (begins[rows] <= cell) & (cell < ends[rows])
            hidden = _array(mask, np.float16).reshape(streams, -1, cells)
            hidden[:] = -np.inf
            hidden[:, :queries] = np.where(seen, 0, -np.inf)

    def run(self):
        self.context.compute(self.graph)

    def output(self):
        parts = [_array(tensor) for tensor in self.outputs]
        return np.concatenate(parts).reshape(-1, self.shape.query_heads, self.shape.dim)

    def close(self):
        self.context.free()
