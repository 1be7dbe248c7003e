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
    """Slots (tokens) per block."""
    blocks: int
    """Capacity in blocks; of a group with shared_memory the blocks of the pages that it has now."""
    free: int
    """Blocks that nobody holds."""
    used: int
    """Blocks with at least one reference."""
    used_peak: int
    """The most blocks in use at once so far. With 4096 blocks or more it is an estimate where
    several threads took blocks at the same moment.
    """
    shared: int
    """Blocks with more than one reference."""
    retired: int
    """Blocks out of service because their generation ran out."""
    references: int
    """References to all blocks."""
    slots_filled: int
    """Slots that hold a token; those of a shared block count once."""


@dataclasses.dataclass(frozen=True)
class CacheStats:
    """Counts of a cache over all layer groups. Since 0.1."""

    sessions: int
    """Open sessions."""
    snapshots: int
    """Open snapshots."""
    batches: int
    """Batches begun and neither committed nor aborted."""
    suspended_sessions: int
    """Sessions suspended now."""
    blocks: int
    """Capacity in blocks, summed over groups; with shared_memory the blocks of the pages that
    groups have now.
    """
    free_blocks: int
    """Blocks that are free."""
    used_blocks: int
    """Blocks in use; a shared block counts once."""
    used_blocks_peak: int
    """The most blocks in use at once so far."""
    evictable_blocks: int
    """Used blocks that only the prefix index holds: begin takes them where free ones are short."""
    tokens: int
    """Committed tokens of all sessions; shared ones count in each."""
    slots_filled: int
    """Slots that hold a token, over all groups; shared ones count once."""
    slots_reserved: int
    """Slots of blocks in use; slots_filled of them are utilized."""
    bytes_reserved: int
    """Bytes of K and V memory that the cache has mapped or allocated."""
    copied_blocks: int
    """Blocks copied by copy-on-write so far."""
    commits: int
    """Batches committed so far."""
    aborts: int
    """Batches aborted so far."""
    committed_tokens: int
    """Tokens committed so far."""
    suspensions: int
    """Sessions suspended so far."""
    page_bytes: int
    """Bytes of a page."""
    pages: int
    """Pages in all."""
    free_pages: int
    """Pages that belong to no group now."""


@dataclasses.dataclass(frozen=True)
class CachePlan:
    """Sizes of K and V, of one layer group or of all."""

    groups: int
    """How many groups these sizes are of."""
    bytes_per_token: int
    """K and V of one token in all layers; states have none."""
    bytes_per_block: int
    """block_size times that, or a state of every layer."""
    blocks: int
    """Blocks, summed over groups; with shared_memory those that all of it would be, of each."""
    tokens: int
    """Tokens that fit: the smallest over groups with neither a window nor states (over all, if
    there is none).
    """
    total_bytes: int
    """Bytes of all K and V memory."""
    bookkeeping_bytes: int
    """What the allocator's own tables take beside it."""


@dataclasses.dataclass(frozen=True)
class CacheInfo:
    """What a cache was made with, defaults filled in."""

    storage: raw.Storage
    """Where K and V live."""
    layout: raw.Layout
    """How the bytes of a block are arranged."""
    block_size: int
    """Tokens per block."""
    groups: int
    """How many layer groups."""
    layers: int
    """Over all groups."""
    threads: int
    """Threads that compute attention."""
    isa: raw.Isa
    """The one whose kernels run."""


@dataclasses.dataclass(frozen=True)
class ComputeInfo:
    """What a pkv_compute runs on."""

    threads: int
    """The caller's included."""
    isa: raw.Isa
    """The one whose kernels run."""


@dataclasses.dataclass(frozen=True)
class BlockState:
    """The state of one block."""

    id: int
    """The block id."""
    generation: int
    """How often this id has been freed."""
    references: int
    """0: free."""
    filled: int
    """Slots claimed, 0 to block_size."""
    sealed: int
    """1: read only."""


@dataclasses.dataclass(frozen=True)
class SessionInfo:
    """What a session holds now."""

    priority: int
    """That of the session's config, or set since."""
    suspended: int
    """1: between pkv_session_suspend and pkv_session_resume."""
    length: int
    """Committed tokens."""
    total: int
    """With remembered ones that are to be computed again."""
    blocks: int
    """Blocks held, over all groups, reserved ones too."""
    exclusive_blocks: int
    """Of these, held by nobody else: a suspend or a close frees them."""


@dataclasses.dataclass(frozen=True)
class FileInfo:
    """What a file says of itself."""

    version: int
    """Version of the format: 1 without a key, 2 with one."""
    bytes: int
    """Size of the file."""
    kv_bytes: int
    """Of these, keys and values."""
    sessions: int
    """Sequences."""
    tokens: int
    """Tokens of all sequences; shared ones count in each."""
    stored_tokens: int
    """Positions whose K and V are stored; shared ones count once."""
    prefix_entries: int
    """Texts of the prefix index."""
    block_size: int
    """Tokens per block of the cache that was saved."""
    groups: int
    """Layer groups."""
    layers: int
    """Layers over all groups."""
    has_kv: int
    """0: saved with storage NONE."""
    authenticated: int
    """1: saved with a key, so encrypted and authenticated."""
    fingerprint_size: int
    """Bytes of the fingerprint; 0: the file has none."""
    fingerprint: builtins.bytes
    """What the saver named the model by."""


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
    """Whole block positions found."""
    published_blocks: int
    """Block positions stored so far."""
    evicted_blocks: int
    """Block positions removed so far because memory was needed."""
    expelled_blocks: int
    """Block positions removed so far because their salt's quota was full."""
    cleared_blocks: int
    """Block positions removed so far by pkv_prefix_clear."""
    cached_blocks: int
    """Block positions stored now."""
    evictable_blocks: int
    """Of these, used by nobody and not pinned."""
    pinned_blocks: int
    """Of these, pinned."""


@dataclasses.dataclass(frozen=True)
class PrefixEvent:
    """What happened to one block position. A match of a text ends after the last of its positions
    that were stored and have not gone. Without windows a position is stored after the one that
    precedes it, and goes before it; where a group has a window, positions before it may have gone.
    This struct is pinned: it will not grow.
    """

    number: int
    """Counts from 0."""
    hash: int
    """Hash of the block and all before it: see pkv_prefix_hash_blocks."""
    parent: int
    """Hash of the block before it; of the first block, hash of the salt."""
    position: int
    """Position of its first token."""
    kind: raw.PrefixEventKind
    """What happened."""


@dataclasses.dataclass(frozen=True)
class StoreStats:
    """What a tier has done so far. An item is a block of one layer group."""

    down: int
    """1: the store failed lately and is left alone for a while."""
    queued_blocks: int
    """Block positions that wait to be written."""
    dropped_blocks: int
    """Block positions not written: the queue was full, memory was needed, or the store failed."""
    written_items: int
    """Items that the store took."""
    written_bytes: int
    """Bytes of these items."""
    known_items: int
    """Items not written because the store had them already."""
    asked_items: int
    """Items that were looked for in the store."""
    read_items: int
    """Items that the store gave back."""
    read_bytes: int
    """Bytes of these items."""
    corrupt_items: int
    """Items that were not as they had been put: misses."""
    failures: int
    """Calls that the store failed."""
