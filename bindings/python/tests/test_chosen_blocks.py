"""Attention to chosen blocks only: arrays that it takes, fills and refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import small, written_step

import pagedkv
from pagedkv import NO_BLOCK_ID, AttentionOutputs, AttentionParams, ChosenBlocks

QUERY_HEADS, KV_HEADS, DIM, BLOCK = 4, 2, 16, 16
TOKENS, NEW, TOP = 200, 2, 3
# The step begins inside block 12, which counts as one of the step; block 11 is the last before it.
BLOCKS, STEP = 13, 12
K, V = np.random.default_rng(3).standard_normal((2, TOKENS + NEW, KV_HEADS, DIM), np.float32)
Q = np.random.default_rng(4).standard_normal((NEW, QUERY_HEADS, DIM), np.float32)


@pytest.fixture
def batch() -> Any:
    """A step whose keys and values are written."""
    config = small(query_heads=QUERY_HEADS, kv_heads=KV_HEADS, threads=1)
    with written_step(config, K, V, TOKENS) as begun:
        yield begun


def blocks(fill: int = 0, size: int = TOP) -> Any:
    return np.full((NEW, KV_HEADS, size), fill, np.uint32)


def attended(batch: pagedkv.Batch, chosen: Any = None, **given: Any) -> Any:
    params = AttentionParams(chosen_blocks=ChosenBlocks(**given))
    return batch.attend(0, Q, params=params, outputs=AttentionOutputs(chosen=chosen))


def test_what_is_chosen_is_read_again(batch: pagedkv.Batch) -> None:
    chosen = blocks(77)
    out = attended(batch, top_blocks=TOP, chosen=chosen)
    assert (chosen < STEP).all()
    np.testing.assert_array_equal(attended(batch, lists=chosen), out)
    np.testing.assert_array_equal(attended(batch, top_blocks=TOP), out)


def test_lists_end_before_their_arrays(batch: pagedkv.Batch) -> None:
    """`top` may exceed the number of blocks, or be 0."""
    chosen = blocks(77, 12)
    out = attended(batch, top_blocks=12, chosen=chosen)
    assert (chosen == [*range(1, 11), NO_BLOCK_ID, NO_BLOCK_ID]).all()
    np.testing.assert_array_equal(out, batch.attend(0, Q))
    np.testing.assert_allclose(attended(batch, lists=chosen), out, atol=2e-5)
    nothing = attended(batch, lists=blocks(size=0))
    np.testing.assert_array_equal(attended(batch, lists=blocks(NO_BLOCK_ID)), nothing)


def test_lists_need_not_be_dense(batch: pagedkv.Batch) -> None:
    lists = np.stack([blocks(4), blocks(9)], axis=3)[:, :, 0]
    expected = attended(batch, lists=lists)
    spread = np.repeat(lists, 2, axis=2)[:, :, ::2]
    turned = np.asfortranarray(lists)
    for given in (spread, turned):
        np.testing.assert_array_equal(attended(batch, lists=given), expected)


def test_lists_over_memory_of_ones_own() -> None:
    view = pagedkv.KVView.allocate(BLOCKS, BLOCK, KV_HEADS, DIM)
    length, table = TOKENS + NEW, np.random.default_rng(5).permutation(BLOCKS).astype(np.uint32)
    pagedkv.kv_write(view, K, V, [length], [length], table[None])
    lists = blocks() + np.arange(1, 1 + TOP, dtype=np.uint32)

    def over_view(**given: Any) -> Any:
        params = AttentionParams(chosen_blocks=ChosenBlocks(**given))
        return pagedkv.kv_attend(view, Q, [NEW], [length], table[None], QUERY_HEADS, params=params)

    assert (over_view(lists=lists) != over_view(lists=lists + 1)).any()
    for wrong, message in (
        ({"lists": lists[:1]}, r"lists: \[2\]\[2\]\[n\]"),
        ({"top_blocks": TOP}, "only a cache has bounds"),
    ):
        with pytest.raises(pagedkv.PagedKVError, match=message):
            over_view(**wrong)


READ_ONLY = blocks()
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    "wrong",
    [
        blocks()[:1],
        np.zeros((NEW + 1, KV_HEADS, TOP), np.uint32),
        np.zeros((NEW, QUERY_HEADS, TOP), np.uint32),
        np.zeros((NEW * KV_HEADS, TOP), np.uint32),
        np.zeros((NEW, KV_HEADS, TOP, 1), np.uint32),
        np.full((NEW, KV_HEADS, TOP), -1),
        np.full((NEW, KV_HEADS, TOP), 2**32),
        [[[1] * TOP] * KV_HEADS, [[1]] * KV_HEADS],
        blocks().astype(np.float32),
        3,
        "3",
    ],
    ids=lambda wrong: f"{getattr(wrong, 'dtype', type(wrong).__name__)}",
)
def test_other_arrays_are_refused(batch: pagedkv.Batch, wrong: Any) -> None:
    with pytest.raises(pagedkv.MisuseError, match=r"^lists: .* (needed|is not between|made of)"):
        attended(batch, lists=wrong)
    with pytest.raises(pagedkv.MisuseError, match=r"^chosen: .* (needed|is not between)"):
        attended(batch, top_blocks=TOP, chosen=wrong)


@pytest.mark.parametrize(
    "wrong", [blocks(size=TOP - 1), blocks(size=TOP + 1), blocks(size=6)[:, :, ::2], READ_ONLY]
)
def test_what_is_chosen_needs_its_place(batch: pagedkv.Batch, wrong: Any) -> None:
    before = wrong.copy()
    with pytest.raises(pagedkv.MisuseError, match="^chosen: "):
        attended(batch, top_blocks=TOP, chosen=wrong)
    np.testing.assert_array_equal(wrong, before)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lists": blocks(BLOCKS, 1)}, "has block 13"),
        ({"lists": blocks(4)}, "ascending order"),
        ({"lists": blocks(4, 1), "top_blocks": 1}, "give one of the two"),
        ({"chosen": blocks(size=0)}, "top_blocks is 0"),
        ({"top_blocks": -1}, "top_blocks"),
        ({"tokens_per_choice": -1}, "tokens_per_choice"),
        ({"lists": blocks(1), "tokens_per_choice": NEW}, r"lists: \[1\]\[2\]\[n\]"),
        ({"first_blocks": 2**32}, "first_blocks"),
        ({"last_blocks": 1.0}, "last_blocks"),
    ],
)
def test_what_does_not_fit_is_refused(batch: pagedkv.Batch, given: Any, message: str) -> None:
    with pytest.raises((pagedkv.MisuseError, TypeError), match=message):
        attended(batch, **given)
