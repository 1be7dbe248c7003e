"""Attention besides masks: the attention mass of blocks, dropped blocks, windows and sinks of
single KV heads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers import small, written_step

import pagedkv
from pagedkv import NO_BLOCK_ID, AttentionOutputs, AttentionParams

HEADS, DIM, BLOCK, TOKENS, NEW = 2, 16, 16, 200, 3
K, V = np.random.default_rng(5).standard_normal((2, TOKENS + NEW, HEADS, DIM), np.float32)
Q = np.random.default_rng(6).standard_normal((NEW, HEADS, DIM), np.float32)
BLOCKS = TOKENS // BLOCK + 1


@pytest.fixture
def batch() -> Iterator[pagedkv.Batch]:
    with written_step(small(kv_heads=HEADS, threads=1), K, V, TOKENS) as begun:
        yield begun


# ---- The mass of blocks


def test_the_mass_of_a_query_sums_to_1(batch: pagedkv.Batch) -> None:
    mass, last = np.full((1, HEADS, BLOCKS + 1), 9, np.float32), np.empty((1, HEADS, BLOCKS), "f4")
    batch.attend(0, Q, outputs=AttentionOutputs(masses=mass))
    batch.attend(0, Q, outputs=AttentionOutputs(masses=last, mass_queries=1))
    np.testing.assert_allclose(mass[0, :, :BLOCKS].sum(axis=1), NEW, atol=1e-5)
    assert (mass[0, :, BLOCKS] == 9).all()  # after the last block
    np.testing.assert_allclose(last.sum(axis=2), 1, atol=1e-5)
    short = mass[:, :, : BLOCKS - 1].copy()
    wrongs: list[Any] = [mass[:, :1], mass[0], mass.astype(float), short]
    for wrong in wrongs:
        with pytest.raises(pagedkv.MisuseError, match="mass"):
            batch.attend(0, Q, outputs=AttentionOutputs(masses=wrong))
    with pytest.raises(pagedkv.MisuseError, match="masses is NULL"):
        batch.attend(0, Q, outputs=AttentionOutputs(mass_queries=1))


# ---- Windows and sinks of KV heads


def test_windows_that_are_refused(batch: pagedkv.Batch) -> None:
    wrongs: list[Any] = [[1], [1, 2, 3], [[1, 2]], [1.5, 2], [-1, 2], [1 << 32, 2], "ab"]
    for wrong in wrongs:
        for name in ("kv_head_windows", "kv_head_sink_tokens"):
            with pytest.raises(pagedkv.MisuseError, match=name):
                batch.attend(0, Q, params=AttentionParams(**{name: wrong}))


# ---- Dropped blocks


def test_dropped_blocks_leave_the_block_table(batch: pagedkv.Batch) -> None:
    session, dropped = batch.sessions[0], [1, 2, 4]
    batch.abort()
    session.drop_blocks(dropped)
    assert np.flatnonzero(session.block_table() == NO_BLOCK_ID).tolist() == dropped
    assert len(session) == TOKENS


def test_what_is_no_full_block_is_not_dropped(batch: pagedkv.Batch) -> None:
    session = batch.sessions[0]
    batch.abort()
    for blocks, group, message in (
        ([12], 0, "block 12; the session has 12"),
        ([1, 1], 0, "ascending order"),
        ([1], 1, ""),
        ([-1], 0, ""),
        ([2**32], 0, ""),
    ):
        with pytest.raises(pagedkv.MisuseError, match=message):
            session.drop_blocks(blocks, group)
    session.drop_blocks([])
    assert NO_BLOCK_ID not in session.block_table()
