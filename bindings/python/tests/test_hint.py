"""Hints: what comes of them, and what is refused. The scenarios show what they do."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import small

import pagedkv
from pagedkv import RETURN_NEVER, HintOutcome, HintReason

UNKNOWN = 0


@pytest.fixture
def cache() -> Any:
    config = small(blocks=32, storage="external", prefix=pagedkv.PrefixConfig())
    with pagedkv.Cache(config) as made:
        yield made


def test_what_cannot_be_done_is_told(cache: pagedkv.Cache) -> None:
    for action in ("prefetch", "store", "demote"):
        rejected = cache.hint(action, [1] * 16)
        assert rejected == pagedkv.HintResult(HintOutcome.REJECTED, HintReason.NO_STORE, 0)
    with cache.open_session(prefix_use="off") as session:
        assert session.hint("set_retention").reason == HintReason.NO_INDEX


def test_what_is_no_hint_is_refused(cache: pagedkv.Cache) -> None:
    session = cache.open_session()
    for duration in (UNKNOWN, 1, 2**64 - 2, RETURN_NEVER):
        session.hint("expect_return", duration_ms=duration)
    for wrong in (-1, 2**64):
        with pytest.raises(pagedkv.MisuseError, match="duration_ms: .* is not between"):
            session.hint("expect_return", duration_ms=wrong)
    for of_another_type in (30.0, "30", None):
        with pytest.raises(pagedkv.MisuseError, match="duration_ms: "):
            session.hint("expect_return", duration_ms=of_another_type)  # type: ignore[arg-type]
    with pytest.raises(pagedkv.MisuseError, match="action"):
        session.hint("keep")
    with pytest.raises(pagedkv.MisuseError, match="end is 0, so the range has no tokens"):
        session.hint("pin", end=0)
    with pytest.raises(pagedkv.MisuseError, match="first is 5; PIN does not use it"):
        session.hint("pin", first=5)
    with pytest.raises(pagedkv.MisuseError, match="salt: bytes are needed, this is str"):
        cache.hint("pin", [1] * 16, "a tenant")  # type: ignore[arg-type]
    with pytest.raises(pagedkv.MisuseError, match="tokens: a list of integers .* this is 'pin'"):
        cache.hint([1] * 16, "pin")  # type: ignore[arg-type]
    with pytest.raises(pagedkv.MisuseError, match="OUT_OF_RANGE"):
        cache.hint("pin", [1] * 16, end=17)
    with pytest.raises(pagedkv.MisuseError, match="INVALID_ARGUMENT"):
        cache.hint("expect_return", [1] * 16)
    session.close()
    with pytest.raises(pagedkv.MisuseError, match="STALE_HANDLE"):
        session.hint("set_retention")
