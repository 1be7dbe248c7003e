"""What the library reports: counts and sizes.

Made by generate_raw.py from bindings/api/api.json: do not edit.
"""

from __future__ import annotations

import builtins
import dataclasses

from . import raw


@dataclasses.dataclass(frozen=True)
class PoolStats:
    """Counts of one pool of blocks: of a pkv_pool, or of a layer group of a cache. blocks = free +
    used + retired.
    """

    block_size: int
    """Tokens per block."""
    blocks: int
    """Capacity."""
    free: int
    """Blocks nobody holds."""
    used: int
    """Blocks with at least one reference."""
    shared: int
    """Blocks with more than one."""
    retired: int
    """Blocks out of service because their generation ran out."""
    references: int
    """References in all."""
    slots_filled: int
    """Slots that hold a token; those of a shared block count once."""
    used_peak: int
    """The most blocks in use at once so far. With 4096 blocks or more it is an estimate where
    several threads took some at the same moment.
    """


@dataclasses.dataclass(frozen=True)
class CacheStats:
    """Counts of a cache over all layer groups. Since 0.1."""

    sessions: int
    """Open sessions."""
    snapshots: int
    """Open snapshots."""
    batches: int
    """Batches begun and neither committed nor aborted."""
    blocks: int
    """Capacity, summed over groups."""
    free_blocks: int
    """Of those, free."""
    used_blocks: int
    """Of those, in use; a shared block counts once."""
    used_blocks_peak: int
    tokens: int
    """Committed tokens over all sessions (shared ones count in each)."""
    slots_filled: int
    """Slots that hold a token, over all blocks and groups; a shared one counts once."""
    slots_reserved: int
    """Slots of all blocks in use. slots_filled / slots_reserved is the utilization."""
    bytes_reserved: int
    """Bytes of K and V memory the cache has mapped or allocated."""
    copied_blocks: int
    """Blocks copied by copy-on-write so far."""
    commits: int
    """Batches committed so far."""
    aborts: int
    """Batches aborted so far."""
    committed_tokens: int
    """Tokens committed so far."""
    suspended_sessions: int
    """Sessions suspended now."""
    suspensions: int
    """Sessions suspended so far."""
    evictable_blocks: int
    """Used blocks that only the prefix index holds: begin takes them where free ones are short."""


@dataclasses.dataclass(frozen=True)
class BlockState:
    """What one word per block holds."""

    id: int
    generation: int
    """How often this id has been freed."""
    references: int
    """0: free."""
    filled: int
    """Slots claimed, 0 to block_size."""
    sealed: int
    """1: read only."""


@dataclasses.dataclass(frozen=True)
class CachePlan:
    """Sizes of K and V before anything is allocated."""

    groups: int
    bytes_per_token: int
    """K and V of one token in all layers (of the group or of all groups)."""
    bytes_per_block: int
    """block_size times that."""
    blocks: int
    """Blocks, summed over groups."""
    tokens: int
    """Tokens that fit: the smallest over groups without a window (over all, if each has one)."""
    total_bytes: int
    """Bytes of all K and V memory."""
    bookkeeping_bytes: int
    """What the allocator's own tables take beside it."""


@dataclasses.dataclass(frozen=True)
class CacheInfo:
    """What a cache was made with, defaults filled in."""

    storage: raw.Storage
    layout: raw.Layout
    block_size: int
    groups: int
    layers: int
    """Over all groups."""
    threads: int
    isa: raw.Isa
    """The one whose kernels run."""


@dataclasses.dataclass(frozen=True)
class SessionInfo:
    """What a session holds now."""

    priority: int
    suspended: int
    """1: between pkv_session_suspend and pkv_session_resume."""
    length: int
    """Committed tokens."""
    total: int
    """With the remembered ones that are to be computed again; length if there are none."""
    blocks: int
    """Blocks held, over all groups, reserved ones too."""
    exclusive_blocks: int
    """Of those, held by nobody else: what a suspend or a close gives back."""


@dataclasses.dataclass(frozen=True)
class PrefixStats:
    """Figures of one salt's share of the index, or of all of it."""

    matches: int
    """Calls of pkv_session_match_prefix, and resumes."""
    asked_tokens: int
    """Tokens asked for."""
    matched_tokens: int
    """Tokens found."""
    matched_blocks: int
    """Whole blocks found, positions counted once over all groups."""
    published_blocks: int
    """Block positions stored."""
    evicted_blocks: int
    """Block positions removed for want of memory."""
    cached_blocks: int
    """Block positions stored now."""
    evictable_blocks: int
    """Of those, used by nobody and not pinned."""
    expelled_blocks: int
    """Block positions removed so far because their salt's quota was full."""
    cleared_blocks: int
    """Block positions removed so far by pkv_prefix_clear."""
    pinned_blocks: int
    """Block positions pinned now."""


@dataclasses.dataclass(frozen=True)
class PrefixEvent:
    """One block position, of all layer groups. A block is stored after and goes before the one that
    precedes it. This struct is pinned: it will not grow.
    """

    number: int
    """Counts from 0."""
    hash: int
    """Of the block and all before it: see pkv_prefix_hash_blocks."""
    parent: int
    """Hash of the block before it; of the first block, of the salt."""
    position: int
    """Of its first token."""
    kind: raw.PrefixEventKind


@dataclasses.dataclass(frozen=True)
class FileInfo:
    """What a file says of itself."""

    version: int
    """Of the format: 1 without a key, 2 with one."""
    bytes: int
    """The file."""
    kv_bytes: int
    """Of those, keys and values."""
    sessions: int
    tokens: int
    """Of all sessions; shared ones count in each."""
    stored_tokens: int
    """Positions that keys and values are stored of; shared ones count once."""
    prefix_entries: int
    """Texts of the prefix index."""
    block_size: int
    """Of the cache that was saved."""
    groups: int
    layers: int
    """Over all groups."""
    has_kv: int
    """0: saved with storage NONE."""
    authenticated: int
    """1: saved with a key, so encrypted and authenticated."""
    fingerprint_size: int
    fingerprint: builtins.bytes


@dataclasses.dataclass(frozen=True)
class StoreStats:
    """Items are blocks of one layer group."""

    down: int
    """1: the store failed lately and is left alone for a while."""
    queued_blocks: int
    """Block positions that wait to be written."""
    dropped_blocks: int
    """Block positions not written: the queue was full, their memory was needed, or the store
    failed.
    """
    written_items: int
    written_bytes: int
    known_items: int
    """That the store had already."""
    asked_items: int
    """Looked for in the store."""
    read_items: int
    read_bytes: int
    corrupt_items: int
    """That were not as they had been put: misses."""
    failures: int
    """Calls that the store failed."""
