"""What the library reports: counts and sizes.

Made by generate_raw.py from the headers of C: do not edit.
"""

from __future__ import annotations

import builtins
import dataclasses

from . import raw


@dataclasses.dataclass(frozen=True)
class PoolStats:
    """Statistics of a pkv_pool, of one layer group of a cache, or sums over all groups. Blocks that
    are neither free nor in use are retired: they are never used again because their generation
    reached its limit.
    """

    blocks: int
    """Capacity. With groups_share_memory: blocks in the pages that the group has now."""
    free_blocks: int
    """Blocks without references."""
    used_blocks: int
    """Blocks with at least one reference."""
    used_blocks_peak: int
    """The most blocks used at once so far; of all groups, the sum of what each used at most. An
    estimate if the pool has 4096 blocks or more and several threads took blocks at the same time.
    """
    shared_blocks: int
    """Blocks with more than one reference."""
    references: int
    """References to all blocks."""


@dataclasses.dataclass(frozen=True)
class CacheStats:
    """Statistics of a cache over all layer groups, beside those of their pools. Fields "so far"
    only rise; the others are current values. Since 1.0.
    """

    sessions: int
    """Open sessions."""
    snapshots: int
    """Open snapshots."""
    batches: int
    """Batches in progress: neither committed nor aborted."""
    suspended_sessions: int
    """Sessions suspended now."""
    evictable_blocks: int
    """Blocks in use that only the prefix index holds and that are not pinned. They are evicted when
    free blocks run out.
    """
    tokens: int
    """Committed tokens of all sessions; shared ones count in each session."""
    filled_slots: int
    """Slots that hold a token, over all groups; a shared block counts once."""
    memory_bytes: int
    """Bytes of K and V memory that the cache has mapped or allocated."""
    copied_blocks: int
    """Blocks copied by copy-on-write so far."""
    commits: int
    """Batches committed so far."""
    committed_tokens: int
    """Tokens committed so far."""
    suspensions: int
    """Sessions suspended so far."""
    pages: int
    """Pages in all."""
    free_pages: int
    """Pages of no group now."""
    moving_blocks: int
    """Blocks that it copies now; the library may not give them up."""
    failed_copies: int
    """Calls of it that failed so far."""


@dataclasses.dataclass(frozen=True)
class CachePlan:
    """Sizes of K and V, for one layer group or all of them."""

    group_count: int
    """The number of groups that these sizes cover."""
    bytes_per_token: int
    """K and V of one token in all layers; states have none. With OPAQUE_KV: its part of a block,
    rounded up.
    """
    bytes_per_block: int
    """K and V of block_size tokens, or one state, in all layers."""
    blocks: int
    """Blocks, summed over groups; with groups_share_memory, each group counts as if it had all
    memory.
    """
    tokens: int
    """Tokens that fit: the lowest number of any group without a window or states. If there is no
    such group, the lowest of all groups.
    """
    memory_bytes: int
    """Bytes of all K and V memory; of opaque groups, the engine's."""
    bookkeeping_bytes: int
    """Bytes of the pools' own tables."""


@dataclasses.dataclass(frozen=True)
class CacheInfo:
    """The options of a cache, with defaults filled in."""

    storage: raw.Storage
    """Where K and V are stored."""
    layout: raw.Layout
    """The layout of the bytes."""
    block_size: int
    """Tokens per block."""
    group_count: int
    """The number of layer groups."""
    layers: int
    """Layers of all groups."""
    threads: int
    """Threads that compute attention."""
    isa: raw.Isa
    """The instruction set of the kernels that run."""


@dataclasses.dataclass(frozen=True)
class SessionInfo:
    """The properties of a session."""

    priority: int
    """From the session's config, or set later."""
    suspended: int
    """1: suspended, and neither resumed nor trimmed since."""
    length: int
    """Committed tokens."""
    total: int
    """Committed tokens, plus those to be computed again."""
    blocks: int
    """Blocks held, over all groups, including reserved ones."""
    exclusive_blocks: int
    """Blocks held by nothing else: suspend or close frees them."""


