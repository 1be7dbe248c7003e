"""Every integer and every list of integers that the package takes, in each type of NumPy and
PyTorch.

What comes of a call depends on the numbers, never on their type: a check and C must see the same
conversion of an argument. So each call is made with Python's integers first, and all types must
give the same result or the same error. Lists and rows end at a page that cannot be accessed, so
what reads or writes beyond them ends the process; so the calls run in a child.

PKV_ROUNDS=2 also tries the neighbours of each limit, in all types that hold them.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import inspect
import mmap
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import numpy as np
import pytest
from helpers import output, small

import pagedkv
from pagedkv import _structs
from pagedkv._handle import sized
from pagedkv.generated import raw

TYPES = [np.dtype(f"{sign}{size}") for sign in "iu" for size in (1, 2, 4, 8)]
LONG = int(os.environ.get("PKV_ROUNDS", "1")) > 1
PAGE = mmap.PAGESIZE
if sys.platform == "win32":
    pytest.skip("its protected pages are made with mprotect", allow_module_level=True)
LIBC = ctypes.CDLL(None)


def guarded(array: Any) -> Any:
    """A copy that ends at a page that cannot be accessed."""
    array = np.ascontiguousarray(array)
    size = -(-max(array.nbytes, 1) // PAGE) * PAGE
    memory = mmap.mmap(-1, size + PAGE)
    found = np.frombuffer(memory, array.dtype, array.size, size - array.nbytes)
    found = found.reshape(array.shape)
    end = found.__array_interface__["data"][0] + array.nbytes
    assert LIBC.mprotect(ctypes.c_void_p(end), PAGE, 0) == 0
    found[...] = array
    return found


def room(n: int, heads: int, value: float = -1.0) -> Any:
    return guarded(np.full((n, heads, 16), value, np.float32))


@functools.cache
def rows(n: int, heads: int, value: float = 1.0) -> Any:
    found = room(n, heads, value)
    found.flags.writeable = False
    return found


# ---- Calls with one integer


def cache(**changed: Any) -> pagedkv.Cache:
    fields = {"prefix": pagedkv.PrefixConfig(max_events=16), "layers": 2}
    return pagedkv.Cache(small(**fields | {"threads": 1} | changed))


def in_session(use: Callable[[pagedkv.Session, Any], Any]) -> Callable[[Any], Any]:
    """With a session of 40 tokens, the result and the length afterwards."""

    def call(value: Any) -> Any:
        with cache() as made, made.open_session() as session:
            with made.begin([session], [40]) as batch:
                for layer in range(2):
                    batch.write(layer, rows(40, 1), rows(40, 1))
                batch.commit(list(range(40)))
            return use(session, value), len(session), session.tokens(0, 3)

    return call


def events_from(read: Callable[[], Any]) -> Any:
    """What is lost, or the status: numbers of events, which are in messages, are random."""
    try:
        return read().lost
    except pagedkv.MisuseError as error:
        if error.status != pagedkv.Status.OUT_OF_RANGE:
            raise
        return error.status


def in_batch(use: Callable[[pagedkv.Batch, Any], Any]) -> Callable[[Any], Any]:
    """With a step of two sessions, 3 and 2 tokens."""

    def call(value: Any) -> Any:
        with cache() as made, made.open_session() as one, made.open_session() as two:
            with made.begin([one, two], [3, 2]) as batch:
                found = use(batch, value)
            return found, len(one), len(two)

    return call


def in_states(use: Callable[[pagedkv.Session, pagedkv.Batch, Any], Any]) -> Callable[[Any], Any]:
    groups = [
        pagedkv.LayerGroup(layers=1, query_heads=2, kv_heads=1, key_dim=16, blocks=16),
        pagedkv.LayerGroup(layers=1, kind="states", layer_bytes=64, blocks=16),
    ]

    def call(value: Any) -> Any:
        config = pagedkv.CacheConfig(groups=groups)
        with (
            pagedkv.Cache(config) as made,
            made.open_session() as session,
            made.begin([session], [3]) as batch,
        ):
            return use(session, batch, value)

    return call


def write_both(batch: pagedkv.Batch, layer: Any) -> Any:
    batch.write(layer, rows(5, 1), rows(5, 1))
    return batch.sessions[0].read(1, 0, 3)[0].ravel()


def attend_of(batch: pagedkv.Batch, layer: Any) -> Any:
    batch.write(1, rows(5, 1), rows(5, 1, 2.0))
    return batch.attend(layer, rows(5, 2), room(5, 2))


def accept_of(batch: pagedkv.Batch, i: Any) -> Any:
    for layer in range(2):
        batch.write(layer, rows(5, 1), rows(5, 1))
    batch.accept(i, [0])
    batch.commit(list(range(5)))
    return "accepted"


def state_after(session: pagedkv.Session, batch: pagedkv.Batch, layer: int, tokens: Any) -> Any:
    batch.write(0, rows(3, 1), rows(3, 1))
    for state in batch.states(1)[0].after:
        state[:] = 7
        del state  # an error would keep it, and so the cache's memory
    batch.commit([1, 2, 3])
    return session.state(layer, tokens)


def with_cache(use: Callable[[pagedkv.Cache, Any], Any]) -> Callable[[Any], Any]:
    def call(value: Any) -> Any:
        with cache() as made:
            return use(made, value)

    return call


def pooled(use: Callable[[pagedkv.Pool, int, Any], Any]) -> Callable[[Any], Any]:
    def call(value: Any) -> Any:
        with pagedkv.Pool(8) as pool:
            return use(pool, int(pool.alloc(2)[0]), value)

    return call


def view_of(block_size: Any) -> Any:
    k = room(16, 1)
    view = pagedkv.KVView.of_arrays(k, None, block_size)
    fields = "blocks", "block_size", "k_block_stride"
    pagedkv.kv_write_slots(view, [1, 15], rows(2, 1, 3.0))
    return [getattr(view.struct, name) for name in fields], k[[1, 15], 0, 0]


def merged(n: Any, heads: Any, dim: Any) -> Any:
    outs = [guarded(np.full((3, 2, 16), i, np.float32)) for i in range(2)]
    lse = [guarded(np.zeros((3, 2), np.float32)) for _ in outs]
    return pagedkv.attention_merge(outs, lse, n, heads, dim)


def attended(**given: Any) -> Any:
    """kv_attend() over two sequences of 3 and 2 queries."""
    view = pagedkv.KVView.of_arrays(rows(16, 1), rows(16, 1, 2.0), 4)
    lists: dict[str, Any] = {
        "q": rows(5, 2),
        "query_lengths": [3, 2],
        "kv_lengths": [5, 7],
        "block_tables": [[0, 1], [2, 3]],
        "query_heads": 2,
        "out": room(5, 2),
    }
    return pagedkv.kv_attend(view, **lists | given)


def allocated(field: str, value: Any) -> Any:
    # Small, because the most heads take 65535 times as much.
    shape: dict[str, Any] = {"blocks": 1, "block_size": 16, "kv_heads": 1, "key_dim": 16}
    return repr(pagedkv.KVView.allocate(**shape | {field: value}))


def created(field: str, value: Any) -> Any:
    config = small(**{field: value})
    with pagedkv.Cache(config) as made:
        return made.layer_shape(0), made.pool_stats().blocks


def hinted(**given: Any) -> Any:
    def of_session(session: pagedkv.Session, value: Any) -> Any:
        return session.hint("set_retention", **{name: value for name in given})

    def of_text(session: pagedkv.Session, value: Any) -> Any:
        return session.cache.hint("set_retention", range(40), **{name: value for name in given})

    return {
        f"{kind}.hint.{name}": (in_session(use), given[name])
        for kind, use in (("Session", of_session), ("Cache", of_text))
        for name in given
    }


def loaded(session: pagedkv.Session, most: Any) -> Any:
    made = cast(pagedkv.Cache, session.cache)
    file = cast(bytes, pagedkv.save(made, [session]))
    return len(pagedkv.load(made, file, max_tokens=most))


# By argument: a call and a number for which it succeeds.
SCALARS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "Session.tokens.first": (in_session(lambda s, v: s.tokens(v)), 3),
    "Session.tokens.n": (in_session(lambda s, v: s.tokens(2, v)), 5),
    "Session.set_tokens.first": (in_session(lambda s, v: s.set_tokens(v, [2])), 2),
    "Session.admit.total_tokens": (
        in_session(lambda s, v: cast(pagedkv.Cache, s.cache).open_session().admit([1, 2, 3], v)),
        100,
    ),
    "Session.reserve.total_tokens": (in_session(lambda s, v: s.reserve(v)), 100),
    "Session.trim.length": (in_session(lambda s, v: s.trim(v)), 7),
    "Session.trim_point.limit": (in_session(lambda s, v: s.trim_point(v)), 7),
    "Session.drop_blocks.group": (in_session(lambda s, v: s.drop_blocks([1], v)), 0),
    "Session.set_priority.priority": (in_session(lambda s, v: s.set_priority(v)), 7),
    "Session.block_table.group": (in_session(lambda s, v: len(s.block_table(v))), 0),
    "Session.read.layer": (in_session(lambda s, v: s.read(v)), 1),
    "Session.read.first": (in_session(lambda s, v: s.read(0, v)), 3),
    "Session.read.n": (in_session(lambda s, v: s.read(0, 2, v)), 5),
    "Session.state.layer": (in_states(lambda s, b, v: state_after(s, b, v, 3)), 1),
    "Session.state.tokens": (in_states(lambda s, b, v: state_after(s, b, 1, v)), 3),
    "Batch.write.layer": (in_batch(write_both), 1),
    "Batch.attend.layer": (in_batch(attend_of), 1),
    "Batch.states.layer": (in_states(lambda _s, b, v: len(b.states(v)[0].after)), 1),
    "Batch.state_blocks.group": (in_states(lambda _s, b, v: b.state_blocks(v).tokens), 1),
    "Batch.accept.i": (in_batch(accept_of), 1),
    "Batch.slot_mapping.group": (in_batch(lambda b, v: len(b.slot_mapping(v))), 0),
    "Batch.block_copies.group": (in_batch(lambda b, v: b.block_copies(v)), 0),
    "Batch.kv_indices.group": (in_batch(lambda b, v: b.kv_indices(v).indptr), 0),
    "Cache.layer_shape.layer": (with_cache(lambda c, v: c.layer_shape(v)), 1),
    "Cache.rows_shape.layer": (with_cache(lambda c, v: c.rows_shape(v)), 1),
    "Cache.group_of.layer": (with_cache(lambda c, v: c.group_of(v)), 1),
    "Cache.kv_view.layer": (with_cache(lambda c, v: repr(c.kv_view(v))), 1),
    "KVView.of_cache.layer": (with_cache(lambda c, v: repr(pagedkv.KVView.of_cache(c, v))), 1),
    "Cache.pool_stats.group": (with_cache(lambda c, v: c.pool_stats(v).blocks), 0),
    "Cache.open_session.priority": (with_cache(lambda c, v: len(c.open_session(priority=v))), 3),
    "Cache.prefix_set_quota.tokens": (with_cache(lambda c, v: c.prefix_set_quota(b"a", v)), 48),
    "Cache.prefix_events.first": (
        in_session(lambda s, v: events_from(lambda: s.cache.prefix_events(v))),
        0,
    ),
    "Cache.prefix_events.n": (in_session(lambda s, v: len(s.cache.prefix_events(0, v).events)), 2),
    "load.max_tokens": (in_session(loaded), 200),
    "Cache.read_events.first": (
        in_session(lambda s, v: events_from(lambda: s.cache.read_events(v, 9))),
        0,
    ),
    "Cache.read_events.n": (in_session(lambda s, v: s.cache.read_events(0, v).n), 2),
    # Without a store the numbers are checked, and then there is nothing to wait for.
    "Cache.flush_store.timeout_ms": (with_cache(lambda c, v: c.flush_store(timeout_ms=v)), -1),
    "Cache.wait_for_prefetch.timeout_ms": (
        with_cache(lambda c, v: c.wait_for_prefetch([1], timeout_ms=v)),
        -1,
    ),
    **hinted(first=1, end=33, duration_ms=5),
    "CacheConfig.sizes.group": (lambda v: small().sizes(v), 0),
    "LayerGroup.layer_numbers.first": (
        lambda v: list(pagedkv.LayerGroup(layers=3).layer_numbers(v)),
        200,
    ),
    "Compute.threads": (lambda v: pagedkv.Compute(v).info().threads, 1),
    "Pool.blocks": (lambda v: pagedkv.Pool(v).stats().blocks, 100),
    "Pool.alloc.n": (pooled(lambda p, _, v: len(p.alloc(v))), 3),
    "KVView.of_arrays.block_size": (view_of, 8),
    "attention_merge.rows": (lambda v: merged(v, 2, 16), 3),
    "attention_merge.heads": (lambda v: merged(3, v, 16), 2),
    "attention_merge.dim": (lambda v: merged(3, 2, v), 16),
    "kv_attend.query_heads": (lambda v: attended(query_heads=v), 2),
    "prefix_hash_blocks.block_size": (lambda v: pagedkv.prefix_hash_blocks(range(300), v), 16),
}
for field in ("blocks", "block_size", "kv_heads", "key_dim", "value_dim"):
    SCALARS[f"KVView.allocate.{field}"] = functools.partial(allocated, field), 32
# These would allocate what they are asked for.
MOST = {"Pool.blocks": 2**16, "kv_heads of a cache": 2**8}


def fields_of(kind: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(kind) if field.type == "int"]


def filled(kind: Any, struct: Any, name: str, **others: Any) -> Callable[[Any], Any]:
    """What C gets, the Python object, and how it is shown."""

    def call(value: Any) -> Any:
        made, given = kind(**others, **{name: value}), sized(struct)
        _structs.fill(given, made)
        return bytes(given), getattr(made, name), repr(made)

    return call


# Every field of every config.
CONFIGS: list[tuple[Any, Any, dict[str, Any]]] = [
    (pagedkv.CacheConfig, raw.CacheConfig, {}),
    (pagedkv.LayerGroup, raw.LayerGroup, {}),
    (pagedkv.PrefixConfig, raw.PrefixConfig, {}),
    (pagedkv.StoreConfig, raw.StoreConfig, {"store": pagedkv.DirectoryStore("/x")}),
    (pagedkv.DirectoryStore, raw.DirectoryConfig, {"path": "/x"}),
    (pagedkv.RedisStore, raw.RedisConfig, {}),
    (pagedkv.MooncakeStore, raw.Store, {}),
    (pagedkv.AttentionParams, raw.AttentionParams, {}),
    (pagedkv.ChosenBlocks, raw.ChosenBlocks, {}),
    (pagedkv.AttentionOutputs, raw.BlockOutputs, {}),
]
for kind, struct, others in CONFIGS:
    for field in fields_of(kind):
        SCALARS[f"{kind.__name__}.{field}"] = filled(kind, struct, field, **others), 3
# Those that Python computes with, too.
for field, good in (("query_heads", 16), ("kv_heads", 1), ("key_dim", 32), ("value_dim", 32)):
    SCALARS[f"{field} of a cache"] = functools.partial(created, field), good


# ---- Calls with a list of integers


def begun(new_tokens: Any) -> Any:
    """Writes and attends arrays of as many rows as there are new tokens, and of fewer ones."""
    found: list[Any] = []
    with cache(layers=1, blocks=128) as made:
        sessions = [made.open_session() for _ in range(2)]
        found.append(made.choose_victims(sessions, new_tokens))
        with made.begin(sessions, new_tokens) as batch:
            found += [batch.rows, repr(batch)]
            for n in (44, 300):
                found.append(outcome(batch.write, 0, rows(n, 1), rows(n, 1)))
                lse = guarded(np.zeros((n, 2), np.float32))
                outputs = pagedkv.AttentionOutputs(lse=lse)
                found.append(outcome(batch.attend, 0, rows(n, 2), room(n, 2), outputs=outputs))
            lists = guarded(np.zeros((300, 1, 2), np.uint32))
            params = pagedkv.AttentionParams(chosen_blocks=pagedkv.ChosenBlocks(lists=lists))
            found.append(outcome(batch.attend, 0, rows(300, 2), params=params))
            found.append(outcome(batch.commit, guarded(np.arange(300, dtype=np.int32))))
        found += [len(session) for session in sessions]
        for session in sessions:
            session.close()
    return found


def moved(first_rows: Any) -> Any:
    with cache(layers=1, blocks=128) as made:
        sessions = [made.open_session() for _ in range(2)]
        with made.begin(sessions, [250, 10]) as batch:
            batch.set_first_rows(first_rows)
            found = [outcome(batch.write, 0, rows(n, 1), rows(n, 1)) for n in (250, 260)]
            found.append(outcome(batch.attend, 0, rows(260, 2), room(260, 2)))
        for session in sessions:
            session.close()
    return found


def over_view(name: str, rows_of_each: tuple[int, int] = (200, 100)) -> Callable[[Any], Any]:
    """kv_write(), kv_read() and kv_attend() with one list, over arrays that fit and others."""

    def call(numbers: Any) -> Any:
        total = sum(rows_of_each)
        lists: dict[str, Any] = {
            "query_lengths": list(rows_of_each),
            "kv_lengths": [300, 250],
            "block_tables": np.arange(38, dtype=np.uint32).reshape(2, 19),
        } | {name: numbers}
        found: list[Any] = []
        for n in (total % 256, total):
            k, v = room(38 * 16, 1), room(38 * 16, 1)
            view = pagedkv.KVView.of_arrays(k, v, 16)
            found.append(outcome(pagedkv.kv_write, view, rows(n, 1), rows(n, 1), **lists))
            if name != "first_rows":
                found.append(outcome(pagedkv.kv_read, view, **lists))
            given = {"query_heads": 2, "out": room(n, 2), **lists}
            found.append(outcome(pagedkv.kv_attend, view, rows(n, 2), **given))
            found.append(k.sum())
        return found

    return call


def with_params(**made: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def call(given: Any) -> Any:
        params = {name: make(given) for name, make in made.items()}
        return attended(params=pagedkv.AttentionParams(**params))

    return call


def slots_of(use: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    def call(slots: Any) -> Any:
        k, v = room(16, 1), room(16, 1)
        return use(pagedkv.KVView.of_arrays(k, v, 4), slots), k[:, 0, 0]

    return call


def text_of(use: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    def call(tokens: Any) -> Any:
        def in_cache(session: pagedkv.Session, _: Any) -> Any:
            return use(session.cache, tokens)

        return in_session(in_cache)(None)

    return call


def committed(batch: pagedkv.Batch, tokens: Any) -> Any:
    for layer in range(2):
        batch.write(layer, rows(5, 1), rows(5, 1))
    batch.commit(tokens)
    return [session.tokens() for session in batch.sessions]


def accepted(batch: pagedkv.Batch, kept: Any) -> Any:
    for layer in range(2):
        batch.write(layer, rows(5, 1), rows(5, 1))
    batch.accept(0, kept)
    batch.commit([1, 2, 3, 4, 5])
    return [session.tokens() for session in batch.sessions]


def dropped(session: pagedkv.Session, indices: Any) -> Any:
    session.drop_blocks(indices)
    return session.block_table() == pagedkv.NO_BLOCK_ID


def referenced(pool: pagedkv.Pool, block: int, given: Any, use: str) -> Any:
    pool.retain([block])
    getattr(pool, use)(given)
    pool.validate()
    return pool.stats().references


def indices_of(numbers: Any) -> Any:
    group = pagedkv.LayerGroup(
        layers=2, query_heads=2, kv_heads=1, key_dim=16, layer_indices=numbers, blocks=8
    )
    other = dataclasses.replace(group, layer_indices=[0, 3])
    with pagedkv.Cache(pagedkv.CacheConfig(groups=[group, other])) as made:
        return [made.group_of(layer) for layer in range(4)]


TREE = [[0, 1], [1, 2]]
# By argument: a call, a list for which it succeeds, and the list's dimensions.
LISTS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "Cache.begin.new_tokens": (begun, [200, 100]),
    "Cache.choose_victims.new_tokens": (begun, [100, 200]),
    "Batch.set_first_rows.first_rows": (moved, [0, 250]),
    "Batch.accept.kept": (in_batch(accepted), [0, 1]),
    "Batch.commit.tokens": (in_batch(committed), [1, 2, 3, 4, 5]),
    "Session.drop_blocks.indices": (in_session(dropped), [0, 1]),
    "Session.admit.tokens": (text_of(lambda c, v: c.open_session().admit(v, 48)), list(range(40))),
    "Session.set_tokens.tokens": (in_session(lambda s, v: s.set_tokens(0, v)), [0, 1]),
    "Cache.prefix_probe.tokens": (text_of(lambda c, v: c.prefix_probe(v)), list(range(40))),
    "Cache.hint.tokens": (text_of(lambda c, v: c.hint("pin", v)), list(range(40))),
    "Cache.cancel_prefetch.tokens": (text_of(lambda c, v: outcome(c.cancel_prefetch, v)), [1]),
    "Cache.is_prefetching.tokens": (text_of(lambda c, v: outcome(c.is_prefetching, v)), [1]),
    "Cache.wait_for_prefetch.tokens": (
        text_of(lambda c, v: outcome(lambda w: c.wait_for_prefetch(w, timeout_ms=0), v)),
        [1],
    ),
    "Pool.retain.blocks": (pooled(lambda p, b, v: referenced(p, b, v, "retain")), [0, 1]),
    "Pool.release.blocks": (pooled(lambda p, b, v: referenced(p, b, v, "release")), [0, 1]),
    "LayerGroup.layer_indices": (indices_of, [1, 2]),
    "AttentionParams.kv_head_windows": (with_params(kv_head_windows=lambda v: v), [3]),
    "AttentionParams.kv_head_sink_tokens": (with_params(kv_head_sink_tokens=lambda v: v), [1]),
    "BitMask.data": (with_params(mask=pagedkv.BitMask), [[1], [3], [7], [1], [3]]),
    "BitMask.positions": (
        with_params(mask=lambda v: pagedkv.BitMask(guarded(np.ones((5, 1), np.uint64)), v)),
        [9, 10, 11, 9, 10],
    ),
    "TreeMask.parents": (with_params(mask=pagedkv.TreeMask), [-1, 0, 0, -1, 0]),
    "BoolMask.first_positions": (
        with_params(mask=lambda v: pagedkv.BoolMask(guarded(np.ones((2, 1, 9), np.uint8)), v)),
        [-1, 0],
    ),
    "AdditiveMask.first_positions": (
        with_params(
            mask=lambda v: pagedkv.AdditiveMask(guarded(np.ones((2, 1, 9), np.float32)), v)
        ),
        [-1, 0],
    ),
    "ChosenBlocks.lists": (
        with_params(chosen_blocks=lambda v: pagedkv.ChosenBlocks(lists=v)),
        [[[0, 1]], [[0, 1]], [[1, 0xFFFFFFFF]], [[0, 1]], [[0, 1]]],
    ),
    "kv_read_slots.slots": (slots_of(pagedkv.kv_read_slots), [3, -1, 15]),
    "kv_write_slots.slots": (
        slots_of(lambda view, s: pagedkv.kv_write_slots(view, s, rows(3, 1, 5), rows(3, 1, 6))),
        [3, -1, 15],
    ),
    "prefix_hash_blocks.tokens": (lambda v: pagedkv.prefix_hash_blocks(v, 16), list(range(40))),
}
VIEW_LISTS: dict[str, Any] = {
    "query_lengths": [200, 100],
    "kv_lengths": [200, 100],
    "first_rows": [0, 200],
    "query_positions": [*range(100, 300), *range(100)],
    "block_tables": np.arange(38).reshape(2, 19).tolist(),
}
for name, numbers in VIEW_LISTS.items():
    functions = ("kv_attend", "kv_write", *(["kv_read"] if name != "first_rows" else []))
    for function in functions:
        LISTS[f"{function}.{name}"] = over_view(name), numbers


# ---- The play


def plain(found: Any) -> Any:
    if isinstance(found, np.ndarray):
        return (found.shape, found.tobytes()) if found.size > 99 else found.tolist()
    if isinstance(found, tuple | list):
        return [plain(one) for one in found]
    return found


def outcome(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """The result, or the error."""
    try:
        return "result", plain(call(*arguments, **named))
    except (pagedkv.PagedKVError, MemoryError) as error:
        return type(error).__name__, str(error)


def limits(dtype: Any) -> list[int]:
    info = np.iinfo(dtype)
    near = (-1, 0, 1) if LONG else (0,)
    return [end + step for end in (int(info.min), int(info.max)) for step in near]


def holders(values: Iterable[int], types: Iterable[Any] = TYPES) -> list[Any]:
    least, most = min(values), max(values)
    return [t for t in types if np.iinfo(t).min <= least and most <= np.iinfo(t).max]


def tensors_of(values: Any, types: Iterable[Any]) -> Iterator[Any]:
    """The equivalents of PyTorch, if it is there."""
    try:
        import torch
    except ImportError:
        return
    for dtype in types:
        if hasattr(torch, dtype.name):
            yield torch.from_numpy(np.array(values, dtype))


def scalars_of(value: int) -> Iterator[Any]:
    for dtype in holders([value]):
        if LONG or value in limits(dtype) or abs(value) < 256:
            yield dtype.type(value)
            if LONG:
                yield np.array(value, dtype)
    if value < 2**63:  # PyTorch cannot convert others to Python's
        yield from tensors_of(value, holders([value]))


def arrays_of(values: Any) -> Iterator[Any]:
    """These numbers in each type that holds them, at different places."""
    flat = np.array(values, object).ravel().tolist() or [0]
    for dtype in holders(flat):
        array = np.array(values, dtype)
        yield guarded(array)
        if LONG:
            yield np.repeat(array, 2, axis=-1)[..., ::2]
            yield array[::-1].copy()[::-1]
            yield np.asfortranarray(array)
            yield array.astype(array.dtype.newbyteorder())
            yield np.frombuffer(b"x" + array.tobytes(), dtype, offset=1).reshape(array.shape)
    yield from tensors_of(values, holders(flat))
    if np.ndim(values) == 1:
        yield tuple(values)
    if np.ndim(values) == 1 and -(2**63) <= min(flat) <= max(flat) < 2**64:
        yield [np.int64(n) if n < 2**63 else np.uint64(n) for n in values]


def different(values: Any) -> Iterator[Any]:
    """The list itself, and with a limit of each type as its first and as its last number."""
    yield values
    array = np.array(values, object)
    for limit in set().union(*map(limits, TYPES)):
        for place in (0, -1) if LONG else (-(limit % 2),):
            changed = array.copy()
            changed.reshape(-1)[place] = limit
            yield changed.tolist()


def play() -> None:
    warnings.simplefilter("ignore")  # NumPy's, of sums that wrap
    for name, (call, good) in SCALARS.items():
        print(name, flush=True)
        assert good < 0 or outcome(call, good)[0] == "result", outcome(call, good)
        values = {good, 0, 1, -1}.union(*map(limits, TYPES))
        for value in sorted(values):
            if MOST.get(name, 2**64) < value < 2**32:
                continue
            expected = outcome(call, value)
            for given in scalars_of(value):
                found = outcome(call, given)
                assert found == expected, (name, type(given), given, found, expected)
        for no_number in (1.0, np.float32(1), "1", [1], np.array([1, 2]), np.datetime64(1, "s")):
            kind = outcome(call, no_number)[0]
            assert kind == "MisuseError", (name, no_number, kind)
    for name, (call, good) in LISTS.items():
        print(name, flush=True)
        text = repr(outcome(call, good))
        assert text.count("'result'") >= max(1, text.count("Error'")), text
        for values in different(good):
            expected = outcome(call, values)
            for given in arrays_of(values):
                found = outcome(call, given)
                assert found == expected, (name, getattr(given, "dtype", type(given)), values)
        wrongs = np.array(good, np.float64), np.array(good, object), np.array(good, "m8[s]")
        for wrong in (*wrongs, 3, None, "12", [good, [1]], np.array(good) > 0):
            text = repr(outcome(call, wrong))
            assert wrong is None or "MisuseError" in text, (name, wrong, text)


# Numbers that the package makes, and methods that it calls itself.
OUTPUTS = {"build", "BlockIO"}


def arguments() -> Iterator[str]:
    """The integers and lists of integers of all public functions and methods, by annotation."""
    for name in pagedkv.__all__:
        public = getattr(pagedkv, name)
        if inspect.isclass(public):
            if public.__module__.endswith("records") or issubclass(public, Exception):
                continue
            for owner in public.__mro__[:-1]:
                for method, function in vars(owner).items():
                    function = getattr(function, "__func__", function)
                    if method == "__init__" or not method.startswith("_"):
                        place = name if method == "__init__" else f"{name}.{method}"
                        if not OUTPUTS.intersection((name, method)):
                            yield from integers_of(function, place)
        else:
            yield from integers_of(public, name)


def integers_of(function: Any, place: str) -> Iterator[str]:
    if inspect.isfunction(function):
        for parameter in inspect.signature(function).parameters.values():
            words = str(parameter.annotation).replace("|", " ").split()
            kinds = {"int", "SupportsIndex", "Integers", "IntegerRows", "TokenIds"}
            kinds |= {"npt.NDArray[np.integer[Any]]", "npt.NDArray[np.uint32]"}
            if kinds & {*words} and not {"str", "Status"} & {*words}:
                yield f"{place}.{parameter.name}"


def test_every_argument_is_tried() -> None:
    # What receives numbers must have their type.
    missing = {*arguments()} - {*SCALARS} - {*LISTS} - {"AttentionOutputs.chosen"}
    assert not missing
    assert len(SCALARS) + len(LISTS) > 100


def test_the_type_of_a_number_does_not_matter() -> None:
    output(sys.executable, __file__)


if __name__ == "__main__":
    play()
