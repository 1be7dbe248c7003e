"""Attention to chosen blocks only: what it chooses, what it computes, what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import attention, causal, small, written_step

import pagedkv
from pagedkv import NO_BLOCK, AttentionOutputs, AttentionParams, ChosenBlocks

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


def over_blocks(lists: Any, first: int = 1, last: int = 1) -> Any:
    """A plain softmax over the listed blocks and those that are always read."""
    always, block = [*range(first), *range(STEP - last, BLOCKS)], np.arange(TOKENS + NEW) // BLOCK
    read = [[np.isin(block, [*always, *each]) for each in row] for row in lists.tolist()]
    seen = np.repeat(read, QUERY_HEADS // KV_HEADS, axis=1) & causal(NEW, TOKENS + NEW)
    return attention(Q, K, V, seen)


def rounded(bounds: Any, sign: int) -> Any:
    """Rounds up (1) or down (-1) to bfloat16, the type of bounds."""
    bits = bounds.astype(np.float32).view(np.uint32)
    outwards = bits + np.where(bounds * sign > 0, 0xFFFF, 0).astype(np.uint32)
    return (outwards & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def highest(top: int, first: int, last: int) -> Any:
    """The blocks with the highest scores, in ascending order."""
    found = np.full((NEW, KV_HEADS, top), NO_BLOCK, np.uint32)
    keys = K[: STEP * BLOCK].reshape(STEP, BLOCK, KV_HEADS, DIM)
    low, high = rounded(keys.min(axis=1), -1), rounded(keys.max(axis=1), 1)
    candidates = np.arange(first, STEP - last)
    for row in range(NEW):
        for kv_head in range(KV_HEADS):
            q = Q[row].reshape(KV_HEADS, -1, 1, DIM)[kv_head]
            ends = q * low[candidates, kv_head], q * high[candidates, kv_head]
            scores = (sum(ends) / 2 + np.maximum(*ends)).sum(axis=-1).sum(axis=0)
            chosen = np.sort(candidates[np.argsort(-scores)][:top])
            found[row, kv_head, : len(chosen)] = chosen
    return found


@pytest.mark.parametrize(("first", "last"), [(1, 1), (0, 0), (2, 3)])
def test_the_blocks_of_the_highest_scores_are_read(
    batch: pagedkv.Batch, first: int, last: int
) -> None:
    always: dict[str, Any] = {"first_blocks": first, "last_blocks": last}
    chosen = blocks(77)
    out = attended(batch, top_blocks=TOP, chosen=chosen, **always)
    np.testing.assert_array_equal(chosen, highest(TOP, first, last))
    # Sums of 16 products of normal numbers: scores are off by about 1e-6.
    np.testing.assert_allclose(out, over_blocks(chosen, first, last), atol=2e-5)
    np.testing.assert_array_equal(attended(batch, lists=chosen, **always), out)
    np.testing.assert_array_equal(attended(batch, top_blocks=TOP, **always), out)


def test_lists_end_before_their_arrays(batch: pagedkv.Batch) -> None:
    """`top` may exceed the number of blocks, or be 0."""
    chosen = blocks(77, 12)
    out = attended(batch, top_blocks=12, chosen=chosen)
    assert (chosen == [*range(1, 11), NO_BLOCK, NO_BLOCK]).all()
    np.testing.assert_array_equal(out, batch.attend(0, Q))
    np.testing.assert_allclose(attended(batch, lists=chosen), out, atol=2e-5)
    nothing = over_blocks(blocks(size=0))
    for lists in (blocks(size=0), blocks(NO_BLOCK)):
        np.testing.assert_allclose(attended(batch, lists=lists), nothing, atol=2e-5)


def test_lists_need_not_be_dense(batch: pagedkv.Batch) -> None:
    lists = np.stack([blocks(4), blocks(9)], axis=3)[:, :, 0]
    expected = attended(batch, lists=lists)
    np.testing.assert_allclose(expected, over_blocks(lists), atol=2e-5)
    spread = np.repeat(lists, 2, axis=2)[:, :, ::2]
    turned = np.asfortranarray(lists)
    for given in (spread, turned):
        np.testing.assert_array_equal(attended(batch, lists=given), expected)


def test_lists_over_memory_of_ones_own() -> None:
    view = pagedkv.KVView.allocate(BLOCKS, BLOCK, KV_HEADS, DIM)
    length, table = TOKENS + NEW, np.random.default_rng(5).permutation(BLOCKS).astype(np.uint32)
    pagedkv.kv_write(view, K, V, [length], [length], table[None])
    lists = highest(TOP, 1, 1)

    def over_view(**given: Any) -> Any:
        params = AttentionParams(chosen_blocks=ChosenBlocks(**given))
        return pagedkv.kv_attend(view, Q, [NEW], [length], table[None], QUERY_HEADS, params=params)

    np.testing.assert_allclose(over_view(lists=lists), over_blocks(lists), atol=2e-5)
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


def test_chosen_blocks_do_not_go_with_alibi(batch: pagedkv.Batch) -> None:
    params = AttentionParams(alibi_slopes=[1] * QUERY_HEADS, chosen_blocks=ChosenBlocks(1))
    with pytest.raises(pagedkv.MisuseError, match="cannot be combined"):
        batch.attend(0, Q, params=params)
