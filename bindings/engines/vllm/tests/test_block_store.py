"""The store of the connector, without vLLM."""

from __future__ import annotations

import pathlib

import numpy as np
import pagedkv_vllm
from helpers import owners, refuses_copies
from pagedkv import DirectoryStore
from pagedkv.weights import digest
from pagedkv_vllm.block_store import BlockStore, Bytes, block_names, block_of

SIZE = 5000


def filled(store: BlockStore, seed: int) -> Bytes:
    block = store.new_block()
    block_of(block)[:] = np.random.default_rng(seed).integers(0, 256, SIZE)
    return block


def names(count: int) -> list[bytes]:
    return [digest([bytes([i])]) for i in range(count)]


def test_blocks_come_back_in_another_process(tmp_path: pathlib.Path) -> None:
    first = BlockStore(DirectoryStore(tmp_path), SIZE)
    assert first.missing(names(3)) == [0, 1, 2]
    for i, name in enumerate(names(3)):
        assert first.put(name, filled(first, i))
    assert first.put(names(3)[0], filled(first, 9)), "it is there, and stays"
    first.close()
    assert first.stats == {"stored": 3, "known": 1}
    second = BlockStore(DirectoryStore(tmp_path), SIZE)
    assert second.missing([*names(5)]) == [3, 4]
    blocks = second.get(names(5))
    assert len(blocks) == 3
    for i, block in enumerate(blocks):
        assert (block_of(block) == block_of(filled(second, i))).all()
    second.close()
    assert second.missing(names(1)) == [0], "closed: it has nothing"
    assert second.get(names(1)) == []


def test_what_is_not_as_it_was_put_is_a_miss(tmp_path: pathlib.Path) -> None:
    store = BlockStore(DirectoryStore(tmp_path), SIZE)
    for i, name in enumerate(names(3)):
        store.put(name, filled(store, i))
    (wrong,) = tmp_path.glob(f"??/{names(3)[1].hex()[2:]}.kv")
    content = bytearray(wrong.read_bytes())
    content[-1] ^= 1
    wrong.write_bytes(content)
    assert len(store.get(names(3))) == 1
    assert store.stats["corrupt"] == 1
    assert store.missing(names(3)) == [1], "it was dropped"
    store.put(names(3)[1], filled(store, 1))
    assert len(store.get(names(3))) == 3
    # A block of another size belongs to another model.
    assert BlockStore(DirectoryStore(tmp_path), SIZE + 1).missing(names(3)) == [0, 1, 2]
    store.close()


def test_names_stand_for_all_tokens_before_them(tmp_path: pathlib.Path) -> None:
    root = digest([b"model"])
    tokens = list(range(40))
    known: list[bytes] = []
    assert block_names(root, tokens, 16, 1, known) == known[:1]
    both = block_names(root, tokens, 16, 2, known)
    assert both == block_names(root, tokens, 16, 2, [])
    assert len({*both, *block_names(root, [7, *tokens[1:]], 16, 2, [])}) == 4
    assert len({*both, *block_names(digest([b"other"]), tokens, 16, 2, [])}) == 4


def test_no_owner_is_copied() -> None:
    found = {kind.__name__: kind for kind in owners(pagedkv_vllm)}
    assert "BlockStore" in found
    for kind in found.values():
        refuses_copies(object.__new__(kind))
