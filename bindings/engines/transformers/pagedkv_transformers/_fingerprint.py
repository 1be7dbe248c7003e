"""A name for what a model in memory computes, and whether that changed. All that keys and values
may depend on counts: the classes of its modules, their settings (such as the active adapter and its
scaling, or the arguments of rotary embeddings), its config, hooks and replaced functions, the
precision that is asked of PyTorch, and every byte of its weights and buffers.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import inspect
import itertools
import os
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import transformers
from pagedkv.support import Uncopied
from pagedkv.weights import Bytes, contents_digests, digest
from transformers import PreTrainedModel

# Where a model comes from, how it is loaded and called, and what is done with its outputs.
_WITHOUT_EFFECT = frozenset(
    "_name_or_path name_or_path base_model_name_or_path revision transformers_version "
    "_commit_hash architectures generation_config warnings_issued device_map hf_device_map "
    "_is_hf_initialized _fsdp_plan _tp_plan _pp_plan _ep_plan initializer_range "
    "id2label label2id problem_type use_cache return_dict output_hidden_states "
    "_output_attentions output_attentions "
    "_attn_implementation attn_implementation _attn_implementation_internal".split()
)
_OF_MODULES = frozenset(vars(torch.nn.Module())) - {
    "training", "_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks"
}  # fmt: skip
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_PLAIN = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size, enum.Enum)
_LIBRARIES = ("torch", "transformers", "peft")  # their versions stand for their functions
_DEEPEST = 100  # modules in modules, and what they refer to
_SAMPLES = 4  # places of a tensor that are compared in each step, 8 bytes each


def model_fingerprint(model: PreTrainedModel, more: str = "") -> bytes:
    """32 bytes that differ if what the model computes or `more` differs."""
    return digest([ModelWatch(model, hashed=True).name, more.encode()])


class ModelWatch(Uncopied):
    """Notices that a model computes something else than before, and names what it computes.

    Looking costs much less than a pass. It sees changed settings, replaced modules and tensors, and
    tensors that were changed in place: PyTorch counts that, except through `.data` and NumPy,
    where samples show it if most of a tensor changed.
    """

    def __init__(self, model: PreTrainedModel, *, hashed: bool) -> None:
        """`hashed`: the name depends on the contents of all tensors from the beginning on, so it is
        the same in other processes. Otherwise they are hashed when they change."""
        self._model = model
        self._hashed = hashed
        self._tokens: dict[int, tuple[torch.Tensor, tuple[Any, ...], bytes]] = {}
        self._names: dict[bytes, bytes] = {}
        walk, self.name = self._read(b"" if not hashed else None)
        self._names[self.name] = self.name
        self._first = self.name
        self._seen: _Seen | None = _Seen(walk)

    def look(self) -> bytes:
        """What the model computes now: b"" as at first, else 32 bytes."""
        if self._seen is None or not self._seen.is_current():
            walk, found = self._read()
            self._seen, self.name = _Seen(walk), self._names.setdefault(found, found)
        return b"" if self.name == self._first else self.name

    def accept(self) -> None:
        """What the model changed in itself, in a pass, does not make it another one."""
        if self._seen is not None and not self._seen.is_current():
            walk, found = self._read()
            self._names[found] = self.name
            self._seen = _Seen(walk)

    def read_again(self) -> None:
        """Hashes everything at the next look."""
        self._tokens, self._seen = {}, None

    def _read(self, unread: bytes | None = None) -> tuple[_Walk, bytes]:
        """`unread` stands for the contents of tensors."""
        walk = _Walk(self._model)
        tokens = {}
        new = {}
        for path, tensor in walk.tensors:
            key, known = _key(tensor), self._tokens.get(id(tensor))
            if unread is not None:
                tokens[id(tensor)] = tensor, key, unread
            elif known is not None and known[1] == key:
                tokens[id(tensor)] = known
            else:
                new[path] = tensor
        hashed = contents_digests((path, _bytes(path, t, self._hashed)) for path, t in new.items())
        for (_, tensor), token in zip(new.items(), hashed, strict=True):
            tokens[id(tensor)] = tensor, _key(tensor), token
        self._tokens = tokens
        contents = [tokens[id(tensor)][2] for _, tensor in walk.tensors]
        versions = [transformers.__version__, getattr(sys.modules.get("peft"), "__version__", "")]
        return walk, digest([*(word.encode() for word in (*versions, *walk.said)), *contents])


class _Walk:
    """All of a model that is not computed in a pass."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.said: list[str] = []
        self.tensors: list[tuple[str, torch.Tensor]] = []
        # Where changes are looked for.
        self.dicts: list[dict[Any, Any]] = []
        self.lists: list[list[Any] | set[Any]] = []
        self.classes: list[Any] = []  # of modules
        self._numbers: dict[int, int] = {}
        self._kept: list[object] = []  # so that no other object gets their ids
        self._visit("precision", _precision(), 0)
        self._visit("", model, 0)

    def _visit(self, path: str, value: Any, depth: int) -> None:
        if value is None or isinstance(value, _PLAIN) or depth > _DEEPEST:
            self.said.append(f"{path} = {value!r}" if depth <= _DEEPEST else path)
            return
        # Equal lists may be one object or several; of other objects it matters.
        if not isinstance(value, list | tuple | dict | set | frozenset):
            count = len(self._numbers)
            known = self._numbers.setdefault(id(value), count)
            self._kept.append(value)
            if known != count:
                self.said.append(f"{path} = {known}")
                return
        for number, (name, part) in enumerate(self._parts(path, value)):
            self._visit(f"{path}.{name}" if name else f"{path}.{number}", part, depth + 1)

    def _parts(self, path: str, value: Any) -> Iterator[tuple[str, Any]]:
        """Says what kind of value it is, and yields what it consists of."""
        kind = type(value)
        self.said.append(f"{path}: {kind.__module__}.{kind.__qualname__}")
        if isinstance(value, torch.Tensor):
            self.said.append(f"{value.dtype} {tuple(value.shape)}")
            if value.is_quantized:
                yield from _of_quantised(value)
            else:
                self.tensors.append((path, value))
        elif isinstance(value, torch.nn.Module):
            if kind not in self.classes:
                self.classes.append(kind)
                yield "class", kind.forward
            yield from self._fields(vars(value), _OF_MODULES)
            if kind._save_to_state_dict is not torch.nn.Module._save_to_state_dict:
                saved: dict[str, Any] = {}  # packed weights are in no attribute
                value._save_to_state_dict(saved, "", True)
                yield "saved", saved
        elif isinstance(value, dict):
            yield from self._fields(value)
        elif isinstance(value, list | tuple | set | frozenset):
            if isinstance(value, list | set):
                self.lists.append(value)
            ordered = value if isinstance(value, list | tuple) else sorted(value, key=repr)
            yield from (("", part) for part in ordered)
        elif isinstance(value, functools.partial):
            yield from [("func", value.func), ("args", value.args), ("keywords", value.keywords)]
        elif isinstance(value, types.MethodType):
            yield from [("func", value.__func__), ("self", value.__self__)]
        elif isinstance(value, types.FunctionType):
            yield from self._of_function(value)
        elif isinstance(value, type):
            self.said.append(f"{value.__module__}.{value.__qualname__}")
        elif isinstance(value, np.ndarray):
            self.said.append(hashlib.blake2b(value.tobytes()).hexdigest())
        elif hasattr(value, "__dict__"):
            yield from self._fields(vars(value))

    def _fields(
        self, fields: dict[Any, Any], without: frozenset[str] = frozenset()
    ) -> Iterator[tuple[str, Any]]:
        self.dicts.append(fields)
        for name in sorted(fields, key=str):
            if name in _WITHOUT_EFFECT or name in without:
                continue
            if name in _HOOKS:  # by numbers that count all hooks of the process
                self.dicts.append(fields[name])
                yield from ((name, hook) for hook in fields[name].values() if not _is_ours(hook))
            else:
                yield str(name), fields[name]

    def _of_function(self, function: Any) -> Iterator[tuple[str, Any]]:
        self.said.append(f"{function.__module__}.{function.__qualname__}")
        if str(function.__module__).partition(".")[0] in _LIBRARIES:
            return
        try:
            self.said.append(inspect.getsource(function))
        except (OSError, TypeError):
            self.said.append(function.__code__.co_code.hex())
        yield "defaults", function.__defaults__
        yield "kwdefaults", function.__kwdefaults__
        for cell in function.__closure__ or ():
            try:
                yield "cell", cell.cell_contents
            except ValueError:  # it is empty
                continue


