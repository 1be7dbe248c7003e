"""Reads the layers of a transformers model from its config, and refuses unsupported models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from pagedkv import CacheConfig, DtypeLike, LayerGroup, Rotation
from pagedkv.torch import ROWS, torch_runner


class UnsupportedModelError(NotImplementedError):
    """The model would give wrong answers with pagedkv; the error names it and says why."""


def unsupported(name: str, reason: str, what: str = "pagedkv") -> UnsupportedModelError:
    other = "a PagedCache, or with " if what != "pagedkv" else ""
    return UnsupportedModelError(
        f"{what} does not work with {name}: {reason}. Use generate() with {other}transformers' own "
        "cache"
    )


def loaded_model(model: Any) -> Any:
    """The model of transformers, also that inside a model of PEFT, whose adapters are in its
    modules. Refuses other objects, and models that are not in the CPU's memory."""
    if not isinstance(model, torch.nn.Module) or not hasattr(model, "config"):
        raise TypeError(
            "model: a loaded model is needed, such as "
            f"AutoModelForCausalLM.from_pretrained() returns, not {model!r:.80}"
        )
    if (weight := next(model.parameters(), None)) is not None:
        check_device(weight)
    for name, adapter in getattr(model, "peft_config", {}).items():
        if kind := _beside_modules(adapter):
            raise unsupported(
                type(model).__name__,
                f"its adapter {name!r} is of the kind {kind}, which does more than to change its "
                "modules",
            )
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _beside_modules(adapter: Any) -> str:
    """The kind of a PEFT adapter that PEFT's own model takes part in; "" for others."""
    kind = str(getattr(adapter.peft_type, "value", adapter.peft_type))
    beside = adapter.is_prompt_learning or adapter.is_adaption_prompt or kind in ("XLORA", "POLY")
    if getattr(adapter, "alora_invocation_tokens", None):
        return "aLoRA"
    return kind if beside else ""


def check_device(tensor: torch.Tensor) -> None:
    if tensor.device.type != "cpu":
        raise ValueError(
            f"pagedkv computes on the CPU, and the model is on {tensor.device}: call "
            'model.to("cpu") first'
        )


class LayerKind(NamedTuple):
    """The kind of a layer that has keys. Layers of one kind are a group of the cache."""

    window: int
    """0: none."""
    query_heads: int
    kv_heads: int
    key_dim: int
    """Values have the same dim."""


def layer_kinds(config: Any, model: str = "") -> list[LayerKind]:
    """The kind of each layer that has keys. In Gemma 3n the layers after them attend to the keys of
    these. `model` is the name for errors."""
    name = model or config.model_type
    count = getattr(config, "num_hidden_layers", None)
    if not isinstance(count, int):
        raise unsupported(name, "its config has no num_hidden_layers")
    types = getattr(config, "layer_types", None)
    if types is not None:
        others = set(types) - {"full_attention", "sliding_attention"}
        if others:
            raise unsupported(name, f"there is no paged cache for layers of {_listed(others)}")
    # Some models give each layer a config of its own.
    own = (
        config.per_layer_config if getattr(config, "is_heterogeneous", False) else [config] * count
    )
    with_keys = count - (getattr(config, "num_kv_shared_layers", 0) or 0)
    return [
        _layer_kind(name, own[i], types is None or types[i] == "sliding_attention")
        for i in range(with_keys)
    ]


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


def _layer_kind(name: str, config: Any, windowed: bool) -> LayerKind:
    heads, hidden = (
        getattr(config, field, None) for field in ("num_attention_heads", "hidden_size")
    )
    if not heads or not hidden:
        raise unsupported(name, "its config has no num_attention_heads or no hidden_size")
    key_dim = getattr(config, "head_dim", None) or hidden // heads
    if key_dim % 16 or not 16 <= key_dim <= 576:
        reason = f"its heads have {key_dim} dims, a multiple of 16 from 16 to 576 is needed"
        raise unsupported(name, reason)
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    return LayerKind(
        window=(getattr(config, "sliding_window", None) or 0) if windowed else 0,
        query_heads=heads,
        kv_heads=1 if getattr(config, "multi_query", False) else kv_heads,
        key_dim=key_dim,
    )


def top_blocks_by_layer(windows: Sequence[int], top_blocks: int) -> list[int]:
    """The number of chosen blocks per layer; 0 for a layer with a window, which reads all that it
    sees."""
    return [0 if window else top_blocks for window in windows]


def cache_config(
    config: Any,
    computed: torch.dtype,
    dtype: DtypeLike | None = None,
    value_dtype: DtypeLike | None = None,
    rotation: Rotation | str = Rotation.NONE,
    *,
    blocks: int = 0,
    threads: int = 0,
    **options: Any,
) -> CacheConfig:
    """The cache config of a model with this text config: a group for each kind of layer. The stored
    type may differ from the type that the model computes in. `blocks` is for each group;
    `threads` is as for PagedCache; `options` are other fields of CacheConfig."""
    kinds = layer_kinds(config)
    groups = []
    for kind in dict.fromkeys(kinds):
        indices = [i for i, other in enumerate(kinds) if other == kind]
        groups.append(
            LayerGroup(
                layers=len(indices),
                layer_indices=indices,
                dtype=dtype or ROWS[computed],
                value_dtype=value_dtype,
                rotation=rotation,
                blocks=blocks,
                **kind._asdict(),
            )
        )
    runner = None if threads else torch_runner()
    return CacheConfig(groups=groups, threads=threads, runner=runner, **options)
