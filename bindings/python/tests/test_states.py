"""Layers that keep a state instead of keys and values."""

from __future__ import annotations

import gc

import numpy as np
import numpy.typing as npt
import pytest

import pagedkv
from pagedkv.generated.raw import NO_BLOCK_ID

BYTES = 24


def make(max_verify_tokens: int = 0, **changed: object) -> pagedkv.Cache:
    rows = pagedkv.LayerGroup(layers=1, query_heads=1, kv_heads=1, key_dim=16, blocks=32)
    states = pagedkv.LayerGroup(
        layers=1,
        kind="states",
        layer_bytes=BYTES,
        checkpoint_interval=32,
        max_verify_tokens=max_verify_tokens,
        blocks=32,
    )
    config = pagedkv.CacheConfig(groups=[rows, states], **changed)  # type: ignore[arg-type]
    return pagedkv.Cache(config)


def step(
    cache: pagedkv.Cache, session: pagedkv.Session, n: int, kept: list[int] | None = None
) -> None:
    """A state is the number of tokens that it stands for."""
    with cache.begin([session], [n]) as batch:
        rows = np.zeros((n, 1, 16), np.float32)
        batch.write(0, rows, rows)
        (own,) = batch.states(1)
        before = 0 if own.before is None else int(own.before.view(np.uint64)[0])
        assert before == len(session)
        for token, state in zip(own.tokens, own.after, strict=True):
            state.view(np.uint64)[:] = before + token + 1
        if kept is not None:
            batch.accept(0, kept)
            assert batch.states(1)[0].tokens == own.tokens
        batch.commit()


def stands_at(state: npt.NDArray[np.uint8]) -> int:
    assert len(set(state.view(np.uint64).tolist())) == 1
    return int(state.view(np.uint64)[0])


def test_steps_checkpoints_and_trims() -> None:
    with make() as cache, cache.open_session() as session:
        step(cache, session, 70)
        assert [stands_at(session.state(1, n)) for n in (32, 64, 70)] == [32, 64, 70]
        assert stands_at(session.state(1)) == 70
        assert session.trim_point(69) == 64
        with pytest.raises(pagedkv.MisuseError, match="the last one before is after 64"):
            session.trim(69)
        with session.fork() as fork:
            fork.trim(64)
            step(cache, fork, 1)
            assert stands_at(fork.state(1)) == 65
        assert stands_at(session.state(1)) == 70
        cache.validate()


def test_drafts() -> None:
    with make(max_verify_tokens=4) as cache, cache.open_session() as session:
        step(cache, session, 10)
        step(cache, session, 4, [0, 1])
        assert (len(session), stands_at(session.state(1))) == (12, 12)
        step(cache, session, 4, [])
        assert (len(session), stands_at(session.state(1))) == (12, 12)


def test_blocks_where_the_engine_keeps_the_bytes() -> None:
    with make(storage="external") as cache, cache.open_session() as session:
        with cache.begin([session], [5]) as batch:
            blocks = batch.state_blocks(1)
            assert blocks.before.tolist() == [NO_BLOCK_ID]
            assert (blocks.indptr.tolist(), blocks.tokens.tolist()) == ([0, 1], [4])
            with pytest.raises(pagedkv.MisuseError, match="EXTERNAL keeps no states"):
                batch.states(1)
            batch.commit()
        with cache.begin([session], [1]) as batch:
            assert batch.state_blocks(1).before.tolist() == blocks.after.tolist()


def test_an_array_keeps_the_memory() -> None:
    cache = make()
    session = cache.open_session()
    batch = cache.begin([session], [1])
    (own,) = batch.states(1)
    part = own.after[0].view(np.float32)[2:]
    del own
    with pytest.raises(pagedkv.UnavailableError, match="arrays of states use the cache's memory"):
        cache.close()
    part[:] = 1
    del part
    gc.collect()
    cache.close()


def test_a_state_before_cannot_be_written() -> None:
    with make() as cache, cache.open_session() as session:
        step(cache, session, 3)
        with cache.begin([session], [1]) as batch:
            (own,) = batch.states(1)
            assert own.before is not None
            with pytest.raises(ValueError, match="read-only"):
                own.before[0] = 1
            del own


def test_what_a_layer_does_not_keep_is_refused() -> None:
    with make() as cache, cache.open_session() as session:
        step(cache, session, 3)
        rows = np.zeros((1, 1, 16), np.float32)
        with cache.begin([session], [1]) as batch:
            with pytest.raises(pagedkv.MisuseError, match="layer 1 keeps a state"):
                batch.write(1, rows, rows)
            with pytest.raises(pagedkv.MisuseError, match="layer 1 keeps a state"):
                batch.attend(1, rows)
            with pytest.raises(pagedkv.MisuseError, match="keeps keys and values"):
                batch.states(0)
            with pytest.raises(pagedkv.MisuseError, match="layer 2 of 2"):
                batch.states(2)
            with pytest.raises(pagedkv.MisuseError, match="an integer is needed"):
                batch.state_blocks("1")  # type: ignore[arg-type]
        with pytest.raises(pagedkv.MisuseError, match="layer 1 keeps a state"):
            session.read(1)
        with pytest.raises(pagedkv.MisuseError, match="keeps keys and values"):
            session.state(0)
        with pytest.raises(pagedkv.MisuseError, match="no state after 2 tokens"):
            session.state(1, 2)
        with pytest.raises(pagedkv.MisuseError, match="an integer is needed"):
            session.trim_point(1.5)  # type: ignore[arg-type]
