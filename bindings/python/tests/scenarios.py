"""Plays bindings/scenarios/scenarios.json through the package. README.md beside that file says what
each step means.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib
from typing import Any

import numpy as np
from test_package import API, camel

import pagedkv
from pagedkv.generated import raw as _raw

FILE = pathlib.Path(__file__).resolve().parents[2] / "scenarios/scenarios.json"
GOLDEN, MASK = 0x9E3779B97F4A7C15, 2**64 - 1
K, V, Q = 0, 1, 2
LONG_MS = 60000
# {a name in C: the member of an enum}
MEMBERS: dict[str, Any] = {
    constant["name"]: getattr(_raw, camel(enum["name"]))(constant["value"])
    for enum in API["enums"]
    for constant in enum["constants"]
}


def enums(fields: dict[str, Any]) -> dict[str, Any]:
    """Replaces C names in text by enum members of the package."""
    return {key: MEMBERS[v] if isinstance(v, str) else v for key, v in fields.items()}


def load() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(FILE.read_text())["scenarios"]
    return found


# ---- Tokens and rows


def mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def ids(spans: list[list[int]]) -> list[int]:
    return [
        mix((seed << 32) + i) % 2**20
        for seed, first, count in spans
        for i in range(first, first + count)
    ]


def histories(text: list[int]) -> list[int]:
    found, h = [], 0
    for token in text:
        h = mix((h + GOLDEN * (token + 1)) & MASK)
        found.append(h)
    return found


def rows(text: list[int], new: int, kind: int, layer: int, heads: int, dim: int) -> Any:
    """Rows [new][heads][dim] of the last tokens of a text."""
    h = np.array(histories(text)[len(text) - new :], np.uint64).reshape(-1, 1, 1)
    first = (layer * 4 + kind) * 64
    index = np.array(
        [[1 + (first + head) * 1024 + d for d in range(dim)] for head in range(heads)], np.uint64
    )
    x = h + np.uint64(GOLDEN) * index
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits = (x ^ (x >> np.uint64(31))) >> np.uint64(40)
    return ((bits.astype(np.float64) / 2**23 - 1) * (4 if kind == Q else 1)).astype(np.float32)


# ---- Steps


def expect(what: str, got: object, expected: object) -> None:
    assert got == expected, f"{what}: expected {expected}, got {got}"


def expect_near(what: str, got: float, expected: float, tolerance: float) -> None:
    off, difference = abs(got - expected), f"{what}: expected {expected}, got {got}"
    sentence = f"{difference}, which is {off:.2g} off where {tolerance:.2g} are allowed"
    assert off <= tolerance, sentence


class Device(pagedkv.BlockIO):
    """The blocks of opaque groups, of which each slot has the history of its token."""

    def __init__(self, groups: tuple[pagedkv.LayerGroup, ...]) -> None:
        self.groups = [np.zeros((g.blocks, g.layer_bytes // 8), np.uint64) for g in groups]

    def read(self, group: int, blocks: Any, tokens: Any, to: Any) -> None:
        for row, block, count in zip(to.view(np.uint64), blocks, tokens, strict=True):
            row[:count] = self.groups[group][block, :count]

    def write(self, group: int, blocks: Any, source: Any) -> None:
        self.groups[group][blocks] = source.view(np.uint64)

    def compute(self, batch: pagedkv.Batch, new: list[int]) -> None:
        """Writes the histories of the new tokens, as kernels would."""
        for group, slots in enumerate(self.groups):
            for before, after in batch.block_copies(group):
                slots[after] = slots[before]
            slots.reshape(-1)[batch.slot_mapping(group)] = new

    def compare(self, session: pagedkv.Session) -> None:
        expected = np.array(histories(session.tokens().tolist()), np.uint64)
        for group, slots in enumerate(self.groups):
            table = session.block_table(group)
            there = np.repeat(table != pagedkv.NO_BLOCK_ID, slots.shape[1])[: len(expected)]
            held = slots[table % len(slots)].reshape(-1)[: len(expected)]
            wrong = np.flatnonzero(there & (held != expected)).tolist()
            expect(f"positions of group {group} with another history", wrong, [])


class Player:
    def __init__(self, scenario: dict[str, Any], folder: pathlib.Path) -> None:
        described = dict(scenario["config"])
        groups = tuple(pagedkv.LayerGroup(**enums(group)) for group in described.pop("groups"))
        if "prefix" in described:
            described["prefix"] = pagedkv.PrefixConfig(**enums(described["prefix"]))
        if "store" in described:
            described["store"] = pagedkv.StoreConfig(pagedkv.DirectoryStore(folder / "store"))
        opaque = groups[0].kind == pagedkv.LayerKind.OPAQUE_KV
        self.device = Device(groups) if opaque else None
        self.now_ms = 0
        self.config = pagedkv.CacheConfig(
            **enums(described), groups=groups, block_io=self.device, clock=lambda: self.now_ms
        )
        self.cache = pagedkv.Cache(self.config)
        self.tolerance: float = scenario["tolerance"]
        self.sessions: dict[str, pagedkv.Session] = {}
        self.snapshots: dict[str, pagedkv.Snapshot] = {}

    def play(self, step: dict[str, Any]) -> None:
        """Plays a step; compares its status first."""
        status, short = "PKV_OK", None
        expected = step.get("status", "PKV_OK")
        try:
            getattr(self, "do_" + step["do"])(step)
        except pagedkv.PagedKVError as error:
            assert isinstance(error.status, pagedkv.Status)
            status, sentence = f"PKV_{error.status.name}", Exception.__str__(error)
            short = getattr(error, "blocks_short", None)
            assert len(sentence.split()) >= 3, f"no sentence: {sentence!r}"
            assert status == expected, f"status: expected {expected}, got {status}: {sentence}"
        expect("status", status, expected)
        if "blocks_short" in step:
            expect("blocks_short", short, step["blocks_short"])

    def session(self, step: dict[str, Any]) -> pagedkv.Session:
        return self.sessions[step["session"]]

    def fields(self, report: Any, step: dict[str, Any]) -> None:
        got = dataclasses.asdict(report)
        expect("fields", {key: got[key] for key in step["fields"]}, enums(step["fields"]))

    # Steps by name, as README.md lists them.

    def do_plan(self, step: dict[str, Any]) -> None:
        self.fields(self.config.sizes(step.get("group")), step)

    def do_open(self, step: dict[str, Any]) -> None:
        options = enums({key: step[key] for key in ("priority", "prefix_use") if key in step})
        salt = step["salt"].encode() if "salt" in step else None
        self.sessions[step["session"]] = self.cache.open_session(**options, salt=salt)

    def do_step(self, step: dict[str, Any]) -> None:
        sessions = [self.sessions[entry["session"]] for entry in step["sessions"]]
        new = [ids(entry["tokens"]) for entry in step["sessions"]]
        texts = [s.tokens().tolist() + tokens for s, tokens in zip(sessions, new, strict=True)]
        layers = 0 if self.config.storage == pagedkv.Storage.EXTERNAL else self.cache.layers
        with self.cache.begin(sessions, [len(tokens) for tokens in new]) as batch:
            outputs = [self.attend(batch, layer, texts, new, step) for layer in range(layers)]
            if self.device is not None:
                pairs = zip(texts, new, strict=True)
                ends = [histories(text)[len(text) - len(tokens) :] for text, tokens in pairs]
                self.device.compute(batch, list(itertools.chain(*ends)))
            if step.get("end") != "abort":
                batch.commit(list(itertools.chain(*new)))
        if self.device is not None:
            for session in sessions:
                self.device.compare(session)
        for row, layer, head, dim, value in step.get("out", []):
            what = f"output of row {row}, layer {layer}, head {head}, dim {dim}"
            expect_near(what, float(outputs[layer][row, head, dim]), value, self.tolerance)

    def attend(
        self, batch: pagedkv.Batch, layer: int, texts: Any, new: Any, step: dict[str, Any]
    ) -> Any:
        shape = self.cache.layer_shape(layer)

        def stacked(kind: int, heads: int, dim: int) -> Any:
            pairs = zip(texts, new, strict=True)
            parts = [rows(text, len(t), kind, layer, heads, dim) for text, t in pairs]
            return np.concatenate(parts)

        k = stacked(K, shape.kv_heads, shape.key_dim)
        batch.write(layer, k, stacked(V, shape.kv_heads, shape.value_dim))
        given = dict(step.get("params", {}))
        params = pagedkv.AttentionParams(causal=not given.pop("bidirectional", 0), **given)
        return batch.attend(layer, stacked(Q, shape.query_heads, shape.key_dim), params=params)

    def do_length(self, step: dict[str, Any]) -> None:
        expect("length", self.session(step).length, step.get("length"))

    def do_tokens(self, step: dict[str, Any]) -> None:
        expected = ids(step["tokens"])
        expect("tokens", self.session(step).tokens(step["first"], len(expected)).tolist(), expected)

    def do_table(self, step: dict[str, Any]) -> None:
        table = self.session(step).block_table(step["group"])
        expect("entries", len(table), step["count"])
        expect(
            "entries that left the window", int((table == pagedkv.NO_BLOCK_ID).sum()), step["gone"]
        )
        if "shares" in step:
            other, n = step["shares"]
            pairs = zip(table, self.sessions[other].block_table(step["group"]), strict=False)
            shared = sum(a == b and a != pagedkv.NO_BLOCK_ID for a, b in pairs)
            expect(f"blocks shared with {other}", shared, n)

    def do_read(self, step: dict[str, Any]) -> None:
        k, v = self.session(step).read(step["layer"], step["first"], step["count"])
        for name, position, head, dim, value in step["values"]:
            got = float((k if name == "k" else v)[position - step["first"], head, dim])
            what = f"{name} of position {position}, head {head}, dim {dim}"
            expect_near(what, got, value, self.tolerance)

    def do_info(self, step: dict[str, Any]) -> None:
        self.fields(self.session(step).info(), step)

    def do_stats(self, step: dict[str, Any]) -> None:
        self.fields(self.cache.stats(), step)

    def do_pool_stats(self, step: dict[str, Any]) -> None:
        self.fields(self.cache.pool_stats(), step)

    def do_prefix_stats(self, step: dict[str, Any]) -> None:
        stats = self.cache.prefix_stats(*self.salt(step), all_salts=step.get("all", False))
        self.fields(stats, step)

    def do_prefix_clear(self, step: dict[str, Any]) -> None:
        self.cache.prefix_clear(*self.salt(step), all_salts=step.get("all", False))

    def salt(self, step: dict[str, Any]) -> list[bytes]:
        return [step["salt"].encode()] if "salt" in step else []

    def do_admit(self, step: dict[str, Any]) -> None:
        expect("matched", self.session(step).admit(ids(step["tokens"])), step.get("matched"))

    def do_reserve(self, step: dict[str, Any]) -> None:
        self.session(step).reserve(step["tokens"])

    def do_trim(self, step: dict[str, Any]) -> None:
        self.session(step).trim(step["length"])

    def do_fork(self, step: dict[str, Any]) -> None:
        self.sessions[step["into"]] = self.session(step).fork()

    def do_suspend(self, step: dict[str, Any]) -> None:
        self.session(step).suspend()

    def do_resume(self, step: dict[str, Any]) -> None:
        found, expected = self.session(step).resume(), (step.get("length"), step.get("total"))
        expect("length and total", tuple(found), expected)

    def do_victims(self, step: dict[str, Any]) -> None:
        names, new = zip(*step["sessions"], strict=True)
        victims = self.cache.choose_victims([self.sessions[name] for name in names], new)
        by_handle = {session.handle: name for name, session in self.sessions.items()}
        expect("victims", [by_handle[victim] for victim in victims], step["victims"])

    def do_hint(self, step: dict[str, Any]) -> None:
        bounds = enums(step["hint"])
        if "session" in step:
            result = self.session(step).hint(**bounds)
        else:
            action, tokens = bounds.pop("action"), ids(step["tokens"])
            result = self.cache.hint(action, tokens, *self.salt(step), **bounds)
        self.fields(result, step)

    def do_clock(self, step: dict[str, Any]) -> None:
        self.now_ms = step["now_ms"]

    def do_flush(self, _step: dict[str, Any]) -> None:
        expect("queued", self.cache.flush_store(timeout_ms=LONG_MS), 0)

    def do_wait(self, step: dict[str, Any]) -> None:
        cached = self.cache.wait_for_prefetch(ids(step["tokens"]), timeout_ms=LONG_MS)
        expect("cached", cached, step["cached"])

    def do_snapshot(self, step: dict[str, Any]) -> None:
        self.snapshots[step["into"]] = self.session(step).snapshot()

    def do_fork_snapshot(self, step: dict[str, Any]) -> None:
        self.sessions[step["into"]] = self.snapshots[step["snapshot"]].fork()

    def do_close_snapshot(self, step: dict[str, Any]) -> None:
        self.close(self.snapshots[step["snapshot"]], pagedkv.library().snapshot_close)

    def do_close(self, step: dict[str, Any]) -> None:
        self.close(self.session(step), pagedkv.library().session_close)

    def close(self, thing: pagedkv.Session | pagedkv.Snapshot, function: _raw._Call) -> None:
        """Closing twice is allowed in Python, so the second close calls C directly."""
        if thing.closed:
            pagedkv.library().check(function(thing.handle))
        thing.close()

    def do_validate(self, _step: dict[str, Any]) -> None:
        self.cache.validate()


def play(scenario: dict[str, Any], folder: pathlib.Path) -> None:
    """Plays all steps; an AssertionError names the one that differs, and by how much."""
    player = Player(scenario, folder)
    with player.cache:
        for number, step in enumerate(scenario["steps"], 1):
            try:
                player.play(step)
            except AssertionError as error:
                what = f"{step['do']} {step.get('session', '')}"
                where = f"scenario {scenario['name']!r}, step {number} ({what})"
                raise AssertionError(f"{where}: {error}") from None
