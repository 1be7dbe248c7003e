"""Generates text with a hybrid toy model, with libpagedkv and without it. The bytes are the same,
through forks, trims, drafts, a file and a store.

Of every three layers two are gated delta rules (Yang, Kautz and Hatamizadeh 2025, "Gated Delta
Networks"), which keep one matrix per head for a text of any length; the third attends, to a window
or to everything. Weights are random, so the text means nothing, but only a correct cache reproduces
it.
"""

from __future__ import annotations

import contextlib
import pathlib
import tempfile
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

import pagedkv

Floats = npt.NDArray[np.float32]
HEADS, DIM, WIDTH, WINDOW, BLOCK = 2, 32, 64, 48, 16
KINDS = ["delta", "delta", "window", "delta", "delta", "full"]
STATE = (HEADS, DIM, DIM)
DRAFT = 4


class Memory(Protocol):
    """A model's memory of one text, in the current step."""

    def attend(self, layer: int, q: Floats, k: Floats, v: Floats) -> Floats: ...
    def states(self, layer: int) -> tuple[Floats, dict[int, Floats]]:
        """The state before the step, and the place for the state after new token i."""


class Arrays:
    """The memory in NumPy arrays, copied whenever something is added: slow and simple."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[Floats, Floats]] = {}
        self.state = {layer: np.zeros(STATE, np.float32) for layer in range(len(KINDS))}

    def attend(self, layer: int, q: Floats, k: Floats, v: Floats) -> Floats:
        before = self.rows.get(layer, (k[:0], v[:0]))
        keys, values = (np.concatenate(pair) for pair in zip(before, (k, v), strict=True))
        self.rows[layer] = keys, values
        at = np.arange(len(keys) - len(q), len(keys))[:, None]
        seen = np.arange(len(keys)) <= at
        if KINDS[layer] == "window":
            seen &= np.arange(len(keys)) > at - WINDOW
        scores = np.einsum("qhd,khd->hqk", q, keys) / np.sqrt(DIM)
        weights = np.exp(np.where(seen, scores - scores.max(-1, keepdims=True), -np.inf))
        weights /= weights.sum(-1, keepdims=True)
        out: Floats = np.einsum("hqk,khd->qhd", weights, values)
        return out

    def states(self, layer: int) -> tuple[Floats, dict[int, Floats]]:
        before, self.state[layer] = self.state[layer], np.empty(STATE, np.float32)
        return before, {-1: self.state[layer]}


class Paged:
    """A session of a cache, in a batch."""

    def __init__(self, batch: pagedkv.Batch) -> None:
        self.batch = batch

    def attend(self, layer: int, q: Floats, k: Floats, v: Floats) -> Floats:
        self.batch.write(layer, k, v)
        out: Floats = self.batch.attend(layer, q)
        return out

    def states(self, layer: int) -> tuple[Floats, dict[int, Floats]]:
        (own,) = self.batch.states(layer)
        before = np.zeros(STATE, np.float32)
        if own.before is not None:
            before = own.before.view(np.float32).reshape(STATE)
        after = [state.view(np.float32).reshape(STATE) for state in own.after]
        return before, dict(zip(own.tokens, after, strict=True))


class Model:
    def __init__(self) -> None:
        random = np.random.default_rng(7)
        scale = WIDTH**-0.5
        self.embedding = random.normal(0, 1, (256, WIDTH)).astype(np.float32)
        self.projections = random.normal(0, scale, (len(KINDS), 3, WIDTH, HEADS * DIM))
        self.gates = random.normal(0, scale, (len(KINDS), 2, WIDTH, HEADS))
        self.outputs = random.normal(0, scale, (len(KINDS), HEADS * DIM, WIDTH))

    def step(self, tokens: list[int], memory: Memory) -> list[int]:
        """The best next byte after each of some new tokens."""
        x = self.embedding[tokens].astype(np.float64)
        for layer, kind in enumerate(KINDS):
            normed = x / np.sqrt((x**2).mean(-1, keepdims=True))
            rows = (normed @ weights for weights in self.projections[layer])
            q, k, v = (each.reshape(-1, HEADS, DIM).astype(np.float32) for each in rows)
            if kind == "delta":
                mixed = self.delta(layer, normed, q, k, v, memory)
            else:
                mixed = memory.attend(layer, q, k, v)
            x = x + mixed.reshape(-1, HEADS * DIM) @ self.outputs[layer]
        best: list[int] = (x @ self.embedding.T).argmax(-1).tolist()
        return best

    def delta(self, layer: int, x: Any, q: Floats, k: Floats, v: Floats, memory: Memory) -> Floats:
        """S' = a S (I - b k k^T) + b v k^T, and the output is S' q; a and b are gates in (0, 1)."""
        q, k = (rows / np.linalg.norm(rows, axis=-1, keepdims=True) for rows in (q, k))
        keep, write = (1 / (1 + np.exp(-(x @ gate) - 1)) for gate in self.gates[layer])
        before, after = memory.states(layer)
        state, out = before.astype(np.float64), np.empty_like(v)
        for i in range(len(q)):
            a, b = keep[i][:, None, None], write[i][:, None, None]
            old = np.einsum("hvk,hk->hv", state, k[i])[..., None]
            state = a * state + b * (v[i][..., None] - a * old) * k[i][:, None, :]
            state = state.astype(np.float32).astype(np.float64)
            out[i] = np.einsum("hvk,hk->hv", state, q[i])
            for place in (i, i - len(q)):
                if place in after:
                    after[place][:] = state
        return out


def without_library(model: Model, prompt: list[int], count: int) -> list[int]:
    memory, text = Arrays(), []
    best = model.step(prompt, memory)[-1]
    for _ in range(count):
        text.append(best)
        best = model.step([best], memory)[-1]
    return text


class Engine:
    """Greedy decoding over a cache."""

    def __init__(self, model: Model, store: pathlib.Path) -> None:
        self.model = model
        room: dict[str, Any] = {"blocks": 64}
        shape = {"query_heads": HEADS, "kv_heads": HEADS, "key_dim": DIM} | room
        numbers = {kind: [i for i, k in enumerate(KINDS) if k == kind] for kind in set(KINDS)}
        groups = [
            pagedkv.LayerGroup(layers=1, layer_indices=numbers["full"], **shape),
            pagedkv.LayerGroup(layers=1, layer_indices=numbers["window"], window=WINDOW, **shape),
            pagedkv.LayerGroup(
                layers=len(numbers["delta"]),
                layer_indices=numbers["delta"],
                kind="states",
                layer_bytes=4 * HEADS * DIM * DIM,
                checkpoint_interval=4 * BLOCK,
                max_verify_tokens=DRAFT,
                **room,
            ),
        ]
        kept = pagedkv.StoreConfig(pagedkv.DirectoryStore(store))
        given: dict[str, Any] = {"prefix": pagedkv.PrefixConfig(), "store": kept}
        config = pagedkv.CacheConfig(groups=groups, block_size=BLOCK, **given)
        self.cache = pagedkv.Cache(config)

    def step(self, session: pagedkv.Session, tokens: list[int]) -> list[int]:
        with self.cache.begin([session], [len(tokens)]) as batch:
            best = self.model.step(tokens, Paged(batch))
            batch.commit(tokens)
        return best

    def prefill(self, session: pagedkv.Session, prompt: list[int]) -> int:
        """Computes the rest of a prompt; returns the best byte after it. The first step ends at the
        last full block, so that the state there is cached for others.
        """
        for end in (len(prompt) // BLOCK * BLOCK, len(prompt)):
            if end > len(session):
                best = self.step(session, prompt[len(session) : end])[-1]
        return best

    def generate(self, session: pagedkv.Session, prompt: list[int], count: int) -> list[int]:
        text, best = [], self.prefill(session, prompt)
        for _ in range(count):
            text.append(best)
            (best,) = self.step(session, [best])
        return text

    def generate_from_drafts(
        self, session: pagedkv.Session, prompt: list[int], draft: list[int], count: int
    ) -> tuple[list[int], int]:
        """Like generate(), but takes several bytes at once: those of the draft that the model
        confirms."""
        text: list[int] = []
        steps, best = 0, self.prefill(session, prompt)
        while len(text) < count:
            tokens = [best, *draft[len(text) + 1 : len(text) + DRAFT]]
            with self.cache.begin([session], [len(tokens)]) as batch:
                next_ones = self.model.step(tokens, Paged(batch))
                kept = 1
                while kept < len(tokens) and tokens[kept] == next_ones[kept - 1]:
                    kept += 1
                batch.accept(0, range(kept))
                batch.commit(tokens)
            text += tokens[:kept]
            best, steps = next_ones[kept - 1], steps + 1
        return text[:count], steps


def main() -> None:
    model, count = Model(), 90
    prompt = list(b"A hybrid model keeps rows of keys for some layers, and a state for others.")
    expected = without_library(model, prompt, count)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        engine, third = (Engine(model, pathlib.Path(folder, name)) for name in ("one", "two"))
        stack.enter_context(engine.cache)
        stack.enter_context(third.cache)
        session = engine.cache.open_session()
        check("step by step", engine.generate(session, prompt, count), expected)

        fork = session.fork()
        length = fork.trim_point(len(session) - 2)
        fork.trim(length)
        done = length - len(prompt)
        again = engine.generate(fork, prompt + expected[: done + 1], count - done - 1)
        check(f"a fork trimmed to {length} tokens", again, expected[done + 1 :])

        other = list(b" But what of another one?")
        with session.fork() as second:
            text = prompt + expected + other
            again, alone = engine.generate(second, text, 20), without_library(model, text, 20)
            check("a fork with another text", again, alone)

        with engine.cache.open_session() as drafted:
            wrong = [byte if i % 7 else 0 for i, byte in enumerate(expected)]
            drafted_text, steps = engine.generate_from_drafts(drafted, prompt, wrong, count)
            check(f"drafts, in {steps} steps", drafted_text, expected)

        path = pathlib.Path(folder, "sessions.pkv")
        pagedkv.save(engine.cache, [session], path)
        (loaded,) = pagedkv.load(third.cache, path)
        longer = without_library(model, prompt, count + 20)
        text = prompt + longer[: count + 1]
        check("from a file", third.generate(loaded, text, 19), longer[count + 1 :])

        session.close()
        fork.close()
        engine.cache.flush_store(timeout_ms=60000)
        engine.cache.prefix_clear(all_salts=True)
        with engine.cache.open_session() as stored:
            engine.cache.hint("prefetch", text)
            engine.cache.wait_for_prefetch(text, timeout_ms=60000)
            matched = stored.admit(text)
            if matched == 0:
                raise SystemExit("the store has lost the text")
            again = engine.generate(stored, text, 19)
            check(f"{matched} tokens from a store", again, longer[count + 1 :])
    print("the same text with the library and without it")


def check(what: str, text: list[int], expected: list[int]) -> None:
    if text != expected:
        raise SystemExit(f"{what}: {bytes(text)!r}, expected {bytes(expected)!r}")
    print(f"{what}: the same {len(text)} bytes")


if __name__ == "__main__":
    main()
