"""Hints: what they do to the index, how the default policy uses returns, and what is refused."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from helpers import small

import pagedkv
from pagedkv import HINT_NEVER, HintAction, HintOutcome, HintReason

UNKNOWN = 0


@pytest.fixture
def cache() -> Any:
    config = small(blocks=32, storage="none", prefix=pagedkv.PrefixConfig())
    with pagedkv.Cache(config) as made:
        yield made


def serve(cache: pagedkv.Cache, text: int, hint: int) -> bool:
    """Computes a text of two full blocks, and returns whether they were cached."""
    tokens = [text] * 33
    with cache.open_session() as session:
        matched = session.admit(tokens)
        with cache.begin([session], [len(tokens) - matched]) as batch:
            batch.commit(tokens[matched:])
        session.hint("return", duration_ms=hint)
    return matched == 32


def serve_many(cache: pagedkv.Cache, soon: int, never: int) -> int:
    """One in nine texts continues after 72 others; the cache has room for 16. Only the hints tell
    them apart. Returns how many of 292 were still cached.
    """
    found, text = 0, 0
    coming: deque[int] = deque()
    for _ in range(300):
        for _ in range(8):
            serve(cache, text, never)
            text += 1
        serve(cache, text, soon)
        coming.append(text)
        text += 1
        if len(coming) > 8:
            found += serve(cache, coming.popleft(), never)
    return found


def test_texts_that_go_on_are_kept(cache: pagedkv.Cache) -> None:
    assert serve_many(cache, 30_000, HINT_NEVER) > 200


def test_without_a_hint_they_are_not(cache: pagedkv.Cache) -> None:
    assert serve_many(cache, UNKNOWN, UNKNOWN) < 50


def compute(cache: pagedkv.Cache, tokens: list[int]) -> pagedkv.Session:
    session = cache.open_session()
    with cache.begin([session], [len(tokens)]) as batch:
        batch.commit(tokens)
    return session


def test_a_pin_ends_in_time() -> None:
    tokens, now = list(range(40)), [10**9]
    prefix = pagedkv.PrefixConfig()
    config = small(blocks=32, storage="none", prefix=prefix, clock=lambda: now[0])
    with pagedkv.Cache(config) as cache:
        compute(cache, tokens).close()
        pinned = cache.hint("pin", tokens, duration_ms=5)
        assert pinned == pagedkv.HintResult(HintOutcome.ACCEPTED, HintReason.NO_REASON, 32)
        cache.prefix_clear()
        assert cache.prefix_probe(tokens) == 32
        now[0] += 5
        assert cache.hint("unpin", tokens, end=32).outcome == HintOutcome.MISSING
        cache.prefix_clear()
        assert cache.prefix_probe(tokens) == 0


def test_a_thinking_part_is_dropped(cache: pagedkv.Cache) -> None:
    tokens = list(range(48))
    with compute(cache, tokens) as session, cache.begin([session], [1]):
        assert session.hint("drop", first=16).outcome == HintOutcome.DEFERRED
        assert session.hint(HintAction.RETAIN, retention="high").outcome == HintOutcome.ACCEPTED
    assert cache.prefix_probe(tokens) == 16
    assert cache.hint("drop", tokens, end=16).tokens == 16
    assert cache.prefix_probe(tokens) == 0


def test_what_cannot_be_done_is_told(cache: pagedkv.Cache) -> None:
    for action in ("prefetch", "share", "demote"):
        rejected = cache.hint(action, [1] * 16)
        assert rejected == pagedkv.HintResult(HintOutcome.REJECTED, HintReason.NO_STORE, 0)
    with cache.open_session(prefix_use="off") as session:
        assert session.hint("retain").reason == HintReason.NO_INDEX


def test_what_is_no_hint_is_refused(cache: pagedkv.Cache) -> None:
    session = cache.open_session()
    for duration in (UNKNOWN, 1, 2**64 - 2, HINT_NEVER):
        session.hint("return", duration_ms=duration)
    for wrong in (-1, 2**64):
        with pytest.raises(pagedkv.MisuseError, match="duration_ms: .* is not between"):
            session.hint("return", duration_ms=wrong)
    for of_another_type in (30.0, "30", None):
        with pytest.raises(pagedkv.MisuseError, match="duration_ms: "):
            session.hint("return", duration_ms=of_another_type)  # type: ignore[arg-type]
    with pytest.raises(pagedkv.MisuseError, match="action"):
        session.hint("keep")
    with pytest.raises(pagedkv.MisuseError, match="end is 0, so the range has no tokens"):
        session.hint("pin", end=0)
    with pytest.raises(pagedkv.MisuseError, match="salt: bytes are needed, this is str"):
        cache.hint("pin", [1] * 16, "a tenant")  # type: ignore[arg-type]
    with pytest.raises(pagedkv.MisuseError, match="tokens: a list of integers .* this is 'pin'"):
        cache.hint([1] * 16, "pin")  # type: ignore[arg-type]
    with pytest.raises(pagedkv.MisuseError, match="OUT_OF_RANGE"):
        cache.hint("pin", [1] * 16, end=17)
    with pytest.raises(pagedkv.MisuseError, match="INVALID_ARGUMENT"):
        cache.hint("return", [1] * 16)
    session.close()
    with pytest.raises(pagedkv.MisuseError, match="STALE_HANDLE"):
        session.hint("retain")
