"""A decoder in PyTorch that keeps keys and values in its own pages with the operators of
pagedkv.torch. torch.compile traces it as a whole. The tokens are the same as without a cache.

Two sequences of different lengths are in one batch. `python torch_ops.py int8` stores keys and
values in INT8; then most tokens are the same.
"""

from __future__ import annotations

import sys

import torch
from torch import nn

import pagedkv
import pagedkv.torch as paged

LAYERS, HEADS, KV_HEADS, DIM, VOCABULARY, BLOCK = 3, 8, 2, 32, 500, 16
Step = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        width = HEADS * DIM
        self.norm = nn.LayerNorm(width)
        self.q, self.o = nn.Linear(width, width), nn.Linear(width, width)
        self.k, self.v = nn.Linear(width, KV_HEADS * DIM), nn.Linear(width, KV_HEADS * DIM)

    def forward(
        self, x: torch.Tensor, cache: tuple[torch.Tensor, torch.Tensor] | None, step: Step
    ) -> torch.Tensor:
        normed = self.norm(x)
        q, k, v = (project(normed).unflatten(-1, (-1, DIM)) for project in (self.q, self.k, self.v))
        if cache is None:  # one sequence, without pages
            q, k, v = (rows.transpose(0, 1) for rows in (q, k, v))
            out = nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=True
            ).transpose(0, 1)
        else:
            slots, *sequences = step
            paged.write_slots(*cache, k, v, slots)
            out = paged.attention(q, *cache, *sequences)
        return x + self.o(out.flatten(1))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HEADS * DIM)
        self.positions = nn.Embedding(1024, HEADS * DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(HEADS * DIM, VOCABULARY)

    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, caches: list[object], step: object
    ) -> torch.Tensor:
        """The best next token after each of `tokens`, the rows of all sequences."""
        x = self.embedding(tokens) + self.positions(positions)
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, cache, step)
        return self.head(x).argmax(-1)


def without_cache(model: Decoder, prompt: list[int], n: int) -> list[int]:
    text = list(prompt)
    for _ in range(n):
        tokens = torch.tensor(text)
        text.append(int(model(tokens, torch.arange(len(text)), [None] * LAYERS, None)[-1]))
    return text[len(prompt) :]


def in_pages(
    model: Decoder, prompts: list[list[int]], n: int, dtype: torch.dtype | pagedkv.Dtype
) -> list[list[int]]:
    """The answers to all prompts. Sequence i has the blocks i, i + count, i + 2 * count ..."""
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)
    count = len(prompts)
    blocks = -(-(max(map(len, prompts)) + n) // BLOCK)
    tables = torch.arange(count * blocks, dtype=torch.int32).reshape(blocks, count).T.contiguous()
    caches = [paged.new_cache(count * blocks, BLOCK, KV_HEADS, DIM, dtype) for _ in range(LAYERS)]
    texts, new = [list(prompt) for prompt in prompts], [len(prompt) for prompt in prompts]
    for _ in range(n):
        ends = [len(text) for text in texts]
        rows = [(i, at) for i, end in enumerate(ends) for at in range(end - new[i], end)]
        sequence, positions = torch.tensor(rows).T
        slots = tables[sequence, positions // BLOCK].long() * BLOCK + positions % BLOCK
        lengths = torch.tensor(new, dtype=torch.int32)
        step = slots, tables, lengths, torch.tensor(ends)
        tokens = torch.tensor([texts[i][position] for i, position in rows])
        best = compiled(tokens, positions, caches, step)
        for text, last in zip(texts, (lengths.cumsum(0) - 1).tolist(), strict=True):
            text.append(int(best[last]))
        new = [1] * count
    return [text[len(prompt) :] for text, prompt in zip(texts, prompts, strict=True)]


if __name__ == "__main__":
    torch.manual_seed(1)
    model = Decoder().eval()
    prompts = [torch.randint(VOCABULARY, (n,)).tolist() for n in (5, 21)]
    stored = pagedkv.Dtype.INT8 if sys.argv[1:] == ["int8"] else torch.float32
    with torch.no_grad():
        usual = [without_cache(model, prompt, 40) for prompt in prompts]
        answers = in_pages(model, prompts, 40, stored)
    for answer in answers:
        print(*answer)
    pairs = zip(usual, answers, strict=True)
    same = sum(a == b for pair in pairs for a, b in zip(*pair, strict=True))
    print(f"{same} of 80 tokens are the same as without a cache")
    raise SystemExit(same != 80 and stored == torch.float32)
