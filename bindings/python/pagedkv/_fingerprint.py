"""A name for a model in memory, for stores that outlive it."""

from __future__ import annotations

import hashlib
import json

import torch
from transformers import PreTrainedModel

# Of each tensor, besides the sum of its bytes.
_SAMPLES = 4096
# These name where a model comes from and what wrote it, not what it computes.
_ORIGIN = ("_name_or_path", "transformers_version")


def model_fingerprint(model: PreTrainedModel, more: str = "") -> bytes:
    """32 bytes that another config, other weights or another `more` do not have. All weights are
    read: to change one is to change the sum of its tensor."""
    config = {key: value for key, value in model.config.to_dict().items() if key not in _ORIGIN}
    digest = hashlib.sha256(json.dumps([config, more], sort_keys=True, default=str).encode())
    for name, tensor in sorted(model.state_dict().items()):
        try:
            raw = tensor.detach().flatten().view(torch.uint8)
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} {_sum(raw)}".encode())
            digest.update(bytes(raw[:: max(len(raw) // _SAMPLES, 1) | 1].tolist()))
        except (RuntimeError, NotImplementedError) as error:
            raise ValueError(
                f"the weights of {name} cannot be read to name the model ({error}): give the "
                "StoreConfig a fingerprint of your own"
            ) from error
    return digest.digest()


def _sum(raw: torch.Tensor) -> int:
    """Of words of 8 bytes, modulo 2^64, and of the bytes behind the last one."""
    if raw.storage_offset() % 8:
        raw = raw.clone()
    words, rest = raw[: len(raw) // 8 * 8], raw[len(raw) // 8 * 8 :]
    return int(words.view(torch.int64).sum()) + int(rest.sum(dtype=torch.int64))
