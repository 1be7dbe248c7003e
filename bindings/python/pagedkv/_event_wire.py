"""Encodes and decodes KVEventBatch, which vLLM's engines send and Dynamo's routers read.

A batch is the array [time, events, rank]. Since 2026 vLLM sends each event as a map of its `type`
and its named fields; before, as an array of the type and the fields in order. Both are read here,
and unknown fields are skipped.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal

try:
    import msgspec
except ImportError as error:  # pragma: no cover
    raise ImportError("pagedkv.events needs msgspec and pyzmq: pip install pagedkv[events]") from (
        error
    )

from .errors import CorruptError
from .generated.raw import Status

EventForm = Literal["map", "array"]
BlockHash = int | bytes


class BlockStored(msgspec.Struct, tag=True):
    """Consecutive blocks of a text that are now cached."""

    block_hashes: list[BlockHash]
    parent_block_hash: BlockHash | None
    """The hash of the block before them; None: they begin the text."""
    token_ids: list[int]
    """The token ids of all the blocks."""
    block_size: int
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[list[Any] | None] | None = None
    """For each block, what its hash depends on besides the tokens: the salt, for the first
    block."""


class BlockRemoved(msgspec.Struct, tag=True):
    """Blocks that are no longer cached."""

    block_hashes: list[BlockHash]
    medium: str | None = None


class AllBlocksCleared(msgspec.Struct, tag=True):
    """Nothing is cached any more."""


KVEvent = BlockStored | BlockRemoved | AllBlocksCleared


class EventBatch(msgspec.Struct, array_like=True):
    """What changed in one cache in one step."""

    ts: float
    """Seconds since 1970."""
    events: list[KVEvent]
    data_parallel_rank: int | None = None
    """The rank of the cache among the publisher's caches; None: any."""


class _RawBatch(msgspec.Struct, array_like=True):
    ts: float
    events: list[Any]
    data_parallel_rank: int | None = None


_FIELDS = {
    kind.__name__: kind.__struct_fields__ for kind in (BlockStored, BlockRemoved, AllBlocksCleared)
}
_decoder = msgspec.msgpack.Decoder(_RawBatch)


def encode_batch(
    events: Sequence[KVEvent],
    rank: int | None = None,
    form: EventForm = "map",
    ts: float | None = None,
) -> bytes:
    """Writes all fields, None included, because older readers count them."""
    told: list[Any] = list(events)
    if form == "array":
        told = [[type(event).__name__, *msgspec.structs.astuple(event)] for event in events]
    return msgspec.msgpack.encode([time.time() if ts is None else ts, told, rank])


def decode_batch(payload: bytes) -> EventBatch:
    """Raises a CorruptError that says what is wrong and where."""
    try:
        batch = _decoder.decode(payload)
        events = [msgspec.convert(_by_name(event), KVEvent) for event in batch.events]
    except (msgspec.MsgspecError, RecursionError, TypeError, ValueError) as error:
        # TypeError: a map has a key that Python cannot hash.
        raise CorruptError(Status.CORRUPT, f"a batch of events: {error}") from None
    return EventBatch(batch.ts, events, batch.data_parallel_rank)


def _by_name(event: Any) -> Any:
    if isinstance(event, list) and event and isinstance(event[0], str):
        return {"type": event[0], **dict(zip(_FIELDS.get(event[0], ()), event[1:], strict=False))}
    return event
