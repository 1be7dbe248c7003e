"""Hints in requests, as hints of this package: those in the envelope of vLLM and SGLang, and the
fields of HTTP servers about caching (read_cache_fields).

The envelope (vLLM 53423) has `actions` with `action_id`, `action_type`, `action_version` and a
`payload`. `kv.retain` is that of vLLM 38514: `directives` with `start`, `end`, a `priority` of 0 to
100, a `duration` in seconds and `covers_output`. The others are proposals that no engine has fixed
yet; they may have `start`, `end` and `duration`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from .generated.raw import HintAction, Retention

_ACTIONS = {
    "kv.retain": HintAction.SET_RETENTION,
    "kv.pin": HintAction.PIN,
    "kv.prefetch": HintAction.PREFETCH,
    "kv.demote": HintAction.DEMOTE,
    "kv.share": HintAction.STORE,
    "kv.drop": HintAction.DROP,
    "kv.evict": HintAction.DROP,
    "kv.deref": HintAction.DROP,
}
_RANGED = (HintAction.SET_RETENTION, HintAction.DEMOTE, HintAction.DROP)
_TIMED = (HintAction.SET_RETENTION, HintAction.PIN, HintAction.PREFETCH)
_MOST_ACTIONS, _MOST_DIRECTIVES = 16, 128


class Hint(NamedTuple):
    """The arguments of `Session.hint`: `session.hint(**hint._asdict())`."""

    action: HintAction | str
    first: int = 0
    end: int | None = None
    retention: Retention | str = Retention.NORMAL
    duration_ms: int = 0


class Envelope(NamedTuple):
    hints: list[Hint]
    rejected: list[str]
    """The ids of actions that are unknown or malformed, or too many."""


NO_HINTS = Envelope([], [])


def read_envelope(envelope: Any, prompt_length: int) -> Envelope:
    """Reads an envelope, a mapping or an object with these attributes. What it covers of the output
    begins at `prompt_length`. Raises a ValueError if it is no envelope.
    """
    hints: list[Hint] = []
    rejected: list[str] = []
    try:
        actions = list(_items(envelope, "actions"))
    except (AttributeError, KeyError, TypeError):
        kind = type(envelope).__name__
        raise ValueError(
            f"an envelope of hints has a list `actions`, and this {kind} none"
        ) from None
    for number, action in enumerate(actions):
        try:
            known = _get(action, "action_version") in ("1", "1.0", 1)
            if number >= _MOST_ACTIONS or not known:
                raise ValueError
            hints += _hints_of(action, prompt_length)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            rejected.append(str(_get(action, "action_id", number)))
    return Envelope(hints, rejected)


def read_request(request: Any) -> Envelope:
    """Reads the hints of a request in vLLM: `kv_hints` or, because its HTTP server has no such
    field, the same envelope in `kv_transfer_params`. Raises as `read_envelope`.
    """
    envelope = getattr(request, "kv_hints", None)
    if envelope is None:
        envelope = (request.kv_transfer_params or {}).get("kv_hints")
    return NO_HINTS if envelope is None else read_envelope(envelope, request.num_prompt_tokens)


class CachePin(NamedTuple):
    """The prompt up to here should stay in memory: pin it once its blocks are cached."""

    messages: int | None
    """How many of the request's messages it has; 0: only tools and system; None: all of it."""
    duration_ms: int


class CacheFields(NamedTuple):
    salt: bytes
    pins: list[CachePin]


