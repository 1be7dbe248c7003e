"""Hints in the envelope that vLLM and SGLang give requests, as hints of this package.

The envelope (vLLM 53423) has `actions` with `action_id`, `action_type`, `action_version` and a
`payload`. `kv.retain` is that of vLLM 38514: `directives` with `start`, `end`, a `priority` of 0 to
100, a `duration` in seconds and `covers_output`. The others are proposals that no engine has fixed
yet; they may have `start`, `end` and `duration`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    """0 is the priority of blocks that nothing was said about, and there is no lower one."""
    end, priority = _get(bounds, "end", None), int(_get(bounds, "priority", 0) or 0)
    retention = Retention.HIGH if priority > 0 else Retention.NORMAL
    duration = int(1000 * float(_get(bounds, "duration", 0) or 0))
    first = int(_get(bounds, "start", 0) or 0)
    if first < 0 or duration < 0 or not 0 <= priority <= 100 or (end is not None and end <= first):
        raise ValueError
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
