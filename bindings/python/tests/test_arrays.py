"""Arrays that are passed in and out without a copy, and arrays that are refused."""

from __future__ import annotations

import array
import ctypes
import itertools
import mmap
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from helpers import ON_WINDOWS, attention, small

import pagedkv
from pagedkv._arrays import BatchRows

ROWS, QUERY_HEADS, KV_HEADS, DIM = 5, 4, 2, 16
BF16 = ml_dtypes.bfloat16


@pytest.fixture
def cache() -> Any:
    with pagedkv.Cache(small(query_heads=QUERY_HEADS, kv_heads=KV_HEADS)) as made:
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
    return batch.sessions[0].read(0, n=ROWS)


K, V = numbers(ROWS, KV_HEADS, DIM), numbers(ROWS, KV_HEADS, DIM)[::-1].copy()


def spread(rows: Any) -> Any:
    """The same rows with gaps between heads and between rows."""
    found = np.full((ROWS, KV_HEADS + 1, DIM + 8), np.nan, rows.dtype)
    found[:, :KV_HEADS, :DIM] = rows
    return found[:, :KV_HEADS, :DIM]


class OnlyDLPack:
    """An array of another library that has only DLPack, of version 1.0 or older."""

    def __init__(self, rows: Any, versioned: bool = True) -> None:
        self.rows, self.versioned = rows, versioned

    def __dlpack__(self, **options: Any) -> Any:
        if not self.versioned and options:
            raise TypeError("unexpected keyword argument")
        return self.rows.__dlpack__(**options)


