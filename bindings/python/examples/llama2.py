"""A Llama model and its tokenizer from files of llama2.c, in NumPy. The model has no cache of its
own; attention is a callback.
"""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Attend = Callable[[int, Floats, Floats, Floats], Floats]
"""(layer, q, k, v) to outputs, all [rows][heads][dim]; rotary positions are already applied to keys
and queries.
"""

BEGIN, END = 1, 2


class Llama:
    """The forward pass (Touvron et al. 2023): RMSNorm, rotary positions on interleaved pairs,
    grouped-query attention, SwiGLU.
    """

    def __init__(self, path: pathlib.Path) -> None:
        header = np.fromfile(path, np.int32, 7)
        if len(header) < 7 or (np.delete(header, 5) <= 0).any():
            raise ValueError(
                f"{path} is not a llama2.c checkpoint: its header is {header.tolist()}"
            )
        self.dim, self.hidden, self.layers, self.heads, self.kv_heads, vocabulary, self.context = (
            int(n) for n in header
        )
        self.vocabulary, self.head_dim = abs(vocabulary), self.dim // self.heads
        weights, at = np.memmap(path, np.float32, "r", 28), 0

        def take(*shape: int) -> Any:
            nonlocal at
            at += int(np.prod(shape))
            return weights[at - int(np.prod(shape)) : at].reshape(shape)

        kv_dim, layers = self.kv_heads * self.head_dim, self.layers
        self.embedding = take(self.vocabulary, self.dim)
        self.attention_norm = take(layers, self.dim)
        self.wq, self.wk, self.wv = (
            take(layers, width, self.dim) for width in (self.dim, kv_dim, kv_dim)
        )
        self.wo = take(layers, self.dim, self.dim)
        self.ffn_norm = take(layers, self.dim)
        self.w1, self.w2, self.w3 = (
            take(layers, *shape)
            for shape in ((self.hidden, self.dim), (self.dim, self.hidden), (self.hidden, self.dim))
        )
        self.final_norm = take(self.dim)
        take(2, self.context, self.head_dim // 2)  # skips rotary tables, which are computed here
        self.classifier = self.embedding if vocabulary > 0 else take(self.vocabulary, self.dim)
        if at != len(weights):
            raise ValueError(
                f"{path} is not a llama2.c checkpoint: {len(weights)} weights, its header "
                f"accounts for {at}"
            )
        self.frequencies = 10000.0 ** (-np.arange(0, self.head_dim, 2) / self.head_dim)

    @property
    def shape(self) -> dict[str, Any]:
        """The fields of a CacheConfig."""
        heads = {"query_heads": self.heads, "kv_heads": self.kv_heads}
        return {"layers": self.layers, **heads, "key_dim": self.head_dim}

    def forward(self, tokens: list[int], positions: list[int], attend: Attend) -> Floats:
        """The residual stream [rows][dim] after all layers, for rows of different sequences and
        positions.
        """
        x: Floats = self.embedding[tokens]
        angles = np.outer(positions, self.frequencies)
        rotation = (np.cos(angles) + 1j * np.sin(angles)).astype(np.complex64)[:, None]
        for layer in range(self.layers):
            normed = rms_norm(x, self.attention_norm[layer])
            q, k, v = (
                (normed @ w[layer].T).reshape(len(tokens), -1, self.head_dim)
                for w in (self.wq, self.wk, self.wv)
            )
            out = attend(layer, rotate(q, rotation), rotate(k, rotation), v)
            x = x + out.reshape(len(tokens), self.dim) @ self.wo[layer].T
            normed = rms_norm(x, self.ffn_norm[layer])
            gate = normed @ self.w1[layer].T
            x = x + (gate / (1 + np.exp(-gate)) * (normed @ self.w3[layer].T)) @ self.w2[layer].T
        return x

    def logits(self, x: Floats) -> Floats:
        """Logits of the token that follows each row."""
        scores: Floats = rms_norm(x, self.final_norm) @ self.classifier.T
        return scores


def rms_norm(x: Floats, weight: Floats) -> Floats:
    scaled: Floats = weight * (x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(1e-5)))
    return scaled


def rotate(rows: Floats, rotation: npt.NDArray[np.complex64]) -> Floats:
    return (np.ascontiguousarray(rows).view(np.complex64) * rotation).view(np.float32)


class Tokenizer:
    """Byte pair encoding: among neighbours that form a token together, the pair with the best score
    is joined first.
    """

    def __init__(self, path: pathlib.Path, vocabulary: int) -> None:
        data, at = path.read_bytes(), 4
        self.pieces: list[bytes] = []
        self.scores: list[float] = []
        for _ in range(vocabulary):
            self.scores.append(float(np.frombuffer(data, np.float32, 1, at)[0]))
            length = int(np.frombuffer(data, np.int32, 1, at + 4)[0])
            self.pieces.append(data[at + 8 : at + 8 + length])
            at += 8 + length
        if at != len(data):
            raise ValueError(
                f"{path} is not the tokenizer of {vocabulary} tokens: it has {len(data)} bytes, "
                f"they take {at}"
            )
        self.ids = {piece: i for i, piece in reversed(list(enumerate(self.pieces)))}

    def encode(self, text: str) -> list[int]:
        tokens = [self.ids[b" "]] if text and b" " in self.ids else []
        for character in text:
            piece = character.encode()
            names = [piece] if piece in self.ids else [b"<0x%02X>" % byte for byte in piece]
            tokens += [self.ids[name] for name in names]
        while True:
            joined = [self.pieces[a] + self.pieces[b] for a, b in itertools.pairwise(tokens)]
            pairs = [self.ids.get(piece, -1) for piece in joined]
            found = [(self.scores[pair], -i) for i, pair in enumerate(pairs) if pair >= 0]
            if not found:
                return [BEGIN, *tokens]
            best = -max(found)[1]
            tokens[best : best + 2] = [pairs[best]]

    def decode(self, tokens: list[int]) -> str:
        pieces = [self.pieces[token] for token in tokens if token not in (BEGIN, END)]
        return b"".join(
            bytes([int(p[3:5], 16)]) if len(p) == 6 and p.startswith(b"<0x") else p for p in pieces
        ).decode(errors="replace")
