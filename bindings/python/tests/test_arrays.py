"""What goes in and out without a copy, and what is refused."""

from __future__ import annotations

import array
import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pagedkv

ROWS, QUERY_HEADS, KV_HEADS, DIM = 5, 4, 2, 16
BF16 = ml_dtypes.bfloat16


@pytest.fixture
def cache() -> Any:
    with pagedkv.Cache(
        pagedkv.CacheConfig(
            layers=1, query_heads=QUERY_HEADS, kv_heads=KV_HEADS, key_dim=DIM, blocks=8
        )
    ) as made:
        yield made


@pytest.fixture
def batch(cache: pagedkv.Cache) -> Any:
    with cache.open_session() as session, cache.begin([session], [ROWS]) as begun:
        yield begun


def numbers(*shape: int) -> Any:
    """Small integers: every type holds them exactly."""
    return (np.arange(np.prod(shape)).reshape(shape) % 17 - 8).astype(np.float32)


def stored(batch: pagedkv.Batch, k: Any, v: Any) -> tuple[Any, Any]:
    batch.write(0, k, v)
    return batch.sessions[0].materialize(0)


K, V = numbers(ROWS, KV_HEADS, DIM), numbers(ROWS, KV_HEADS, DIM)[::-1].copy()


def spread(rows: Any) -> Any:
    """The same rows with gaps between heads and between rows."""
    found = np.full((ROWS, KV_HEADS + 1, DIM + 8), np.nan, rows.dtype)
    found[:, :KV_HEADS, :DIM] = rows
    return found[:, :KV_HEADS, :DIM]


class OnlyDLPack:
    """An array of another library: all it has is DLPack. Of 1.0 or of the time before."""

    def __init__(self, rows: Any, versioned: bool = True) -> None:
        self.rows, self.versioned = rows, versioned

    def __dlpack__(self, **options: Any) -> Any:
        if not self.versioned and options:
            raise TypeError("unexpected keyword argument")
        return self.rows.__dlpack__(**options)


@pytest.mark.parametrize(
    "form",
    [
        lambda rows: rows,
        lambda rows: rows.reshape(ROWS, -1),
        lambda rows: rows.astype(np.float16),
        lambda rows: rows.astype(BF16),
        lambda rows: rows.astype(BF16).view(np.uint16),
        spread,
        lambda rows: np.repeat(rows, 2, axis=0)[::2],
        lambda rows: memoryview(rows),
        OnlyDLPack,
        lambda rows: OnlyDLPack(rows, versioned=False),
        lambda rows: OnlyDLPack(spread(rows.astype(np.float16))),
    ],
    ids=[
        "dense",
        "flat",
        "f16",
        "bf16",
        "bf16 bits",
        "spread",
        "every other",
        "buffer",
        "dlpack",
        "old dlpack",
        "spread dlpack",
    ],
)
def test_rows_go_in(batch: pagedkv.Batch, form: Any) -> None:
    k, v = stored(batch, form(K), form(V))
    np.testing.assert_array_equal(k, K)
    np.testing.assert_array_equal(v, V)


def test_what_lies_between_rows_is_not_read(batch: pagedkv.Batch) -> None:
    assert np.isnan(spread(K).base).any()
    assert not np.isnan(stored(batch, spread(K), spread(V))[0]).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16])
def test_results_go_into_the_array_given(batch: pagedkv.Batch, dtype: Any) -> None:
    batch.write(0, K, V)
    q = numbers(ROWS, QUERY_HEADS, DIM)
    expected = batch.attend(0, q)
    assert expected.dtype == np.float32
    room = np.full((ROWS, QUERY_HEADS + 1, DIM), 99, dtype)
    out = room[:, :QUERY_HEADS]
    assert batch.attend(0, q, out) is out
    np.testing.assert_array_equal(out, expected.astype(dtype))
    assert (room[:, QUERY_HEADS] == 99).all()


def test_results_go_into_other_libraries_arrays(batch: pagedkv.Batch) -> None:
    batch.write(0, K, V)
    memory = np.zeros((ROWS, QUERY_HEADS, DIM), np.float32)
    q = numbers(ROWS, QUERY_HEADS, DIM)
    batch.attend(0, OnlyDLPack(q), OnlyDLPack(memory))
    np.testing.assert_array_equal(memory, batch.attend(0, q))


def test_log_sum_exp_is_filled(batch: pagedkv.Batch) -> None:
    batch.write(0, np.zeros_like(K), V)
    lse = np.empty((ROWS, QUERY_HEADS), np.float32)
    batch.attend(0, numbers(ROWS, QUERY_HEADS, DIM), lse=lse)
    np.testing.assert_allclose(
        lse, np.log(np.arange(1, ROWS + 1))[:, None] * np.ones(QUERY_HEADS), atol=1e-6
    )


