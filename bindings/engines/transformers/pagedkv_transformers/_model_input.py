"""Checks that the input of a pass continues where the cache ends."""

from __future__ import annotations

from typing import Any

import torch
from pagedkv.support import counted, misuse


def check_input(cached: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuses input that does not continue the text in the cache. If a text is not longer than the
    cache, generate() passes nothing, or tokens that the cache already has."""
    new_tokens = _new_tokens(args, kwargs)
    if new_tokens is None:
        return
    needed, ends = cached + new_tokens, _text_length(kwargs, cached, new_tokens)
    if needed == 0:
        raise misuse("the input is empty: at least one token is needed")
    if new_tokens == 0 or ends < needed:
        but = f", but its mask or positions end after {ends}" if ends < needed else ""
        raise misuse(
            f"the cache holds {counted(cached, 'token')} and the input adds {new_tokens}{but}: "
            "pass the whole text so far, or call reset() before another text"
        )


def _new_tokens(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """How many tokens a pass adds; None if it has no ids and no embeddings."""
    given = (kwargs.get("input_ids"), kwargs.get("inputs_embeds"), *args)
    return next((one.shape[1] for one in given if isinstance(one, torch.Tensor)), None)


def _text_length(kwargs: dict[str, Any], cached: int, new_tokens: int) -> int:
    """The length of the text by its attention mask. generate() makes no mask if nothing is hidden;
    then the length follows from the positions, if the cache has all of them."""
    mask, positions = kwargs.get("attention_mask"), kwargs.get("position_ids")
    if isinstance(mask, torch.Tensor) and mask.ndim == 2:
        return mask.shape[1]
    if mask is None and isinstance(positions, torch.Tensor) and positions.numel():
        last = int(positions.max())
        if last < cached:
            return last + 1
    return cached + new_tokens
