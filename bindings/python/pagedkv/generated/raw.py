"""The C interface of libpagedkv for ctypes.

Made by generate_raw.py from the headers of C: do not edit. Over 800 lines: generated.

Handles and pointers are c_void_p, which accept integers, byref(...) and arrays. Fields and
arguments that are enums are c_int.
"""
# fmt: off

from __future__ import annotations

import ctypes
import enum
from collections.abc import Callable
from ctypes import c_char_p as _text
from ctypes import c_float as _f32
from ctypes import c_int as _int
from ctypes import c_int32 as _i32
from ctypes import c_int64 as _i64
from ctypes import c_size_t as _size
from ctypes import c_uint8 as _u8
from ctypes import c_uint32 as _u32
from ctypes import c_uint64 as _u64
from ctypes import c_void_p as _p
from typing import Any

VERSION = "1.0.0"

ALL_GROUPS = 0xFFFFFFFF
"""A `group` parameter of pkv_cache_compute_plan and pkv_cache_get_pool_stats: all groups."""
NO_BLOCK = 0xFFFFFFFF
"""In a block table: a block that left the window. In a list: an unused entry."""
NO_TOKEN = -1
"""A token whose id the library does not know. Every other id is allowed, also negative ones.
Matches compare ids: if an engine makes up ids (for images, say), equal ids must mean equal input.
"""
NO_SLOT = -1
"""The slot of a padding row: nothing is written or read for it."""
NO_SINKS = 0xFFFFFFFF
"""A value of `sinks` that means none, even if the layer's group has some."""
ALL_SALTS = 0xFFFFFFFFFFFFFFFF
"""Pass it as salt_size to pkv_prefix_get_stats or pkv_prefix_clear to mean all salts. Other
functions refuse it.
"""
NO_QUOTA = 0xFFFFFFFFFFFFFFFF
"""Pass it as `blocks` to pkv_prefix_set_quota to mean no limit."""
HINT_NEVER = 0xFFFFFFFFFFFFFFFF
"""Pass it as duration_ms of RETURN to mean that the text will not continue."""


class Status(enum.IntEnum):
    """The result of a call: PKV_OK, or why it failed."""

    OK = 0
    """The call succeeded."""
    INVALID_ARGUMENT = 100
    """NULL, an unknown enum or flag, a bad struct_size, a size of 0."""
    OUT_OF_RANGE = 101
    """An index, layer, position or block id past the end."""
    OVERFLOW = 102
    """A size or an index does not fit into its type."""
    BUFFER_TOO_SMALL = 103
    """An array is too short; its count output is the number needed."""
    STALE_HANDLE = 104
    """The handle or block was closed, released or never valid."""
    NOT_HELD = 105
    """A block was released more often than held."""
    WRONG_CACHE = 106
    """A session, batch or snapshot of another cache."""
    BUSY = 107
    """Another call or an open batch uses the object."""
    REENTRANT = 108
    """A call from inside one of the caller's hooks."""
    FORKED = 109
    """A handle inherited by fork(): the child may only close it."""
    UNSUPPORTED = 110
    """Not available in this build, on this CPU or with this config."""
    INCOMPLETE = 111
    """A layer was not yet written in this step."""
    SUSPENDED = 112
    """The session is suspended: resume it first."""
    TOO_LARGE = 113
    """More than the whole cache can hold: refuse the request."""
    BATCH_TOO_LARGE = 114
    """Each session fits, but the batch as a whole never does: begin with fewer sessions."""
    OUT_OF_BLOCKS = 200
    """Too few free blocks: pkv_last_error_details."""
    OUT_OF_MEMORY = 201
    """The allocator returned no memory."""
    LIMIT_REACHED = 202
    """A count is at its limit: open objects or references to a block."""
    CORRUPT = 300
    """Data is damaged or cut short."""
    WRONG_VERSION = 301
    """A file has a format version that this library does not know."""
    MISMATCH = 302
    """Shapes, dtypes or the fingerprint of a file are not the cache's."""
    WRONG_KEY = 303
    """The key is not the file's: a different one, none, or one for a file without a key."""
    IO = 400
    """The system or a server refused: see pkv_last_error_details."""
    INTERNAL = 500
    """An invariant of the library is broken: please report it."""


