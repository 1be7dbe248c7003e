"""A forward pass of a transformers model whose layers keep their rows in pagedkv and attend there.

There is no silent fallback. Each forward pass is checked: every layer must write its rows once, and
must pass the returned tensors to attention unchanged. The model cannot compute with these keys,
values and masks. For any other model an UnsupportedModelError with its name is raised.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from pagedkv.support import counted
from pagedkv.torch import ROWS
from transformers import PreTrainedModel
from transformers.cache_utils import Cache as TransformersCache
from transformers.cache_utils import CacheLayerMixin

from ._model_attention import NAME, Columns, Mark, MaskMark, bools, marked
from ._model_input import check_input
from ._model_layers import (
    UnsupportedModelError,
    check_device,
    layer_kinds,
    loaded_model,
    unsupported,
)
from ._model_rows import ForwardPass, Variant

# ---- The model ----


def text_config(model: PreTrainedModel) -> Any:
    return model.config.get_text_config(decoder=True)


def cache_argument(model: PreTrainedModel) -> str:
    """The name of the model's argument for its cache."""
    names = inspect.signature(model.forward).parameters
    for name in ("cache", "past_key_values"):  # before transformers 5.24
        if name in names:
            return name
    raise unsupported(type(model).__name__, "it takes no cache")


def install(model: PreTrainedModel) -> None:
    """Makes a model attend by pagedkv whenever it gets a PagedCache, and as before (sdpa)
    otherwise. PagedCache does this itself."""
    model = loaded_model(model)
    if model.config._attn_implementation == NAME and _is_watched(model):
        return
    name, config = type(model).__name__, text_config(model)
    cache_argument(model)
    if model.config.is_encoder_decoder:
        raise unsupported(name, "its decoder attends to an encoder")
    modules = [module for module in model.modules() if isinstance(module, PreTrainedModel)]
    settable = all(
        module._can_set_attn_implementation() for module in modules if module.config is config
    )
    if settable:
        model.set_attn_implementation(NAME)
    if config._attn_implementation != NAME:
        reason = "its attention does not go through transformers' AttentionInterface"
        raise unsupported(name, reason)
    for module in modules:
        if not _is_watched(module):
            module.register_forward_pre_hook(_begin_pass, with_kwargs=True)
            module.register_forward_hook(_end_pass, with_kwargs=True, always_call=True)


def _is_watched(module: PreTrainedModel) -> bool:
    return _begin_pass in module._forward_pre_hooks.values()


