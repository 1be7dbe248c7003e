"""Publishes the prefix events of caches for routers, in the format of vLLM's engines: numbered
KVEventBatch messages in msgpack over ZeroMQ, and a socket that replays lost ones. With them routers
such as vLLM's production stack and Dynamo send a request to the engine that has most of its prefix.

    with EventPublisher(replay_endpoint="tcp://127.0.0.1:5558") as publisher:
        told = publisher.follow(cache)  # a cache whose PrefixConfig has `max_events`
        ...
        told.add_text(prompt)  # when a request arrives, and again with its answer when it ends
        told.poll()  # after each step

The library's events contain only hashes, and routers need token ids, so the engine adds the texts.
Blocks whose text was not added are not published; that only costs hits.

Everything is sent unencrypted, prompts included, so use the sockets only in a network that you
trust.
Needs `pip install pagedkv[events]`.
"""

from __future__ import annotations

import itertools
import os
import threading
import warnings
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ._arrays import TokenIds, token_ids
from ._cache_base import CacheBase, RawEvents, prefix_hash_blocks
from ._event_sockets import EventSubscriber, Sender
from ._event_wire import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    EventBatch,
    EventForm,
    KVEvent,
    decode_batch,
    encode_batch,
)
from ._handle import Closable, Uncopied, unsigned
from .errors import MisuseError, misuse
from .generated.raw import PrefixEventKind, Status

__all__ = [
    "AllBlocksCleared", "BlockRemoved", "BlockStored", "EventBatch", "EventPublisher",
    "EventSubscriber", "FollowedCache", "KVEvent", "decode_batch", "encode_batch",
]  # fmt: skip

# pkv_prefix_event
_EVENT = np.dtype(
    [("number", "u8"), ("hash", "u8"), ("parent", "u8"), ("position", "u8"), ("kind", "u4", 2)]
)
_EVENTS_A_STEP, _EVENTS_A_READ = 64, 4096


class _Block(NamedTuple):
    """A block of an added text."""

    parent: int | None
    """The hash of the block before it."""
    ids: bytes
    """Its token ids, as int32, because a list takes five times as much memory."""
    salt: bytes | None

    @property
    def tokens(self) -> list[int]:
        listed: list[int] = np.frombuffer(self.ids, np.int32).tolist()
        return listed