class Dtype(enum.IntEnum):
    """Element types, in native byte order. Rows that a caller passes are F32, F16 or BF16. Keys and
    values can be stored in any type. Conversions round to nearest even. INT8 has one scale per
    token and KV head. INT4 has one scale per 32 dims of each. Scales are computed when a row is
    stored, from only that row, so rows stored earlier never change. If m is the largest magnitude
    among the elements that share a scale, the error of each is at most m / 254 (INT8) or m / 13.8
    (INT4). If one of these elements is NaN or infinite, all become NaN. If m is below 1e-30, all
    become 0.
    """

    F32 = 1
    """IEEE binary32."""
    F16 = 2
    """IEEE binary16."""
    BF16 = 3
    """The upper half of binary32."""
    INT8 = 4
    """An element is scale * n, with n a signed byte and one fp32 scale per token and KV head."""
    INT4 = 5
    """An element is scale * n, with n a signed nibble and one bf16 scale per 32 dims."""
    FP8_E4M3 = 6
    """OCP E4M3 without a scale, up to 448; larger numbers become 448, infinities NaN."""
    FP8_E5M2 = 7
    """OCP E5M2 without a scale, up to 57344; larger finite numbers become 57344, infinities
    stay.
    """


class LogLevel(enum.IntEnum):
    """The severity of a log message."""

    WARNING = 1
    """Something is wrong, or slower than it could be."""
    INFO = 2
    """Something normal: evictions begin, a store works again."""


class Durability(enum.IntEnum):
    """Whether a call that writes files waits until they are on disk (fsync)."""

    DEFAULT = 0
    """ON for pkv_file_save, OFF for a directory as a store."""
    ON = 1
    """It waits."""
    OFF = 2
    """It does not wait: a power failure may destroy the files that were written last, and those
    that they replace. (A killed process destroys neither.)
    """


class Storage(enum.IntEnum):
    """Where keys and values are stored."""

    PAGED = 0
    """In the library's blocks (default)."""
    NONE = 1
    """In the engine's memory; the cache has only block ids. Write, attend and read are UNSUPPORTED.
    The library can still copy the blocks if all groups are opaque (PKV_LAYERS_OPAQUE_KV,
    PKV_LAYERS_OPAQUE_STATES).
    """


class Layout(enum.IntEnum):
    """The layout of the bytes of a paged cache."""

    PACKED = 0
    """Block-major, for this library's kernels (default). A tile is 16 tokens of one KV head. A
    block holds [layer][tile][kv head][K tile | V tile], or with memory_directory [layer][kv
    head][tile][K tile | V tile]. Let p be 2 for BF16, 4 for INT8, 8 for INT4 and 1 for other types.
    Element (token t, dim d) of a tile is at K: ((d / p) * 16 + t) * p + d % p V: ((t / p) *
    value_dim + d) * p + (t % p) / 2 + (t % 2) * (p / 2) (p = 1: t * value_dim + d) counted in
    elements (INT4: nibble i is in byte i / 2, even i in the lower half). The scales follow the
    elements: INT8 [16 tokens], INT4 [ceil(dim / 32)][16 tokens]. A tile is padded to a multiple of
    64 bytes. Later versions may order these bytes differently; those of PLAIN stay.
    """
    PLAIN = 1
    """Layer-major, for engines with their own kernels: per layer one K tensor
    [block][block_size][kv head][key_dim] and one V tensor [block][block_size][kv head][value_dim].
    Each can also be indexed by slot, as [slot][kv head][dim]. A row of INT8 or INT4 is its elements
    followed by its scales.
    """


class Isa(enum.IntEnum):
    """Instruction sets. On x86 each one includes those before it in this order: SSE2, AVX2, AVX512,
    AVX512_VNNI, AVX512_BF16, AMX. On Arm the order is NEON, NEON_DOT, NEON_BF16.
    """

    AUTO = 0
    """The fastest that this CPU has."""
    SCALAR = 1
    """Plain C++."""
    SSE2 = 2
    """Every x86-64 CPU has it."""
    AVX2 = 3
    """With FMA and F16C."""
    AVX512 = 4
    """F, CD, DQ, BW, VL."""
    AVX512_VNNI = 5
    """AVX512 with VNNI."""
    AVX512_BF16 = 6
    """AVX512 with BF16, VBMI and VNNI."""
    AMX = 7
    """AVX512_BF16 with AMX-TILE and AMX-BF16, if the system permits them. With AMX and AUTO the
    library asks for this permission, which raises the minimum size of signal stacks
    (guide/threads.md).
    """
    NEON = 8
    """Every Arm64 CPU has it."""
    NEON_DOT = 9
    """NEON with DotProd."""
    NEON_BF16 = 10
    """NEON with DotProd, BF16 and I8MM."""


