"""LongRoPE (https://arxiv.org/abs/2402.13753). transformers chooses the factors for a whole forward
pass by its last position. Here one pass contains pieces of many texts, so the choice is fixed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from transformers import PreTrainedModel


class LongRope:
    """The rotary embeddings of a model that have short and long factors; most models have none.
    Texts of more than `switch` tokens are rotated by the long factors."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._modules, switches = [], set()
        for module in model.modules():
            kinds = getattr(module, "rope_type", None)
            kinds = kinds if isinstance(kinds, dict) else {None: kinds}
            for layer_type in (key for key, kind in kinds.items() if kind == "longrope"):
                parameters = module.config.rope_parameters
                parameters = parameters[layer_type] if layer_type else parameters
                switches.add(int(parameters["original_max_position_embeddings"]))
                self._modules.append(module)
        self.switch = min(switches, default=0)

    @contextlib.contextmanager
    def fixed(self, length: int) -> Iterator[None]:
        """Inside `with`, passes use the factors of a text of this length: its last position is
        added before the choice and removed after it."""
        with contextlib.ExitStack() as hooks:
            for module in dict.fromkeys(self._modules):
                before = module.register_forward_pre_hook(
                    lambda _, args, kwargs: _with_position(length - 1, args, kwargs),
                    with_kwargs=True,
                )
                hooks.callback(before.remove)
                after = module.register_forward_hook(lambda _, args, output: _without_last(output))
                hooks.callback(after.remove)
            yield


def _with_position(last: int, args: Any, kwargs: Any) -> Any:
    def longer(positions: torch.Tensor) -> torch.Tensor:
        return torch.cat([positions, positions.new_full((*positions.shape[:-1], 1), last)], -1)

    if "position_ids" in kwargs:
        return args, {**kwargs, "position_ids": longer(kwargs["position_ids"])}
    return (args[0], longer(args[1]), *args[2:]), kwargs


def _without_last(output: Any) -> Any:
    if isinstance(output, torch.Tensor):
        return output[..., :-1, :]
    return tuple(part[..., :-1, :] for part in output)
