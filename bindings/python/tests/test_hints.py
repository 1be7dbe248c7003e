"""Envelopes of vLLM and SGLang become hints; what is not understood is named."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pagedkv import HintAction, Retention
from pagedkv.hints import NO_HINTS, CachePin, Hint, read_cache_fields, read_envelope, read_request


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
    assert read_envelope(envelope, 5).hints == [Hint(HintAction.PIN, duration_ms=1000)]
    for name in ("kv.drop", "kv.evict", "kv.deref"):
        assert read_envelope({"actions": [action(name)]}, 5).hints == [Hint(HintAction.DROP)]
    # What an action of a running request does not use is left out.
    bounds = {"start": 16, "end": 32, "duration": 1, "priority": 1}
    for name, hint in (
        ("kv.drop", Hint(HintAction.DROP, 16)),
        ("kv.demote", Hint(HintAction.DEMOTE, 16, 32)),
        ("kv.share", Hint(HintAction.STORE, 0, 32)),
    ):
        assert read_envelope({"actions": [action(name, bounds)]}, 5).hints == [hint]


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


def test_salts_differ_unless_all_is_the_same() -> None:
    requests = [
        ({}, "a"),
        ({}, "b"),
        ({"cache_salt": "a"}, ""),
        ({"prompt_cache_key": "a"}, ""),
        ({"cache_salt": "b"}, "a"),
        ({"cache_salt": "c" * 1000}, "a"),
    ]
    salts = [read_cache_fields(request, tenant).salt for request, tenant in requests]
    assert len(set(salts)) == len(salts)
    assert {len(salt) for salt in salts} == {32}
    assert salts == [read_cache_fields(request, tenant).salt for request, tenant in requests]
    both = {"cache_salt": "a", "prompt_cache_key": "b"}
    assert read_cache_fields(both).salt == salts[2]
    assert read_cache_fields({"cache_salt": None, "messages": "none"}) == (b"", [])


def test_controls_of_a_cache_become_pins() -> None:
    short, long = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}

    def part(control: Any = None) -> dict[str, Any]:
        return {"type": "text", "text": "word"} | ({"cache_control": control} if control else {})

    request = {
        "tools": [{"name": "search", "cache_control": short}],
        "system": [part(), part(long)],
        "messages": [
            {"role": "user", "content": [part(short), part()]},
            {"role": "assistant", "content": "word"},
            {"role": "user", "content": "word", "cache_control": long},
        ],
    }
    pins = [CachePin(0, 3_600_000), CachePin(1, 300_000), CachePin(3, 3_600_000)]
    assert read_cache_fields(request) == (b"", pins)
    assert read_cache_fields({"cache_control": short}).pins == [CachePin(None, 300_000)]


@pytest.mark.parametrize(
    "request_",
    [
        {"cache_salt": 7},
        {"prompt_cache_key": ["a"]},
        {"cache_control": "5m"},
        {"cache_control": {"type": "persistent"}},
        {"cache_control": {"type": "ephemeral", "ttl": "2h"}},
        {"cache_control": {"type": "ephemeral", "ttl": []}},
        {"system": [{"cache_control": {}}]},
    ],
)
def test_fields_that_are_wrong_are_refused(request_: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="cache_control|cache_salt|prompt_cache_key"):
        read_cache_fields(request_)