class Rotation(enum.IntEnum):
    """How rows of K and V are rotated before they are stored (not RoPE). A rotation spreads a few
    large dims over all others, which makes low-bit types more accurate (guide/quality.md). Queries
    are rotated like K, and outputs are rotated back, so scores stay the same and callers see no
    rotation. The rotation is computed in fp32, in write, attend and read. Blocks, files and items
    of stores hold rotated rows. Rows that are read back have an fp32 rounding error, even with
    types that otherwise return exactly what was written. A NaN or an infinity spreads to all dims
    that are rotated together.
    """

    NONE = 0
    """Rows are stored as they are (default)."""
    HADAMARD = 1
    """Let n be the largest power of two that divides the head dim. Each run of n dims is multiplied
    by 1 / sqrt(n), by a sign for each dim, and by the n x n Hadamard matrix (Sylvester's). The sign
    of dim d is minus if bit d of the fraction of pi is 1: the bits of 0x243F6A88 0x85A308D3 ...,
    highest first. In latent groups, n is that of K, and value_dim must be a multiple of it.
    """


class HugePages(enum.IntEnum):
    """Huge pages for the memory of K and V."""

    ADVISE = 0
    """Transparent huge pages if the system has them (default)."""
    OFF = 1
    """Normal pages."""
    REQUIRE = 2
    """Reserved 2 MiB pages (hugetlbfs), else PKV_OUT_OF_MEMORY."""


class LayerKind(enum.IntEnum):
    """What the layers of a group keep."""

    KV = 0
    """Keys and values (default)."""
    LATENT = 1
    """Keys; V is the first value_dim dims of K (MLA, absorbed)."""
    STATES = 2
    """A state of layer_bytes bytes (linear attention, state-space models, short convolutions). A
    block holds one state of each layer. See pkv_batch_get_states.
    """
    OPAQUE_KV = 3
    """Keys and values that only the engine can read and write: they are on a device, say. A block
    has layer_bytes bytes in each layer, and block_io copies it. Calls that need the numbers (write,
    attend, read, kv_view) are UNSUPPORTED; the engine copies blocks as pkv_batch_get_block_copies
    says. With storage NONE, all groups are opaque, or none.
    """
    OPAQUE_STATES = 4
    """States that only the engine can read and write, with the rules of OPAQUE_KV."""


class Eviction(enum.IntEnum):
    """Which unused cached blocks are evicted first. The end of a sequence is evicted before its
    beginning, except for blocks that left a window (prefix.h).
    """

    LEARNED = 0
    """The blocks with the fewest expected hits per time in the cache. The cache learns these from
    how soon similar blocks were used again.
    """
    LRU = 1
    """The least recently used blocks."""


class PrefixUse(enum.IntEnum):
    """What a session does with the prefix index of its cache, if there is one."""

    SHARE = 0
    """Takes cached blocks, and adds its own to the index (default)."""
    MATCH = 1
    """Takes cached blocks, and adds none."""
    OFF = 2
    """Neither."""


class Retention(enum.IntEnum):
    """How long the prefix index keeps blocks: all unused blocks of lower retention are evicted
    before any of higher retention. Hints set it: see hint.h. A shared block has the highest of all
    its sessions.
    """

    LOW = -1
    """Prompts that hardly ever return: batch jobs, evaluations."""
    NORMAL = 0
    """Any other prompt (default)."""
    HIGH = 1
    """Prompts that must stay fast, even if they are rare."""


class MaskKind(enum.IntEnum):
    """The kind of data of a pkv_mask."""

    BITS = 1
    """uint64_t [rows][row_stride]: a row sees new token j of its own session if bit j % 64 of word
    j / 64 is set, unless the window hides it. Tokens from before the step are seen as without a
    mask. With a window or slopes, `positions` must be set.
    """
    PARENTS = 2
    """int32_t [rows]: a tree of speculative tokens. Each new token has the index of its parent
    among the new tokens of its session, which must be lower than its own, or -1 for none. It sees
    itself, its ancestors and, as without a mask, the tokens from before the step. For windows,
    sinks and slopes, its position is the number of tokens before the step plus its depth, wherever
    its row is. A session whose new tokens are a chain (-1, 0, 1, ...), such as a chunk of a prompt
    beside trees, costs as much as without a mask.
    """
    BYTES = 3
    """uint8_t, one per query and position: 0 hides the position; any other value shows it, unless
    the causal rule or the window hides it. The byte of query i of sequence s for column c is data[s
    * batch_stride + i * row_stride + c]. i counts the queries of the sequence from 0; in a padded
    batch with first rows it counts its rows, padding included. Positions before the first column
    are seen as without a mask.
    """