class FollowedCache(Uncopied):
    """The published events of one cache. `EventPublisher.follow` makes it."""

    def __init__(self, cache: CacheBase, sender: Sender, rank: int, idle_blocks: int) -> None:
        self._cache = cache
        self._sender = sender
        self._rank = rank
        self._idle_blocks = idle_blocks
        self._block_size = cache.info().block_size
        self._lock = threading.RLock()
        self._next = 0
        self._blocks: dict[int, _Block] = {}
        # Blocks of added texts that are not cached, the least recently added first.
        self._idle: OrderedDict[int, None] = OrderedDict()
        # Hashes of blocks that a match can end with, and those of them that routers know.
        self._stored: set[int] = set()
        self._published: set[int] = set()
        self._lost_events = 0
        self._pending: list[KVEvent] = [AllBlocksCleared()]
        self._closed = False

    @property
    def lost_events(self) -> int:
        """The number of events that the cache overwrote before they were read. If it grows, poll
        more often, or give PrefixConfig more `max_events`. Routers were corrected each time.
        """
        return self._lost_events

    @property
    def published_blocks(self) -> int:
        """The number of blocks that routers know."""
        return len(self._published)

    def add_text(self, tokens: TokenIds, salt: bytes | None = None) -> None:
        """Adds the token ids of a text that sessions of this salt compute. Only whole blocks
        count. Call it before or after they are cached; a text that continues an earlier one may
        be added again as a whole.
        """
        self._sender.check_usable()  # before the lock: a forked child may inherit it locked
        ids = token_ids(tokens)
        hashes = prefix_hash_blocks(ids, self._block_size, salt).tolist()
        row = 4 * self._block_size
        every = np.ascontiguousarray(ids, np.int32).tobytes()
        with self._lock:
            self._check_open()
            parent: int | None = None
            for index, found in enumerate(hashes):
                if found not in self._blocks:
                    part = every[index * row : (index + 1) * row]
                    self._blocks[found] = _Block(parent, part, salt)
                if found in self._stored:
                    self._publish(found)
                else:
                    self._idle[found] = None
                    self._idle.move_to_end(found)
                parent = found
            if self._lost_events and hashes:
                self._look(hashes, ids, salt)
            while len(self._idle) > self._idle_blocks:
                self._blocks.pop(self._idle.popitem(last=False)[0], None)

    def poll(self) -> int:
        """Reads the cache's new events and publishes the changes as one batch. Returns how many
        events the batch has. It never waits. Call it after each step, in the thread that closes
        the cache: like every call of the library, it makes a concurrent `close()` fail (BUSY).
        """
        self._sender.check_usable()  # before the lock: a forked child may inherit it locked
        with self._lock:
            self._check_open()
            try:
                for room in itertools.chain((_EVENTS_A_STEP,), itertools.repeat(_EVENTS_A_READ)):
                    read = self._cache.read_events(self._next, room)
                    self._take(read)
                    if read.n < room:
                        break
            except MisuseError as error:
                if error.status == Status.STALE_HANDLE:
                    self.close()  # routers forget it
                raise
            return self._send()

    def close(self) -> None:
        """Publishes that this cache has no blocks any more. The cache itself does not change."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._forget()
                if not self._sender.stopped:
                    self._send()

    def snapshot(self) -> list[KVEvent]:
        """The events that bring a new or wrong router up to date."""
        with self._lock:
            return [AllBlocksCleared(), *self._chains(self._published)]

    def encoded_snapshot(self) -> bytes:
        return encode_batch(self.snapshot(), self._rank, self._sender.form)

    def _check_open(self) -> None:
        self._sender.check_usable()
        if self._closed:
            raise MisuseError(Status.STALE_HANDLE, "this cache is no longer followed")

    def _send(self) -> int:
        events, self._pending = self._pending, []
        if events:
            self._sender.send(encode_batch(events, self._rank, self._sender.form))
        return len(events)

    def _take(self, read: RawEvents) -> None:
        self._next = read.next
        if read.lost:
            self._lost_events += read.lost
            self._look_at_all()
        rows = np.frombuffer(memoryview(read.room).cast("B"), _EVENT, read.n)
        removed: list[int] = []
        for found, kind in zip(rows["hash"].tolist(), rows["kind"][:, 0].tolist(), strict=True):
            if kind == PrefixEventKind.PUBLISHED:
                self._remove(removed)
                self._stored.add(found)
                if found in self._blocks:
                    self._idle.pop(found, None)
                    self._publish(found)
            elif found in self._stored:
                self._stored.discard(found)
                if found in self._blocks:
                    self._idle[found] = None
                if found in self._published:
                    removed.append(found)
        self._remove(removed)

    def _remove(self, hashes: list[int]) -> None:
        if hashes:
            self._published.difference_update(hashes)
            self._pending.append(BlockRemoved([*hashes], self._sender.medium))
            hashes.clear()

    def _publish(self, found: int) -> None:
        """Merges consecutive blocks into one event."""
        if found in self._published:
            return
        self._published.add(found)
        block = self._blocks[found]
        last = self._pending[-1] if self._pending else None
        if isinstance(last, BlockStored) and last.block_hashes[-1] == block.parent:
            last.block_hashes.append(found)
            last.token_ids += block.tokens
            if last.extra_keys is not None:
                last.extra_keys.append(None)
        else:
            self._pending.append(self._stored_event(found, block))

    def _stored_event(self, found: int, block: _Block) -> BlockStored:
        salted = block.salt and block.parent is None
        return BlockStored(
            block_hashes=[found],
            parent_block_hash=block.parent,
            token_ids=block.tokens,
            block_size=self._block_size,
            medium=self._sender.medium,
            # As in vLLM: the first block of a text has the salt, on which the hashes of the others
            # depend.
            extra_keys=[[_shown_salt(block.salt)]] if salted and block.salt else None,
        )

    def _chains(self, hashes: Iterable[int]) -> list[KVEvent]:
        """Blocks in an order in which each parent comes before its children."""
        kept, self._pending, published = self._pending, [], self._published
        self._published = set()
        children: dict[int | None, list[int]] = {}
        for found in hashes:
            parent = self._blocks[found].parent
            children.setdefault(parent if parent in published else None, []).append(found)
        waiting = children.get(None, [])[::-1]
        while waiting:
            found = waiting.pop()
            self._publish(found)
            waiting += children.get(found, [])
        events, self._pending = self._pending, kept
        self._published = published
        return events

    def _forget(self) -> None:
        self._pending = [AllBlocksCleared()]
        self._stored.clear()
        self._published.clear()

    def _look_at_all(self) -> None:
        """Recovers from lost events: asks the cache which blocks of the known texts it has."""
        self._forget()
        self._idle.update(dict.fromkeys(self._blocks))
        inner = {block.parent for block in self._blocks.values()}
        for leaf in [found for found in self._blocks if found not in inner]:
            chain = [leaf]
            parent = self._blocks[leaf].parent
            while parent is not None and parent in self._blocks:
                chain.append(parent)
                parent = self._blocks[parent].parent
            if parent is not None:
                continue  # its beginning was forgotten
            chain.reverse()
            text = [token for one in chain for token in self._blocks[one].tokens]
            self._look(chain, text, self._blocks[leaf].salt)

    def _look(self, hashes: list[int], text: TokenIds, salt: bytes | None) -> None:
        for found in hashes[: self._cache.prefix_probe(text, salt) // self._block_size]:
            self._stored.add(found)
            self._idle.pop(found, None)
            self._publish(found)


class EventPublisher(Closable):
    """Publishes the prefix events of one or several caches of this process.

    Routers subscribe at `endpoint`. At `replay_endpoint` they ask for lost batches, by the number
    of the first one as 8 bytes, big endian. Both are bound; a port `*` takes a free port, which the
    properties of these names return. Three frames are sent: the topic, the number of the batch and
    the batch. Numbers begin at the current time, so they are higher after a restart of the process.

    `form` is the encoding of events: "map" as in vLLM since 2026, "array" as before; Dynamo reads
    both. `medium` is the routers' name for the memory: they call the memory in which an engine
    computes "GPU", even on CPUs.

    The last `replay_batches` batches are kept for replay. A reader that asks for older ones gets
    AllBlocksCleared and all that is cached now. Up to `high_water_mark` batches wait for a slow
    subscriber; it loses later ones and asks for them again. Both numbers count batches, not bytes.
    A batch contains the changes between two polls: up to 5 bytes for each stored token and 9 for
    each block. 100,000 batches of 1,000 tokens are half a gigabyte for each slow subscriber, so use
    smaller numbers for long prompts.

    After `heartbeat_ms` without a batch (0: never) an empty one is sent, so that a reader that lost
    the last batch notices. `idle_blocks` limits how many blocks of added texts are remembered while
    they are not cached; 65,536 blocks of 16 tokens take about 30 MB.

    A thread of its own serves the sockets. Close it when done; a forgotten one is closed when
    Python collects it, with a ResourceWarning. After fork() only the parent can use it.
    """

    def __init__(
        self,
        endpoint: str = "tcp://127.0.0.1:5557",
        *,
        replay_endpoint: str | None = None,
        topic: str = "",
        medium: str | None = "GPU",
        form: EventForm = "map",
        replay_batches: int = 10_000,
        high_water_mark: int = 100_000,
        heartbeat_ms: int = 1000,
        idle_blocks: int = 1 << 16,
    ) -> None:
        self._closed = True
        if form not in ("map", "array"):
            raise misuse(f'form: "map" or "array" is needed, this is {form!r}')
        self._idle_blocks = unsigned(idle_blocks, 32, "idle_blocks")
        self._followed: list[FollowedCache] = []
        self._sender = Sender(
            endpoint,
            replay_endpoint,
            topic,
            medium,
            form,
            replay_batches,
            high_water_mark,
            heartbeat_ms,
        )
        self._closed = False

    @property
    def endpoint(self) -> str:
        return self._sender.endpoint

    @property
    def replay_endpoint(self) -> str | None:
        return self._sender.replay_endpoint

    @property
    def batches(self) -> int:
        """The number of published batches."""
        return self._sender.batches

    def follow(self, cache: CacheBase, rank: int = 0) -> FollowedCache:
        """Starts to publish the events of a cache, under its own data-parallel rank. Its
        PrefixConfig needs `max_events`: room for the events between two polls.
        """
        self._sender.check_usable()
        rank = unsigned(rank, 31, "rank")
        if any(one._rank == rank and not one._closed for one in self._followed):
            raise misuse(f"rank: another cache is followed as rank {rank}")
        if not cache.config.prefix or not cache.config.prefix.max_events:
            raise MisuseError(
                Status.UNSUPPORTED, "this cache keeps no events: PrefixConfig(max_events=...)"
            )
        followed = FollowedCache(cache, self._sender, rank, self._idle_blocks)
        self._followed = [one for one in self._followed if not one._closed] + [followed]
        self._sender.followed = list(self._followed)
        followed.poll()
        return followed

    def close(self) -> None:
        """Tells routers that nothing is cached here any more, and closes the sockets after at most
        a second. A forked child only drops what it inherited.
        """
        if self._closed:
            return
        self._closed = True
        if self._sender.owner == os.getpid():
            for followed in self._followed:
                followed.close()
            self._sender.stop()

    def _shown(self) -> str:
        return f"{self.endpoint}, {self.batches} batch{'es' * (self.batches != 1)}"

    def __del__(self) -> None:
        if not self._closed and self._sender.owner == os.getpid():
            self._closed = True
            self._sender.stop(wait=False)
            warnings.warn("EventPublisher was never closed", ResourceWarning, stacklevel=2)


def _shown_salt(salt: bytes) -> str:
    """Salts are bytes here and text in vLLM's events."""
    return salt.decode(errors="backslashreplace")
