"""The attention mass of blocks: what it is, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pagedkv
from pagedkv import AttentionParams, BlockMass

HEADS, DIM, BLOCK, TOKENS = 2, 16, 16, 40
K, V = np.random.default_rng(3).standard_normal((2, TOKENS + 2, 1, DIM), np.float32)
Q = np.random.default_rng(4).standard_normal((2, HEADS, DIM), np.float32)


def test_it_is_the_sum_of_the_weights() -> None:
    config = pagedkv.CacheConfig(
        layers=1, query_heads=HEADS, kv_heads=1, key_dim=DIM, blocks=16, threads=1
    )
    with pagedkv.Cache(config) as cache, cache.open_session() as session:
        with cache.begin([session], [TOKENS]) as batch:
            batch.write(0, K[:TOKENS], V[:TOKENS])
            batch.commit()
        with cache.begin([session], [2]) as batch:
            batch.write(0, K[TOKENS:], V[TOKENS:])
            mass = np.full((1, HEADS, 4), 9, np.float32)
            batch.attend(0, Q, params=AttentionParams(block_mass=BlockMass(mass)))
            last = np.empty((1, HEADS, 3), np.float32)
            batch.attend(0, Q, params=AttentionParams(block_mass=BlockMass(last, queries=1)))
            wrongs: list[Any] = [mass[:, :1], mass[0], mass.astype(float), mass[:, :, :2].copy()]
            for wrong in wrongs:
                with pytest.raises(pagedkv.MisuseError, match="mass"):
                    batch.attend(0, Q, params=AttentionParams(block_mass=BlockMass(wrong)))
    expected = np.zeros((2, HEADS, 4), np.float32)
    for row in range(2):
        weights = np.exp(np.einsum("hd,td->ht", Q[row], K[: TOKENS + row + 1, 0]) / DIM**0.5)
        weights /= weights.sum(axis=1, keepdims=True)
        for token in range(TOKENS + row + 1):
            expected[row, :, token // BLOCK] += weights[:, token]
    np.testing.assert_allclose(mass[0, :, :3], expected.sum(axis=0)[:, :3], atol=1e-5)
    assert (mass[0, :, 3] == 9).all()  # behind the last block
    np.testing.assert_allclose(last[0], expected[1, :, :3], atol=1e-5)