class IndexUnit(enum.IntEnum):
    """The unit of the indices of pkv_batch_get_kv_indices."""

    BLOCKS = 1
    """Block ids."""
    SLOTS = 2
    """Slots: block id * block size + offset in the block."""


class PrefixEventKind(enum.IntEnum):
    """What happened to a block position."""

    STORED = 1
    """A match can now end right after it."""
    EVICTED = 2
    """A match can no longer end there: a block that it needs was evicted."""
    EXPELLED = 3
    """It was removed because its salt's quota was full."""
    CLEARED = 4
    """It was removed by pkv_prefix_clear or DROP."""


class HintAction(enum.IntEnum):
    """What to do with the blocks of a range."""

    RETAIN = 1
    """Evicts blocks later or earlier than others, as `retention` says. For a text, it applies to
    the blocks cached now. A duration limits it in time, and may only raise the retention. For a
    session, it applies to the blocks that the session leaves behind; the duration starts when the
    session ends. Where ranges overlap, the latest hint wins; [0, 0) without a duration replaces all
    earlier ones. A shared block has the highest retention of all its sessions.
    """
    RETURN = 2
    """Says that a later session will probably begin with the tokens of this one in about
    duration_ms, for example when a tool returns. PKV_HINT_NEVER: none will; 0: unknown. Only for
    sessions. The policy LEARNED measures when sequences with similar hints (equal when rounded down
    to a power of two) really return, so a wrong hint costs little. Other policies ignore it. Forks
    and snapshots inherit it.
    """
    PIN = 3
    """Keeps what is in memory before `end`, used or not, until the duration has passed, UNPIN ends
    it, or a step needs the blocks. What is cached later is not pinned: pin again after the prefill
    or PREFETCH. There is one pin for each text and `end`: pinning again can make it last longer,
    never shorter, and one UNPIN ends it.
    """
    UNPIN = 4
    """Ends the pin that the same hint made with PIN, even if that was clipped. `tokens` of the
    result is where the pin ended.
    """
    PREFETCH = 5
    """Reads blocks that are in the store, but not in memory, into the prefix index, with the given
    retention; a later match finds those that have arrived. Uses only free and evictable blocks.
    Requests are served round-robin by salt, at most 64 pending; one more cancels the newest request
    of the salt with the most. A request that has not started within the duration is discarded. See
    pkv_store_wait.
    """
    SHARE = 6
    """Writes what is cached before `end` to the store now, instead of when its session ends."""
    DEMOTE = 7
    """As SHARE; blocks of the range get the retention LOW once all are written."""
    DROP = 8
    """Removes cached blocks from `end` back to `first`, stopping at the first block that something
    uses or that another text continues. Items in the store stay. On an open session, the drop
    happens at close and ignores `end`: everything from the lowest `first` of its DROP hints on is
    removed and not written to the store. Trimming to that point or before it cancels the drop. On a
    suspended session, blocks that are being written to the store stay.
    """


class HintOutcome(enum.IntEnum):
    """Whether a hint was done."""

    ACCEPTED = 1
    """Done."""
    CLIPPED = 2
    """Done for fewer tokens than asked; the reason says why."""
    DEFERRED = 3
    """It is queued, or waits for the end of the session."""
    REJECTED = 4
    """Not done; the reason says why."""
    MISSING = 5
    """Nothing of the range is cached, no full block lies in it, or there is no such pin."""


class HintReason(enum.IntEnum):
    """Why a hint was not done, or not for all tokens."""

    NO_REASON = 0
    """It was done for all tokens."""
    NOT_CACHED = 1
    """The rest is not cached."""
    LIMIT = 2
    """PIN: max_pinned_blocks. RETAIN: 64 ranges of a session. PREFETCH: 64 are pending. SHARE and
    DEMOTE: half of max_queued_blocks wait to be written.
    """
    QUOTA = 3
    """The quota of the salt; pins may take half of it."""
    IN_USE = 4
    """Sessions, pins, a store or longer texts need the rest."""
    NO_STORE = 5
    """The cache has no store."""
    STORE_DOWN = 6
    """The store failed, and is not asked for a while."""
    NO_INDEX = 7
    """The session does not use the prefix index (PKV_PREFIX_OFF)."""


