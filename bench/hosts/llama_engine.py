"""llama.cpp, through the functions of its own C interface that its Python package declares.

It computes all prompts in batches of 2048 tokens, then one token of each sequence at a time. With
one cache for all sequences (unified), a prefix that all prompts share is computed once and copied,
as llama.cpp's own programs do; with a cache for each, it is computed for each.
"""

import os
import time

import llama_cpp
import numpy as np

import engine

BATCH, ROOM = 2048, 2048  # tokens of a batch; at least this many for each sequence


def _common(sequences):
    """The length of the common prefix, which leaves at least one token of each."""
    shortest = min(map(len, sequences)) - 1
    same = (len({s[i] for s in sequences}) == 1 for i in range(shortest))
    return next((i for i, equal in enumerate(same) if not equal), shortest)


class Llama(engine.Engine):
    def __init__(self, options):
        super().__init__(watched=False)
        llama_cpp.llama_log_set(_silent, None)
        llama_cpp.llama_backend_init()
        parameters = llama_cpp.llama_model_default_params()
        parameters.n_gpu_layers = 0
        file = options.model / f"{options.dtype}.gguf"
        self.model = llama_cpp.llama_model_load_from_file(os.fsencode(file), parameters)
        vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(vocabulary)
        self.options, self.unified = options, options.way == "unified"
        self.batch = llama_cpp.llama_batch_init(BATCH, 0, 1)
        self.context, self.sequences = None, 0
        self.kept = []

    def _open(self, sequences, tokens):
        """A context is made for a number of sequences, and each needs its own room if the cache is
        not unified."""
        if self.context is not None and sequences == self.sequences:
            return
        if self.context is not None:
            llama_cpp.llama_free(self.context)
        context = llama_cpp.llama_context_default_params()
        context.n_ctx = sequences * max(ROOM, tokens)
        context.n_batch, context.n_seq_max = BATCH, sequences
        context.n_threads = context.n_threads_batch = self.options.threads
        context.kv_unified = self.unified
        if self.options.dtype == "f32":  # otherwise f16, which it is fastest with
            context.type_k = context.type_v = llama_cpp.GGML_TYPE_F32
        self.context = llama_cpp.llama_init_from_model(self.model, context)
        if not self.context:
            raise RuntimeError(f"no context of {context.n_ctx} tokens")
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.sequences, self.kept = sequences, [[] for _ in range(sequences)]

    def reset(self):
        if self.context is not None:
            llama_cpp.llama_memory_clear(self.memory, True)
            self.kept = [[] for _ in range(self.sequences)]

    def _decode(self, rows):
        """rows: (token, position, sequence, whether its logits are needed). Returns the greedy next
        token of these rows and its time, by sequence."""
        found, last = {}, 0.0
        for begin in range(0, len(rows), BATCH):
            part = rows[begin : begin + BATCH]
            for i, (token, position, sequence, wanted) in enumerate(part):
                self.batch.token[i], self.batch.pos[i] = token, position
                self.batch.n_seq_id[i], self.batch.seq_id[i][0] = 1, sequence
                self.batch.logits[i] = wanted
            self.batch.n_tokens = len(part)
            if status := llama_cpp.llama_decode(self.context, self.batch):
                raise RuntimeError(f"llama_decode returned {status}")
            for i, (_, _, sequence, wanted) in enumerate(part):
                if wanted:
                    logits = llama_cpp.llama_get_logits_ith(self.context, i)
                    best = int(np.argmax(np.ctypeslib.as_array(logits, (self.vocabulary,))))
                    found[sequence] = best, (last := time.perf_counter())
        assert last or not any(row[3] for row in rows)
        return found

    def _prompts(self, prompts):
        rows = []
        shared = _common(prompts) if self.unified and not any(self.kept) else 0
        if len(prompts) > 1 and shared:
            self._decode([(token, i, 0, False) for i, token in enumerate(prompts[0][:shared])])
            for sequence in range(1, len(prompts)):
                llama_cpp.llama_memory_seq_cp(self.memory, 0, sequence, 0, shared)
            self.kept = [prompt[:shared] for prompt in prompts]
        for sequence, prompt in enumerate(prompts):
            have = _common([self.kept[sequence], prompt]) if self.kept[sequence] else 0
            have = shared if len(prompts) > 1 and shared else have
            llama_cpp.llama_memory_seq_rm(self.memory, sequence, have, -1)
            end = len(prompt) - 1
            rows += [(prompt[i], i, sequence, i == end) for i in range(have, len(prompt))]
        return self._decode(rows)

    def generate(self, prompts, new):
        self._open(len(prompts), max(map(len, prompts)) + new)
        answers, times = [[] for _ in prompts], [[] for _ in prompts]
        found = self._prompts(prompts)
        while True:
            for sequence, (token, moment) in found.items():
                answers[sequence].append(token)
                times[sequence].append(moment)
            if len(answers[0]) == new:
                break
            found = self._decode(
                [
                    (answer[-1], len(prompt) + len(answer) - 1, sequence, True)
                    for sequence, (prompt, answer) in enumerate(zip(prompts, answers))
                ]
            )
        # The last token was not computed.
        self.kept = [p + a[:-1] for p, a in zip(prompts, answers)]
        return answers, times


@llama_cpp.llama_log_callback
def _silent(level, text, data):
    pass


if __name__ == "__main__":
    chosen = engine.arguments()
    engine.serve(lambda: Llama(chosen))
