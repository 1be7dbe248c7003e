"""Layer groups that share one memory."""

from __future__ import annotations

import dataclasses

import pytest

import pagedkv


def test_pages_move_between_groups() -> None:
    full = pagedkv.LayerGroup(1, 1, 1, 16)
    groups = (full, dataclasses.replace(full, layers=5, window=64))
    config = pagedkv.CacheConfig(
        groups=groups, storage="none", shared_memory=True, memory_bytes=1 << 19
    )
    with pagedkv.Cache(config) as cache:
        empty = cache.stats()
        assert empty.pages == empty.free_pages == (1 << 19) // empty.page_bytes
        with cache.open_session() as session:
            with cache.begin([session], [16]) as batch:
                batch.commit([1] * 16)
            assert cache.stats().free_pages == empty.pages - 2
    with pytest.raises(pagedkv.MisuseError, match="share memory_bytes"):
        pagedkv.Cache(dataclasses.replace(config, blocks=4))
