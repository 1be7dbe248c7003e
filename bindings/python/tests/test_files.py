"""Files with sessions and cached texts."""

from __future__ import annotations

import errno
import os
import pathlib
from typing import Any

import numpy as np
import pytest
import scenarios
from helpers import ON_WINDOWS

import pagedkv

MODEL: dict[str, Any] = {"layers": 2, "query_heads": 2, "kv_heads": 1, "key_dim": 16, "blocks": 16}


def make(**more: Any) -> pagedkv.Cache:
    return pagedkv.Cache(pagedkv.CacheConfig(**MODEL | more))


def extend(cache: pagedkv.Cache, session: pagedkv.Session, tokens: list[int]) -> None:
    text = session.tokens().tolist() + tokens
    with cache.begin([session], [len(tokens)]) as batch:
        for layer in range(2):
            kinds = scenarios.K, scenarios.V
            rows = [scenarios.rows(text, len(tokens), kind, layer, 1, 16) for kind in kinds]
            batch.write(layer, *rows)
        batch.commit(tokens)


def same(a: pagedkv.Session, b: pagedkv.Session) -> None:
    assert a.tokens().tolist() == b.tokens().tolist()
    for layer in range(2):
        for one, other in zip(a.read(layer), b.read(layer), strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_file_with_a_key(tmp_path: pathlib.Path) -> None:
    with make() as cache, make(block_size=32, blocks=8) as other:
        session = cache.open_session()
        extend(cache, session, list(range(20)))
        snapshot = session.snapshot()
        extend(cache, session, [7, 8])
        path = tmp_path / "sessions"
        options: dict[str, Any] = {"fingerprint": b"model\0one", "secret_key": bytes(range(32))}
        assert pagedkv.save(cache, [session, snapshot], path, **options) is None
        info = pagedkv.file_info(path, **options)
        assert (info.sessions, info.tokens, info.encrypted) == (2, 42, 1)
        assert info.fingerprint == b"model\0one"
        first, second = pagedkv.load(other, path, **options)
        same(first, session)
        assert second.length == 20
        first.close()
        second.close()

        encrypted = path.read_bytes()
        assert info.version == 1
        assert b"model" not in encrypted
        with pytest.raises(pagedkv.CorruptError, match=r"\(WRONG_KEY\)"):
            pagedkv.load(other, encrypted, fingerprint=b"model\0one")
        with pytest.raises(pagedkv.MisuseError):
            pagedkv.save(cache, [session], secret_key=b"")


def test_files_of_every_kind(tmp_path: pathlib.Path) -> None:
    with make() as cache, make(block_size=32, blocks=8) as other:
        session = cache.open_session()
        extend(cache, session, list(range(20)))
        path = tmp_path / "sessions"
        assert pagedkv.save(cache, [session], path) is None
        kept = pagedkv.load(other, path)
        data = pagedkv.save(cache, [session])
        assert data is not None
        kept += pagedkv.load(other, data)
        with open(tmp_path / "descriptor", "w+b") as file:
            if ON_WINDOWS:  # where programs and libraries may have a C library each
                with pytest.raises(pagedkv.MisuseError, match="UNSUPPORTED"):
                    pagedkv.save(cache, [session], file.fileno())
            else:
                pagedkv.save(cache, [session], file.fileno())
                os.lseek(file.fileno(), 0, os.SEEK_SET)
                kept += pagedkv.load(other, file.fileno())
        for loaded in kept:
            same(loaded, session)


def test_bad_files_are_refused(tmp_path: pathlib.Path) -> None:
    with make() as cache, make(key_dim=32) as other:
        session = cache.open_session()
        extend(cache, session, [1, 2, 3])
        data = pagedkv.save(cache, [session])
        assert data is not None
        changed = bytearray(data)
        changed[len(changed) // 2] ^= 1
        with pytest.raises(pagedkv.CorruptError, match=r"\(CORRUPT\)"):
            pagedkv.load(cache, bytes(changed))
        with pytest.raises(pagedkv.CorruptError, match=r"\(MISMATCH\)"):
            pagedkv.load(other, data)
        with pytest.raises(pagedkv.SystemCallError, match=r"\(IO\)") as gone:
            pagedkv.load(cache, tmp_path / "gone")
        assert gone.value.system_error == errno.ENOENT
        with pytest.raises(pagedkv.MisuseError, match="there is a NUL"):
            pagedkv.load(cache, f"{tmp_path}\0gone")
        with pytest.raises(pagedkv.PagedKVError):
            pagedkv.file_info(b"")
        assert cache.stats().sessions == 1


def test_pins_quotas_and_events() -> None:
    config = pagedkv.PrefixConfig(max_pinned_tokens=64, max_events=64)
    tokens = list(range(40))
    with make(prefix=config) as cache:
        with cache.open_session() as session:
            extend(cache, session, tokens)
        assert cache.hint("pin", tokens).tokens == 32
        cache.prefix_clear(all_salts=True)
        assert cache.prefix_stats().pinned_tokens == cache.prefix_stats().cached_tokens == 32
        assert cache.hint("unpin", tokens).outcome == pagedkv.HintOutcome.DONE
        cache.prefix_set_quota(None, 16)
        assert cache.prefix_stats().cached_tokens == 16
        cache.prefix_set_quota(None, 0)
        found = cache.prefix_events()
        assert [event.kind.name for event in found.events] == ["PUBLISHED", "PUBLISHED", "EXPELLED"]
        hashes = pagedkv.prefix_hash_blocks(tokens, 16).tolist()
        assert [event.hash for event in found.events[:2]] == hashes
        assert (found.next, found.lost) == (found.events[0].number + 3, 0)
        assert cache.prefix_events(found.next).events == []
