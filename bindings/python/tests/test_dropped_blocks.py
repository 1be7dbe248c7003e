"""Blocks that a session forgets in the middle: what attention sees then, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pagedkv
from pagedkv import NO_BLOCK

DIM, BLOCK, TOKENS = 16, 16, 100
K, V = np.random.default_rng(3).standard_normal((2, TOKENS + 1, 1, DIM), np.float32)
Q = np.random.default_rng(4).standard_normal((1, 1, DIM), np.float32)


@pytest.fixture
def cache_and_session() -> Any:
    config = pagedkv.CacheConfig(
        layers=1, query_heads=1, kv_heads=1, key_dim=DIM, block_size=BLOCK, blocks=16, threads=1
    )
    with pagedkv.Cache(config) as cache, cache.open_session() as opened:
        with cache.begin([opened], [TOKENS]) as batch:
            batch.write(0, K[:TOKENS], V[:TOKENS])
            batch.commit()
        yield cache, opened


def test_a_query_does_not_see_them(
    cache_and_session: tuple[pagedkv.Cache, pagedkv.Session],
) -> None:
    cache, session = cache_and_session
    session.drop_blocks([1, 2, 4])
    assert [i for i, block in enumerate(session.block_table()) if block == NO_BLOCK] == [1, 2, 4]
    assert len(session) == TOKENS
    with cache.begin([session], [1]) as batch:
        batch.write(0, K[TOKENS:], V[TOKENS:])
        out = batch.attend(0, Q)
    seen = [t for t in range(TOKENS + 1) if t // BLOCK not in (1, 2, 4)]
    weights = np.exp(K[seen, 0] @ Q[0, 0] / DIM**0.5)
    expected = weights @ V[seen, 0] / weights.sum()
    np.testing.assert_allclose(out[0, 0], expected, atol=1e-5)


def test_what_is_no_full_block_is_refused(
    cache_and_session: tuple[pagedkv.Cache, pagedkv.Session],
) -> None:
    _, session = cache_and_session
    with pytest.raises(pagedkv.MisuseError, match="block 6; the session has 6"):
        session.drop_blocks([6])
    with pytest.raises(pagedkv.MisuseError, match="ascending order"):
        session.drop_blocks([1, 1])
    with pytest.raises(pagedkv.MisuseError):
        session.drop_blocks([1], group=1)
    with pytest.raises(pagedkv.MisuseError):
        session.drop_blocks([-1])
    with pytest.raises(pagedkv.MisuseError):
        session.drop_blocks([2**32])
    session.drop_blocks([])
    assert NO_BLOCK not in session.block_table()
