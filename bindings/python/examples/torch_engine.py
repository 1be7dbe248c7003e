"""An engine over tensors of PyTorch, on a GPU if there is one, whose blocks go to a directory and
come back. It attends with scaled_dot_product_attention and never learns that they were away: the
tokens are those of an engine with memory for everything.

The model is a small transformer with random weights, so the text means nothing.
"""

from __future__ import annotations

import contextlib
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional

import pagedkv

LAYERS, HEADS, DIM, BLOCK, VOCABULARY, LONGEST = 3, 4, 16, 16, 300, 256
WIDTH = HEADS * DIM
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Model:
    def __init__(self) -> None:
        random = torch.Generator().manual_seed(1)

        def weights(*shape: int) -> torch.Tensor:
            made = torch.randn(*shape, generator=random, dtype=torch.float64)
            return (made / shape[-1] ** 0.5).to(DEVICE)

        self.tokens, self.positions = weights(VOCABULARY, WIDTH), weights(LONGEST, WIDTH)
        self.qkv = [weights(3 * WIDTH, WIDTH) for _ in range(LAYERS)]
        self.out = [weights(WIDTH, WIDTH) for _ in range(LAYERS)]


class Engine(pagedkv.BlockIO):
    """Keeps keys and values as [block][layer][K or V][token][head][dim]."""

    def __init__(self, model: Model, blocks: int, store: pagedkv.StoreConfig | None = None) -> None:
        self.model = model
        shape = blocks, LAYERS, 2, BLOCK, HEADS, DIM
        self.kv = torch.zeros(shape, dtype=torch.float64, device=DEVICE)
        self.last_step = torch.cuda.Event() if DEVICE.type == "cuda" else None
        self.copies = {"read": 0, "write": 0}
        layer_bytes = self.kv[0, 0].nbytes
        group = pagedkv.LayerGroup(LAYERS, kind="opaque_kv", layer_bytes=layer_bytes, blocks=blocks)
        self.cache = pagedkv.Cache(
            pagedkv.CacheConfig(
                groups=[group],
                storage="external",
                prefix=pagedkv.PrefixConfig(),
                store=store,
                block_io=self,
            )
        )

    # ---- Copies, on threads of the cache

    @contextlib.contextmanager
    def copying(self) -> Iterator[None]:
        """Copies on a stream of their own, which begin after the last step and end here."""
        if self.last_step is None:
            yield
            return
        stream = torch.cuda.Stream()
        stream.wait_event(self.last_step)
        with torch.cuda.stream(stream):
            yield
        stream.synchronize()

    def rows(self, memory: Any) -> torch.Tensor:
        return torch.from_numpy(memory).view(torch.float64).view(-1, *self.kv.shape[1:])

    def read(self, group: int, blocks: Any, tokens: Any, to: Any) -> None:
        with self.copying():
            ids = torch.from_numpy(blocks.astype("int64")).to(DEVICE)
            copy = self.kv[ids].cpu()
        for row, block, count in zip(self.rows(to), copy, tokens, strict=True):
            row[:, :, :count] = block[:, :, :count]  # other slots may be those of other texts
        self.copies["read"] += len(blocks)

    def write(self, group: int, blocks: Any, source: Any) -> None:
        with self.copying():
            ids = torch.from_numpy(blocks.astype("int64")).to(DEVICE)
            self.kv[ids] = self.rows(source).to(DEVICE)
        self.copies["write"] += len(blocks)

    # ---- Steps

    def step(self, session: pagedkv.Session, tokens: list[int]) -> int:
        """Returns the most likely next token."""
        model, start = self.model, session.length
        end = start + len(tokens)
        with self.cache.begin([session], [len(tokens)]) as batch:
            for before, after in batch.block_copies(0).tolist():
                self.kv[after] = self.kv[before]
            slots = torch.from_numpy(batch.slot_mapping(0)).to(DEVICE)
            ids = batch.kv_indices(0, "blocks").indices.astype("int64")
            table = torch.from_numpy(ids).to(DEVICE)
            at = torch.arange(start, end, device=DEVICE)
            seen = torch.arange(end, device=DEVICE) <= at[:, None]
            x = model.tokens[torch.tensor(tokens, device=DEVICE)] + model.positions[at]
            for layer in range(LAYERS):
                qkv = (x @ model.qkv[layer].T).view(-1, 3, HEADS, DIM)
                self.kv[slots // BLOCK, layer, :, slots % BLOCK] = qkv[:, 1:]
                k, v = self.kv[table, layer].transpose(0, 1).flatten(1, 2)[:, :end].transpose(1, 2)
                q = qkv[:, 0].transpose(0, 1)
                out = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
                x = x + torch.tanh(out.transpose(0, 1).flatten(1) @ model.out[layer].T)
            if self.last_step is not None:
                self.last_step.record()
            batch.commit(tokens)
        return int((x[-1] @ model.tokens.T).argmax())

    def answer(self, prompt: list[int], count: int) -> list[int]:
        text = list(prompt)
        with self.cache.open_session() as session:
            rest = text[session.admit(text[:-1]) :]
            for _ in range(count):
                rest = [self.step(session, rest)]
                text += rest
        return text[len(prompt) :]


def serve(engine: Engine) -> list[list[int]]:
    """Three conversations take turns, for three rounds. Each prompt has what was said before."""
    said = [[(7 * i + 31 * talk) % VOCABULARY for i in range(60)] for talk in range(3)]
    answers = []
    for _ in range(3):
        for talk in said:
            answers.append(engine.answer(talk, 16))
            talk += answers[-1]
    return answers


def main() -> None:
    model = Model()
    with tempfile.TemporaryDirectory() as folder:
        large = Engine(model, 64)
        path = pathlib.Path(folder) / "store"
        store = pagedkv.StoreConfig(pagedkv.DirectoryStore(path), wait_ms=10000)
        small = Engine(model, 10, store)
        with large.cache, small.cache:
            expected, found = serve(large), serve(small)
            back = small.copies["write"]
    same = [
        a == b for pair in zip(expected, found, strict=True) for a, b in zip(*pair, strict=True)
    ]
    print(f"{DEVICE.type}: {sum(same)} of {len(same)} tokens are the same")
    print("blocks came back from the directory" if back > 0 else "no block came back")


if __name__ == "__main__":
    main()
