"""Objects whose copies would close something twice cannot be copied, and all objects are true."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers import owners, refuses_copies, small

import pagedkv
from pagedkv._memory import Hold, Memory

COPIES: list[Callable[[Any], Any]] = [copy.copy, copy.deepcopy, pickle.dumps]
# The author of a store in Python decides what a copy of it is.
ALLOWED = {pagedkv.Store}


OWNERS = [kind for kind in owners(pagedkv) if kind not in ALLOWED]


def test_the_classes_are_found() -> None:
    names = {kind.__name__ for kind in OWNERS}
    expected = "Cache Session Snapshot Batch Pool Compute Hold EventPublisher EventSubscriber"
    assert names >= set(expected.split())


@pytest.mark.parametrize("kind", OWNERS, ids=lambda kind: kind.__name__)
def test_no_owner_is_copied(kind: type[Any]) -> None:
    refuses_copies(Memory().hold() if kind is Hold else object.__new__(kind))


@pytest.fixture
def session() -> Iterator[pagedkv.Session]:
    with pagedkv.Cache(small()) as cache, cache.open_session() as opened:
        yield opened


def test_a_refused_copy_changes_nothing(session: pagedkv.Session) -> None:
    cache = session.cache
    assert isinstance(cache, pagedkv.Cache)
    with session.snapshot() as snapshot, cache.begin([session], [1]) as batch:
        for thing in (cache, session, snapshot, batch):
            for made in COPIES:
                with pytest.raises(TypeError, match="cannot be copied"):
                    made(thing)
        with pytest.raises(TypeError, match=r"Session .*fork"):
            copy.deepcopy({"inside": [session]})
        gc.collect()
        assert (cache.stats().sessions, cache.stats().batches) == (1, 1)
        assert (session.length, snapshot.length, batch.rows) == (0, 0, 1)


def test_what_exists_is_true(session: pagedkv.Session) -> None:
    with session.snapshot() as snapshot:
        assert (len(session), len(snapshot)) == (0, 0)
        assert session
        assert snapshot
    session.close()
    assert session
