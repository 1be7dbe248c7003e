"""A name for a model in memory, for stores that outlive it."""

from __future__ import annotations

import json

import torch
from transformers import PreTrainedModel

from ._weights import Bytes, contents_digest, digest

# These fields say where a model comes from, not what it computes.
_ORIGIN = ("_name_or_path", "transformers_version")


def model_fingerprint(model: PreTrainedModel, more: str = "") -> bytes:
    """32 bytes that differ if the config, the weights or `more` differ."""
    config = {key: value for key, value in model.config.to_dict().items() if key not in _ORIGIN}
    weights = contents_digest((name, _bytes(name, t)) for name, t in model.state_dict().items())
    described = json.dumps(config, sort_keys=True, default=str)
    return digest([described.encode(), more.encode(), weights])


def _bytes(name: str, tensor: torch.Tensor) -> Bytes:
    try:
        found: Bytes = tensor.detach().flatten().view(torch.uint8).numpy()
        return found
    except (RuntimeError, NotImplementedError, TypeError) as error:
        raise ValueError(
            f"the weights of {name} cannot be read to name the model ({error}): give the "
            "StoreConfig a fingerprint of your own"
        ) from error
