"""The shapes that are compared, their rows, and the attention that every peer must agree with."""

from dataclasses import dataclass

import numpy as np

ELEMENT_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "int8": 1, "int4": 0.5}
# Largest deviation from the float32 reference, over the largest element of the reference.
TOLERANCE = {"f32": 2e-5, "f16": 5e-3, "bf16": 3e-2, "int8": 5e-2, "int4": 0.5}


@dataclass(frozen=True)
class Shape:
    name: str
    lengths: tuple  # Tokens of each session, the new ones included.
    new: int = 1  # New tokens of each session: 1 is a decode step.
    query_heads: int = 32
    kv_heads: int = 8
    dim: int = 128

    @property
    def decode(self):
        return self.new == 1

    @property
    def sessions(self):
        return len(self.lengths)

    @property
    def ragged(self):
        return len(set(self.lengths)) > 1

    @property
    def group(self):
        return self.query_heads // self.kv_heads

    @property
    def rows(self):
        return self.sessions * self.new

    def kv_bytes(self, dtype):
        """Bytes of K and V that must be read once, without the scales of quantised rows."""
        return 2 * sum(self.lengths) * self.kv_heads * self.dim * ELEMENT_BYTES[dtype]

    def flops(self):
        """Multiplications and additions of Q K^T and P V under the causal mask."""
        pairs = sum(self.new * length - self.new * (self.new - 1) // 2 for length in self.lengths)
        return 4 * pairs * self.query_heads * self.dim


RAGGED = (512, 1024, 2048, 3072, 4096, 5120, 6144, 8192)

SHAPES = (
    Shape("decode 8 x 4096", (4096,) * 8),
    Shape("decode 1 x 32768", (32768,)),
    Shape("decode 64 x 512", (512,) * 64),
    Shape("decode ragged 512..8192", RAGGED),
    Shape("decode GQA 1 (8/8)", (4096,) * 8, query_heads=8),
    Shape("decode GQA 8 (64/8)", (4096,) * 8, query_heads=64),
    Shape("decode dim 64", (4096,) * 8, dim=64),
    Shape("decode dim 256", (4096,) * 8, dim=256),
    Shape("prefill 512 on 3584", (4096,), new=512),
    Shape("prefill 2048 on 0", (2048,), new=2048),
)
QUICK = ("decode 8 x 4096", "prefill 512 on 3584")


class Rows:
    """Keys and values [session][token][KV head][dim], queries [row][query head][dim], and the
    expected output.
    """

    def __init__(self, shape):
        rng = np.random.default_rng(1)
        kv = [(n, shape.kv_heads, shape.dim) for n in shape.lengths]
        self.k = [rng.standard_normal(s, dtype=np.float32) for s in kv]
        self.v = [rng.standard_normal(s, dtype=np.float32) for s in kv]
        self.q = rng.standard_normal((shape.rows, shape.query_heads, shape.dim), dtype=np.float32)
        if shape.decode:
            self._favour_new_token(shape)
        self.expected = np.concatenate([self._attend(shape, i) for i in range(shape.sessions)])

    def _favour_new_token(self, shape):
        # Gives the new token a large weight. Otherwise the output of a peer that forgets to append
        # the token would hardly differ, among thousands.
        for i, length in enumerate(shape.lengths):
            q = self.q[i].reshape(shape.kv_heads, shape.group, shape.dim).sum(axis=1)
            self.k[i][-1] = q * np.float32(np.log(length) / shape.dim**0.5)

    def _attend(self, shape, i):
        length, past = shape.lengths[i], shape.lengths[i] - shape.new
        out = np.empty((shape.new, shape.query_heads, shape.dim), np.float32)
        visible = np.arange(length) <= past + np.arange(shape.new)[:, None]
        for head in range(shape.query_heads):
            q = self.q[i * shape.new : (i + 1) * shape.new, head]
            k, v = self.k[i][:, head // shape.group], self.v[i][:, head // shape.group]
            scores = np.where(visible, q @ k.T * np.float32(shape.dim**-0.5), -np.inf)
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[:, head] = weights @ v / weights.sum(axis=1, keepdims=True)
        return out

    def new(self, shape, rows):
        """The new tokens' rows of self.k or self.v, stacked."""
        return np.concatenate([session[-shape.new :] for session in rows])
