"""Rotations change stored rows, but not what callers read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pagedkv
from pagedkv import KVView, Rotation

TOKENS, HEADS, KEY_DIM, VALUE_DIM = 20, 2, 48, 32
TURN = np.linalg.qr(np.random.default_rng(3).normal(size=(KEY_DIM, KEY_DIM)))[0]
KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"rotation": Rotation.HADAMARD},
    {"rotation": "hadamard"},
    {"key_rotation": TURN},
    {"value_rotation": np.eye(VALUE_DIM)[::-1]},
)


def rows(seed: int, dim: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).normal(size=(TOKENS, HEADS, dim)).astype(np.float32)


K, V, Q = rows(0, KEY_DIM), rows(1, VALUE_DIM), rows(2, KEY_DIM)
SHAPE: dict[str, Any] = {"query_heads": HEADS, "kv_heads": HEADS, "key_dim": KEY_DIM}
SHAPE["value_dim"] = VALUE_DIM


def outputs(config: pagedkv.CacheConfig) -> list[Any]:
    with pagedkv.Cache(config) as cache, cache.open_session() as session:
        with cache.begin([session], [TOKENS]) as batch:
            batch.write(0, K, V)
            out = batch.attend(0, Q)
            batch.commit()
        return [out, *session.read(0)]


@pytest.mark.parametrize("kind", KINDS)
def test_callers_see_no_rotation(kind: dict[str, Any]) -> None:
    expected = outputs(pagedkv.CacheConfig(layers=1, **SHAPE, blocks=8))
    group = pagedkv.LayerGroup(layers=1, **SHAPE, blocks=8, **kind)
    for config in (
        pagedkv.CacheConfig(layers=1, **SHAPE, blocks=8, **kind),
        pagedkv.CacheConfig(groups=[group]),
    ):
        for one, other in zip(expected, outputs(config), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_memory_of_ones_own(kind: dict[str, Any]) -> None:
    view = KVView.allocate(4, 16, HEADS, KEY_DIM, VALUE_DIM, **kind)
    slots = np.arange(TOKENS)
    pagedkv.kv_write_slots(view, slots, K, V)
    k, v = pagedkv.kv_read_slots(view, slots)
    np.testing.assert_allclose(k, K, atol=1e-5)
    np.testing.assert_allclose(v, V, atol=1e-5)


def test_what_is_refused() -> None:
    for wrong, message in (
        ({"key_rotation": TURN[:16]}, r"\[48\]\[48\] is needed"),
        ({"key_rotation": TURN * 2}, "not orthogonal"),
        ({"rotation": "hadamard", "value_rotation": np.eye(VALUE_DIM)}, "rotation is HADAMARD"),
        ({"rotation": "upside_down"}, "none of none, hadamard"),
        ({"rotation": 7}, "rotation 7 is none of NONE, HADAMARD"),
    ):
        with pytest.raises(pagedkv.MisuseError, match=message):
            pagedkv.CacheConfig(layers=1, **SHAPE, blocks=8, **wrong).plan()
