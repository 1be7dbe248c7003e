"""The configuration of a cache."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._arrays import Integers, address, integers
from ._block_io import BlockIO, hooks_of
from ._handle import report, sized, unsigned
from ._library import library
from ._repr import counted, is_default
from ._structs import fill, path_for_c, point_to_matrices
from .errors import misuse
from .generated import configs
from .generated import raw as _raw
from .generated.raw import LogLevel
from .generated.records import CacheSizes
from .store import StoreConfig

_LOG = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
_NOW_MS = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)


class PrefixConfig(configs.PrefixConfig):
    """Keeps the blocks of closed sessions for new sessions with the same prefix."""


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class _Layers(configs.LayerGroup):
    key_rotation: npt.ArrayLike | None = dataclasses.field(default=None, compare=False)
    value_rotation: npt.ArrayLike | None = dataclasses.field(default=None, compare=False)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class LayerGroup(_Layers):
    """Layers of one shape. A model whose layers all have one shape does not need it: the fields of
    CacheConfig describe it. Leave fields that `kind` does not use at their defaults.

    Experimental: `key_rotation` [key_dim][key_dim] and `value_rotation` [value_dim][value_dim] are
    orthogonal matrices that rotate rows, instead of `rotation`; comparing groups ignores them.
    """

    layer_indices: Integers | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layer_indices is not None:
            numbers = integers(self.layer_indices, np.uint32, "layer_indices").tolist()
            object.__setattr__(self, "layer_indices", numbers)

    def build(self, keep: list[Any]) -> _raw.LayerGroup:
        """The struct for C; `keep` gets what must stay alive with it."""
        struct = sized(_raw.LayerGroup)
        fill(struct, self)
        if self.layer_indices is not None:
            indices = integers(self.layer_indices, np.uint32, "layer_indices")
            keep.append(indices)
            struct.layer_indices = address(indices)
            if len(indices) != self.layers:
                raise ValueError(
                    f"layer_indices has {counted(len(indices), 'number')} for "
                    f"{counted(self.layers, 'layer')}"
                )
        point_to_matrices(struct, self.key_rotation, self.value_rotation, keep)
        return struct

    def layer_numbers(self, first: int) -> Iterable[int]:
        begin = unsigned(first, 32, "first")
        return (
            range(begin, begin + self.layers) if self.layer_indices is None else self.layer_indices
        )


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class CacheConfig(configs.CacheConfig, _Layers):
    """The model, its memory and its threads; 0 and None are the library's defaults. Give `groups`,
    or the fields of one group for a plain model. Enums can be members or names ("bf16", "plain"),
    stored types also types of NumPy, ml_dtypes, PyTorch or JAX; the config keeps members.

    The logger is called with (level, line), and the clock, which returns milliseconds, without
    arguments, on any thread. They must not raise and must not call the library. `runner` is a
    result of `openmp_runner`. Other hooks for memory and threads are only for C.
    """

    groups: Sequence[LayerGroup] = ()
    prefix: PrefixConfig | None = None
    store: StoreConfig | None = None
    logger: Callable[[LogLevel, str], None] | None = None
    runner: _raw.Runner | None = None
    block_io: BlockIO | None = None
    clock: Callable[[], int] | None = None

    def layer_groups(self) -> list[LayerGroup]:
        """The groups; one, if the config describes it with its own fields."""
        fields = dataclasses.fields(_Layers)
        given = {field.name: getattr(self, field.name) for field in fields}
        if not self.groups:
            return [LayerGroup(**given)]
        for field in fields:
            if not is_default(given[field.name], field.default):
                raise misuse(f"groups and {field.name} are both given: it is a field of a group")
        return list(self.groups)

    def sizes(self, group: int | None = None) -> CacheSizes:
        """The memory that a cache of this config needs, in one group or in all. Allocates
        nothing."""
        struct = self.build()
        number = _raw.ALL_GROUPS if group is None else unsigned(group, 32, "group")
        return report(CacheSizes, library().cache_compute_sizes, ctypes.byref(struct), number)

    def build(self) -> _raw.CacheConfig:
        """The struct for C, which keeps alive what it points to. It has no store, because Cache
        opens that.
        """
        struct = sized(_raw.CacheConfig)
        keep: list[Any] = []
        struct.owners = keep
        fill(struct, self)
        described = self.layer_groups()
        groups = (_raw.LayerGroup * len(described))(*(group.build(keep) for group in described))
        keep.append(groups)
        struct.groups, struct.group_count = ctypes.addressof(groups), len(groups)
        if self.prefix is not None:
            prefix = sized(_raw.PrefixConfig)
            fill(prefix, self.prefix)
            keep.append(prefix)
            struct.prefix = ctypes.addressof(prefix)
        if self.memory_directory is not None:
            directory = path_for_c(self.memory_directory, "memory_directory")
            keep.append(directory)
            struct.memory_directory = ctypes.addressof(directory)
        if self.runner is not None:
            keep.append(self.runner)
            struct.runner = ctypes.addressof(self.runner)
        if self.logger is not None:
            logger = _logger(self.logger, keep)
            struct.logger = ctypes.addressof(logger)
        if self.block_io is not None:
            hooks = hooks_of(
                self.block_io, [group.layers * group.layer_bytes for group in described]
            )
            keep.append(hooks)
            struct.block_io = ctypes.addressof(hooks)
        if self.clock is not None:
            clock = _clock(self.clock, keep)
            struct.clock = ctypes.addressof(clock)
        return struct


def _logger(log: Callable[[LogLevel, str], None], keep: list[Any]) -> _raw.Logger:
    hook = _LOG(lambda _user, level, line: log(LogLevel(level), line.decode(errors="replace")))
    logger = _raw.Logger(ctypes.cast(hook, ctypes.c_void_p), None)
    keep += [hook, logger]
    return logger


def _clock(now_ms: Callable[[], int], keep: list[Any]) -> _raw.Clock:
    hook = _NOW_MS(lambda _user: now_ms())
    clock = _raw.Clock(ctypes.cast(hook, ctypes.c_void_p), None)
    keep += [hook, clock]
    return clock
