"""Compares the operators of pagedkv.torch with PyTorch's own attention. Needs torch."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pagedkv  # noqa: E402
import pagedkv.torch as paged  # noqa: E402
from pagedkv import Dtype  # noqa: E402

OPS = torch.ops.pagedkv
BLOCK, KV_HEADS, HEADS, DIM = 16, 2, 8, 64
LENGTHS, QUERIES = (5, 37, 100), (1, 4, 100)
# The accepted difference from results over the exact tensors, by stored type.
STORED: dict[Any, float] = {
    torch.float32: 1e-5,
    torch.float16: 3e-3,
    torch.bfloat16: 2e-2,
    torch.float8_e4m3fn: 0.25,
    torch.float8_e5m2: 0.5,
    Dtype.INT8: 0.04,
    Dtype.INT4: 0.6,
}


class Case:
    """Three sequences in blocks of any order."""

    def __init__(self, stored: Any = torch.float32, packed: bool = True, rows: Any = None) -> None:
        torch.manual_seed(0)
        rows = rows or torch.float32
        self.cache = paged.new_cache(32, BLOCK, KV_HEADS, DIM, stored, packed=packed)
        self.tables = torch.randperm(32, dtype=torch.int32)[:21].reshape(3, 7)
        self.slots = torch.cat(
            [
                self.tables[i].long()[torch.arange(n) // BLOCK] * BLOCK + torch.arange(n) % BLOCK
                for i, n in enumerate(LENGTHS)
            ]
        )
        self.k, self.v = torch.randn(2, sum(LENGTHS), KV_HEADS, DIM).to(rows)
        self.query = torch.randn(sum(QUERIES), HEADS, DIM).to(rows)
        self.lengths = torch.tensor(QUERIES, dtype=torch.int32), torch.tensor(LENGTHS)
        paged.write_slots(*self.cache, self.k, self.v, self.slots)

    @property
    def arguments(self) -> tuple[Any, ...]:
        return self.query, *self.cache, self.tables, *self.lengths

    def expected(self, window: int = 0, sink_tokens: int = 0, causal: bool = True) -> Any:
        outs = []
        for i, (n, total) in enumerate(zip(QUERIES, LENGTHS, strict=True)):
            query = self.query.split(QUERIES)[i]
            key, value = self.k.split(LENGTHS)[i], self.v.split(LENGTHS)[i]
            at, to = torch.arange(total - n, total)[:, None], torch.arange(total)
            seen = to <= at if causal else torch.ones(n, total, dtype=torch.bool)
            if window:
                near = at - to < window if causal else (at - to).abs() < window
                seen &= near | (to < sink_tokens)
            out = torch.nn.functional.scaled_dot_product_attention(
                *(rows.transpose(0, 1).float() for rows in (query, key, value)),
                attn_mask=seen,
                enable_gqa=True,
            )
            outs.append(out.transpose(0, 1))
        return torch.cat(outs)


def distance(a: Any, b: Any) -> float:
    return float((a.float() - b.float()).abs().max())


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("stored", STORED, ids=str)
def test_results_are_those_of_pytorch(stored: Any, packed: bool) -> None:
    if isinstance(stored, Dtype) and not packed:
        with pytest.raises(pagedkv.MisuseError, match="not stored"):
            Case(stored, packed)
        return
    case = Case(stored, packed)
    out = paged.attention(*case.arguments)
    assert distance(out, case.expected()) < STORED[stored]
    assert torch.equal(out, OPS.attention(*case.arguments))


@pytest.mark.parametrize("rows", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_rows_of_any_type_and_strides(rows: Any) -> None:
    case = Case(rows, rows=rows)
    tolerance = 2 * STORED[rows]
    assert distance(paged.attention(*case.arguments), case.expected()) < tolerance
    case.query = case.query.transpose(0, 1).contiguous().transpose(0, 1)
    wide = torch.zeros(len(case.query), HEADS, 2 * DIM, dtype=rows)
    out = paged.attention(*case.arguments, out=wide[..., :DIM])
    assert out.data_ptr() == wide.data_ptr()
    assert distance(wide[..., :DIM], case.expected()) < tolerance
    assert not wide[..., DIM:].any()


def test_rules() -> None:
    case = Case()
    some: tuple[dict[str, Any], ...] = ({"window": 9}, {"window": 9, "sink_tokens": 3})
    for rules in (*some, {"causal": False}, {"causal": False, "window": 2, "sink_tokens": 3}):
        assert distance(paged.attention(*case.arguments, **rules), case.expected(**rules)) < 1e-5
    plain = paged.attention(*case.arguments)
    assert distance(paged.attention(*case.arguments, scale=0.5), plain) > 0.1
    assert distance(paged.attention(*case.arguments, softcap=0.5), plain) > 0.1
    slopes = torch.full((HEADS,), -1.0)
    assert distance(paged.attention(*case.arguments, alibi_slopes=slopes), plain) > 0.1
    lse = torch.empty(len(case.query), HEADS)
    logits = torch.randn(HEADS, dtype=torch.bfloat16)
    paged.attention(*case.arguments, lse=lse)
    out = paged.attention(*case.arguments, sink_logits=logits)
    assert distance(out, plain * (lse - logits.float()).sigmoid()[..., None]) < 1e-5
    starts = torch.tensor([2, 7, 15], dtype=torch.int32)
    rows = torch.cat([torch.arange(n) + at for n, at in zip(QUERIES, starts, strict=True)])
    apart = torch.zeros(120, HEADS, DIM)
    apart[rows] = case.query
    out = paged.attention(apart, *case.arguments[1:], query_starts=starts)
    assert torch.equal(out[rows], plain)
    last = torch.cat([torch.arange(t - n, t) for n, t in zip(QUERIES, LENGTHS, strict=True)])
    assert torch.equal(paged.attention(*case.arguments, query_positions=last), plain)


def test_merged_states() -> None:
    """Merges results over the first 32 positions of a sequence and over the others."""
    case = Case()
    query, tables = case.query[37:], case.tables[2:]  # at positions 32 to 99
    n, length = torch.tensor([68], dtype=torch.int32), torch.tensor([100])
    whole, sums = OPS.attention_with_lse(query, *case.cache, tables, n, length)
    first = OPS.attention_with_lse(
        query, *case.cache, tables, n, length - 68, query_positions=torch.arange(32, 100)
    )
    rest = OPS.attention_with_lse(query, *case.cache, tables[:, 2:], n, length - 32)
    out, lse = paged.attention_merge(*zip(first, rest, strict=True))
    assert distance(out, whole) < 1e-5
    assert distance(lse, sums) < 1e-5


def test_operators_keep_what_their_schemas_say() -> None:
    case = Case()
    given = case.arguments
    out, lse = OPS.attention_with_lse(*given)
    pair = [out, out + 1], [lse, lse + 1]
    torch.library.opcheck(OPS.write_slots.default, (*case.cache, case.k, case.v, case.slots))
    torch.library.opcheck(OPS.attention.default, given)
    torch.library.opcheck(OPS.attention.out, given, {"out": out, "lse": lse})
    torch.library.opcheck(OPS.attention_with_lse.default, given)
    torch.library.opcheck(OPS.attention_merge.default, pair)
    packed = Case(Dtype.INT8)
    torch.library.opcheck(OPS.attention.default, packed.arguments)


def test_they_compile_without_a_break() -> None:
    case = Case()

    def layer(k_cache: Any, v_cache: Any, key: Any, query: Any) -> Any:
        paged.write_slots(k_cache, v_cache, key * 2, case.v, case.slots)
        out = paged.attention(query + 1, k_cache, v_cache, case.tables, *case.lengths, window=50)
        return out.tanh()

    caches = [tuple(one.clone() for one in case.cache) for _ in range(2)]
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    results = [
        run(*cache, case.k, case.query)
        for run, cache in zip((layer, compiled), caches, strict=True)
    ]
    assert torch.equal(*results)
    assert torch.equal(caches[0][0], caches[1][0])
    assert not torch.equal(caches[0][0], case.cache[0])


def wrong(case: Case, **changed: Any) -> Any:
    names = ("query", "k_cache", "v_cache", "block_tables", "query_lengths", "kv_lengths")
    return paged.attention(**{**dict(zip(names, case.arguments, strict=True)), **changed})


def test_wrong_arguments_get_sentences() -> None:
    case = Case()
    for sentence, changed in {
        "float32, float16 or bfloat16 are needed, this is torch.int64": {"query": torch.arange(3)},
        r"query: \[rows\]\[heads\]\[dim\]": {"query": case.query[0]},
        r"not a cache of head dim 32": {"query": case.query[..., :32]},
        "dims must be side by side": {"query": case.query.transpose(1, 2)},
        "rows apart": {"query": case.query[:1].expand(105, -1, -1)},
        r"7 query heads": {"query": case.query[:, :7]},
        r"query: 104 rows; query_lengths \[1, 4, 100\] need 105": {"query": case.query[1:]},
        "do not fit together": {"v_cache": case.cache[1][:, :, :1]},
        r"v_cache: torch.float32 \[32, 1, 2\]": {"v_cache": case.cache[1][..., 0]},
        "block_tables: int32 or int64 of 2 dimensions": {"block_tables": case.tables[0]},
        "3 query_lengths, 3 kv_lengths, 2 block_tables": {"block_tables": case.tables[:2]},
        "kv_lengths: int32 or int64": {"kv_lengths": case.lengths[1].float()},
        "block table is 99": {"block_tables": torch.full((3, 7), 99)},
        "window: -1": {"window": -1},
        "sink_logits: one for each of 8": {"sink_logits": torch.zeros(7)},
        r"lse: dense float32 \[105\]\[8\]": {"lse": torch.zeros(8, 105)},
        "out is": {"out": case.query[1:].clone()},
        "do not fit into 32 bits": {"query_lengths": torch.tensor([1, 4, 2**40])},
        "query_positions: 105 are needed": {"query_positions": torch.arange(3)},
        "query_starts: -1": {"query_starts": torch.tensor([-1, 0, 5])},
    }.items():
        with pytest.raises(pagedkv.MisuseError, match=sentence):
            wrong(case, **changed)
    with pytest.raises(pagedkv.PagedKVError, match="113 positions in 8 blocks"):
        wrong(case, kv_lengths=torch.tensor([5, 37, 113]))
    with pytest.raises(pagedkv.MisuseError, match="the slot of row 0 is 512"):
        paged.write_slots(*case.cache, case.k[:1], case.v[:1], torch.tensor([512]))
    with pytest.raises(pagedkv.MisuseError, match="key: slots and k_cache need 3 rows of 2 heads"):
        paged.write_slots(*case.cache, case.k, case.v, case.slots[:3])
    with pytest.raises(pagedkv.MisuseError, match="multiple of 16"):
        paged.new_cache(4, 20, 2, 64)
    with pytest.raises(pagedkv.MisuseError, match="one or more of each"):
        paged.attention_merge([], [])
    meta = case.query.to("meta")
    for call in (
        lambda: paged.attention_merge([meta], [torch.zeros(105, 8)]),
        lambda: paged.attention_merge([case.query], [meta[..., 0]]),
        lambda: paged.write_slots(*case.cache, meta, case.v, case.slots),
        lambda: wrong(case, query=meta),
    ):
        with pytest.raises(pagedkv.MisuseError, match="on CPUs; a tensor is on meta"):
            call()


def test_the_example_of_the_readme() -> None:
    readme = pathlib.Path(__file__).resolve().parents[1] / "README.md"
    (example,) = re.findall(r"^```py\n(.*?)^```", readme.read_text(), re.M | re.S)
    names: dict[str, Any] = {}
    exec(compile(example, "README.md", "exec"), names)
    assert names["out"].shape == (3, 8, 64)


def test_as_many_threads_as_pytorch() -> None:
    case, threads = Case(), torch.get_num_threads()
    whole = paged.attention(*case.arguments)
    try:
        torch.set_num_threads(1)
        assert torch.equal(paged.attention(*case.arguments), whole)
    finally:
        torch.set_num_threads(threads)
