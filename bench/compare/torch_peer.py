"""PyTorch's scaled_dot_product_attention on the CPU. K and V are contiguous, without an
append.
"""

import numpy as np
from peer import BaseStep, Unsupported, fastest

NAME = "PyTorch"
PACKAGE = "torch"


def start(threads, library):
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)


class Step(BaseStep):
    def __init__(self, shape, dtype, rows):
        import torch

        if dtype.startswith("int"):
            raise Unsupported("scaled_dot_product_attention has no quantised keys and values")
        self.type = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[dtype]
        self.shape = shape
        # Sessions of one length are one call; others are one call each, which needs no padding.
        self.parts = []
        all_sessions = list(range(shape.sessions))
        groups = [[i] for i in all_sessions] if shape.ragged else [all_sessions]
        for sessions in groups:
            q = rows.q.reshape(shape.sessions, shape.new, shape.query_heads, shape.dim)[sessions]
            k, v = (np.stack([part[i] for i in sessions]) for part in (rows.k, rows.v))
            self.parts.append(
                [torch.from_numpy(a).to(self.type).transpose(1, 2).contiguous() for a in (q, k, v)]
            )
        self.mask = self._mask(torch)
        self.out = None
        formulations = [self._grouped_heads, self._query_rows, self._expanded_heads]
        if shape.group == 1:
            formulations = formulations[:1]
        elif not shape.decode:
            formulations.remove(self._query_rows)
        self.run = fastest([make(torch) for make in formulations])

    def _mask(self, torch):
        """Keyword arguments: is_causal for a prompt without a past, a mask for a later chunk."""
        shape = self.shape
        if shape.decode or shape.new == shape.lengths[0]:
            return {"is_causal": not shape.decode}
        past = shape.lengths[0] - shape.new
        hidden = torch.full((shape.new, shape.lengths[0]), float("-inf"), dtype=self.type)
        return {"attn_mask": hidden.triu(past + 1)}

    def _attention(self, torch, parts, **options):
        attention = torch.nn.functional.scaled_dot_product_attention

        def run():
            self.out = [attention(q, k, v, **self.mask, **options) for q, k, v in parts]

        return run

    def _grouped_heads(self, torch):
        return self._attention(torch, self.parts, enable_gqa=self.shape.group > 1)

    def _query_rows(self, torch):
        """The query heads of a KV head as rows of one query, because in a decode step all of them
        see all tokens.
        """
        parts = [
            [q.reshape(len(q), self.shape.kv_heads, self.shape.group, -1), k, v]
            for q, k, v in self.parts
        ]
        return self._attention(torch, parts)

    def _expanded_heads(self, torch):
        parts = [
            [q, *(kv.repeat_interleave(self.shape.group, dim=1) for kv in (k, v))]
            for q, k, v in self.parts
        ]
        return self._attention(torch, parts)

    def output(self):
        shape = self.shape
        heads = [
            o.float().reshape(len(o), shape.query_heads, shape.new, -1).transpose(1, 2)
            for o in self.out
        ]
        return np.concatenate([h.reshape(-1, shape.query_heads, shape.dim).numpy() for h in heads])
