"""The attention function and the mask function that transformers models are set to, and the tensors
that models must pass on to them unchanged.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, causal_mask_function, sdpa_mask

from ._model_layers import UnsupportedModelError
from ._model_rows import ForwardPass, Variant

NAME = "pagedkv"
"""The attention implementation that models are set to."""


# ---- Tensors that a model may only pass on ----


class Owner(Protocol):
    """The model's cache: a WatchedCache."""

    packed: bool

    def attend(
        self, rows: Mark, module: torch.nn.Module, query: torch.Tensor, variant: Variant
    ) -> torch.Tensor: ...
    def unsupported(self, reason: str) -> UnsupportedModelError: ...


class Mark(NamedTuple):
    """Rows of a layer that a pass writes."""

    owner: Owner
    layer: int
    step: ForwardPass

    @property
    def what(self) -> str:
        return "the keys or values of its cache"


class MaskMark(NamedTuple):
    """A causal mask with a window that also hides padding."""

    owner: Owner
    window: int
    """0: no window; negative: another kind of mask, which does not work with packed texts."""
    padded: bool
    """Whether it hides any padding."""
    last: int = 0
    """It is for this many of the last tokens of the pass; 0: for all."""

    @property
    def what(self) -> str:
        return "a mask of attention"


class Marked(torch.Tensor):
    """A tensor that stands for more than its elements. Results computed from it would be wrong, so
    its operations raise."""

    pagedkv: Mark | MaskMark
    _harmless = frozenset(
        "__get__ __len__ __repr__ __format__ size dim ndimension stride numel is_contiguous "
        "is_floating_point contiguous to".split()
    )

    @classmethod
    def __torch_function__(
        cls, function: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = getattr(function, "__name__", str(function))
        if name in cls._harmless:
            with torch._C.DisableTorchFunctionSubclass():
                result = function(*args, **(kwargs or {}))
            if result is args[0] or not isinstance(result, torch.Tensor):
                return result
        if name == "__getitem__" and (last := _last_rows(args[1])) is not None:
            mark = args[0].pagedkv
            if isinstance(mark, MaskMark) and args[0].shape[2] == 1:
                return marked(args[0].as_subclass(torch.Tensor), mark._replace(last=last))
        mark = next(one.pagedkv for one in _flat((args, kwargs)) if isinstance(one, Marked))
        if name == "_is_view":  # the first thing that torch.compile asks of a tensor
            raise mark.owner.unsupported("it is compiled: call the model that is not")
        raise mark.owner.unsupported(f"it computes with {mark.what} before attention ({name})")


def _last_rows(index: Any) -> int | None:
    """How many of the last rows mask[:, :, -n:, :] has, 0 for all; None for any other index."""
    every = slice(None)
    rows = index[2] if isinstance(index, tuple) and len(index) == 4 else None
    first = rows.start if isinstance(rows, slice) else None
    if not isinstance(first, int) or index != (every, every, slice(first, None), every):
        return None
    return -first if first <= 0 else None


def _flat(given: Any) -> list[Any]:
    if isinstance(given, dict):
        given = list(given.values())
    if isinstance(given, list | tuple):
        return [one for item in given for one in _flat(item)]
    return [given]


def marked(tensor: torch.Tensor, mark: Mark | MaskMark) -> Marked:
    result = tensor.as_subclass(Marked)
    result.pagedkv = mark
    return result


class Columns(int):
    """The number of columns that a mask for this cache has."""

    owner: Owner

    def __new__(cls, columns: int, owner: Owner) -> Columns:
        made = super().__new__(cls, columns)
        made.owner = owner
        return made


# ---- The attention function and its masks ----


def bools(mask: torch.Tensor) -> torch.Tensor:
    """Returns a bool mask, also for a mask that is added to scores."""
    if mask.dtype == torch.bool:
        return mask
    seen = mask == 0
    if not mask.is_floating_point() or not bool((seen | (mask <= -1e4)).all()):
        raise NotImplementedError(
            f"an attention mask of {mask.dtype} that does more than to show and to hide tokens"
        )
    return seen


_SEEN = torch.ones(1, 1, 1, 1, dtype=torch.bool)


def _mask(**arguments: Any) -> torch.Tensor | None:
    """The mask of a pass. With a PagedCache it only hides padding, [batch][1][1][columns]; pagedkv
    applies causality and windows itself. Any other mask has all rows."""
    columns = arguments["kv_length"]
    if not isinstance(columns, Columns):
        return sdpa_mask(**arguments)
    window = arguments.get("local_size") or 0
    causal = arguments.get("allow_is_causal_skip", True)
    if not causal or not _is_causal(arguments["mask_function"], window):
        if columns.owner.packed:
            return marked(_SEEN, MaskMark(columns.owner, -1, False))
        return sdpa_mask(**{**arguments, "allow_is_causal_skip": False})
    padding = arguments.get("attention_mask")
    padded = padding is not None and not bool(padding.all())
    if padding is not None and padded:
        padding = padding[:, arguments.get("kv_offset", 0) :][:, :columns].to(torch.bool)
        padding = torch.nn.functional.pad(padding, (0, columns - padding.shape[1]))
        mask = padding[:, None, None, :]
    else:
        mask = _SEEN
    return marked(mask, MaskMark(columns.owner, window, padded))


def _is_causal(function: Any, window: int) -> bool:
    """Whether a mask function is causal with this window (0: none), and not chunked, for
    example."""
    if not window:
        return function is causal_mask_function
    zero, columns = torch.tensor(0), torch.tensor([0, 1, window, window + 1])
    seen = function(zero, zero, torch.tensor(window), columns)
    return bool(seen.tolist() == [False, True, True, False])


# Arguments of attention functions that have no effect outside of training, or repeat the mask.
_HARMLESS = frozenset(
    "sliding_window position_ids cu_seq_lens_q cu_seq_lens_k max_length_q max_length_k "
    "output_attentions output_hidden_states output_router_logits use_cache return_dict "
    "logits_to_keep token_type_ids deterministic".split()
)


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """The attention function of models."""
    rows = getattr(key, "pagedkv", None)
    if not isinstance(rows, Mark) and not isinstance(value, Marked):  # no cache, or another one
        if isinstance(attention_mask, Marked):
            cache = attention_mask.pagedkv.owner
            raise cache.unsupported("it attends to other keys than those of its cache")
        if s_aux is not None or softcap:
            raise NotImplementedError(
                "attention with learned sinks or softcap needs a PagedCache: without one, call "
                "model.set_attn_implementation('eager')"
            )
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **kwargs
        )
    if not isinstance(rows, Mark) or getattr(value, "pagedkv", None) is not rows:
        cache = (rows or value.pagedkv).owner
        raise cache.unsupported("it attends with keys and values of which only one is the cache's")
    causal = kwargs.pop("is_causal", None)
    if causal is None:
        causal = getattr(module, "is_causal", True)
    if attention_mask is None and query.shape[2] > 1 and not causal:
        raise rows.owner.unsupported("its tokens attend to later ones")
    _check_options(rows.owner, kwargs)
    variant = Variant(scaling or 0.0, softcap or 0.0, s_aux, attention_mask)
    out = rows.owner.attend(rows, module, query, variant)
    if torch.is_grad_enabled() and any(one.requires_grad for one in (query, key, value)):
        with torch._C.DisableTorchFunctionSubclass():
            out = _WithoutGradients.apply(out, query, key, value)
    return out, None


class _WithoutGradients(torch.autograd.Function):
    """Gradients would end here without a word: the cache keeps no graph."""

    @staticmethod
    def forward(_context: Any, out: torch.Tensor, *_inputs: torch.Tensor) -> torch.Tensor:
        return out.view_as(out)

    @staticmethod
    def backward(_context: Any, *_gradients: torch.Tensor) -> Any:
        raise RuntimeError(
            "there are no gradients through a PagedCache: train without one, or compute under "
            "torch.no_grad()"
        )


def _check_options(cache: Owner, options: dict[str, Any]) -> None:
    if options.pop("dropout", 0.0):
        raise NotImplementedError("attention with dropout: call model.eval()")
    for name, given in options.items():
        if given is not None and name not in _HARMLESS:
            raise cache.unsupported(f"its attention takes {name}")


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, _mask)
