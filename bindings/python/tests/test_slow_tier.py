"""Caches whose keys and values are in a file: how its directory is named."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import pytest
from helpers import ON_WINDOWS

import pagedkv


def config(directory: Any) -> pagedkv.CacheConfig:
    shape: dict[str, Any] = {"layers": 2, "query_heads": 4, "kv_heads": 2, "key_dim": 32}
    shape |= {"block_size": 32, "blocks": 24, "threads": 2, "memory_directory": directory}
    return pagedkv.CacheConfig(**shape)


def mapped(directory: os.PathLike[str]) -> bool:
    """Whether this process maps a file in the directory, as Linux says it."""
    return str(directory) in pathlib.Path("/proc/self/maps").read_text()


def test_a_directory_is_a_text_or_a_path(tmp_path: pathlib.Path) -> None:
    class Path:
        def __fspath__(self) -> str:
            return str(tmp_path)

    for given in (str(tmp_path), f"{tmp_path}/", tmp_path, Path()):
        with pagedkv.Cache(config(given)):
            assert ON_WINDOWS or mapped(tmp_path)
        assert ON_WINDOWS or not mapped(tmp_path)  # it ended with the cache
    assert list(tmp_path.iterdir()) == []
    assert repr(pagedkv.CacheConfig(memory_directory="/d")) == "CacheConfig(memory_directory='/d')"


class PathOfBytes:
    def __fspath__(self) -> bytes:
        return b"/tmp"


@pytest.mark.parametrize(
    "wrong", [b"/tmp", bytearray(b"/tmp"), PathOfBytes(), 3, ["/tmp"], "a\0b", "\ud800", object]
)
def test_what_is_no_path_is_refused(wrong: Any) -> None:
    for call in (config(wrong).build, config(wrong).sizes, lambda: pagedkv.Cache(config(wrong))):
        with pytest.raises(pagedkv.MisuseError, match=r"^memory_directory: "):
            call()
