"""Compares random use with a naive model, in which a session is the list of its tokens, and
everything it holds follows from that.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import scenarios
from helpers import attention, causal, small
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    precondition,
    rule,
)

import pagedkv

CONFIG = small(blocks=12, prefix=pagedkv.PrefixConfig())
BLOCK = CONFIG.block_size
# Scores are off by at most 18 * 2^-24 * 4 * sqrt(16) < 2e-5, outputs by twice that and 200 * 2^-24
# for sums: scenarios/README.md.
TOLERANCE = 6e-5

tokens_of_step = st.lists(st.integers(0, 3), max_size=40)


def rows(text: list[int], new: int) -> Any:
    """Keys and values of the last tokens of a text."""
    return [scenarios.rows(text, new, kind, 0, 1, 16) for kind in (scenarios.K, scenarios.V)]


class Texts(RuleBasedStateMachine):
    sessions = Bundle("sessions")
    snapshots = Bundle("snapshots")

    def __init__(self) -> None:
        super().__init__()
        self.cache = pagedkv.Cache(CONFIG)
        self.texts: dict[pagedkv.Session, list[int]] = {}
        self.frozen: dict[pagedkv.Snapshot, list[int]] = {}
        self.forgotten: dict[pagedkv.Session, list[int]] = {}

    def teardown(self) -> None:
        for session in list(self.texts):
            session.close()
        for snapshot in list(self.frozen):
            snapshot.close()
        self.cache.prefix_clear(all_salts=True)
        assert self.cache.pool_stats().held_blocks == 0
        self.cache.close()

    @rule(target=sessions)
    def open(self) -> pagedkv.Session:
        session = self.cache.open_session()
        self.texts[session] = []
        return session

    @rule(session=sessions, tokens=tokens_of_step, commit=st.booleans())
    def step(self, session: pagedkv.Session, tokens: list[int], commit: bool) -> None:
        if session in self.forgotten:
            return
        text = self.texts[session] + tokens
        try:
            batch = self.cache.begin([session], [len(tokens)])
        except pagedkv.OutOfBlocksError as error:
            free = self.cache.pool_stats().free_blocks + self.cache.stats().evictable_blocks
            assert error.blocks_short
            assert free < (len(tokens) + BLOCK - 1) // BLOCK + 1
            return
        except pagedkv.MisuseError as error:
            assert error.status == pagedkv.Status.TOO_LARGE
            assert len(text) > CONFIG.blocks * BLOCK
            return
        with batch:
            new = len(tokens)
            batch.write(0, *rows(text, new))
            q = scenarios.rows(text, new, scenarios.Q, 0, 2, 16)
            k, v = rows(text, len(text))
            expected = attention(q, k, v, causal(new, len(text)))
            np.testing.assert_allclose(batch.attend(0, q), expected, atol=TOLERANCE, rtol=0)
            if commit:
                batch.commit(tokens)
                self.texts[session] = text

    @rule(target=sessions, session=sessions)
    def fork(self, session: pagedkv.Session) -> Any:
        if session in self.forgotten:
            return multiple()
        copy = session.fork()
        self.texts[copy] = list(self.texts[session])
        return copy

    @rule(session=sessions, part=st.floats(0, 1))
    def trim(self, session: pagedkv.Session, part: float) -> None:
        if session not in self.forgotten:
            length = int(part * len(self.texts[session]))
            session.trim(length)
            self.texts[session] = self.texts[session][:length]

    @rule(session=sessions, tokens=tokens_of_step)
    def match(self, session: pagedkv.Session, tokens: list[int]) -> None:
        if session not in self.forgotten and session.info().blocks == 0:
            self.texts[session] = tokens[: session.admit(tokens)]

    @rule(session=sessions)
    def suspend(self, session: pagedkv.Session) -> None:
        if session not in self.forgotten and self.texts[session]:
            session.suspend()
            self.forgotten[session], self.texts[session] = self.texts[session], []

    @precondition(lambda self: self.forgotten)
    @rule()
    def resume(self) -> None:
        session, text = next(iter(self.forgotten.items()))
        try:
            length, total = session.resume()
        except pagedkv.OutOfBlocksError:
            return
        del self.forgotten[session]
        assert total == len(text)
        self.texts[session] = text[:length]
        self.step(session, text[length:], commit=True)

    @rule(target=snapshots, session=sessions)
    def snapshot(self, session: pagedkv.Session) -> Any:
        if session in self.forgotten:
            return multiple()
        taken = session.snapshot()
        self.frozen[taken] = list(self.texts[session])
        return taken

    @rule(target=sessions, snapshot=snapshots)
    def begin_from(self, snapshot: pagedkv.Snapshot) -> pagedkv.Session:
        session = snapshot.fork()
        self.texts[session] = list(self.frozen[snapshot])
        return session

    @rule(snapshot=consumes(snapshots))
    def close_snapshot(self, snapshot: pagedkv.Snapshot) -> None:
        snapshot.close()
        self.frozen.pop(snapshot, None)

    @rule(session=consumes(sessions))
    def close(self, session: pagedkv.Session) -> None:
        session.close()
        self.texts.pop(session, None)
        self.forgotten.pop(session, None)

    @invariant()
    def everything_is_as_in_the_model(self) -> None:
        for session, text in self.texts.items():
            if session in self.forgotten:
                assert session.length == 0
                assert (
                    session.tokens(0, len(self.forgotten[session])).tolist()
                    == self.forgotten[session]
                )
                continue
            assert session.tokens().tolist() == text
            for stored, wanted in zip(session.read(0), rows(text, len(text)), strict=True):
                np.testing.assert_array_equal(stored, wanted)
        self.cache.validate()


Texts.TestCase.settings = settings(
    max_examples=int(os.environ.get("PKV_ROUNDS", "20")),
    stateful_step_count=25,
    deadline=None,
    database=None,
    derandomize=True,
)
TestTexts = Texts.TestCase
