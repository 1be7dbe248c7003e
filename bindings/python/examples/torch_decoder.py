"""A decoder in PyTorch whose cache and attention, in the manner of transformers, are replaced by
pagedkv: the same tokens.

The model asks a cache object for attention. `GrowingCache` is what such models come with: it
concatenates keys and values and calls scaled_dot_product_attention. `PagedCache` hands the same
tensors to libpagedkv, by DLPack and without a copy.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import nn

import pagedkv

LAYERS, HEADS, KV_HEADS, DIM, VOCABULARY = 3, 8, 2, 32, 500


class AttentionCache(Protocol):
    """q [sequences, tokens, heads, dim], k and v [sequences, tokens, kv heads, dim] of the new
    tokens; the result is as q.
    """

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor: ...


class GrowingCache:
    def __init__(self) -> None:
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        if layer == len(self.keys):
            self.keys.append(k)
            self.values.append(v)
        else:
            self.keys[layer] = torch.cat([self.keys[layer], k], dim=2)
            self.values[layer] = torch.cat([self.values[layer], v], dim=2)
        k, v = (
            x.repeat_interleave(HEADS // KV_HEADS, dim=1)
            for x in (self.keys[layer], self.values[layer])
        )
        new, total = q.shape[2], k.shape[2]
        seen = torch.ones(new, total, dtype=torch.bool).tril(total - new)
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2)


class PagedCache:
    """Use `step` around each forward pass."""

    def __init__(self, sequences: int, blocks: int) -> None:
        config = pagedkv.CacheConfig(
            layers=LAYERS, query_heads=HEADS, kv_heads=KV_HEADS, key_dim=DIM, blocks=blocks
        )
        self.cache = pagedkv.Cache(config)
        self.sessions = [self.cache.open_session() for _ in range(sequences)]
        self.batch: pagedkv.Batch | None = None

    def begin(self, new_tokens: int) -> pagedkv.Batch:
        self.batch = self.cache.begin(self.sessions, [new_tokens] * len(self.sessions))
        return self.batch

    def attend(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        assert self.batch is not None
        out = torch.empty_like(q)
        self.batch.write(layer, k.flatten(0, 1), v.flatten(0, 1))
        self.batch.attend(layer, q.flatten(0, 1), out.flatten(0, 1))
        return out


class Layer(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        width = HEADS * DIM
        self.number = number
        self.norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.o = nn.Linear(width, width), nn.Linear(width, width)
        self.k, self.v = nn.Linear(width, KV_HEADS * DIM), nn.Linear(width, KV_HEADS * DIM)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: torch.Tensor, cache: AttentionCache) -> torch.Tensor:
        normed = self.norm(x)
        q, k, v = (project(normed).unflatten(-1, (-1, DIM)) for project in (self.q, self.k, self.v))
        x = x + self.o(cache.attend(self.number, q, k, v).flatten(2))
        return x + self.mlp(self.mlp_norm(x))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HEADS * DIM)
        self.positions = nn.Embedding(1024, HEADS * DIM)
        self.layers = nn.ModuleList(Layer(number) for number in range(LAYERS))
        self.head = nn.Linear(HEADS * DIM, VOCABULARY)

    def forward(self, tokens: torch.Tensor, first: int, cache: AttentionCache) -> torch.Tensor:
        """The best next token after the last of `tokens` [sequences, tokens], which begin at
        position `first`.
        """
        x = self.embedding(tokens) + self.positions(torch.arange(first, first + tokens.shape[1]))
        for layer in self.layers:
            x = layer(x, cache)
        return self.head(x[:, -1]).argmax(-1, keepdim=True)


def generate(model: Decoder, prompts: torch.Tensor, n: int, cache: AttentionCache) -> torch.Tensor:
    """n tokens after each prompt."""
    text, new = prompts, prompts
    with torch.no_grad():
        for _ in range(n):
            first = text.shape[1] - new.shape[1]
            if isinstance(cache, PagedCache):
                with cache.begin(new.shape[1]) as batch:
                    following = model(new, first, cache)
                    batch.commit(new.flatten().numpy())
            else:
                following = model(new, first, cache)
            text, new = torch.cat([text, following], dim=1), following
    return text[:, prompts.shape[1] :]


def both(n: int = 40) -> tuple[list[list[int]], list[list[int]]]:
    """The tokens of three sequences, with the model's own cache and with ours."""
    torch.manual_seed(1)
    model, prompts = Decoder(), torch.randint(VOCABULARY, (3, 17))
    usual = generate(model, prompts, n, GrowingCache())
    paged = PagedCache(sequences=3, blocks=3 * ((17 + n) // 16 + 1))
    with paged.cache:
        ours = generate(model, prompts, n, paged)
    return usual.tolist(), ours.tolist()


if __name__ == "__main__":
    usual, ours = both()
    print("\n".join(" ".join(map(str, tokens)) for tokens in ours))
    print(
        "the same tokens as with the model's own cache"
        if ours == usual
        else f"other tokens: {usual}"
    )
    raise SystemExit(ours != usual)
