"""Every field of every struct that the caller fills reaches C, by every way. A wrong value is
refused, never ignored.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from helpers import MemoryStore, small
from test_files import make
from test_package import STRUCTS, camel

import pagedkv
from pagedkv._arrays import BatchRows
from pagedkv.generated import raw as _raw
from pagedkv.generated import records

Fields = dict[str, Any]


class SeenError(Exception):
    """The struct that was about to go to C."""


def plain(struct: Any) -> Fields:
    """All fields as numbers, and the memory that they point to if it has a size or an end."""
    found = {name: getattr(struct, name) for name, *_ in struct._fields_}
    for name in ("salt", "fingerprint", "secret_key"):
        if found.get(name) and f"{name}_size" in found:
            found[name] = ctypes.string_at(found[name], found[f"{name}_size"])
    for name in ("path", "memory_directory"):
        if found.get(name):
            found[name] = ctypes.string_at(found[name]).decode()
    return found


def sent(
    monkeypatch: pytest.MonkeyPatch, function: str, argument: int, call: Callable[[], Any]
) -> Fields:
    """The struct that a function of the library gets as this argument."""

    def catch(*arguments: Any) -> int:
        raise SeenError(plain(arguments[argument]._obj))

    with monkeypatch.context() as patched:
        patched.setattr(pagedkv.library(), function, catch)
        with pytest.raises(SeenError) as seen:
            call()
    found: Fields = seen.value.args[0]
    return found


# Each way from a caller's fields to a C struct; fields are given by their C names.
Patch = pytest.MonkeyPatch


def flat(_: Patch, **given: Any) -> Fields:
    return plain(pagedkv.CacheConfig(**given).build())


def group(_: Patch, **given: Any) -> Fields:
    needed = {"layers": 1, "query_heads": 1, "kv_heads": 1, "key_dim": 16}
    built = pagedkv.CacheConfig(groups=[pagedkv.LayerGroup(**needed | given)]).build()
    assert built.group_count == 1
    return plain(_raw.LayerGroup.from_address(built.groups))


def group_of_flat(_: Patch, **given: Any) -> Fields:
    """The group that a config without groups stands for."""
    built = pagedkv.CacheConfig(**given).build()
    return plain(_raw.LayerGroup.from_address(built.groups))


def prefix(_: Patch, **given: Any) -> Fields:
    built = pagedkv.CacheConfig(prefix=pagedkv.PrefixConfig(**given)).build()
    return plain(_raw.PrefixConfig.from_address(built.prefix))


def store(_: Patch, **given: Any) -> Fields:
    with pagedkv.StoreConfig(MemoryStore(), **given).opened() as struct:
        return plain(struct)


def directory(patch: Patch, **given: Any) -> Fields:
    described = pagedkv.DirectoryStore(**{"path": "/nowhere"} | given)
    return sent(patch, "store_open_directory", 0, described._open)


def redis(patch: Patch, **given: Any) -> Fields:
    class Plugin:
        def open(self, config: _raw.RedisConfig) -> None:
            raise SeenError(plain(config))

    with patch.context() as patched:
        patched.setattr("pagedkv.store.redis_library", Plugin)
        with pytest.raises(SeenError) as seen:
            pagedkv.RedisStore(**given)._open()
    found: Fields = seen.value.args[0]
    return found


def session(patch: Patch, **given: Any) -> Fields:
    with make() as cache:
        return sent(patch, "session_open", 1, lambda: cache.open_session(**given))


def hint(patch: Patch, **given: Any) -> Fields:
    with make() as cache, cache.open_session() as session:
        hint = {"action": "set_retention"} | given
        return sent(patch, "hint_session", 1, lambda: session.hint(**hint))


def pool(patch: Patch, **given: Any) -> Fields:
    return sent(patch, "pool_create", 0, lambda: pagedkv.Pool(**{"blocks": 1} | given))


def compute(patch: Patch, **given: Any) -> Fields:
    return sent(patch, "compute_create", 0, lambda: pagedkv.Compute(**given))


def save(patch: Patch, **given: Any) -> Fields:
    with make() as cache:
        return sent(patch, "file_save", 3, lambda: pagedkv.save(cache, [], **given))


def load(patch: Patch, **given: Any) -> Fields:
    with make() as cache:
        return sent(patch, "file_load", 1, lambda: pagedkv.load(cache, b"", **given))


def inspect(patch: Patch, **given: Any) -> Fields:
    return sent(patch, "file_inspect", 0, lambda: pagedkv.file_info(b"", **given))


def params(_: Patch, **given: Any) -> Fields:
    return plain(pagedkv.AttentionParams(**given).build(BatchRows([3], "rows"), 5, 1))


def chosen(_: Patch, **given: Any) -> Fields:
    return plain(pagedkv.ChosenBlocks(**given).build(BatchRows([3], "rows"), 1, []))


def outputs(_: Patch, **given: Any) -> Fields:
    built = pagedkv.AttentionOutputs(**given).build(None, BatchRows([3], "rows"), 5, 1)
    return plain(_raw.BlockOutputs.from_address(built.block_outputs))


# The struct, the way, the bytes and texts that it takes, and the fields that callers cannot give.
SIZES = {"struct_size", "reserved"}
MATRICES = {"key_rotation", "value_rotation"}
OF_CACHE = SIZES | {
    "group_count",
    "groups",
    "allocator",
    "logger",
    "runner",
    "prefix",
    "store",
    "block_io",
    "clock",
}
OF_FILE = SIZES | {"fingerprint_size", "secret_key_size", "durability"}
OF_PARAMS = SIZES | {"bidirectional", "kv_head_windows", "kv_head_sink_tokens", "alibi_slopes"}
OF_PARAMS |= {"sink_logits", "mask", "chosen_blocks"}
NAMED: Fields = {"fingerprint": b"a\0b", "secret_key": bytes(20)}
WAYS: list[tuple[str, Any, Fields, set[str]]] = [
    ("pkv_cache_config", flat, {"memory_directory": "/a/path"}, OF_CACHE),
    ("pkv_layer_group", group, {}, SIZES | {"layer_indices", "rotation_matrices"}),
    ("pkv_layer_group", group_of_flat, {}, SIZES | {"layer_indices", "rotation_matrices"}),
    ("pkv_prefix_config", prefix, {}, SIZES),
    ("pkv_store_config", store, NAMED, SIZES | {"store", "fingerprint_size", "secret_key_size"}),
    ("pkv_directory_config", directory, {"path": "/a/path"}, SIZES | {"durability"}),
    ("pkv_session_config", session, {"salt": b"a\0b"}, SIZES | {"salt_size"}),
    ("pkv_hint", hint, {}, SIZES),
    ("pkv_pool_config", pool, {}, SIZES | {"allocator"}),
    ("pkv_compute_config", compute, {}, SIZES | {"allocator", "runner"}),
    ("pkv_file_config", save, NAMED, OF_FILE | {"trust_salts", "max_tokens"}),
    ("pkv_file_config", load, NAMED, OF_FILE),
    ("pkv_file_config", inspect, NAMED, OF_FILE | {"prefix_index", "trust_salts", "max_tokens"}),
    ("pkv_attention_params", params, {"scale": 0.5, "softcap": 2.5}, OF_PARAMS),
    ("pkv_chosen_blocks", chosen, {}, SIZES | {"lists", "list_blocks"}),
    ("pkv_block_outputs", outputs, {}, SIZES | {"chosen", "masses", "mass_blocks"}),
]
NAMES = [f"{way.__name__}-{struct}" for struct, way, _, _ in WAYS]


def numbers(struct: str, more: Fields, left_out: set[str]) -> list[str]:
    names = [field["name"] for field in STRUCTS[struct]["fields"]]
    return [name for name in names if name not in left_out | set(more)]


@pytest.mark.parametrize(("struct", "way", "more", "left_out"), WAYS, ids=NAMES)
def test_every_field_arrives(
    monkeypatch: Patch, struct: str, way: Any, more: Fields, left_out: set[str]
) -> None:
    """Each field alone, with defaults for the others, and all at once."""
    names = numbers(struct, more, left_out)
    given = {name: 3 + i for i, name in enumerate(names)} | more
    for name, value in given.items():
        assert way(monkeypatch, **{name: value})[name] == value, name
        if isinstance(value, int):
            assert way(monkeypatch, **{name: np.int64(value)})[name] == value, name
    together = way(monkeypatch, **given)
    assert {name: together[name] for name in given} == given


@pytest.mark.parametrize(("struct", "way", "more", "left_out"), WAYS, ids=NAMES)
def test_a_value_that_is_none_is_refused(
    monkeypatch: Patch, struct: str, way: Any, more: Fields, left_out: set[str]
) -> None:
    for name in numbers(struct, more, left_out):
        for wrong in ("3", 3.0, [3], np.float32(3), 2**64, -(2**31) - 1):
            with pytest.raises((pagedkv.MisuseError, TypeError), match=name):
                way(monkeypatch, **{name: wrong})
    for name in more:
        with pytest.raises((pagedkv.MisuseError, TypeError)):
            way(monkeypatch, **{name: [3]})


TYPES = [
    ("bf16", "BF16"),
    ("FP8_E4M3", "FP8_E4M3"),
    ("float32", "F32"),
    (np.float16, "F16"),
    (np.dtype(np.float32), "F32"),
    (np.int8, "INT8"),
    (ml_dtypes.bfloat16, "BF16"),
    (ml_dtypes.int4, "INT4"),
    (np.dtype(ml_dtypes.float8_e4m3fn), "FP8_E4M3"),
    (ml_dtypes.float8_e5m2, "FP8_E5M2"),
]


@pytest.mark.parametrize(("given", "name"), TYPES, ids=str)
def test_dtypes_are_given_by_name_and_by_type(given: Any, name: str) -> None:
    dtype = pagedkv.Dtype[name]
    for config in (
        pagedkv.CacheConfig(dtype=given, value_dtype=given),
        pagedkv.LayerGroup(1, 1, 1, 16, dtype=given, value_dtype=given),
    ):
        assert config.dtype is dtype
        assert config.value_dtype is dtype
    view = pagedkv.KVView.allocate(1, 16, 1, 32, dtype=given, value_dtype=given)
    assert (view.dtype, view.struct.value_dtype) == (dtype, dtype)


def test_dtypes_are_given_as_types_of_pytorch_and_jax() -> None:
    """Types of these libraries are recognised by name, so neither library is needed."""
    of_torch = type("dtype", (), {"__module__": "torch", "__repr__": lambda _: "torch.bfloat16"})()
    of_jax = type("bfloat16", (), {"dtype": np.dtype(ml_dtypes.bfloat16)})
    for given in (of_torch, of_jax):
        assert pagedkv.CacheConfig(dtype=given).dtype is pagedkv.Dtype.BF16


WRONG = (np.float64, "f64", float, np.uint8, np.dtype(">f2"), ml_dtypes.float8_e4m3fnuz, 2.0, "")


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_a_type_that_is_not_stored_is_refused(wrong: Any) -> None:
    for call in (
        lambda: pagedkv.CacheConfig(dtype=wrong),
        lambda: pagedkv.LayerGroup(1, 1, 1, 16, dtype=wrong),
        lambda: pagedkv.KVView.allocate(1, 16, 1, 32, dtype=wrong),
    ):
        with pytest.raises(pagedkv.MisuseError, match=r"dtype: .* is none of f32, f16, bf16, int8"):
            call()


def test_enums_are_given_by_name() -> None:
    config = pagedkv.CacheConfig(storage="external", layout="Packed", isa="AVX2", huge_pages="off")
    assert config.storage is pagedkv.Storage.EXTERNAL
    assert config.layout is pagedkv.Layout.PACKED
    assert config.isa is pagedkv.Isa.AVX2
    assert config.huge_pages is pagedkv.HugePages.OFF
    with pytest.raises(pagedkv.MisuseError, match="storage: 'paper' is none of internal, external"):
        pagedkv.CacheConfig(storage="paper")
    with pagedkv.Compute(1, "scalar") as compute:
        assert compute.info().isa is pagedkv.Isa.SCALAR


def test_every_struct_of_the_caller_is_asked_for() -> None:
    """A new struct needs a way above; the others are made from arrays or by the library."""
    sized = {name for name, struct in STRUCTS.items() if struct["fields"][0]["name"] in SIZES}
    given = {name for name in sized if not hasattr(records, camel(name))}
    others = "pkv_attention_outputs pkv_block_io pkv_kv_sequences pkv_kv_view pkv_mask "
    others += "pkv_rotation_matrices pkv_store pkv_stream pkv_prompt"
    assert given - {struct for struct, *_ in WAYS} == set(others.split())


def test_what_is_another_number_in_c(monkeypatch: Patch) -> None:
    on, off = _raw.Durability.ON, _raw.Durability.OFF
    by_default = _raw.Durability.DEFAULT  # ON, but only for a path
    for way, name, field, numbers in (
        (params, "causal", "bidirectional", (1, 0)),
        (save, "durable", "durability", (off, by_default)),
        (directory, "durable", "durability", (off, on)),
    ):
        for given in (True, False, 1, 0):
            assert way(monkeypatch, **{name: given})[field] == numbers[given]
        for wrong in (2, -1, 1.0, "1", None):
            with pytest.raises((pagedkv.MisuseError, TypeError), match=name):
                way(monkeypatch, **{name: wrong})


def test_groups_and_fields_of_one_are_not_given_both() -> None:
    groups = [pagedkv.LayerGroup(1, 1, 1, 16)]
    fields: Fields = {"layers": 1, "window": 16, "dtype": "f16", "kind": "latent", "blocks": 4}
    for name, value in fields.items():
        with pytest.raises(pagedkv.MisuseError, match=f"groups and {name} are both given"):
            pagedkv.CacheConfig(groups=groups, **{name: value}).build()


def test_every_field_of_redis_arrives(monkeypatch: Patch) -> None:
    kinds = {name: kind for name, kind, *_ in _raw.RedisConfig._fields_ if name not in SIZES}
    texts = {name: f"text {name}" for name, kind in kinds.items() if kind is ctypes.c_char_p}
    names = [name for name in kinds if name not in texts]
    given: Fields = {name: 3 + i for i, name in enumerate(names)}
    together = redis(monkeypatch, **given, **texts)
    assert {name: together[name] for name in given} == given
    assert {name: together[name].decode() for name in texts} == texts
    for name in names:
        with pytest.raises(pagedkv.MisuseError, match=name):
            redis(monkeypatch, **{name: 3.0})


def test_layer_indices_arrive_on_every_way() -> None:
    indices: Any = np.array([1, 0])
    described = pagedkv.CacheConfig(groups=[pagedkv.LayerGroup(2, 1, 1, 16, layer_indices=indices)])
    for config in (described, pagedkv.CacheConfig(groups=described.layer_groups())):
        built = config.build()
        pointer = _raw.LayerGroup.from_address(built.groups).layer_indices
        assert list((ctypes.c_uint32 * 2).from_address(pointer)) == [1, 0]


def test_matrices_of_rotation_arrive_on_every_way() -> None:
    key, value = np.eye(16, dtype=np.float64), np.eye(32, dtype=np.float32)[::-1]
    rotated: Fields = {"key_rotation": key, "value_rotation": value}
    flat = small(value_dim=32, **rotated)
    view = pagedkv.KVView.allocate(1, 16, 1, 16, 32, **rotated)
    built, described = flat.build(), pagedkv.CacheConfig(groups=flat.layer_groups()).build()
    groups = [_raw.LayerGroup.from_address(each.groups) for each in (built, described)]
    for struct in (*groups, view.struct):
        assert struct.rotation == pagedkv.Rotation.NONE
        given = _raw.RotationMatrices.from_address(struct.rotation_matrices)
        for pointer, matrix in ((given.key, key), (given.value, value)):
            numbers = (ctypes.c_float * matrix.size).from_address(pointer)
            np.testing.assert_array_equal(list(numbers), matrix.ravel())


@pytest.mark.parametrize("wrong", [3.0, "3", [3], np.eye(15), np.zeros((16, 16, 1)), [["a"]]])
def test_matrices_of_another_shape_are_refused(wrong: Any) -> None:
    for call in (
        lambda **given: flat(pytest.MonkeyPatch(), key_dim=16, **given),
        lambda **given: group(pytest.MonkeyPatch(), key_dim=16, **given),
        lambda **given: pagedkv.KVView.allocate(1, 16, 1, 16, **given),
    ):
        for name in MATRICES:
            with pytest.raises(pagedkv.MisuseError, match=name):
                call(**{name: wrong})


def test_views_and_sequences_arrive(monkeypatch: Patch) -> None:
    k, v = np.zeros((64, 6, 16), np.float16)[:, ::2], np.zeros((64, 3, 32), np.float32)
    view = pagedkv.KVView.of_arrays(k, v, 16)
    expected: Fields = {"struct_size": ctypes.sizeof(_raw.KVView), "latent": 0}
    expected |= {"dtype": pagedkv.Dtype.F16, "value_dtype": pagedkv.Dtype.F32}
    expected |= {"layout": pagedkv.Layout.PLAIN, "block_size": 16, "blocks": 4, "kv_heads": 3}
    expected |= {"key_dim": 16, "value_dim": 32, "k": k.ctypes.data, "v": v.ctypes.data}
    expected |= {"rotation": pagedkv.Rotation.NONE, "rotation_matrices": None}
    expected |= {"k_bytes": 0, "v_bytes": 0}
    for side in "kv":
        strides = {"head_stride": 32, "row_stride": 96, "block_stride": 1536}
        expected |= {f"{side}_{name}": stride for name, stride in strides.items()}
    assert plain(view.struct) == expected
    q, tables = np.zeros((5, 6, 16), np.float32), np.zeros((2, 7), np.uint32)

    def call() -> None:
        pagedkv.kv_attend(view, q, [2, 3], [20, 30], tables, 6)

    given = sent(monkeypatch, "kv_attend", 2, call)
    assert (given["query_heads"], given["count"], given["block_table_stride"]) == (6, 2, 7)
    built = pagedkv.AttentionParams(
        alibi_slopes=[1, 2],
        sink_logits=[3, 4],
        mask=pagedkv.BitMask(np.full((3, 2), 9, np.uint64)),
        chosen_blocks=pagedkv.ChosenBlocks(
            4, lists=np.arange(12, dtype=np.uint32).reshape(3, 2, 2)
        ),
        kv_head_windows=[5, 0],
        kv_head_sink_tokens=np.array([6, 7], np.uint8),
    )
    rows = BatchRows([3], "rows")
    struct = built.build(rows, 2, 2)
    assert list((ctypes.c_float * 2).from_address(struct.alibi_slopes)) == [1, 2]
    assert list((ctypes.c_float * 2).from_address(struct.sink_logits)) == [3, 4]
    mask = _raw.Mask.from_address(struct.mask)
    assert list((ctypes.c_uint64 * 6).from_address(mask.data)) == [9] * 6
    assert (mask.kind, mask.row_stride) == (_raw.MaskKind.TREE_BITS, 2)
    blocks = _raw.ChosenBlocks.from_address(struct.chosen_blocks)
    assert list((ctypes.c_uint32 * 12).from_address(blocks.lists)) == list(range(12))
    assert (blocks.top_blocks, blocks.list_blocks) == (4, 2)
    assert list((ctypes.c_uint32 * 2).from_address(struct.kv_head_windows)) == [5, 0]
    assert list((ctypes.c_uint32 * 2).from_address(struct.kv_head_sink_tokens)) == [6, 7]
    wanted = pagedkv.AttentionOutputs(
        lse=(lse := np.zeros((3, 2), np.float32)),
        chosen=(chosen := np.zeros((3, 2, 4), np.uint32)),
        masses=(masses := np.zeros((1, 2, 5), np.float32)),
    )
    found = wanted.build(built, rows, 2, 2)
    of_blocks = _raw.BlockOutputs.from_address(found.block_outputs)
    assert (found.lse, of_blocks.chosen) == (lse.ctypes.data, chosen.ctypes.data)
    assert (of_blocks.masses, of_blocks.mass_blocks) == (masses.ctypes.data, 5)


def test_masks_arrive() -> None:
    def built(given: Any) -> _raw.Mask:
        struct = pagedkv.AttentionParams(mask=given).build(BatchRows([3], "rows"), 1, 1)
        keep.append(struct)
        return _raw.Mask.from_address(struct.mask)

    keep: list[Any] = []
    tree = built(pagedkv.TreeMask([-1, 0, 1]))
    assert (tree.kind, tree.row_stride) == (_raw.MaskKind.TREE_PARENTS, 0)
    assert list((ctypes.c_int32 * 3).from_address(tree.data)) == [-1, 0, 1]
    bits = built(pagedkv.BitMask(np.full((3, 2), 9, np.uint64), positions=[4, 5, 4]))
    assert (bits.kind, bits.row_stride) == (_raw.MaskKind.TREE_BITS, 2)
    assert list((ctypes.c_int64 * 3).from_address(bits.positions)) == [4, 5, 4]
    mask = built(pagedkv.BoolMask(np.zeros((1, 3, 7), bool), first_positions=[5]))
    assert (mask.kind, mask.columns) == (_raw.MaskKind.BYTES, 7)
    assert (mask.row_stride, mask.batch_stride) == (7, 0)
    assert ctypes.c_int64.from_address(mask.first_positions).value == 5
    halves = np.zeros((2, 3, 8), np.float16)[:1, :, :7]
    mask = built(pagedkv.AdditiveMask(halves, [5], [0.5]))
    assert (mask.kind, mask.data, mask.columns) == (_raw.MaskKind.F16, halves.ctypes.data, 7)
    assert (mask.row_stride, mask.batch_stride) == (8, 0)
    assert ctypes.c_int64.from_address(mask.first_positions).value == 5
    assert ctypes.c_float.from_address(mask.head_factors).value == 0.5