def read_only(rows: Any) -> Any:
    rows = rows.copy()
    rows.flags.writeable = False
    return rows


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            K[:4],
            r"k: \[5\]\[2\]\[16\] \(rows, heads, dim\) are needed, the array is \[4\]\[2\]\[16\]",
        ),
        (K[:, :1], r"the array is \[5\]\[1\]\[16\]"),
        (K[..., :8], r"the array is \[5\]\[2\]\[8\]"),
        (K.reshape(-1), r"the array is \[160\]"),
        (K.astype(np.float64), "the array has float64"),
        (K.astype(np.int32), "the array has int32"),
        (OnlyDLPack(K.astype(np.float64)), "DLPack type 2 of 64 bits"),
        (K.astype(">f4"), "bytes are swapped"),
        (np.repeat(K, 2, axis=2)[..., ::2], r"element strides \(64, 32, 2\)"),
        (K[::-1], r"element strides \(-32, 16, 1\)"),
        (
            np.ascontiguousarray(K.transpose(1, 0, 2)).transpose(1, 0, 2),
            r"element strides \(16, 80, 1\)",
        ),
        (np.broadcast_to(K[:1], K.shape), r"element strides \(0, 16, 1\)"),
    ],
)
def test_wrong_arrays_are_refused_with_numbers(
    batch: pagedkv.Batch, wrong: Any, message: str
) -> None:
    with pytest.raises(pagedkv.MisuseError, match=message) as refused:
        batch.write(0, wrong, V)
    assert refused.value.status == pagedkv.Status.INVALID_ARGUMENT


@pytest.mark.parametrize("wrong", [[1.0], "text", 3, object(), array.array("f", [1.0]).tolist()])
def test_what_is_no_array_is_refused(batch: pagedkv.Batch, wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"k: a \w+ is no array"):
        batch.write(0, wrong, V)


def test_arrays_elsewhere_are_refused(batch: pagedkv.Batch) -> None:
    capsule = K.__dlpack__()
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    ctypes.c_int32.from_address(address(capsule, b"dltensor") + 8).value = 2

    class OnADevice:
        def __dlpack__(self) -> Any:
            return capsule

    with pytest.raises(TypeError, match="DLPack device 2"):
        batch.write(0, OnADevice(), V)


def test_read_only_arrays_are_read_but_not_written(batch: pagedkv.Batch) -> None:
    k, _ = stored(batch, read_only(K), read_only(V))
    np.testing.assert_array_equal(k, K)
    with pytest.raises(pagedkv.MisuseError, match="out: the array is read only"):
        batch.attend(0, numbers(ROWS, QUERY_HEADS, DIM), read_only(numbers(ROWS, QUERY_HEADS, DIM)))


def test_token_ids(batch: pagedkv.Batch) -> None:
    batch.write(0, K, V)
    for wrong in ([1.5] * ROWS, [[1] * ROWS], [2**31] * ROWS, [1] * (ROWS + 1)):
        with pytest.raises(pagedkv.MisuseError, match="tokens: "):
            batch.commit(wrong)  # type: ignore[arg-type]
    batch.commit(np.arange(ROWS, dtype=np.int64))
    assert batch.sessions[0].tokens().tolist() == list(range(ROWS))


def test_numbers_are_not_cut_off(cache: pagedkv.Cache) -> None:
    session = cache.open_session()
    for call in (
        lambda: session.trim(-1),
        lambda: session.block_table(2**32),
        lambda: session.set_priority(2**31),
        lambda: cache.begin([session], [2**32]),
        lambda: cache.begin([session], [-1]),
        lambda: pagedkv.AttentionParams(window=-1).build(1, 1),
        lambda: pagedkv.CacheConfig(layers=2**32).plan(),
    ):
        with pytest.raises(pagedkv.MisuseError, match="is not between"):
            call()
    session.close()


def test_stateless_attention_over_own_arrays() -> None:
    """Two sequences over blocks of 4 in any order, against a plain softmax."""
    k, v = (np.random.default_rng(1).standard_normal((24, 2, 16), np.float32) for _ in range(2))
    q = np.random.default_rng(2).standard_normal((3, 4, 16), np.float32)
    tables = np.array([[5, 0, 3], [1, 4, 0]], np.uint32)
    view = pagedkv.KVView.of_arrays(k, v, block_size=4)
    lse = np.empty((3, 4), np.float32)
    out = pagedkv.attention(view, q, [1, 2], [9, 6], tables, query_heads=4, lse=lse)
    for row, (table, end) in enumerate([(tables[0], 9), (tables[1], 5), (tables[1], 6)]):
        slots = np.concatenate([np.arange(4) + 4 * block for block in table])[:end]
        for head in range(4):
            scores = k[slots, head // 2].astype(np.float64) @ q[row, head] / 4
            weights = np.exp(scores)
            # Sums of 16 products of normal numbers: scores are off by about 1e-6.
            np.testing.assert_allclose(
                out[row, head], weights @ v[slots, head // 2] / weights.sum(), atol=2e-5
            )
            np.testing.assert_allclose(lse[row, head], np.log(weights.sum()), atol=2e-5)
    first = pagedkv.attention(view, q[:1], [1], [9], tables[:1], query_heads=4)
    merged, _ = pagedkv.merge_states([first, first], [lse[:1], lse[:1]], 1, 4, 16)
    np.testing.assert_allclose(merged, first, atol=1e-6)


def test_stateless_attention_over_a_cache(cache: pagedkv.Cache) -> None:
    session = cache.open_session()
    with cache.begin([session], [ROWS]) as batch:
        batch.write(0, K, V)
        q = numbers(ROWS, QUERY_HEADS, DIM)
        expected = batch.attend(0, q)
        batch.commit()
    table = session.block_table()[None]
    out = pagedkv.attention(cache.kv_view(0), q, [ROWS], [ROWS], table, query_heads=QUERY_HEADS)
    np.testing.assert_array_equal(out, expected)
    session.close()
