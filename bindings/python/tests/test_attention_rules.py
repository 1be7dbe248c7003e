"""Attention besides masks: the attention mass of blocks, dropped blocks, windows and sinks of
single KV heads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers import attention, causal, small, weights_of, written_step

import pagedkv
from pagedkv import NO_BLOCK, AttentionOutputs, AttentionParams, ChosenBlocks, TreeMask

HEADS, DIM, BLOCK, TOKENS, NEW = 2, 16, 16, 200, 3
K, V = np.random.default_rng(5).standard_normal((2, TOKENS + NEW, HEADS, DIM), np.float32)
Q = np.random.default_rng(6).standard_normal((NEW, HEADS, DIM), np.float32)
POSITIONS = np.arange(TOKENS + NEW)
BLOCKS = TOKENS // BLOCK + 1


@pytest.fixture
def batch() -> Iterator[pagedkv.Batch]:
    with written_step(small(kv_heads=HEADS, threads=1), K, V, TOKENS) as begun:
        yield begun


def attended(batch: pagedkv.Batch, **params: Any) -> Any:
    return batch.attend(0, Q, params=AttentionParams(**params))


# ---- The mass of blocks


def test_the_mass_is_the_sum_of_the_weights(batch: pagedkv.Batch) -> None:
    mass, last = np.full((1, HEADS, BLOCKS + 1), 9, np.float32), np.empty((1, HEADS, BLOCKS), "f4")
    batch.attend(0, Q, outputs=AttentionOutputs(masses=mass))
    batch.attend(0, Q, outputs=AttentionOutputs(masses=last, mass_queries=1))
    weights = weights_of(Q, K, causal(NEW, TOKENS + NEW))
    expected = np.add.reduceat(weights, np.arange(0, TOKENS + NEW, BLOCK), axis=2)
    np.testing.assert_allclose(mass[0, :, :BLOCKS], expected.sum(axis=0), atol=1e-5)
    assert (mass[0, :, BLOCKS] == 9).all()  # after the last block
    np.testing.assert_allclose(last[0], expected[-1], atol=1e-5)
    short = mass[:, :, : BLOCKS - 1].copy()
    wrongs: list[Any] = [mass[:, :1], mass[0], mass.astype(float), short]
    for wrong in wrongs:
        with pytest.raises(pagedkv.MisuseError, match="mass"):
            batch.attend(0, Q, outputs=AttentionOutputs(masses=wrong))
    with pytest.raises(pagedkv.MisuseError, match="masses is NULL"):
        batch.attend(0, Q, outputs=AttentionOutputs(mass_queries=1))


# ---- Windows and sinks of KV heads


def test_each_head_has_its_own_window(batch: pagedkv.Batch) -> None:
    windows, sinks = np.array([30, 0]), np.array([5, 9])
    row = TOKENS + np.arange(NEW)[:, None, None]
    near = (row - windows[:, None] < POSITIONS) | (windows[:, None] == 0)
    seen = (near | (sinks[:, None] > POSITIONS)) & (row >= POSITIONS)
    out = attended(batch, head_windows=windows, head_sinks=sinks)
    np.testing.assert_allclose(out, attention(Q, K, V, seen), atol=1e-5)


def test_windows_that_are_refused(batch: pagedkv.Batch) -> None:
    wrongs: list[Any] = [[1], [1, 2, 3], [[1, 2]], [1.5, 2], [-1, 2], [1 << 32, 2], "ab"]
    for wrong in wrongs:
        for name in ("head_windows", "head_sinks"):
            with pytest.raises(pagedkv.MisuseError, match=name):
                attended(batch, **{name: wrong})


def test_the_tokens_of_a_tree_choose_together(batch: pagedkv.Batch) -> None:
    chosen = np.zeros((1, HEADS, 2), np.uint32)
    blocks = ChosenBlocks(2, tokens_per_choice=NEW)
    params = AttentionParams(mask=TreeMask([-1, 0, 0]), chosen_blocks=blocks)
    out = batch.attend(0, Q, params=params, outputs=AttentionOutputs(chosen=chosen))
    block = POSITIONS // BLOCK
    read = np.array([np.isin(block, [0, 11, 12, *chosen[0, head]]) for head in range(HEADS)])
    tree = np.ones((NEW, TOKENS + NEW), bool)
    tree[:, TOKENS:] = [[1, 0, 0], [1, 1, 0], [1, 0, 1]]
    np.testing.assert_allclose(out, attention(Q, K, V, read & tree[:, None]), atol=1e-5)


# ---- Dropped blocks


def test_a_query_does_not_see_dropped_blocks(batch: pagedkv.Batch) -> None:
    session, dropped = batch.sessions[0], [1, 2, 4]
    batch.abort()
    session.drop_blocks(dropped)
    assert np.flatnonzero(session.block_table() == NO_BLOCK).tolist() == dropped
    assert len(session) == TOKENS
    cache: Any = session.cache
    with cache.begin([session], [NEW]) as step:
        step.write(0, K[TOKENS:], V[TOKENS:])
        out = step.attend(0, Q)
    seen = causal(NEW, TOKENS + NEW) & ~np.isin(POSITIONS // BLOCK, dropped)
    np.testing.assert_allclose(out, attention(Q, K, V, seen), atol=1e-5)


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
    assert NO_BLOCK not in session.block_table()
