"""Measures ik_llama.cpp as speed.cpp measures llama.cpp: decode steps and prompts of 512 tokens.

usage: ik.py MODEL THREADS ROUNDS FOLDER_FOR_STATES

Prints tokens/s, of the fastest round and, in brackets, of the slowest. The first time, it computes
prompts of 16,384 tokens, and saves them in the folder. Without rounds it does nothing else.
"""

import ctypes
import sys
import time
from pathlib import Path

from ik_llama_cpp import _ctypes_api as ik

DEPTHS, PROMPT, STEPS = (16384, 8192, 2048, 0), 512, 8
TYPES = {"f16": 1, "q8_0": 8, "q4_0": 2}  # numbers of ggml
SEQUENCE = 0

llama = ik._lib
Text = ctypes.c_char_p
llama.llama_kv_cache_seq_rm.argtypes = [ctypes.c_void_p, *[ctypes.c_int32] * 3]
state_arguments = [ctypes.c_void_p, Text, ctypes.c_int32, ctypes.c_void_p, ctypes.c_size_t]
llama.llama_state_seq_save_file.argtypes = state_arguments
llama.llama_state_seq_load_file.argtypes = [*state_arguments, ctypes.c_void_p]
for function in (llama.llama_state_seq_save_file, llama.llama_state_seq_load_file):
    function.restype = ctypes.c_size_t


class Context:
    def __init__(self, model, kind, threads):
        self.name = f"{kind}, ik"
        params = ik.llama_context_default_params()
        params.n_ctx = DEPTHS[0] + 2 * PROMPT
        params.n_batch = params.n_ubatch = PROMPT
        params.n_threads = params.n_threads_batch = threads
        params.type_k = params.type_v = TYPES[kind]
        params.flash_attn = True
        self.words = ik.llama_vocab_n_tokens(ik.llama_model_get_vocab(model))
        self.context = ik.llama_init_from_model(model, params)
        self.batch = ik.llama_batch_init(PROMPT, 0, 1)

    def begin(self, folder):
        """Loads the long prompt, or else computes it."""
        file = str(folder / self.name).encode()
        tokens, count = (ctypes.c_int32 * DEPTHS[0])(), ctypes.c_size_t()
        place = self.context, file, SEQUENCE, tokens, len(tokens)
        if (folder / self.name).exists():
            assert llama.llama_state_seq_load_file(*place, ctypes.byref(count))
            return
        for at in range(0, DEPTHS[0], PROMPT):
            self.add(at, PROMPT)
        assert llama.llama_state_seq_save_file(*place)

    def shorten(self, depth):
        assert llama.llama_kv_cache_seq_rm(self.context, SEQUENCE, depth, -1)

    def add(self, position, n):
        batch = self.batch
        batch.n_tokens = n
        for i in range(n):
            batch.token[i] = (position + i) * 2654435761 % 2**32 % self.words
            batch.pos[i] = position + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = SEQUENCE
            batch.logits[i] = i == n - 1
        assert ik.llama_decode(self.context, batch) == 0
        ik.llama_get_logits_ith(self.context, n - 1)  # waits for them

    def decode(self, depth):
        self.add(depth, 1)
        begin = time.perf_counter()
        for i in range(STEPS):
            self.add(depth + 1 + i, 1)
        seconds = time.perf_counter() - begin
        self.shorten(depth)
        return STEPS / seconds

    def prefill(self, depth):
        begin = time.perf_counter()
        self.add(depth, PROMPT)
        seconds = time.perf_counter() - begin
        self.shorten(depth)
        return PROMPT / seconds


def in_turns(what, contexts, rounds, measure):
    rates = [[measure(context) for context in contexts] for _ in range(rounds)]
    for context, rate in zip(contexts, zip(*rates, strict=True), strict=True):
        print(f"{what:24} {context.name:14} {max(rate):8.1f} ({min(rate):.1f})", flush=True)


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    threads, rounds, folder = int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    ik.llama_backend_init()
    model = ik.llama_model_load_from_file(sys.argv[1].encode(), ik.llama_model_default_params())
    contexts = [Context(model, kind, threads) for kind in TYPES]
    for context in contexts:
        context.begin(folder)
    for depth in DEPTHS if rounds else ():
        for context in contexts:
            context.shorten(depth)
        decodes = rounds * (32 if depth == 0 else 4)  # steps are short
        in_turns(f"decode at {depth}", contexts, decodes, lambda c, at=depth: c.decode(at))
        in_turns(f"prompt at {depth}", contexts, rounds, lambda c, at=depth: c.prefill(at))


if __name__ == "__main__":
    main()