class StreamKind(enum.IntEnum):
    """Where the bytes of a file come from or go to."""

    PATH = 1
    """A regular file by its path. A save writes a new file in the same directory and renames it
    when it is complete and on disk (fsync of the file, rename, fsync of its directory): at any
    time, even after a crash, the path is the old file or the new one. A new file has mode 0600 and
    belongs to the effective user. If it replaces a file that no other user can have put there, it
    keeps that file's permissions. This requires that (1) the old file belongs to the effective user
    and has one hard link, (2) its directory belongs to that user or to root, and (3) other users
    cannot write to the directory, or it is sticky. Set-id bits and access control lists are never
    kept. The permissions of the group and of others are kept only if the old file had no access
    control list and the new one can have the same Unix group. A path that ends in a symbolic link,
    a directory, a FIFO, a socket or a device is refused (PKV_IO). Links earlier in the path are
    followed. Anyone who can write to the directory or rename it can replace or delete saved files,
    and a load does not check a file's owner: only a key proves that nobody else wrote it. On file
    systems with O_TMPFILE, an unfinished file has no name. Otherwise, and during a rename, its name
    is ".pagedkv-", 16 hexadecimal digits and ".tmp", and its writer holds a lock on it (flock).
    Later saves in the directory delete such files of the effective user that nobody has locked. (If
    a network file system does not share locks between machines, save from one machine at a time.)
    """
    DESCRIPTOR = 2
    """An open, blocking descriptor, from its current position. It stays open; bytes after the file
    are neither read nor changed. A failed save leaves the bytes that it wrote.
    """
    BUFFER = 3
    """The caller's memory."""
    CALLBACKS = 4
    """The caller's functions. A load reads no byte after the file."""


class ErrorDetails(ctypes.Structure):
    _fields_ = [("status", _int), ("group", _u32), ("index", _u64), ("blocks_short", _u64),
        ("system_error", _i32), ("reserved", _u32)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", _p), ("dtype", _int), ("row_stride", _i64), ("head_stride", _i64),
        ("batch_stride", _i64)]


class Allocator(ctypes.Structure):
    _fields_ = [("alloc", _p), ("free", _p), ("user", _p)]


class Logger(ctypes.Structure):
    _fields_ = [("log", _p), ("user", _p)]


class Clock(ctypes.Structure):
    _fields_ = [("now_ms", _p), ("user", _p)]


class Runner(ctypes.Structure):
    _fields_ = [("run", _p), ("user", _p), ("threads", _u32), ("reserved", _u32)]


class BlockIo(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("reserved", _u32), ("user", _p), ("read", _p),
        ("write", _p)]


class PoolStats(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("reserved", _u32), ("blocks", _u64), ("free_blocks", _u64),
        ("used_blocks", _u64), ("used_blocks_peak", _u64), ("shared_blocks", _u64),
        ("references", _u64)]


class CacheStats(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("sessions", _u32), ("snapshots", _u32), ("batches", _u32),
        ("suspended_sessions", _u64), ("evictable_blocks", _u64), ("tokens", _u64),
        ("filled_slots", _u64), ("memory_bytes", _u64), ("copied_blocks", _u64), ("commits", _u64),
        ("committed_tokens", _u64), ("suspensions", _u64), ("pages", _u64), ("free_pages", _u64),
        ("moving_blocks", _u64), ("failed_copies", _u64)]


class LayerGroup(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("layers", _u32), ("layer_indices", _p), ("kind", _int),
        ("query_heads", _u32), ("kv_heads", _u32), ("key_dim", _u32), ("value_dim", _u32),
        ("dtype", _int), ("value_dtype", _int), ("window", _u32), ("sinks", _u32),
        ("rotation", _int), ("rotation_matrices", _p), ("layer_bytes", _u64),
        ("checkpoint_tokens", _u32), ("max_draft_tokens", _u32), ("blocks", _u64)]


class PrefixConfig(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("eviction", _int), ("max_pinned_blocks", _u64),
        ("max_blocks_per_salt", _u64), ("max_events", _u32), ("reserved", _u32),
        ("active_parameters", _u64)]


class CacheConfig(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("group_count", _u32), ("groups", _p), ("storage", _int),
        ("layout", _int), ("block_size", _u32), ("groups_share_memory", _u32),
        ("memory_bytes", _u64), ("watermark_blocks", _u32), ("huge_pages", _int),
        ("prefault", _u32), ("reserved", _u32), ("memory_directory", _p), ("threads", _u32),
        ("isa", _int), ("prefix", _p), ("store", _p), ("allocator", _p), ("runner", _p),
        ("logger", _p), ("block_io", _p), ("clock", _p)]


