"""Encoded batches of prefix events: corrupt ones, and those of older and newer engines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pagedkv

pytest.importorskip("msgspec", reason="msgspec: NO batches of events were read")
pytest.importorskip("zmq", reason="pyzmq: NO batches of events were read")

import msgspec  # noqa: E402

from pagedkv.events import AllBlocksCleared, BlockStored, decode_batch, encode_batch  # noqa: E402


def test_batches_that_are_none() -> None:
    good = encode_batch([BlockStored([2**64 - 1, 5], 3, [1] * 32, 16, medium="GPU")], 7, "array")
    batch = decode_batch(good)
    assert batch.data_parallel_rank == 7
    assert batch.events == [BlockStored([2**64 - 1, 5], 3, [1] * 32, 16, medium="GPU")]
    for cut in range(len(good)):
        with pytest.raises(pagedkv.CorruptError, match="a batch of events"):
            decode_batch(good[:cut])
    others: list[list[Any]] = [
        [[]],
        [["BlockStored"]],
        [["BlockStored", 1, 2, 3, 4]],
        [{"type": "BlockStored"}],
        [7],
        [[1]],
        [{"type": "BlockRemoved", "block_hashes": [1.5]}],
        [{}],
        [["BlockStored", [1], None, ["a"], 1]],
    ]
    for events in others:
        with pytest.raises(pagedkv.CorruptError):
            decode_batch(msgspec.msgpack.encode([1.0, events, 0]))
    for key in (b"\xd4\x01\x00", b"\x81\x01\x02", b"\x91\x80"):  # no keys that Python can hash
        payload = b"\x93\xca" + bytes(4) + b"\x91\x81" + key + b"\x01\x00"
        with pytest.raises(pagedkv.CorruptError, match="a batch of events"):
            decode_batch(payload)
    draw = np.random.default_rng(1)
    for _ in range(2000):
        bits = bytearray(good)
        bits[int(draw.integers(len(bits)))] ^= 1 << int(draw.integers(8))
        try:
            decode_batch(bytes(bits))
        except pagedkv.CorruptError:
            continue


def test_older_and_newer_events_are_read() -> None:
    old = ["BlockStored", [1], None, [5] * 16, 16, None]  # as vLLM 0.9 sent it
    new = {
        "type": "BlockStored", "block_hashes": [b"h"], "parent_block_hash": b"p",
        "token_ids": [5] * 16, "block_size": 16, "lora_id": None, "medium": "CPU",
        "lora_name": None, "group_idx": 0, "locality": "LOCAL",
    }  # fmt: skip
    batch = decode_batch(msgspec.msgpack.encode([1.0, [old, new, ["AllBlocksCleared"]]]))
    assert batch.events == [
        BlockStored([1], None, [5] * 16, 16),
        BlockStored([b"h"], b"p", [5] * 16, 16, medium="CPU"),
        AllBlocksCleared(),
    ]