def _of_quantised(tensor: torch.Tensor) -> Iterator[tuple[str, Any]]:
    yield "integers", tensor.int_repr()
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        yield "scale", (tensor.q_scale(), tensor.q_zero_point())
    else:
        yield "scales", tensor.q_per_channel_scales()
        yield "zero points", tensor.q_per_channel_zero_points()


def _precision() -> tuple[Any, ...]:
    """What this thread asks of PyTorch's operators."""
    automatic = torch.is_autocast_enabled("cpu")
    dtype = torch.get_autocast_dtype("cpu") if automatic else None
    return dtype, torch.get_float32_matmul_precision()


def _is_ours(hook: Any) -> bool:
    return str(getattr(hook, "__module__", "")).startswith("pagedkv_transformers.")


class _Seen:
    """What a walk saw, as far as it can change."""

    def __init__(self, walk: _Walk) -> None:
        self._walk = walk
        self._tensors = [tensor for _, tensor in walk.tensors]
        self._counted = [tensor for tensor in self._tensors if not tensor.is_inference()]
        self._placed = [tensor for tensor in self._tensors if _place(tensor)]
        self._samples = [view for view in map(_sample, self._placed) if view is not None]
        self._state = self._now()

    def is_current(self) -> bool:
        try:
            return bool(self._now() == self._state)
        except (RuntimeError, ValueError, TypeError):  # values that cannot be compared
            return False

    def _now(self) -> tuple[Any, ...]:
        every, walk = itertools.chain.from_iterable, self._walk
        return (
            [*map(_version, self._counted)],
            [*map(torch.Tensor.data_ptr, self._placed)],
            [*every(map(dict.values, walk.dicts))],
            [*map(list, walk.lists)],
            [kind.forward for kind in walk.classes],
            _precision(),
            [view.tobytes() for view in self._samples],
        )


