"""Windows and sinks of single KV heads, and blocks that the tokens of a tree choose together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pagedkv
from pagedkv import AttentionParams, ChosenBlocks, TreeMask

HEADS, DIM, BLOCK, TOKENS, NEW = 2, 16, 16, 200, 3
K, V = np.random.default_rng(5).standard_normal((2, TOKENS + NEW, HEADS, DIM), np.float32)
Q = np.random.default_rng(6).standard_normal((NEW, HEADS, DIM), np.float32)
POSITIONS = np.arange(TOKENS + NEW)


@pytest.fixture
def batch() -> Iterator[pagedkv.Batch]:
    config = pagedkv.CacheConfig(
        layers=1, query_heads=HEADS, kv_heads=HEADS, key_dim=DIM, blocks=16, threads=1
    )
    with pagedkv.Cache(config) as cache, cache.open_session() as session:
        with cache.begin([session], [TOKENS]) as before:
            before.write(0, K[:TOKENS], V[:TOKENS])
            before.commit()
        with cache.begin([session], [NEW]) as begun:
            begun.write(0, K[TOKENS:], V[TOKENS:])
            yield begun


def softmax_over(seen: Any) -> Any:
    """seen: [row][head][position]."""
    scores = np.where(seen, np.einsum("ihd,thd->iht", Q, K) / DIM**0.5, -np.inf)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    return np.einsum("iht,thd->ihd", weights / weights.sum(axis=2, keepdims=True), V)


def test_each_head_has_its_own_window(batch: pagedkv.Batch) -> None:
    windows, sinks = np.array([30, 0]), np.array([5, 9])
    row = TOKENS + np.arange(NEW)[:, None, None]
    near = (row - windows[:, None] < POSITIONS) | (windows[:, None] == 0)
    seen = (near | (sinks[:, None] > POSITIONS)) & (row >= POSITIONS)
    params = AttentionParams(head_windows=windows, head_sinks=sinks)
    np.testing.assert_allclose(batch.attend(0, Q, params=params), softmax_over(seen), atol=1e-5)


def test_the_tokens_of_a_tree_choose_together(batch: pagedkv.Batch) -> None:
    chosen = np.zeros((NEW, HEADS, 2), np.uint32)
    params = AttentionParams(
        mask=TreeMask([-1, 0, 0]), chosen_blocks=ChosenBlocks(2, together=True, chosen=chosen)
    )
    out = batch.attend(0, Q, params=params)
    assert (chosen == chosen[0]).all()
    blocks = POSITIONS // BLOCK
    read = np.array([np.isin(blocks, [0, 11, 12, *chosen[0, head]]) for head in range(HEADS)])
    tree = np.ones((NEW, TOKENS + NEW), bool)
    tree[:, TOKENS:] = [[1, 0, 0], [1, 1, 0], [1, 0, 1]]
    np.testing.assert_allclose(out, softmax_over(read & tree[:, None]), atol=1e-5)


def test_what_is_refused(batch: pagedkv.Batch) -> None:
    wrongs: list[Any] = [[1], [1, 2, 3], [[1, 2]], [1.5, 2], [-1, 2], [1 << 32, 2], "ab"]
    for wrong in wrongs:
        for name in ("head_windows", "head_sinks"):
            with pytest.raises(pagedkv.MisuseError, match=name):
                batch.attend(0, Q, params=AttentionParams(**{name: wrong}))