@dataclasses.dataclass(frozen=True)
class ComputeInfo:
    """The threads and instruction set of a pkv_compute."""

    threads: int
    """Threads, including the caller's."""
    isa: raw.Isa
    """The instruction set of its kernels."""


@dataclasses.dataclass(frozen=True)
class PrefixStats:
    """Statistics of the index, for one salt or all."""

    matches: int
    """Admitted sessions, and resumes."""
    asked_tokens: int
    """Tokens looked for."""
    matched_tokens: int
    """Tokens found."""
    matched_blocks: int
    """Full block positions found."""
    published_blocks: int
    """Block positions cached so far."""
    evicted_blocks: int
    """Block positions removed so far because memory was needed."""
    expelled_blocks: int
    """Block positions removed so far because a salt's quota was full."""
    cleared_blocks: int
    """Block positions removed so far by pkv_prefix_clear and DROP."""
    cached_blocks: int
    """Block positions cached now."""
    evictable_blocks: int
    """Cached ones that are unused and not pinned."""
    pinned_blocks: int
    """Cached ones that are pinned."""
    yielded_pins: int
    """Pins that ended so far because a step needed their blocks."""


@dataclasses.dataclass(frozen=True)
class PrefixEvent:
    """A change of one block position; an unknown kind is a removal. To predict a match, find the
    last block of the prompt with an event STORED and no later removal: the match ends after it.
    Without windows and states, all positions before it are stored as well; with them, some may be
    missing. This struct will never grow.
    """

    number: int
    """Counts from 0."""
    hash: int
    """Hash of the block and all blocks before it: see pkv_prefix_hash_blocks."""
    parent: int
    """Hash of the previous block; for the first block, of the salt."""
    position: int
    """Position of its first token in the sequence."""
    kind: raw.PrefixEventKind
    """What happened."""


@dataclasses.dataclass(frozen=True)
class HintResult:
    """The result of a hint."""

    outcome: raw.HintOutcome
    """Whether it was done."""
    reason: raw.HintReason
    """Why it was not done, or not for all tokens."""
    tokens: int
    """How many tokens the hint covers, in full blocks: of the range, or (PIN, UNPIN, PREFETCH,
    SHARE, DEMOTE) of everything before `end`. RETURN: all tokens of the session.
    """


@dataclasses.dataclass(frozen=True)
class FileInfo:
    """The properties of a file."""

    version: int
    """Version of the format: 1."""
    bytes: int
    """Size of the file."""
    kv_bytes: int
    """Bytes of K and V."""
    sessions: int
    """Sessions and snapshots."""
    tokens: int
    """Tokens of all of these; shared ones count in each."""
    stored_tokens: int
    """Positions whose K and V are in the file; shared ones count once."""
    prefix_entries: int
    """Entries of the prefix index."""
    block_size: int
    """Tokens per block of the cache that was saved."""
    group_count: int
    """Layer groups."""
    layers: int
    """Layers over all groups."""
    has_kv: int
    """0: saved with storage NONE, without opaque groups."""
    authenticated: int
    """1: saved with a key, so encrypted and authenticated."""
    fingerprint_size: int
    """Bytes of the fingerprint; 0: the file has none."""
    fingerprint: builtins.bytes
    """The fingerprint."""


@dataclasses.dataclass(frozen=True)
class StoreStats:
    """Statistics of a cache's store. An item is one block of one layer group."""

    down: int
    """1: the store failed recently; reads or writes pause for a while."""
    queued_blocks: int
    """Block positions that wait to be written."""
    unwritten_blocks: int
    """Block positions not written, because the queue was full, memory was needed, or the store
    failed.
    """
    written_items: int
    """Items that the store accepted."""
    written_bytes: int
    """Bytes of these items."""
    known_items: int
    """Items not written because the store had them."""
    asked_items: int
    """Items looked for in the store."""
    read_items: int
    """Items that the store returned."""
    read_bytes: int
    """Bytes of these items."""
    corrupt_items: int
    """Items with wrong bytes; they count as misses."""
    failures: int
    """Calls that failed, or did not store or use all items."""
