"""Ctrl-C between any two instructions of a call that opens something. What the library opened is
closed, or the caller has it: nothing is lost.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from test_files import extend, make

import pagedkv
from pagedkv import _waiting

pytestmark = pytest.mark.filterwarnings("ignore")  # of objects that were never closed


def interrupted(call: Callable[[], Any], at: int) -> bool:
    """Whether Ctrl-C at this instruction of the package ended the call. Python ignores what comes
    in a finalizer.
    """
    count, result = 0, None

    def trace(frame: Any, event: str, _argument: Any) -> Any:
        nonlocal count
        outside = not frame.f_code.co_filename.startswith(pagedkv.__path__[0])
        if outside or frame.f_code.co_name == "__del__":
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            count += 1
            if count == at:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        result = call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
        del result
    return False


def make_with_sessions() -> tuple[pagedkv.Cache, pagedkv.Session, pagedkv.Snapshot, bytes]:
    cache = make()
    session = cache.open_session()
    extend(cache, session, list(range(20)))
    snapshot = session.snapshot()
    saved = pagedkv.save(cache, [session, snapshot])
    assert saved is not None
    return cache, session, snapshot, saved


CALLS: dict[str, Callable[..., Any]] = {
    "load": lambda cache, _session, _snapshot, saved: pagedkv.load(cache, saved),
    "open_session": lambda cache, *_: cache.open_session(),
    "session.fork": lambda _cache, session, *_: session.fork(),
    "snapshot": lambda _cache, session, *_: session.snapshot(),
    "snapshot.fork": lambda _cache, _session, snapshot, _: snapshot.fork(),
    "begin": lambda cache, session, *_: cache.begin([session], [3]),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_interrupted_call_loses_nothing(name: str) -> None:
    cache, session, snapshot, saved = make_with_sessions()
    with cache, session, snapshot:
        at, sessions, used = 0, cache.stats().sessions, cache.pool_stats().held_blocks
        going = True
        while going:
            at += 1
            going = interrupted(lambda: CALLS[name](cache, session, snapshot, saved), at)
            _waiting.close_waiting()
            assert (cache.stats().sessions, cache.pool_stats().held_blocks) == (sessions, used), at
            session.trim(20)  # no batch uses it
        assert at > 50