class CachePlan(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("group_count", _u32), ("bytes_per_token", _u64),
        ("bytes_per_block", _u64), ("blocks", _u64), ("tokens", _u64), ("memory_bytes", _u64),
        ("bookkeeping_bytes", _u64)]


class CacheInfo(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("storage", _int), ("layout", _int), ("block_size", _u32),
        ("group_count", _u32), ("layers", _u32), ("threads", _u32), ("isa", _int)]


class PoolConfig(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("blocks", _u32), ("allocator", _p)]


class SessionConfig(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("priority", _i32), ("prefix_use", _int), ("reserved", _u32),
        ("salt", _p), ("salt_size", _u64)]


class SessionInfo(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("priority", _i32), ("suspended", _u32), ("reserved", _u32),
        ("length", _u64), ("total", _u64), ("blocks", _u64), ("exclusive_blocks", _u64)]


class ComputeConfig(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("threads", _u32), ("isa", _int), ("reserved", _u32),
        ("allocator", _p), ("runner", _p)]


class ComputeInfo(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("threads", _u32), ("isa", _int), ("reserved", _u32)]


class KVView(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("layout", _int), ("block_size", _u32), ("kv_heads", _u32),
        ("key_dim", _u32), ("value_dim", _u32), ("dtype", _int), ("value_dtype", _int),
        ("blocks", _u64), ("k", _p), ("v", _p), ("k_bytes", _u64), ("v_bytes", _u64),
        ("k_block_stride", _i64), ("k_row_stride", _i64), ("k_head_stride", _i64),
        ("v_block_stride", _i64), ("v_row_stride", _i64), ("v_head_stride", _i64),
        ("rotation", _int), ("latent", _u32), ("rotation_matrices", _p)]


class KVSequences(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("query_heads", _u32), ("count", _u64),
        ("query_lengths", _p), ("kv_lengths", _p), ("block_tables", _p),
        ("block_table_stride", _u64), ("first_rows", _p), ("query_positions", _p)]


class Mask(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("kind", _int), ("data", _p), ("row_stride", _i64),
        ("batch_stride", _i64), ("columns", _u64), ("first_positions", _p), ("positions", _p)]


class AttentionParams(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("scale", _f32), ("bidirectional", _u32), ("window", _u32),
        ("sinks", _u32), ("softcap", _f32), ("head_windows", _p), ("head_sinks", _p),
        ("alibi_slopes", _p), ("sink_logits", _p), ("mask", _p), ("chosen_blocks", _p)]


class AttentionOutputs(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("reserved", _u32), ("lse", _p), ("blocks", _p)]


class Text(ctypes.Structure):
    _fields_ = [("salt", _p), ("salt_size", _size), ("tokens", _p), ("n", _size)]


class PrefixStats(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("reserved", _u32), ("matches", _u64),
        ("asked_tokens", _u64), ("matched_tokens", _u64), ("matched_blocks", _u64),
        ("published_blocks", _u64), ("evicted_blocks", _u64), ("expelled_blocks", _u64),
        ("cleared_blocks", _u64), ("cached_blocks", _u64), ("evictable_blocks", _u64),
        ("pinned_blocks", _u64), ("yielded_pins", _u64)]


class PrefixEvent(ctypes.Structure):
    _fields_ = [("number", _u64), ("hash", _u64), ("parent", _u64), ("position", _u64),
        ("kind", _int), ("reserved", _u32)]


class Hint(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("action", _int), ("first", _u64), ("end", _u64),
        ("retention", _int), ("reserved", _u32), ("duration_ms", _u64)]


class HintResult(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("outcome", _int), ("reason", _int), ("reserved", _u32),
        ("tokens", _u64)]


class Stream(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("kind", _int), ("path", _p), ("descriptor", _i32),
        ("reserved", _u32), ("data", _p), ("size", _u64), ("read", _p), ("write", _p), ("user", _p)]


class FileConfig(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("prefix_index", _u32), ("trust_salts", _u32),
        ("durable", _int), ("fingerprint", _p), ("fingerprint_size", _u64), ("secret_key", _p),
        ("secret_key_size", _u64), ("max_tokens", _u64)]


class FileItem(ctypes.Structure):
    _fields_ = [("session", _p), ("snapshot", _p), ("label", _u64)]


class FileInfo(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("version", _u32), ("bytes", _u64), ("kv_bytes", _u64),
        ("sessions", _u64), ("tokens", _u64), ("stored_tokens", _u64), ("prefix_entries", _u64),
        ("block_size", _u32), ("group_count", _u32), ("layers", _u32), ("has_kv", _u32),
        ("authenticated", _u32), ("fingerprint_size", _u32), ("fingerprint", _u8 * 64)]


