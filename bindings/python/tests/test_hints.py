"""Envelopes of vLLM and SGLang become hints; what is not understood is named."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pagedkv import HintAction, Retention
from pagedkv.hints import NO_HINTS, Hint, read_envelope, read_request


def action(kind: str, payload: Any = None, version: Any = "1.0", name: str = "a") -> dict[str, Any]:
    return {"action_id": name, "action_type": kind, "action_version": version, "payload": payload}


def test_retentions_are_read() -> None:
    directives = [
        {"start": 0, "end": 64, "priority": 80, "duration": 2.5},
        {"start": 64, "end": 128, "priority": 0, "covers_output": True},
    ]
    read = read_envelope({"actions": [action("kv.retain", {"directives": directives})]}, 128)
    assert read.rejected == []
    assert read.hints == [
        Hint(HintAction.SET_RETENTION, 0, 64, Retention.HIGH, 2500),
        Hint(HintAction.SET_RETENTION, 64, 128, Retention.NORMAL, 0),
        Hint(HintAction.SET_RETENTION, 128, None, Retention.NORMAL, 0),
    ]


def test_objects_are_read_as_well() -> None:
    payload = SimpleNamespace(start=16, end=None, duration=1)
    envelope = SimpleNamespace(actions=[SimpleNamespace(**action("kv.pin", payload))])
    assert read_envelope(envelope, 5).hints == [Hint(HintAction.PIN, 16, None, duration_ms=1000)]
    for name in ("kv.drop", "kv.evict", "kv.deref"):
        assert read_envelope({"actions": [action(name)]}, 5).hints == [Hint(HintAction.DROP)]


@pytest.mark.parametrize(
    "wrong",
    [
        action("kv.fetch"),
        action("kv.pin", version="2.0"),
        action("kv.pin", {"start": 2, "end": 1}),
        action("kv.pin", {"start": -1}),
        action("kv.drop", {"start": 0, "end": 0}),
        action("kv.pin", {"duration": float("inf")}),
        action("kv.retain", {"directives": "all"}),
        action("kv.retain", {"directives": [{}] * 129}),
        action("kv.retain", {"directives": [{"priority": 101}]}),
        action("kv.retain"),
    ],
)
def test_what_is_wrong_is_named(wrong: dict[str, Any]) -> None:
    read = read_envelope({"actions": [wrong, action("kv.share", name="b")]}, 5)
    assert read == ([Hint(HintAction.STORE)], ["a"])


def test_actions_are_limited() -> None:
    read = read_envelope({"actions": [action("kv.drop", name=str(i)) for i in range(18)]}, 5)
    assert len(read.hints) == 16
    assert read.rejected == ["16", "17"]


@pytest.mark.parametrize("wrong", [None, 5, "actions", [], {}, {"actions": None}, {"actions": "a"}])
def test_what_is_no_envelope_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=f"a list `actions`, and this {type(wrong).__name__} none"):
        read_envelope(wrong, 5)


def test_the_hints_of_a_request_in_vllm_are_read() -> None:
    typed = SimpleNamespace(actions=[SimpleNamespace(**action("kv.drop", {"start": 16}))])
    untyped = {"actions": [action("kv.drop")]}

    def read(kv_hints: Any, kv_transfer_params: Any) -> Any:
        both = {"kv_hints": kv_hints, "kv_transfer_params": kv_transfer_params}
        return read_request(SimpleNamespace(**both, num_prompt_tokens=20))

    assert read(None, None) == read(None, {"remote_host": "a"}) == NO_HINTS
    assert read(None, {"kv_hints": untyped}).hints == [Hint(HintAction.DROP)]
    assert read(typed, {"kv_hints": untyped}).hints == [Hint(HintAction.DROP, 16)]