def _begin_pass(module: PreTrainedModel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if (cache := _cache_in(args, kwargs)) is not None:
        cache.begin_pass(module)
        check_input(cache.length, args, kwargs)


def _end_pass(
    module: PreTrainedModel, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
) -> None:
    if (cache := _cache_in(args, kwargs)) is not None:
        if output is None:  # an exception
            cache.abort_pass()
        else:
            cache.end_pass(module)


def _cache_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> WatchedCache | None:
    given = (kwargs.get("cache"), kwargs.get("past_key_values"), *args)
    return next((one for one in given if isinstance(one, WatchedCache)), None)


# ---- The cache that a model sees ----


class WatchedCache(TransformersCache):
    """The cache that a model sees. It tracks where a pass begins and ends."""

    packed = False
    """Whether the rows of many texts are packed into one."""

    def __init__(self, model: PreTrainedModel) -> None:
        model = loaded_model(model)
        self._name, self._text_config = type(model).__name__, text_config(model)
        self._kinds = layer_kinds(self._text_config, self._name)
        install(model)
        self.windows = [kind.window for kind in self._kinds]
        self._model: Any = None  # the model of the pass in progress
        self._step: ForwardPass | None = None
        self._attended: set[tuple[int, int]] = set()  # modules by id, and layers
        # Keeps the model's masks alive, so that no other mask gets their ids.
        self._masks: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = {}
        super().__init__(layers=[PagedLayer(self, i) for i in range(len(self.windows))])

    @property
    def length(self) -> int:
        """Tokens before this pass."""
        raise NotImplementedError

    def _make_step(self, key: torch.Tensor) -> ForwardPass:
        """Prepares the step that the first layer of a pass writes to."""
        raise NotImplementedError

    def _commit(self, step: ForwardPass) -> None:
        """Ends a pass that succeeded."""

    def unsupported(self, reason: str) -> UnsupportedModelError:
        return unsupported(self._name, reason)

    # ---- The pass

    def begin_pass(self, model: PreTrainedModel) -> None:
        """Called before the forward() of a model with this cache, or of a model inside it."""
        if self._model is not None and self._model is not model and _contains(self._model, model):
            return
        self.abort_pass()  # of a pass that Ctrl-C ended
        self._check_model(model)
        self._model, self._attended, self._masks = model, set(), {}

    def end_pass(self, model: PreTrainedModel) -> None:
        if model is not self._model:
            return
        try:
            self._commit(self._complete_step())
            self._model = self._step = None
        finally:
            self.abort_pass()  # after a commit nothing is left to abort

    def abort_pass(self) -> None:
        """Undoes a pass."""
        if self._step is not None:
            self._step.batch.abort()
        self._model = self._step = None

    def _complete_step(self) -> ForwardPass:
        step, layers = self._step, range(len(self.windows))
        if step is None:
            raise self.unsupported("it did not use the cache that it was given")
        if silent := [i for i in layers if i not in step.written]:
            raise self.unsupported(f"layers {silent} wrote no keys to the cache")
        if silent := [i for i in layers if i not in step.attended]:
            raise self.unsupported(f"the keys of layers {silent} did not reach attention")
        return step

    def _check_model(self, model: PreTrainedModel) -> None:
        config = text_config(model)
        if config is not self._text_config:
            kinds = layer_kinds(config)
            if kinds != self._kinds:
                raise ValueError(
                    f"this cache was made for a {self._name} of {_shown(self._kinds)}, and this "
                    f"{type(model).__name__} has {_shown(kinds)}: make one for each model"
                )
        if config._attn_implementation != NAME:
            raise RuntimeError(
                f"a PagedCache needs the attention {NAME!r}, the model was set to "
                f"{config._attn_implementation!r}: call pagedkv_transformers.install"
            )

    def write(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> Mark:
        """Writes the rows of a layer, [batch][kv_heads][n][head_dim]."""
        if self._model is None:
            raise RuntimeError(
                "a PagedCache was given to a model that does not attend by pagedkv, or to a part "
                "of one: call the model, or pagedkv_transformers.install(model) before"
            )
        kind, given = self._kinds[layer], (key.shape[1], key.shape[3], value.shape[3])
        if given != (kind.kv_heads, kind.key_dim, kind.key_dim):
            raise self.unsupported(
                f"layer {layer} caches {counted(given[0], 'head')} of {given[1]} and {given[2]} "
                f"dims, where its config says {kind.kv_heads} of {kind.key_dim}"
            )
        if self._step is None:
            check_rows(key)
            self._step = self._make_step(key)
        elif layer in self._step.written:
            raise self.unsupported(f"layer {layer} writes keys twice in one pass")
        self._step.write(layer, key, value)
        return Mark(self, layer, self._step)

    def attend(
        self, rows: Mark, module: torch.nn.Module, query: torch.Tensor, variant: Variant
    ) -> torch.Tensor:
        """Attention over the rows of a layer: [batch][n][query_heads][value_dim]. The module is a
        layer of the model; it may attend to the rows of another layer. The mask of the variant is
        the model's."""
        step = self._step
        if step is None or rows.step is not step:
            raise self.unsupported("it attends with keys of another pass")
        if (id(module), rows.layer) in self._attended:
            reason = f"a {type(module).__name__} attends twice to the rows of layer {rows.layer}"
            raise self.unsupported(reason)
        self._attended.add((id(module), rows.layer))
        queries = query.shape[2]
        if not self.packed and queries != step.new_tokens:
            query = self._with_others(query, variant.mask, step.new_tokens)
        masking = self._masking(variant.mask, rows.layer, query.shape[2])
        out = step.attend(rows.layer, query, variant._replace(**masking))
        return out[:, -queries:]

    def _with_others(
        self, query: torch.Tensor, mask: torch.Tensor | None, new_tokens: int
    ) -> torch.Tensor:
        """Queries for all tokens of the pass. Layers that attend to the keys of others may compute
        the last tokens alone, as in Gemma 4; the results of the others are dropped."""
        queries, mark = query.shape[2], getattr(mask, "pagedkv", None)
        if queries > new_tokens or not isinstance(mark, MaskMark) or mark.last != queries:
            raise self.unsupported(f"a layer has {queries} queries for {new_tokens} new tokens")
        return torch.nn.functional.pad(query, (0, 0, new_tokens - queries, 0))

    def _masking(self, mask: torch.Tensor | None, layer: int, queries: int) -> dict[str, Any]:
        """What a mask asks for, as fields of Variant."""
        window = self.windows[layer]
        mark = getattr(mask, "pagedkv", None)
        if mask is not None and not isinstance(mark, MaskMark):
            return {"mask": self._whole_mask(mask, layer, queries), "causal": False}
        asked = mark.window if mark is not None else 0  # none: causal alone
        if asked < 0:
            raise self.unsupported("it makes masks of its own, and texts are packed")
        if window and not 0 < asked <= window:
            raise self.unsupported(
                f"layer {layer} attends {f'with a window of {asked}' if asked else 'to all tokens'}"
                f", where its config says that it has a window of {window}"
            )
        if mask is None or mark is None or not mark.padded:
            return {"mask": None, "window": asked}
        return {"mask": mask.as_subclass(torch.Tensor), "window": asked}

    def _whole_mask(self, mask: torch.Tensor, layer: int, queries: int) -> torch.Tensor:
        """The caller's or the model's own mask as bool; it also hides what causality hides."""
        window = self.windows[layer]
        known = self._masks.get((id(mask), window))
        if known is not None:
            return known[1]
        columns, rows = self.length + queries, mask.shape[2] if mask.ndim == 4 else 0
        if rows not in (1, queries) or mask.shape[3] < columns:
            needed = f"[batch][1][{queries}][{columns}] is needed"
            raise ValueError(f"an attention mask of {list(mask.shape)}: {needed}")
        if mask.shape[1] != 1:
            raise NotImplementedError(
                f"an attention mask with {mask.shape[1]} heads: one for all heads is needed"
            )
        made = bools(mask)
        if window:
            positions = torch.arange(columns - queries, columns)[:, None]
            far = (torch.arange(columns) - positions).abs() >= window
            if bool((made[..., :columns] & far).any()):
                raise ValueError(
                    f"the attention mask shows tokens outside of the window of {window} of layer "
                    f"{layer}: hide those that are {window} or more from a query"
                )
        self._masks[(id(mask), window)] = mask, made
        return made

    # ---- Other methods that a model calls

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.length

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *_args: Any,
        **_kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not 0 <= layer_idx < len(self.windows):
            raise self.unsupported(
                f"it has a layer {layer_idx}, where its config says that layers "
                f"0 to {len(self.windows) - 1} have keys"
            )
        return self.layers[layer_idx].update(key_states, value_states)


def _contains(model: PreTrainedModel, other: PreTrainedModel) -> bool:
    return any(module is other for module in model.modules())


def _shown(kinds: Sequence[Any]) -> str:
    return f"{counted(len(kinds), 'layer')} ({', '.join(map(str, dict.fromkeys(kinds)))})"


def check_rows(rows: torch.Tensor) -> None:
    """Refuses rows of types that pagedkv cannot store."""
    check_device(rows)
    if rows.dtype not in ROWS:
        raise TypeError(f"keys of float32, float16 or bfloat16 are needed, not {rows.dtype}")


class PackedCache(WatchedCache):
    """The cache that a model sees in passes over packed rows of many texts."""

    packed = True
    length = 0  # unused: the positions of the rows are given

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        self._packed_model = model
        if "position_ids" not in inspect.signature(model.forward).parameters:
            raise self.unsupported("it takes no position_ids, and texts are packed")

    def unsupported(self, reason: str) -> UnsupportedModelError:
        return unsupported(self._name, reason, "Engine")

    def pack(self, step: ForwardPass) -> None:
        """Sets the step that the next pass writes to."""
        install(self._packed_model)  # the model may be set to another attention
        self._next = step

    def _make_step(self, _key: torch.Tensor) -> ForwardPass:
        return self._next

    def get_seq_length(self, layer_idx: int = 0) -> Any:
        return UnknownLength(self)


class UnknownLength:
    """The length of a packed cache. The model must not compute with it."""

    def __init__(self, owner: PackedCache) -> None:
        self._owner = owner

    def _refuse(self, *_: object) -> NoReturn:
        raise self._owner.unsupported(
            "it computes with the length of its cache, and texts are packed"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __bool__ = __int__ = __index__ = __hash__ = _refuse


class PagedLayer(CacheLayerMixin):
    """One layer of a PagedCache."""

    supports_early_init = False
    is_croppable = True  # back to the beginning of the last pass

    def __init__(self, owner: WatchedCache, layer: int) -> None:
        self._owner, self._layer = owner, layer
        self.is_initialized = True

    @property
    def keys(self) -> torch.Tensor:
        raise self._owner.unsupported("it reads the keys or values of its cache itself")

    values = keys

    def __deepcopy__(self, _memo: dict[int, Any]) -> PagedLayer:
        raise self._owner.unsupported("it copies layers of its cache")

    @property
    def is_sliding(self) -> bool:
        return self._owner.windows[self._layer] != 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Does nothing."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes the rows. Returns tensors that only the attention function may use."""
        mark = self._owner.write(self._layer, key_states, value_states)
        return marked(key_states, mark), marked(value_states, mark)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return Columns(self._owner.length + query_length, self._owner), 0

    def get_seq_length(self) -> int:
        return self._owner.get_seq_length()

    def get_max_length(self) -> int:
        return -1