class StoreItem(ctypes.Structure):
    _fields_ = [("name", _u8 * 32), ("data", _p), ("size", _u64)]


class Store(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("reserved", _u32), ("user", _p), ("put", _p), ("get", _p),
        ("probe", _p), ("drop", _p), ("close", _p), ("last_error", _p)]


class StoreConfig(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("wait_ms", _u32), ("store", _p), ("fingerprint", _p),
        ("fingerprint_size", _u64), ("secret_key", _p), ("secret_key_size", _u64),
        ("buffer_bytes", _u64), ("max_queued_blocks", _u64)]


class StoreStats(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("down", _u32), ("queued_blocks", _u64),
        ("unwritten_blocks", _u64), ("written_items", _u64), ("written_bytes", _u64),
        ("known_items", _u64), ("asked_items", _u64), ("read_items", _u64), ("read_bytes", _u64),
        ("corrupt_items", _u64), ("failures", _u64)]


class DirectoryConfig(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("durable", _int), ("path", _p), ("max_bytes", _u64)]


class ChosenBlocks(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("top_blocks", _u32), ("first_blocks", _u32),
        ("last_blocks", _u32), ("tokens_per_choice", _u32), ("list_blocks", _u32), ("lists", _p)]


class BlockOutputs(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("mass_queries", _u32), ("chosen", _p), ("masses", _p),
        ("mass_blocks", _u64)]


class RotationMatrices(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("reserved", _u32), ("key", _p), ("value", _p)]


class RedisConfig(ctypes.Structure):
    _fields_ = [("struct_size", _u32), ("ttl_seconds", _u32), ("servers", _text), ("user", _text),
        ("password", _text), ("key_prefix", _text), ("max_pipeline_bytes", _u64),
        ("connect_timeout_ms", _u32), ("command_timeout_ms", _u32), ("connect_later", _u32),
        ("tls", _u32), ("tls_ca_file", _text), ("tls_ca_directory", _text),
        ("tls_certificate_file", _text), ("tls_key_file", _text), ("tls_server_name", _text),
        ("tls_insecure_no_verify", _u32), ("reserved", _u32)]


_Call = Callable[..., int]
_Text = Callable[..., bytes]


def _bind(library: ctypes.CDLL, result: Any) -> Callable[..., Any]:
    def bind(name: str, *arguments: Any) -> Any:
        function = getattr(library, f"pkv_{name}")
        function.restype, function.argtypes = result, arguments
        return function

    return bind