FORMS: dict[str, Any] = {
    "dense": lambda rows: rows,
    "flat": lambda rows: rows.reshape(ROWS, -1),
    "f16": lambda rows: rows.astype(np.float16),
    "bf16": lambda rows: rows.astype(BF16),
    "bf16 bits": lambda rows: rows.astype(BF16).view(np.uint16),
    "spread": spread,
    "every other": lambda rows: np.repeat(rows, 2, axis=0)[::2],
    "buffer": memoryview,
    "dlpack": OnlyDLPack,
    "old dlpack": lambda rows: OnlyDLPack(rows, versioned=False),
    "spread dlpack": lambda rows: OnlyDLPack(spread(rows.astype(np.float16))),
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_go_in(batch: pagedkv.Batch, form: str) -> None:
    k, v = stored(batch, FORMS[form](K), FORMS[form](V))
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
    outputs = pagedkv.AttentionOutputs(lse=lse)
    batch.attend(0, numbers(ROWS, QUERY_HEADS, DIM), outputs=outputs)
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
            np.lib.stride_tricks.as_strided(K, K.shape, (64, 64, 4)),
            "row_stride 16, head_stride 16 and batch_stride 0 the 5 rows of 2 heads of 16 overlap",
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
    with pytest.raises(TypeError, match=r"k: a \w+ is not an array"):
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
    for wrong in ([1.5] * ROWS, [[1] * ROWS], [2**31] * ROWS):
        with pytest.raises(pagedkv.MisuseError, match="tokens: "):
            batch.commit(wrong)  # type: ignore[arg-type]
    for n in (0, ROWS + 1):
        with pytest.raises(pagedkv.MisuseError, match=f"{n} entries; the batch has {ROWS} rows"):
            batch.commit([1] * n)
    batch.commit(np.arange(ROWS, dtype=np.int64))
    assert batch.sessions[0].tokens().tolist() == list(range(ROWS))


def test_values_inside_keys() -> None:
    k = numbers(2, 1, 32)
    views = (
        pagedkv.KVView.allocate(1, 16, 1, 32, 16, latent=True),
        pagedkv.KVView.of_arrays(np.zeros((16, 1, 32), np.float32), None, 16),
    )
    table = np.zeros((1, 1), np.uint32)
    for view in views:
        pagedkv.kv_write(view, k, None, [2], [2], table)
        out = pagedkv.kv_attend(view, np.zeros((2, 1, 32), np.float32), [2], [2], table, 1)
        np.testing.assert_array_equal(out[0, 0], k[0, 0, : out.shape[2]])
        np.testing.assert_array_equal(out[1, 0], k[:, 0, : out.shape[2]].mean(axis=0))


def test_numbers_are_not_cut_off(cache: pagedkv.Cache) -> None:
    session = cache.open_session()
    for call in (
        lambda: session.trim(-1),
        lambda: session.block_table(2**32),
        lambda: session.set_priority(2**31),
        lambda: cache.begin([session], [2**32]),
        lambda: cache.begin([session], [-1]),
        lambda: pagedkv.AttentionParams(window=-1).build(BatchRows([1], "rows"), 1, 1),
        lambda: pagedkv.CacheConfig(layers=2**32).sizes(),
    ):
        with pytest.raises(pagedkv.MisuseError, match="is not between"):
            call()
    session.close()


def test_stateless_attention_over_own_arrays() -> None:
    """Compares two sequences over blocks of 4 in any order with a plain softmax."""
    k, v = (np.random.default_rng(1).standard_normal((24, 2, 16), np.float32) for _ in range(2))
    q = np.random.default_rng(2).standard_normal((3, 4, 16), np.float32)
    tables = np.array([[5, 0, 3], [1, 4, 0]], np.uint32)
    view = pagedkv.KVView.of_arrays(k, v, block_size=4)
    lse = np.empty((3, 4), np.float32)
    outputs = pagedkv.AttentionOutputs(lse=lse)
    out = pagedkv.kv_attend(view, q, [1, 2], [9, 6], tables, query_heads=4, outputs=outputs)
    for row, (table, end) in enumerate([(tables[0], 9), (tables[1], 5), (tables[1], 6)]):
        slots = np.concatenate([np.arange(4) + 4 * block for block in table])[:end]
        seen = q[row : row + 1], k[slots], v[slots], np.ones((1, 1, end), bool)
        # Sums of 16 products of normal numbers: scores are off by about 1e-6.
        np.testing.assert_allclose(out[row : row + 1], attention(*seen), atol=2e-5)
        scores = np.einsum("hd,thd->ht", q[row], np.repeat(k[slots], 2, axis=1)) / 4
        np.testing.assert_allclose(lse[row], np.log(np.exp(scores).sum(axis=1)), atol=2e-5)
    first = pagedkv.kv_attend(view, q[:1], [1], [9], tables[:1], query_heads=4)
    merged, _ = pagedkv.attention_merge([first, first], [lse[:1], lse[:1]], 1, 4, 16)
    np.testing.assert_allclose(merged, first, atol=1e-6)


def test_stateless_attention_over_a_cache(cache: pagedkv.Cache) -> None:
    session = cache.open_session()
    with cache.begin([session], [ROWS]) as batch:
        batch.write(0, K, V)
        q = numbers(ROWS, QUERY_HEADS, DIM)
        expected = batch.attend(0, q)
        batch.commit()
    table = session.block_table()[None]
    out = pagedkv.kv_attend(cache.kv_view(0), q, [ROWS], [ROWS], table, query_heads=QUERY_HEADS)
    np.testing.assert_array_equal(out, expected)
    session.close()


def padded(rows: Any, lengths: list[int], n: int, left: bool = False) -> Any:
    """[sequences][n][heads][dim], with NaN for padding."""
    found = np.full((len(lengths), n, *rows.shape[1:]), np.nan, rows.dtype)
    at = 0
    for i, length in enumerate(lengths):
        first = n - length if left else 0
        found[i, first : first + length] = rows[at : at + length]
        at += length
    return found


def dense(rows: Any, lengths: list[int], left: bool = False) -> Any:
    n = rows.shape[1]
    pairs = zip(rows, lengths, strict=True)
    return np.concatenate([one[n - length :] if left else one[:length] for one, length in pairs])


@pytest.mark.parametrize("dtype", [pagedkv.Dtype.F32, pagedkv.Dtype.INT8])
@pytest.mark.parametrize("layout", list(pagedkv.Layout))
def test_memory_of_ones_own(dtype: pagedkv.Dtype, layout: pagedkv.Layout) -> None:
    """Writes rows and attends to them as in a cache, packed and padded, by slots and by
    sequences."""
    lengths, tables = [5, 1], np.array([[3], [0]], np.uint32)
    k, v, q = numbers(6, 2, 16), numbers(6, 2, 16)[::-1].copy(), numbers(6, 4, 16)
    with pagedkv.Cache(small(query_heads=4, kv_heads=2, dtype=dtype, layout=layout)) as cache:
        sessions = [cache.open_session() for _ in lengths]
        with cache.begin(sessions, lengths) as batch:
            batch.write(0, k, v)
            expected = batch.attend(0, q)
            wide = batch.attend(0, padded(q, lengths, 7))
            np.testing.assert_array_equal(dense(wide, lengths), expected)
            batch.set_first_rows([2, 6])
            batch.write(0, padded(k, lengths, 7, left=True), padded(v, lengths, 7, left=True))
            wide = batch.attend(0, padded(q, lengths, 7, left=True))
            np.testing.assert_array_equal(dense(wide, lengths, left=True), expected)
            with pytest.raises(pagedkv.MisuseError, match="first_rows: 2 are needed, 1 are there"):
                batch.set_first_rows([1])
            batch.set_first_rows(None)
        for session in sessions:
            session.close()
    with pagedkv.Compute(threads=1) as compute:
        assert compute.info().threads == 1
        view = pagedkv.KVView.allocate(4, 16, 2, 16, dtype=dtype, layout=layout)
        pagedkv.kv_write_slots(view, [48, 49, 50, 51, 52, 0], k, v, compute=compute)
        out = pagedkv.kv_attend(view, q, lengths, lengths, tables, 4, compute=compute)
        np.testing.assert_array_equal(out, expected)
        read_k, _ = pagedkv.kv_read_slots(view, [49, pagedkv.NO_SLOT])
        np.testing.assert_allclose(read_k[0], k[1], atol=0.05)
        assert not read_k[1].any()

        again = pagedkv.KVView.allocate(4, 16, 2, 16, dtype=dtype, layout=layout)
        heads_first = padded(k, lengths, 7, left=True).transpose(0, 2, 1, 3).copy()
        pagedkv.kv_write(
            again,
            heads_first.transpose(0, 2, 1, 3),  # [sequences][heads][n][dim] in memory
            padded(v, lengths, 7, left=True),
            lengths,
            lengths,
            tables,
            first_rows=[2, 6],
        )
        wide = pagedkv.kv_attend(
            again, padded(q, lengths, 7), lengths, lengths, tables, 4, first_rows=[0, 0]
        )
        np.testing.assert_array_equal(dense(wide, lengths), expected)


@pytest.mark.parametrize("order", itertools.permutations(range(3)))
def test_axes_in_any_order(order: tuple[int, ...]) -> None:
    """Sequences, rows and heads may lie within each other in memory in any order, as in
    [rows][sequences][heads][dim], and give the same bits without a copy."""

    def placed(rows: Any, axes: tuple[int, ...]) -> Any:
        last = len(axes)
        found = np.ascontiguousarray(rows.transpose(*axes, last))
        return found.transpose(*np.argsort(axes), last)

    lengths, tables = [5, 3], np.array([[3], [0]], np.uint32)
    k, v, q = numbers(8, 2, 16), numbers(8, 2, 16)[::-1].copy(), numbers(8, 4, 16)
    with pagedkv.Cache(small(query_heads=4, kv_heads=2)) as cache:
        sessions = [cache.open_session() for _ in lengths]
        with cache.begin(sessions, lengths) as batch:
            batch.write(0, k, v)
            expected = batch.attend(0, q)
            zeros = np.zeros_like(k)
            batch.write(0, zeros, zeros)
            wide = [placed(padded(rows, lengths, 5), order) for rows in (k, v, q)]
            out = placed(np.full((2, 5, 4, 16), np.nan, np.float32), order)
            batch.write(0, wide[0], wide[1])
            batch.attend(0, wide[2], out=out)
            np.testing.assert_array_equal(dense(out, lengths), expected)
            heads_first = [placed(rows, (1, 0)) for rows in (k, v, q)]
            batch.write(0, zeros, zeros)
            batch.write(0, heads_first[0], heads_first[1])
            np.testing.assert_array_equal(batch.attend(0, heads_first[2]), expected)
        for session in sessions:
            session.close()
    view = pagedkv.KVView.allocate(4, 16, 2, 16)
    pagedkv.kv_write(view, wide[0], wide[1], lengths, lengths, tables)
    attended = pagedkv.kv_attend(view, wide[2], lengths, lengths, tables, 4)
    np.testing.assert_array_equal(dense(attended, lengths), expected)


def test_masks_and_positions() -> None:
    """Keys are zeros and values are row numbers, so outputs are means of the numbers of the rows
    seen."""
    view = pagedkv.KVView.allocate(2, 16, 1, 16)
    zeros = np.zeros((4, 1, 16), np.float32)
    values = zeros + np.arange(4, dtype=np.float32)[:, None, None]
    table = np.array([[1]], np.uint32)
    pagedkv.kv_write(view, zeros, values, [4], [4], table)

    def means(*args: Any, **given: Any) -> list[float]:
        return list(pagedkv.kv_attend(view, zeros, [4], [4], table, 1, *args, **given)[:, 0, 0])

    assert means() == [0, 0.5, 1, 1.5]
    params = pagedkv.AttentionParams
    assert means(params=params(mask=pagedkv.TreeMask([-1, 0, -1, 2]))) == [0, 0.5, 2, 2.5]
    hidden = pagedkv.BoolMask(np.array([[[False, True, True, True]]]))
    assert means(params=params(mask=hidden)) == [0, 1, 1.5, 2]
    left = pagedkv.BoolMask(np.ones((1, 4, 6), np.uint8), first_positions=[-2])
    assert means(params=params(mask=left)) == means()
    with np.errstate(divide="ignore"):
        added = np.log([[[1, 2, 4, 9], [1, 2, 1, 9], [9, 9, 9, 9], [0, 1, 0, 3]]])
    for numbers in (added.astype(np.float16), added.astype(np.float32)):
        mask = pagedkv.AdditiveMask(numbers, head_factors=[1])
        np.testing.assert_allclose(
            means(params=params(mask=mask)), [0, 2 / 3, 1, (1 + 3 * 3) / 4], rtol=1e-3
        )
    twice = pagedkv.AdditiveMask(added[:, 1:2].astype(np.float32), head_factors=[2])
    assert means(params=params(mask=twice))[1] == pytest.approx(0.8)
    assert means(query_positions=[3, 2, 1, 0]) == [1.5, 1, 0.5, 0]
    for wrong, message in (
        (params(mask=pagedkv.TreeMask([0])), "parents: 4 are needed, 1 are there"),
        (params(mask=pagedkv.BoolMask(np.ones((1, 3, 4), bool))), r"\[1\]\[4\]\[columns\]"),
        (params(mask=pagedkv.BoolMask(np.ones((2, 4, 4), bool))), r"\[1\]\[4\]\[columns\]"),
        (params(mask=pagedkv.BoolMask(np.ones((1, 4, 3), bool))), "3 columns"),
        (params(mask=pagedkv.AdditiveMask(np.ones((1, 4, 4)))), "of float16 or float32 are needed"),
        (
            params(mask=pagedkv.AdditiveMask(np.ones((1, 4, 4), np.float32), head_factors=[1, 2])),
            r"head_factors: \[1\] are needed",
        ),
    ):
        with pytest.raises(pagedkv.MisuseError, match=message):
            means(params=wrong)
    with pytest.raises(pagedkv.MisuseError, match="query_positions must be 4 integers; this is"):
        means(query_positions=[1])
    with pytest.raises(pagedkv.MisuseError, match=r"needed, the array is \[2\]\[4\]\[1\]\[16\]"):
        pagedkv.kv_attend(view, np.zeros((2, 4, 1, 16), np.float32), [4], [4], table, 1)
    same, tables = np.broadcast_to(zeros, (2, 4, 1, 16)), np.array([[0], [1]], np.uint32)
    with pytest.raises(pagedkv.MisuseError, match="the other strides positive"):
        pagedkv.kv_write(view, same, values, [2, 2], [2, 2], tables)
    with pytest.raises(pagedkv.MisuseError, match="the slot of row 1 is 32"):
        pagedkv.kv_write_slots(view, [0, 32, 1, 2], zeros, values)
    with pytest.raises(pagedkv.MisuseError):
        pagedkv.KVView.allocate(4, 24, 1, 16)


def test_what_is_cached_is_known_without_a_session() -> None:
    with pagedkv.Cache(small(prefix=pagedkv.PrefixConfig())) as cache:
        text = list(range(40))
        assert cache.prefix_probe(text) == 0
        rows = np.zeros((40, 1, 16), np.float32)
        with cache.open_session() as session, cache.begin([session], [40]) as batch:
            batch.write(0, rows, rows)
            batch.commit(text)
        before = cache.prefix_stats()
        assert cache.prefix_probe(text) == 32
        assert cache.prefix_probe(text[:20]) == 16
        assert cache.prefix_probe(text, salt=b"another") == 0
        assert cache.prefix_stats() == before


def read_only_map(rows: Any) -> Any:
    """In pages that cannot be written: a write ends the process."""
    memory = mmap.mmap(-1, rows.nbytes)
    memory.write(rows.tobytes())
    memory.flush()
    found = np.frombuffer(memory, rows.dtype).reshape(rows.shape)
    if not ON_WINDOWS:
        address = ctypes.c_void_p(found.__array_interface__["data"][0])
        assert ctypes.CDLL(None).mprotect(address, rows.nbytes, 1) == 0  # PROT_READ
    found.flags.writeable = False
    return found


@pytest.mark.parametrize(
    "made",
    [
        read_only,
        read_only_map,
        lambda rows: np.frombuffer(rows.tobytes(), rows.dtype).reshape(rows.shape),
        lambda rows: memoryview(rows.tobytes()).cast("B").cast("f", rows.shape),
        lambda rows: OnlyDLPackShaped(read_only(rows)),
    ],
    ids=["array", "pages", "bytes", "buffer", "dlpack"],
)
@pytest.mark.parametrize("which", ["k", "v"])
def test_a_view_of_read_only_arrays_is_read_but_not_written(made: Any, which: str) -> None:
    arrays = {name: numbers(16, KV_HEADS, DIM) for name in ("k", "v")}
    arrays[which] = made(arrays[which])
    view = pagedkv.KVView.of_arrays(**arrays, block_size=16)
    k, v = pagedkv.kv_read_slots(view, range(ROWS))
    np.testing.assert_array_equal(k, numbers(16, KV_HEADS, DIM)[:ROWS])
    q, lengths = numbers(ROWS, QUERY_HEADS, DIM), [ROWS]
    pagedkv.kv_attend(view, q, lengths, lengths, [[0]], QUERY_HEADS)
    refuses_writes(view, "its arrays are read only")
    np.testing.assert_array_equal(pagedkv.kv_read_slots(view, range(ROWS)), (k, v))


class OnlyDLPackShaped(OnlyDLPack):
    @property
    def shape(self) -> Any:
        return self.rows.shape


def refuses_writes(view: pagedkv.KVView, reason: str) -> None:
    with pytest.raises(pagedkv.MisuseError, match=f"the view cannot be written: {reason}"):
        pagedkv.kv_write(view, K + 1, V + 1, [ROWS], [ROWS], [[0]])
    with pytest.raises(pagedkv.MisuseError, match=f"the view cannot be written: {reason}"):
        pagedkv.kv_write_slots(view, range(ROWS), K + 1, V + 1)


def test_the_memory_of_a_cache_is_only_written_by_batches(batch: pagedkv.Batch) -> None:
    stored(batch, K, V)
    batch.commit(range(ROWS))
    session = batch.sessions[0]
    view = pagedkv.KVView.of_cache(session.cache, 0)
    slots = session.block_table()[0] * 16 + np.arange(ROWS)
    np.testing.assert_array_equal(pagedkv.kv_read_slots(view, slots)[0], K)
    refuses_writes(view, "it shows a cache's memory, which only batches may write")
    np.testing.assert_array_equal(session.read(0)[0], K)
