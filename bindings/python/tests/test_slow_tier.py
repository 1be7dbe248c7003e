"""Caches whose keys and values are in a file: what they compute, where that is, what is refused."""

from __future__ import annotations

import os
import pathlib
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import pagedkv

TOKENS, TOP = 500, 3


def config(directory: Any, **given: Any) -> pagedkv.CacheConfig:
    shape: dict[str, Any] = {"layers": 2, "query_heads": 4, "kv_heads": 2, "key_dim": 32}
    shape |= {"block_size": 32, "blocks": 24, "threads": 2, "memory_directory": directory}
    return pagedkv.CacheConfig(**shape | given)


def mapped(directory: os.PathLike[str]) -> bool:
    """Whether this process has a file in the directory mapped."""
    return str(directory) in pathlib.Path("/proc/self/maps").read_text()


def answers(directory: Any, **given: Any) -> list[Any]:
    """A text, and what a step after it reads of all blocks and of chosen ones."""
    random = np.random.default_rng(1)
    k, v = random.standard_normal((2, TOKENS + 1, 2, 32), np.float32)
    q, found = random.standard_normal((1, 4, 32), np.float32), []
    with pagedkv.Cache(config(directory, **given)) as cache, cache.open_session() as session:
        assert directory is None or mapped(directory)
        for start in (0, TOKENS // 2):
            rows = slice(start, start + TOKENS // 2)
            with cache.begin([session], [TOKENS // 2]) as batch:
                for layer in range(2):
                    batch.write(layer, k[rows] + layer, v[rows])
                batch.commit()
        with cache.begin([session], [1]) as batch:
            for layer in range(2):
                batch.write(layer, k[TOKENS:] + layer, v[TOKENS:])
                found.append(batch.attend(layer, q))
                chosen = np.zeros((1, 2, TOP), np.uint32)
                blocks = pagedkv.ChosenBlocks(TOP, chosen=chosen)
                params = pagedkv.AttentionParams(chosen_blocks=blocks)
                found += [batch.attend(layer, q, params=params), chosen]
            batch.commit()
        cache.validate()
    return found


@pytest.mark.parametrize(
    "given",
    [{}, {"dtype": "int4"}, {"layout": "plain"}, {"groups_share_memory": True, "blocks": 0}],
    ids=str,
)
def test_results_are_those_in_memory(tmp_path: pathlib.Path, given: dict[str, Any]) -> None:
    if "groups_share_memory" in given:
        given = given | {"memory_bytes": 1 << 20}
    in_memory, in_a_file = answers(None, **given), answers(tmp_path, **given)
    for expected, found in zip(in_memory, in_a_file, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert not np.array_equal(in_memory[0], in_memory[1])  # some blocks were left out
    assert not mapped(tmp_path)  # it ended with the cache
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_a_text_or_a_path(tmp_path: pathlib.Path) -> None:
    class Path:
        def __fspath__(self) -> str:
            return str(tmp_path)

    for given in (str(tmp_path), f"{tmp_path}/", tmp_path, Path()):
        with pagedkv.Cache(config(given)):
            assert mapped(tmp_path)
    assert repr(pagedkv.CacheConfig(memory_directory="/d")) == "CacheConfig(memory_directory='/d')"


def test_a_plan_needs_no_directory() -> None:
    assert config("/nowhere/at all").plan() == config(None).plan()


def test_a_directory_that_is_none(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path)
    for wrong in ("nowhere", "file", "link"):
        with pytest.raises(pagedkv.SystemCallError, match=f"/{wrong}") as refused:
            pagedkv.Cache(config(tmp_path / wrong))
        assert refused.value.status == pagedkv.Status.IO


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_no_room(tmp_path: pathlib.Path) -> None:
    size = config(None).plan().memory_bytes
    with files_of_at_most(size // 2), pytest.raises(pagedkv.SystemCallError) as refused:
        pagedkv.Cache(config(tmp_path))
    assert refused.value.status == pagedkv.Status.IO
    assert f"{size} bytes" in str(refused.value)
    pagedkv.Cache(config(tmp_path)).close()


@pytest.mark.parametrize(
    ("given", "status", "message"),
    [
        ({"directory": ""}, "INVALID_ARGUMENT", "memory_directory is an empty string"),
        ({"storage": "none"}, "UNSUPPORTED", "needs storage PAGED"),
        ({"storage": "contiguous"}, "UNSUPPORTED", "needs storage PAGED"),
        ({"huge_pages": "require"}, "INVALID_ARGUMENT", "no huge pages"),
    ],
)
def test_what_does_not_go_together_is_refused(
    tmp_path: pathlib.Path, given: dict[str, Any], status: str, message: str
) -> None:
    with pytest.raises(pagedkv.PagedKVError, match=message) as refused:
        pagedkv.Cache(config(**{"directory": tmp_path} | given))
    assert refused.value.status == pagedkv.Status[status]


class PathOfBytes:
    def __fspath__(self) -> bytes:
        return b"/tmp"


@pytest.mark.parametrize(
    "wrong", [b"/tmp", bytearray(b"/tmp"), PathOfBytes(), 3, ["/tmp"], "a\0b", "\ud800", object]
)
def test_what_is_no_path_is_refused(wrong: Any) -> None:
    for call in (config(wrong).build, config(wrong).plan, lambda: pagedkv.Cache(config(wrong))):
        with pytest.raises(pagedkv.MisuseError, match=r"^memory_directory: "):
            call()