class Functions:
    """The functions of an opened library, without their `pkv_`.

    An AttributeError names one that the library does not have.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        call: Callable[..., _Call] = _bind(library, _int)
        text: Callable[..., _Text] = _bind(library, _text)
        self.status_name = text("status_name", _int)
        self.last_error = text("last_error")
        self.last_error_details = _bind(library, _p)("last_error_details")
        self.version = _bind(library, _u32)("version")
        self.cache_compute_plan = call("cache_compute_plan", _p, _u32, _p)
        self.cache_create = call("cache_create", _p, _p)
        self.cache_destroy = call("cache_destroy", _p)
        self.cache_get_info = call("cache_get_info", _p, _p)
        self.cache_get_stats = call("cache_get_stats", _p, _p)
        self.cache_get_pool_stats = call("cache_get_pool_stats", _p, _u32, _p)
        self.cache_format_metrics = call("cache_format_metrics", _p, _size, _p, _p)
        self.cache_validate = call("cache_validate", _p)
        self.isa_name = text("isa_name", _int)
        self.pool_create = call("pool_create", _p, _p)
        self.pool_destroy = call("pool_destroy", _p)
        self.pool_alloc = call("pool_alloc", _p, _size, _p)
        self.pool_retain = call("pool_retain", _p, _size, _p)
        self.pool_release = call("pool_release", _p, _size, _p)
        self.pool_get_stats = call("pool_get_stats", _p, _p)
        self.pool_validate = call("pool_validate", _p)
        self.session_open = call("session_open", _p, _p, _p)
        self.session_close = call("session_close", _p)
        self.session_get_length = call("session_get_length", _p, _p)
        self.session_get_tokens = call("session_get_tokens", _p, _u64, _size, _p)
        self.session_set_tokens = call("session_set_tokens", _p, _u64, _size, _p)
        self.session_reserve = call("session_reserve", _p, _u64)
        self.session_trim = call("session_trim", _p, _u64)
        self.session_get_trim_point = call("session_get_trim_point", _p, _u64, _p)
        self.session_fork = call("session_fork", _p, _p)
        self.session_suspend = call("session_suspend", _p)
        self.session_resume = call("session_resume", _p, _p, _p)
        self.session_set_priority = call("session_set_priority", _p, _i32)
        self.session_get_info = call("session_get_info", _p, _p)
        self.session_get_block_table = call("session_get_block_table", _p, _u32, _size, _p, _p)
        self.session_read = call("session_read", _p, _u32, _u64, _size, _p, _p)
        self.session_read_state = call("session_read_state", _p, _u32, _u64, _size, _p)
        self.compute_create = call("compute_create", _p, _p)
        self.compute_destroy = call("compute_destroy", _p)
        self.compute_get_info = call("compute_get_info", _p, _p)
        self.openmp_runner = call("openmp_runner", _p)
        self.cache_get_kv_view = call("cache_get_kv_view", _p, _u32, _p)
        self.kv_view_plan = call("kv_view_plan", _p, _p)
        self.kv_write_slots = call("kv_write_slots", _p, _p, _size, _p, _p, _p)
        self.kv_read_slots = call("kv_read_slots", _p, _p, _size, _p, _p, _p)
        self.kv_write = call("kv_write", _p, _p, _p, _p, _p)
        self.kv_read = call("kv_read", _p, _p, _p, _p, _p)
        self.kv_attend = call("kv_attend", _p, _p, _p, _p, _p, _p, _p)
        self.attention_merge = call("attention_merge", _p, _size, _p, _p, _size, _u32, _u32, _p, _p)
        self.batch_begin = call("batch_begin", _p, _size, _p, _p, _p)
        self.batch_choose_victims = call("batch_choose_victims", _p, _size, _p, _p, _size, _p, _p)
        self.batch_set_first_rows = call("batch_set_first_rows", _p, _size, _p)
        self.batch_write = call("batch_write", _p, _u32, _p, _p)
        self.batch_attend = call("batch_attend", _p, _u32, _p, _p, _p, _p)
        self.batch_commit = call("batch_commit", _p, _size, _p)
        self.batch_accept = call("batch_accept", _p, _size, _size, _p)
        self.batch_abort = call("batch_abort", _p)
        self.batch_get_slot_mapping = call("batch_get_slot_mapping", _p, _u32, _size, _p, _p)
        self.batch_get_block_copies = call("batch_get_block_copies", _p, _u32, _size, _p, _p, _p)
        self.batch_get_states = call("batch_get_states", _p, _u32, _p, _size, _p, _p)
        self.batch_get_state_blocks = call("batch_get_state_blocks", _p, _u32, _p, _p, _size, _p,
            _p, _p)
        self.batch_get_kv_indices = call("batch_get_kv_indices", _p, _u32, _int, _p, _size, _p, _p,
            _p)
        self.snapshot_take = call("snapshot_take", _p, _p)
        self.snapshot_fork = call("snapshot_fork", _p, _p)
        self.snapshot_close = call("snapshot_close", _p)
        self.session_admit = call("session_admit", _p, _size, _p, _u64, _p)
        self.prefix_get_stats = call("prefix_get_stats", _p, _p, _size, _p)
        self.prefix_clear = call("prefix_clear", _p, _p, _size)
        self.prefix_probe = call("prefix_probe", _p, _p, _p)
        self.prefix_set_quota = call("prefix_set_quota", _p, _p, _size, _u64)
        self.prefix_read_events = call("prefix_read_events", _p, _p, _size, _p, _p, _p)
        self.prefix_hash_blocks = call("prefix_hash_blocks", _p, _u32, _p)
        self.hint_text = call("hint_text", _p, _p, _p, _p)
        self.hint_session = call("hint_session", _p, _p, _p)
        self.file_save = call("file_save", _p, _size, _p, _p, _p, _p)
        self.file_load = call("file_load", _p, _p, _p, _size, _p, _p, _p)
        self.file_inspect = call("file_inspect", _p, _p, _p)
        self.store_wait = call("store_wait", _p, _p, _u32, _p, _p)
        self.store_cancel = call("store_cancel", _p, _p)
        self.store_flush = call("store_flush", _p, _u32, _p)
        self.store_get_stats = call("store_get_stats", _p, _p)
        self.store_open_directory = call("store_open_directory", _p, _p)
        self.store_close = call("store_close", _p)
        self.session_drop_blocks = call("session_drop_blocks", _p, _u32, _size, _p)
