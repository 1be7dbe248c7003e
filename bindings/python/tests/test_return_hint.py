"""Hints of when a text continues: how the default policy uses them, and what is refused."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from helpers import small

import pagedkv
from pagedkv import RETURN_HINT_NEVER

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
        matched = session.match_prefix(tokens)
        with cache.begin([session], [len(tokens) - matched]) as batch:
            batch.commit(tokens[matched:])
        session.set_return_hint(hint)
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
    assert serve_many(cache, 30, RETURN_HINT_NEVER) > 200


def test_without_a_hint_they_are_not(cache: pagedkv.Cache) -> None:
    assert serve_many(cache, UNKNOWN, UNKNOWN) < 50


def test_what_is_no_hint_is_refused(cache: pagedkv.Cache) -> None:
    session = cache.open_session()
    for hint in (UNKNOWN, 1, 2**32 - 2, RETURN_HINT_NEVER):
        session.set_return_hint(hint)
    for wrong in (-1, 2**32):
        with pytest.raises(pagedkv.MisuseError, match="delay: .* is not between"):
            session.set_return_hint(wrong)
    for of_another_type in (30.0, "30", None):
        with pytest.raises(pagedkv.MisuseError, match="delay: "):
            session.set_return_hint(of_another_type)  # type: ignore[arg-type]
    with cache.begin([session], [1]), pytest.raises(pagedkv.MisuseError, match="BUSY"):
        session.set_return_hint(30)
    session.close()
    with pytest.raises(pagedkv.MisuseError, match="STALE_HANDLE"):
        session.set_return_hint(30)