_version = torch.Tensor._version.__get__


def _place(tensor: torch.Tensor) -> int:
    """The address of the tensor; 0: it has none."""
    try:
        return tensor.data_ptr() if tensor.device.type == "cpu" else 0
    except (RuntimeError, NotImplementedError):
        return 0


def _key(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Differs if the contents do, as far as that can be seen without reading all of them."""
    version = 0 if tensor.is_inference() else tensor._version
    place = _place(tensor)
    sample = _sample(tensor) if place else None
    return version, place, None if sample is None else sample.tobytes()


def _sample(tensor: torch.Tensor) -> Bytes | None:
    """A view of a few bytes of the tensor."""
    try:
        storage = tensor.detach().untyped_storage()
        flat: Bytes = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
    except (RuntimeError, NotImplementedError, TypeError):
        return None
    size = tensor.element_size()
    first = tensor.storage_offset() * size
    flat = flat[first : first + tensor.numel() * size]
    step = len(flat) // _SAMPLES
    if step < 8:
        return flat
    return np.lib.stride_tricks.as_strided(flat[step // 2 :], (_SAMPLES, 8), (step, 1))


def _bytes(name: str, tensor: torch.Tensor, needed: bool) -> Bytes:
    try:
        found: Bytes = tensor.detach().flatten().view(torch.uint8).numpy()
        return found
    except (RuntimeError, NotImplementedError, TypeError) as error:
        if not needed:
            return np.frombuffer(os.urandom(32), np.uint8)  # it may be anything
        raise ValueError(
            f"the weights of {name} cannot be read to name the model ({error}): give the "
            "StoreConfig a fingerprint of your own"
        ) from error