def read_cache_fields(request: Mapping[str, Any], tenant: str = "") -> CacheFields:
    """Reads what requests to HTTP servers say about caching, from their parsed JSON.

    The salt is made of the `tenant`, which the server knows from the request's authentication, and
    of `cache_salt` (vLLM, SGLang) or, without it, `prompt_cache_key` (OpenAI). It is empty if all
    are. `cache_control` (Anthropic) on the request, a tool, a part of the system prompt, a message
    or a part of it becomes a pin; its `ttl` is "5m", the default, or "1h". Raises a ValueError if a
    field is not as described.
    """
    name = "cache_salt" if request.get("cache_salt") else "prompt_cache_key"
    own = request.get(name) or ""
    if not isinstance(own, str):
        raise ValueError(f"{name} is a string, and this is {own!r}")
    all_of_it = json.dumps([tenant, name, own]).encode()
    salt = hashlib.sha256(all_of_it).digest() if tenant or own else b""
    pins: dict[int | None, int] = {}
    for messages, part in _places(request):
        if isinstance(part, Mapping) and part.get("cache_control") is not None:
            duration = _duration_of(part["cache_control"])
            pins[messages] = max(pins.get(messages, 0), duration)
    return CacheFields(salt, [CachePin(*pin) for pin in pins.items()])


def _places(request: Mapping[str, Any]) -> Iterator[tuple[int | None, Any]]:
    """All that can have a cache_control, with the number of messages up to there."""
    yield None, request
    for part in (*_parts(request, "tools"), *_parts(request, "system")):
        yield 0, part
    for number, message in enumerate(_parts(request, "messages"), 1):
        yield number, message
        for part in _parts(message, "content"):
            yield number, part


def _parts(holder: Any, name: str) -> list[Any]:
    parts = holder.get(name) if isinstance(holder, Mapping) else None
    return parts if isinstance(parts, list) else []


def _duration_of(control: Any) -> int:
    if isinstance(control, Mapping) and control.get("type") == "ephemeral":
        if control.get("ttl") in (None, "5m"):
            return 300_000
        if control["ttl"] == "1h":
            return 3_600_000
    raise ValueError(f'cache_control is {{"type": "ephemeral", "ttl": "5m" or "1h"}}: {control!r}')


def _hints_of(action: Any, prompt_length: int) -> list[Hint]:
    kind, payload = _ACTIONS[_get(action, "action_type")], _get(action, "payload", None) or {}
    if kind is not HintAction.SET_RETENTION:
        return [_hint(kind, payload)]
    directives = list(_items(payload, "directives"))
    if len(directives) > _MOST_DIRECTIVES:
        raise ValueError
    hints = [_hint(kind, directive) for directive in directives]
    for directive, hint in zip(directives, tuple(hints), strict=True):
        if _get(directive, "covers_output", False):
            hints.append(hint._replace(first=prompt_length, end=None))
    return hints


def _hint(kind: HintAction, bounds: Any) -> Hint:
    """The hint has only what its action uses. 0 is the priority of blocks that nothing was said
    about, and there is no lower one. A running request can drop only all from `start` on."""
    end, priority = _get(bounds, "end", None), int(_get(bounds, "priority", 0) or 0)
    retention = Retention.HIGH if priority > 0 else Retention.NORMAL
    duration = int(1000 * float(_get(bounds, "duration", 0) or 0))
    first = int(_get(bounds, "start", 0) or 0)
    if first < 0 or duration < 0 or not 0 <= priority <= 100 or (end is not None and end <= first):
        raise ValueError
    if kind not in _RANGED:
        first = 0
    if kind is HintAction.DROP:
        end = None
    if kind not in _TIMED:
        duration = 0
    if kind not in (HintAction.SET_RETENTION, HintAction.PREFETCH):
        retention = Retention.NORMAL
    return Hint(kind, first, None if end is None else int(end), retention, duration)


_REQUIRED: Any = object()


def _get(holder: Any, name: str, default: Any = _REQUIRED) -> Any:
    if isinstance(holder, Mapping):
        return holder[name] if default is _REQUIRED else holder.get(name, default)
    return getattr(holder, name) if default is _REQUIRED else getattr(holder, name, default)


def _items(holder: Any, name: str) -> Iterable[Any]:
    found: Iterable[Any] = _get(holder, name)
    if isinstance(found, str | bytes | Mapping):
        raise TypeError(name)
    return found
