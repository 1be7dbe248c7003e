"""The C interface of libpagedkv for ctypes.

Made by generate_raw.py from bindings/api/api.json: do not edit. Over 800 lines: generated.

Handles and pointers are c_void_p: integers, byref(...) and arrays pass for them. Fields and
arguments that are enums are c_int.
"""

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
from ctypes import c_void_p as _pointer
from typing import Any

VERSION = "0.1.0"

NO_SINKS = 0xFFFFFFFF
"""sinks value: no sinks, though the layer's group has some."""
ALL_GROUPS = 0xFFFFFFFF
"""group of pkv_cache_compute_plan: all of them."""
NO_SLOT = -1
"""Slot of a row that is padding: nothing is written or read for it."""
NO_BLOCK = 0xFFFFFFFF
"""Stands in a block table for a block that was given back (it left a sliding window)."""
ALL_SALTS = 0xFFFFFFFFFFFFFFFF
"""salt_size of pkv_prefix_get_stats and pkv_prefix_clear: every salt. Other functions take it for
the size that it is: INVALID_ARGUMENT (salt NULL) or TOO_LARGE.
"""
DEFAULT_QUOTA = 0xFFFFFFFFFFFFFFFF
"""blocks of pkv_prefix_set_quota: what the config says."""
NO_TOKEN = -1
"""Stands for a token whose id was never told."""
RETURN_UNKNOWN = 0
"""after of pkv_session_set_return_hint: nothing is known (default)."""
RETURN_NEVER = 0xFFFFFFFF
"""after of pkv_session_set_return_hint: its text will not go on."""


class Status(enum.IntEnum):
    """How a call ended: PKV_OK, or why it failed."""

    OK = 0
    """The call has done what it was asked for."""
    INVALID_ARGUMENT = 100
    """NULL, an unknown enum or flag, a bad struct_size, a zero size."""
    OUT_OF_RANGE = 101
    """An index, layer, token position or block id beyond the end."""
    OVERFLOW = 102
    """Sizes whose product or sum no process could hold: 2^56 bytes."""
    BUFFER_TOO_SMALL = 103
    """The count that is needed is in the count pointer."""
    STALE_HANDLE = 104
    """The handle or block was closed, released or never given out."""
    DOUBLE_FREE = 105
    """A block was released more often than it was held."""
    WRONG_CACHE = 106
    """A session, batch or snapshot of another cache."""
    BUSY = 107
    """Another call or an open batch uses the object."""
    REENTRANT = 108
    """A call from inside one of the caller's own hooks."""
    FORKED = 109
    """A handle inherited by fork(): the child may only close it."""
    BLOCK_SEALED = 110
    """A write to a block that is sealed."""
    UNSUPPORTED = 111
    """Not available for this storage kind, layout or processor."""
    INCOMPLETE = 112
    """A layer was not written yet in this step."""
    SUSPENDED = 113
    """The session is suspended: resume it first."""
    OUT_OF_BLOCKS = 200
    """Not enough free blocks; the sentence says how many are short."""
    TOO_LARGE = 201
    """More than the whole cache could ever hold: refuse the request."""
    NO_MEMORY = 202
    """The allocator refused."""
    REF_LIMIT = 203
    """The reference count of a block is at its limit."""
    BLOCK_FULL = 204
    """Every slot of the block is taken."""
    BATCH_TOO_LARGE = 205
    """Each session fits, but never all of the batch at once: begin fewer of them at a time."""
    CORRUPT = 300
    """Bytes are damaged, cut short, or authenticated with another key."""
    VERSION = 301
    """A file has a format that this library does not know."""
    MISMATCH = 302
    """A file has shapes, dtypes or a fingerprint other than the cache's."""
    IO = 400
    """The operating system or a server refused; the sentence has its reason."""
    INTERNAL = 500
    """An invariant of the library does not hold: please report it."""


class Dtype(enum.IntEnum):
    """Element types, in native byte order. F32, F16 and BF16 are the types of the rows that a
    caller passes and of stored keys and values; the others are only stored. Conversions round to
    nearest even. INT8 and INT4 get their scale when a row is stored, from that row alone: what was
    stored before never changes. With m the largest magnitude of a row (INT8) or of 32 dims (INT4),
    elements are off by at most m / 254 (INT8) or m / 13.8 (INT4). A NaN or an infinity among them
    makes all of them NaN. Where m is below 1e-30 they are stored as 0.
    """

    F32 = 1
    """IEEE binary32."""
    F16 = 2
    """IEEE binary16."""
    BF16 = 3
    """The upper half of binary32."""
    INT8 = 4
    """scale * n: a byte n (two's complement) per element, an fp32 scale per row (token and KV
    head).
    """
    INT4 = 5
    """scale * n: a nibble n (two's complement) per element, a bf16 scale per 32 dims."""
    FP8_E4M3 = 6
    """OCP E4M3 without a scale, up to 448; larger numbers become 448, infinities NaN."""
    FP8_E5M2 = 7
    """OCP E5M2 without a scale, up to 57344; larger finite numbers become that, infinities stay."""


class LogLevel(enum.IntEnum):
    """How serious a line of the log is."""

    WARNING = 1
    """Something is wrong, or slower than it could be."""
    INFO = 2
    """Something normal: evictions begin, a store is back."""


class Storage(enum.IntEnum):
    """Where keys and values live. All kinds give the same results; comparing the first two shows
    what paging buys.
    """

    PAGED = 0
    """Fixed-size blocks of one slab, shared between sessions, copied on write (default)."""
    CONTIGUOUS = 1
    """One growing tensor per session and layer; a fork or a snapshot copies."""
    NONE = 2
    """Block ids only: the engine keeps the bytes; write, attend and read are UNSUPPORTED."""


class Layout(enum.IntEnum):
    """How the bytes of a paged cache are arranged."""

    PACKED = 0
    """Block-major, made for this library's kernels (default). A block holds [layer][tile][kv
    head][K tile | V tile], with memory_directory [layer][kv head][tile][K tile | V tile]; a tile is
    16 tokens. With p = 2 for BF16, 4 for INT8, 8 for INT4 and 1 otherwise, element (token t, dim d)
    of a tile is at K: ((d / p) * 16 + t) * p + d % p V: ((t / p) * value_dim + d) * p + (t % p) / 2
    + (t % 2) * (p / 2) (p = 1: t * value_dim + d) in units of an element (INT4: nibble i is in byte
    i / 2, the even one lower). After the elements come the scales, INT8 [16 tokens], INT4 [ceil(dim
    / 32)][16 tokens]. A tile is padded to a multiple of 64 bytes.
    """
    PLAIN = 1
    """Layer-major, made for engines with kernels of their own: per layer one K tensor
    [block][block_size][kv head][key_dim] and one V tensor [block][block_size][kv head][value_dim].
    Read them as block tensors, or token-flat as [slot][kv head][dim]. A row of INT8 or INT4 is its
    elements followed by its scales.
    """


class Isa(enum.IntEnum):
    """Instruction sets. On x86 each one includes those before it in this order: SSE2, AVX2, AVX512,
    AVX512_VNNI, AVX512_BF16, AMX. On Arm the order is NEON, NEON_DOT, NEON_BF16.
    """

    AUTO = 0
    """The fastest that this processor has."""
    SCALAR = 1
    """Plain C++."""
    SSE2 = 2
    """Every x86-64 processor has it."""
    AVX2 = 3
    """With FMA and F16C."""
    AVX512 = 4
    """F, CD, DQ, BW, VL."""
    AVX512_VNNI = 5
    """AVX512 with VNNI."""
    AVX512_BF16 = 6
    """AVX512 with BF16 and VNNI."""
    AMX = 7
    """AVX512_BF16 with AMX-TILE and AMX-BF16, where the system permits them. The permission, for
    which AUTO asks, too, makes the least size of signal stacks larger (guide/threads.md).
    """
    NEON = 8
    """Every Arm64 processor has it."""
    NEON_DOT = 9
    """NEON with DotProd."""
    NEON_BF16 = 10
    """NEON with DotProd, BF16 and I8MM."""


class Rotation(enum.IntEnum):
    """How rows of K and V are rotated before they are stored. Queries are rotated as K, and outputs
    back from V, so that callers see no rotation: scores stay the same, and a few large dims are
    spread over all others, which is what types of few bits need (guide/quality.md). The rotation is
    computed in fp32 and fused into write, attend and read. What is stored is rotated: blocks, files
    and items of stores. Reading rows back undoes it up to the rounding of fp32, also for types that
    otherwise return what was written. A NaN or an infinity spreads to all dims that are rotated
    together.
    """

    NONE = 0
    """Rows are stored as they are (default)."""
    HADAMARD = 1
    """Each run of n dims, the largest power of two that divides the head dim, is multiplied by 1 /
    sqrt(n), by the signs of its dims, and by the n x n matrix of Hadamard (Sylvester's). The sign
    of dim d is minus where bit d of the fraction of pi is 1: the bits are those of 0x243F6A88
    0x85A308D3 ..., the highest first. Of latent groups, V is rotated with the runs of K, and
    value_dim is a multiple of n.
    """
    MATRIX = 2
    """A row becomes row times matrix; the caller gives an orthogonal one for K, for V, or both."""


class HugePages(enum.IntEnum):
    """What to ask of the operating system for the slab."""

    ADVISE = 0
    """Transparent huge pages where the system offers them (default)."""
    OFF = 1
    """Pages of the normal size."""
    REQUIRE = 2
    """Reserved 2 MiB pages (hugetlbfs) or PKV_NO_MEMORY."""


class Eviction(enum.IntEnum):
    """Which cached blocks that nobody uses are evicted first, the ends of texts before their
    beginnings.
    """

    LEARNED = 0
    """Those that earn the fewest hits for their room, as learned from when blocks like them
    return.
    """
    LRU = 1
    """Those that were not used for longest."""
    LFU = 2
    """Those matched least often since they were stored; among these, as LRU."""


class MaskKind(enum.IntEnum):
    """What the data of a pkv_mask are."""

    BITS = 1
    """uint64_t [rows][row_stride]: bit j % 64 of word j / 64 says whether the row sees new token j
    of its own session. Of the new tokens, those are seen whose bit is set and which the window does
    not hide; what was there before the step is seen as without a mask.
    """
    PARENTS = 2
    """int32_t [rows]: a tree of speculative tokens by the parent of each new token: its index among
    the new tokens of its session, lower than the token's own, or -1 for none. A new token sees
    itself, its ancestors and, as without a mask, what was there before the step.
    """
    BYTES = 3
    """uint8_t, for positions: 0 hides; any other byte shows what the causal rule and the window do
    not hide. The byte of query i of sequence s for column c is data[s * batch_stride + i *
    row_stride + c]; with first_rows (of pkv_attention_sequences, or pkv_batch_set_first_rows), i
    counts the rows of the padded batch. Positions before the first column are seen as without a
    mask.
    """


class PrefixUse(enum.IntEnum):
    """What a session does with the prefix index of its cache, if there is one."""

    SHARE = 0
    """Matches, and publishes what it computes (default)."""
    MATCH = 1
    """Matches only."""
    OFF = 2
    """Neither."""


class Retention(enum.IntEnum):
    """How long the prefix index keeps what a session leaves behind: all blocks of a lower retention
    are evicted before any of a higher one.
    """

    LOW = -1
    """For a text that will hardly return: a batch job, an evaluation."""
    NORMAL = 0
    """For a text like any other (default)."""
    HIGH = 1
    """For a text that must stay fast, even if it comes seldom."""


class IndexUnit(enum.IntEnum):
    """What an index list of pkv_batch_get_kv_indices counts."""

    BLOCKS = 1
    """Ids of blocks."""
    SLOTS = 2
    """Slots: block id * block size + offset in the block."""


class StreamKind(enum.IntEnum):
    """Where bytes come from or go to."""

    PATH = 1
    """A regular file by its path. Saving writes a new file in the same directory and gives it the
    name when it is complete and on disk (fsync of the file, rename, fsync of its directory): at
    every moment, and after a crash, the path has the old file or the new one. Only its owner, the
    effective user, can read and write a new file (mode 0600). One that replaces a file keeps the
    permissions of that file if nobody else can have put it there: it belongs to the effective user
    and has no second name (hard link), its directory belongs to that user or to root, and nobody
    else may write to that directory, or it is sticky. Set-id bits are never kept, access control
    lists neither. Permissions of other users are kept only together with the Unix group of the old
    file, and not where it had an access control list. A path that ends in a symbolic link, a
    directory, a FIFO, a socket or a device is refused (PKV_IO). Links before the last name are
    followed: the directory is the caller's choice, and whoever may write to it, or rename it, can
    replace or delete what was saved. A load does not ask whose a file is: only a key tells that
    nobody else wrote it. What a killed process leaves has no name on file systems with O_TMPFILE.
    Where it has, and for the moment of a rename, its name is ".pagedkv-", 16 digits and ".tmp". Its
    writer holds a lock on it (flock), and later saves in the directory remove those of the
    effective user that nobody has locked. (On a network file system whose locks other machines do
    not see, save from one machine at a time.)
    """
    DESCRIPTOR = 2
    """An open, blocking descriptor, from where it stands. It stays open, and what follows the file
    in it is left alone. A save that fails leaves what it has written.
    """
    BUFFER = 3
    """The caller's memory."""
    CALLBACKS = 4
    """The caller's functions. A load asks for no byte beyond the file."""


class PrefixEventKind(enum.IntEnum):
    """What happened to a block position."""

    STORED = 1
    """A match can end after it now."""
    EVICTED = 2
    """It, or what a match that ends after it needs, made room."""
    EXPELLED = 3
    """It went because its salt's quota was full."""
    CLEARED = 4
    """It went by pkv_prefix_clear."""


class Tensor(ctypes.Structure):
    """Rows in the caller's memory: element (row, head, dim) is at data[row * row_stride + head *
    head_stride + dim]. Strides count elements; 0 means dense, [rows][heads][dim]. Any alignment
    works. This struct is pinned: it will not grow. Functions that take rows of several sequences
    take padded batches as well (in others batch_rows is 0). batch_rows is then the stride from the
    first row of a sequence to that of the next, counted in rows: row i of sequence s is row s *
    batch_rows + i of the tensor. [batch][n][heads][dim]   batch_rows n, the other strides dense;
    [batch][heads][n][dim]   batch_rows heads * n, row_stride dim, head_stride n * dim.
    """

    _fields_ = [
        ("data", _pointer),
        ("dtype", _int),
        ("batch_rows", _u32),
        ("row_stride", _i64),
        ("head_stride", _i64),
    ]


class Allocator(ctypes.Structure):
    """Memory supplied by the caller. Memory that is not aligned as asked goes back to free at once,
    and the call returns PKV_NO_MEMORY.
    """

    _fields_ = [
        ("alloc", _pointer),
        ("free", _pointer),
        ("user", _pointer),
    ]


class Logger(ctypes.Structure):
    """Receives what the library has to say. The library itself never prints."""

    _fields_ = [
        ("log", _pointer),
        ("user", _pointer),
    ]


class Runner(ctypes.Structure):
    """Threads supplied by the caller, in the place of the library's own. Results do not depend on
    how tasks are spread over them. A runner that leaves a task out, asks for one twice (it runs
    once) or for one that does not exist makes the call that used it return PKV_INVALID_ARGUMENT.
    What the call was to write is undefined then, and a step in flight is as far as it was before.
    """

    _fields_ = [
        ("run", _pointer),
        ("user", _pointer),
        ("threads", _u32),
        ("reserved", _u32),
    ]


class PoolStats(ctypes.Structure):
    """Counts of one pool of blocks: of a pkv_pool, or of a layer group of a cache. blocks = free +
    used + retired.
    """

    _fields_ = [
        ("struct_size", _u32),
        ("block_size", _u32),
        ("blocks", _u64),
        ("free", _u64),
        ("used", _u64),
        ("used_peak", _u64),
        ("shared", _u64),
        ("retired", _u64),
        ("references", _u64),
        ("slots_filled", _u64),
    ]


class CacheStats(ctypes.Structure):
    """Counts of a cache over all layer groups. Since 0.1."""

    _fields_ = [
        ("struct_size", _u32),
        ("sessions", _u32),
        ("snapshots", _u32),
        ("batches", _u32),
        ("suspended_sessions", _u64),
        ("blocks", _u64),
        ("free_blocks", _u64),
        ("used_blocks", _u64),
        ("used_blocks_peak", _u64),
        ("evictable_blocks", _u64),
        ("tokens", _u64),
        ("slots_filled", _u64),
        ("slots_reserved", _u64),
        ("bytes_reserved", _u64),
        ("copied_blocks", _u64),
        ("commits", _u64),
        ("aborts", _u64),
        ("committed_tokens", _u64),
        ("suspensions", _u64),
        ("page_bytes", _u64),
        ("pages", _u64),
        ("free_pages", _u64),
    ]


class LayerGroup(ctypes.Structure):
    """A group of layers with the same shape. A plain model is one group. Hybrid models have
    several, for example one of full and one of sliding-window layers.
    """

    _fields_ = [
        ("struct_size", _u32),
        ("layers", _u32),
        ("layer_indices", _pointer),
        ("query_heads", _u32),
        ("kv_heads", _u32),
        ("key_dim", _u32),
        ("value_dim", _u32),
        ("dtype", _int),
        ("value_dtype", _int),
        ("window", _u32),
        ("sinks", _u32),
        ("latent", _u32),
        ("rotation", _int),
        ("key_rotation", _pointer),
        ("value_rotation", _pointer),
        ("state_bytes", _u64),
        ("checkpoint_tokens", _u32),
        ("draft_tokens", _u32),
        ("blocks", _u64),
    ]


class PrefixConfig(ctypes.Structure):
    """The prefix index of a cache: see prefix.h. A block position is one block in each layer
    group.
    """

    _fields_ = [
        ("struct_size", _u32),
        ("eviction", _int),
        ("pinned_blocks", _u64),
        ("salt_blocks", _u64),
        ("events", _u32),
        ("doubling_depth", _u32),
    ]


class CacheConfig(ctypes.Structure):
    """What pkv_cache_create makes: the model, its memory, its threads, what is kept of ended
    sessions, and the caller's hooks. What pointers lead to is copied; hooks themselves must outlive
    the cache. A plain model is one group: pkv_layer_group model = {.struct_size = sizeof model,
    .layers = 32, .query_heads = 32, .kv_heads = 8, .key_dim = 128}; pkv_cache_config config =
    {.struct_size = sizeof config, .groups = &model , .blocks = 4096};
    """

    _fields_ = [
        ("struct_size", _u32),
        ("group_count", _u32),
        ("groups", _pointer),
        ("storage", _int),
        ("layout", _int),
        ("block_size", _u32),
        ("shared_memory", _u32),
        ("blocks", _u64),
        ("memory_bytes", _u64),
        ("watermark", _u32),
        ("huge_pages", _int),
        ("prefault", _u32),
        ("reserved", _u32),
        ("memory_directory", _pointer),
        ("threads", _u32),
        ("isa", _int),
        ("prefix", _pointer),
        ("store", _pointer),
        ("allocator", _pointer),
        ("runner", _pointer),
        ("logger", _pointer),
    ]


class CachePlan(ctypes.Structure):
    """Sizes of K and V, of one layer group or of all."""

    _fields_ = [
        ("struct_size", _u32),
        ("groups", _u32),
        ("bytes_per_token", _u64),
        ("bytes_per_block", _u64),
        ("blocks", _u64),
        ("tokens", _u64),
        ("total_bytes", _u64),
        ("bookkeeping_bytes", _u64),
    ]


class CacheInfo(ctypes.Structure):
    """What a cache was made with, defaults filled in."""

    _fields_ = [
        ("struct_size", _u32),
        ("storage", _int),
        ("layout", _int),
        ("block_size", _u32),
        ("groups", _u32),
        ("layers", _u32),
        ("threads", _u32),
        ("isa", _int),
    ]


class ComputeConfig(ctypes.Structure):
    """What pkv_compute_create makes. Hooks must outlive the pkv_compute."""

    _fields_ = [
        ("struct_size", _u32),
        ("threads", _u32),
        ("isa", _int),
        ("reserved", _u32),
        ("allocator", _pointer),
        ("runner", _pointer),
    ]


class ComputeInfo(ctypes.Structure):
    """What a pkv_compute runs on."""

    _fields_ = [
        ("struct_size", _u32),
        ("threads", _u32),
        ("isa", _int),
        ("reserved", _u32),
    ]


class KVView(ctypes.Structure):
    """K and V of one layer in paged memory: a cache's (pkv_cache_get_kv_view) or the caller's own.
    Strides count elements of the dtype; of INT8 and INT4, whose rows end in scales, bytes. Block b
    begins at b * block_stride. In it PLAIN   element (token t, head h, dim d) is at t * row_stride
    + h * head_stride + d; PACKED  tile t / 16 begins at (t / 16) * row_stride + h * head_stride;
    inside, see PKV_LAYOUT_PACKED. Where block_stride == block_size * row_stride (PLAIN) the same
    memory is token-flat: slot s begins at s * row_stride.
    """

    _fields_ = [
        ("struct_size", _u32),
        ("layout", _int),
        ("block_size", _u32),
        ("kv_heads", _u32),
        ("key_dim", _u32),
        ("value_dim", _u32),
        ("dtype", _int),
        ("value_dtype", _int),
        ("blocks", _u64),
        ("k", _pointer),
        ("v", _pointer),
        ("k_block_stride", _i64),
        ("k_row_stride", _i64),
        ("k_head_stride", _i64),
        ("v_block_stride", _i64),
        ("v_row_stride", _i64),
        ("v_head_stride", _i64),
        ("rotation", _int),
        ("reserved", _u32),
        ("key_rotation", _pointer),
        ("value_rotation", _pointer),
    ]


class AttentionSequences(ctypes.Structure):
    """A ragged set of sequences over one pkv_kv_view, described by the caller. Lists with an entry
    per query have those of all sequences, one after the other, also where tensors are padded.
    """

    _fields_ = [
        ("struct_size", _u32),
        ("query_heads", _u32),
        ("count", _u64),
        ("query_lengths", _pointer),
        ("kv_lengths", _pointer),
        ("block_tables", _pointer),
        ("block_table_stride", _u64),
        ("first_rows", _pointer),
        ("query_positions", _pointer),
    ]


class Mask(ctypes.Structure):
    """Which positions each query sees, besides what the causal rule and the window say."""

    _fields_ = [
        ("struct_size", _u32),
        ("kind", _int),
        ("data", _pointer),
        ("row_stride", _i64),
        ("batch_stride", _i64),
        ("columns", _u64),
        ("first_positions", _pointer),
    ]


class ChosenBlocks(ctypes.Structure):
    """Which blocks queries read, in place of all of them (guide/chosen_blocks.md). Each query
    reads, for each KV head, the blocks that it chooses, the first and last ones, and those with
    tokens of the step. Windows, sinks and masks hide what they hide anyway. Not with ALiBi, or
    positions that the caller gives.
    """

    _fields_ = [
        ("struct_size", _u32),
        ("top", _u32),
        ("first", _u32),
        ("last", _u32),
        ("together", _u32),
        ("reserved", _u32),
        ("lists", _pointer),
        ("list_size", _u64),
        ("chosen", _pointer),
    ]


class BlockMass(ctypes.Structure):
    """The attention mass of each entry of a block table: the sum of the weights (after the softmax)
    that the queries of the sequence give to the tokens of the block, 0 where they see none. A query
    has the mass 1 to give, less what a sink logit takes. It takes one more reading of the keys. Not
    for storage CONTIGUOUS, and not with chosen blocks.
    """

    _fields_ = [
        ("struct_size", _u32),
        ("queries", _u32),
        ("masses", _pointer),
        ("size", _u64),
    ]


class AttentionParams(ctypes.Structure):
    """Which attention is computed. Variants combine freely. Lists of [rows] have the rows of all
    sequences, one after the other, also where tensors are padded.
    """

    _fields_ = [
        ("struct_size", _u32),
        ("scale", _f32),
        ("bidirectional", _u32),
        ("window", _u32),
        ("sinks", _u32),
        ("softcap", _f32),
        ("head_windows", _pointer),
        ("head_sinks", _pointer),
        ("alibi_slopes", _pointer),
        ("sink_logits", _pointer),
        ("mask", _pointer),
        ("chosen_blocks", _pointer),
        ("block_mass", _pointer),
        ("lse", _pointer),
    ]


class PoolConfig(ctypes.Structure):
    """What pkv_pool_create makes."""

    _fields_ = [
        ("struct_size", _u32),
        ("blocks", _u32),
        ("block_size", _u32),
        ("reserved", _u32),
        ("allocator", _pointer),
    ]


class BlockState(ctypes.Structure):
    """The state of one block."""

    _fields_ = [
        ("struct_size", _u32),
        ("id", _u32),
        ("generation", _u32),
        ("references", _u32),
        ("filled", _u32),
        ("sealed", _u32),
    ]


class SessionConfig(ctypes.Structure):
    """What a session has from its beginning."""

    _fields_ = [
        ("struct_size", _u32),
        ("priority", _i32),
        ("prefix", _int),
        ("retention", _int),
        ("salt", _pointer),
        ("salt_size", _u64),
    ]


class SessionInfo(ctypes.Structure):
    """What a session holds now."""

    _fields_ = [
        ("struct_size", _u32),
        ("priority", _i32),
        ("suspended", _u32),
        ("reserved", _u32),
        ("length", _u64),
        ("total", _u64),
        ("blocks", _u64),
        ("exclusive_blocks", _u64),
    ]


class Stream(ctypes.Structure):
    """One stream. Only the fields of its kind are looked at."""

    _fields_ = [
        ("struct_size", _u32),
        ("kind", _int),
        ("path", _pointer),
        ("descriptor", _i32),
        ("reserved", _u32),
        ("data", _pointer),
        ("size", _u64),
        ("read", _pointer),
        ("write", _pointer),
        ("user", _pointer),
    ]


class FileConfig(ctypes.Structure):
    """What goes with saving and with loading."""

    _fields_ = [
        ("struct_size", _u32),
        ("prefix_index", _u32),
        ("trust_salts", _u32),
        ("skip_fsync", _u32),
        ("fingerprint", _pointer),
        ("fingerprint_size", _u64),
        ("key", _pointer),
        ("key_size", _u64),
    ]


class FileItem(ctypes.Structure):
    """One sequence to save: a session or a snapshot. This struct is pinned: it will not grow."""

    _fields_ = [
        ("session", _pointer),
        ("snapshot", _pointer),
        ("label", _u64),
    ]


class FileInfo(ctypes.Structure):
    """What a file says of itself."""

    _fields_ = [
        ("struct_size", _u32),
        ("version", _u32),
        ("bytes", _u64),
        ("kv_bytes", _u64),
        ("sessions", _u64),
        ("tokens", _u64),
        ("stored_tokens", _u64),
        ("prefix_entries", _u64),
        ("block_size", _u32),
        ("groups", _u32),
        ("layers", _u32),
        ("has_kv", _u32),
        ("authenticated", _u32),
        ("fingerprint_size", _u32),
        ("fingerprint", _u8 * 64),
    ]


class PrefixStats(ctypes.Structure):
    """Figures of one salt's share of the index, or of all of it."""

    _fields_ = [
        ("struct_size", _u32),
        ("reserved", _u32),
        ("matches", _u64),
        ("asked_tokens", _u64),
        ("matched_tokens", _u64),
        ("matched_blocks", _u64),
        ("published_blocks", _u64),
        ("evicted_blocks", _u64),
        ("expelled_blocks", _u64),
        ("cleared_blocks", _u64),
        ("cached_blocks", _u64),
        ("evictable_blocks", _u64),
        ("pinned_blocks", _u64),
    ]


class PrefixEvent(ctypes.Structure):
    """What happened to one block position. A match of a text ends after the last of its positions
    that were stored and have not gone. Without windows a position is stored after the one that
    precedes it, and goes before it; where a group has a window, positions before it may have gone.
    This struct is pinned: it will not grow.
    """

    _fields_ = [
        ("number", _u64),
        ("hash", _u64),
        ("parent", _u64),
        ("position", _u64),
        ("kind", _int),
        ("reserved", _u32),
    ]


class StoreItem(ctypes.Structure):
    """One block of one layer group, as a store keeps it. This struct is pinned: it will not
    grow.
    """

    _fields_ = [
        ("key", _u8 * 32),
        ("data", _pointer),
        ("size", _u64),
    ]


class Store(ctypes.Structure):
    """A store: functions that a cache calls, one call at a time from each of its two threads (put
    from one, the others from both). They are hooks: see common.h. put, get, probe and drop return
    how many of the n items they stored, found or dropped, or a negative errno where the store
    cannot be reached; then the cache leaves it alone for a while.
    """

    _fields_ = [
        ("struct_size", _u32),
        ("reserved", _u32),
        ("user", _pointer),
        ("put", _pointer),
        ("get", _pointer),
        ("probe", _pointer),
        ("drop", _pointer),
        ("close", _pointer),
    ]


class StoreConfig(ctypes.Structure):
    """The tier of a cache: give it to pkv_cache_config.store. Only storage PAGED with a prefix
    index has one.
    """

    _fields_ = [
        ("struct_size", _u32),
        ("wait_ms", _u32),
        ("store", _pointer),
        ("fingerprint", _pointer),
        ("fingerprint_size", _u64),
        ("key", _pointer),
        ("key_size", _u64),
        ("buffer_bytes", _u64),
        ("queue_blocks", _u64),
    ]


class StoreStats(ctypes.Structure):
    """What a tier has done so far. An item is a block of one layer group."""

    _fields_ = [
        ("struct_size", _u32),
        ("down", _u32),
        ("queued_blocks", _u64),
        ("dropped_blocks", _u64),
        ("written_items", _u64),
        ("written_bytes", _u64),
        ("known_items", _u64),
        ("asked_items", _u64),
        ("read_items", _u64),
        ("read_bytes", _u64),
        ("corrupt_items", _u64),
        ("failures", _u64),
    ]


class DirectoryConfig(ctypes.Structure):
    """A directory of files, one for each item. It survives restarts, and several processes of one
    user may use it at once. The files belong to that user, and nobody else may read them (mode
    0600). The directory must belong to the effective user, and no other user may write to it, not
    even where it is sticky; the same holds for the 256 folders that the store makes in it. A
    symbolic link is not followed, neither to the directory nor inside it. Only what the store
    itself makes is read, counted and deleted: in folders named 00 to ff, regular files of that user
    that are named by 62 hexadecimal digits and ".kv", and temporary files (see file.h). Whatever
    else is there is left alone; where it takes the place of a folder or a file of the store, what
    belongs there cannot be stored.
    """

    _fields_ = [
        ("struct_size", _u32),
        ("durable", _u32),
        ("path", _pointer),
        ("capacity_bytes", _u64),
    ]


_Call = Callable[..., int]
_Text = Callable[..., bytes]


def _bind(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments
    return function


class Functions:
    """The functions of an opened library, without their `pkv_`.

    An AttributeError names one that the library does not have.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self.status_string: _Text = _bind(library, "pkv_status_string", _text, _int)
        self.last_error: _Text = _bind(library, "pkv_last_error", _text)
        self.cache_compute_plan: _Call = _bind(
            library, "pkv_cache_compute_plan", _int, _pointer, _u32, _pointer
        )
        self.cache_create: _Call = _bind(library, "pkv_cache_create", _int, _pointer, _pointer)
        self.cache_destroy: _Call = _bind(library, "pkv_cache_destroy", _int, _pointer)
        self.cache_get_info: _Call = _bind(library, "pkv_cache_get_info", _int, _pointer, _pointer)
        self.cache_get_stats: _Call = _bind(
            library, "pkv_cache_get_stats", _int, _pointer, _pointer
        )
        self.cache_get_pool_stats: _Call = _bind(
            library, "pkv_cache_get_pool_stats", _int, _pointer, _u32, _pointer
        )
        self.cache_format_metrics: _Call = _bind(
            library, "pkv_cache_format_metrics", _int, _pointer, _size, _pointer, _pointer
        )
        self.cache_validate: _Call = _bind(library, "pkv_cache_validate", _int, _pointer)
        self.isa_supported: _Call = _bind(library, "pkv_isa_supported", _int, _int, _pointer)
        self.isa_name: _Text = _bind(library, "pkv_isa_name", _text, _int)
        self.compute_create: _Call = _bind(library, "pkv_compute_create", _int, _pointer, _pointer)
        self.compute_destroy: _Call = _bind(library, "pkv_compute_destroy", _int, _pointer)
        self.compute_get_info: _Call = _bind(
            library, "pkv_compute_get_info", _int, _pointer, _pointer
        )
        self.openmp_runner: _Call = _bind(library, "pkv_openmp_runner", _int, _pointer)
        self.cache_get_kv_view: _Call = _bind(
            library, "pkv_cache_get_kv_view", _int, _pointer, _u32, _pointer
        )
        self.kv_view_plan: _Call = _bind(
            library, "pkv_kv_view_plan", _int, _pointer, _u32, _pointer, _pointer
        )
        self.kv_write_slots: _Call = _bind(
            library,
            "pkv_kv_write_slots",
            _int,
            _pointer,
            _pointer,
            _size,
            _pointer,
            _pointer,
            _pointer,
        )
        self.kv_read_slots: _Call = _bind(
            library,
            "pkv_kv_read_slots",
            _int,
            _pointer,
            _pointer,
            _size,
            _pointer,
            _pointer,
            _pointer,
        )
        self.kv_write: _Call = _bind(
            library, "pkv_kv_write", _int, _pointer, _pointer, _pointer, _pointer, _pointer
        )
        self.attention: _Call = _bind(
            library,
            "pkv_attention",
            _int,
            _pointer,
            _pointer,
            _pointer,
            _pointer,
            _pointer,
            _pointer,
        )
        self.attention_merge: _Call = _bind(
            library,
            "pkv_attention_merge",
            _int,
            _pointer,
            _size,
            _pointer,
            _pointer,
            _size,
            _u32,
            _u32,
            _pointer,
            _pointer,
        )
        self.pool_create: _Call = _bind(library, "pkv_pool_create", _int, _pointer, _pointer)
        self.pool_destroy: _Call = _bind(library, "pkv_pool_destroy", _int, _pointer)
        self.pool_alloc: _Call = _bind(library, "pkv_pool_alloc", _int, _pointer, _size, _pointer)
        self.pool_retain: _Call = _bind(library, "pkv_pool_retain", _int, _pointer, _size, _pointer)
        self.pool_release: _Call = _bind(
            library, "pkv_pool_release", _int, _pointer, _size, _pointer
        )
        self.pool_claim: _Call = _bind(
            library, "pkv_pool_claim", _int, _pointer, _u64, _u32, _pointer
        )
        self.pool_seal: _Call = _bind(library, "pkv_pool_seal", _int, _pointer, _u64)
        self.pool_reset: _Call = _bind(library, "pkv_pool_reset", _int, _pointer, _u64)
        self.pool_get_block_state: _Call = _bind(
            library, "pkv_pool_get_block_state", _int, _pointer, _u32, _pointer
        )
        self.pool_get_stats: _Call = _bind(library, "pkv_pool_get_stats", _int, _pointer, _pointer)
        self.pool_validate: _Call = _bind(library, "pkv_pool_validate", _int, _pointer)
        self.session_open: _Call = _bind(
            library, "pkv_session_open", _int, _pointer, _pointer, _pointer
        )
        self.session_close: _Call = _bind(library, "pkv_session_close", _int, _pointer)
        self.session_get_length: _Call = _bind(
            library, "pkv_session_get_length", _int, _pointer, _pointer
        )
        self.session_get_layer_length: _Call = _bind(
            library, "pkv_session_get_layer_length", _int, _pointer, _u32, _pointer
        )
        self.session_get_tokens: _Call = _bind(
            library, "pkv_session_get_tokens", _int, _pointer, _u64, _size, _pointer
        )
        self.session_set_tokens: _Call = _bind(
            library, "pkv_session_set_tokens", _int, _pointer, _u64, _size, _pointer
        )
        self.session_reserve: _Call = _bind(library, "pkv_session_reserve", _int, _pointer, _u64)
        self.session_append: _Call = _bind(
            library, "pkv_session_append", _int, _pointer, _u32, _size, _pointer, _pointer
        )
        self.session_trim: _Call = _bind(library, "pkv_session_trim", _int, _pointer, _u64)
        self.session_get_last_trim: _Call = _bind(
            library, "pkv_session_get_last_trim", _int, _pointer, _u64, _pointer
        )
        self.session_set_return_hint: _Call = _bind(
            library, "pkv_session_set_return_hint", _int, _pointer, _u32
        )
        self.session_drop_blocks: _Call = _bind(
            library, "pkv_session_drop_blocks", _int, _pointer, _u32, _size, _pointer
        )
        self.session_fork: _Call = _bind(library, "pkv_session_fork", _int, _pointer, _pointer)
        self.session_suspend: _Call = _bind(library, "pkv_session_suspend", _int, _pointer)
        self.session_resume: _Call = _bind(
            library, "pkv_session_resume", _int, _pointer, _pointer, _pointer, _pointer
        )
        self.session_set_priority: _Call = _bind(
            library, "pkv_session_set_priority", _int, _pointer, _i32
        )
        self.session_get_info: _Call = _bind(
            library, "pkv_session_get_info", _int, _pointer, _pointer
        )
        self.session_get_block_table: _Call = _bind(
            library, "pkv_session_get_block_table", _int, _pointer, _u32, _size, _pointer, _pointer
        )
        self.session_read: _Call = _bind(
            library, "pkv_session_read", _int, _pointer, _u32, _u64, _size, _pointer, _pointer
        )
        self.session_read_state: _Call = _bind(
            library, "pkv_session_read_state", _int, _pointer, _u32, _u64, _size, _pointer
        )
        self.batch_begin: _Call = _bind(
            library,
            "pkv_batch_begin",
            _int,
            _pointer,
            _size,
            _pointer,
            _pointer,
            _pointer,
            _pointer,
        )
        self.batch_choose_victims: _Call = _bind(
            library,
            "pkv_batch_choose_victims",
            _int,
            _pointer,
            _size,
            _pointer,
            _pointer,
            _size,
            _pointer,
            _pointer,
        )
        self.batch_set_first_rows: _Call = _bind(
            library, "pkv_batch_set_first_rows", _int, _pointer, _pointer
        )
        self.batch_write: _Call = _bind(
            library, "pkv_batch_write", _int, _pointer, _u32, _pointer, _pointer
        )
        self.batch_attend: _Call = _bind(
            library, "pkv_batch_attend", _int, _pointer, _u32, _pointer, _pointer, _pointer
        )
        self.batch_commit: _Call = _bind(library, "pkv_batch_commit", _int, _pointer, _pointer)
        self.batch_accept: _Call = _bind(
            library, "pkv_batch_accept", _int, _pointer, _size, _size, _pointer
        )
        self.batch_abort: _Call = _bind(library, "pkv_batch_abort", _int, _pointer)
        self.batch_get_slot_mapping: _Call = _bind(
            library, "pkv_batch_get_slot_mapping", _int, _pointer, _u32, _size, _pointer, _pointer
        )
        self.batch_get_block_copies: _Call = _bind(
            library,
            "pkv_batch_get_block_copies",
            _int,
            _pointer,
            _u32,
            _size,
            _pointer,
            _pointer,
            _pointer,
        )
        self.batch_get_states: _Call = _bind(
            library,
            "pkv_batch_get_states",
            _int,
            _pointer,
            _u32,
            _pointer,
            _size,
            _pointer,
            _pointer,
        )
        self.batch_get_state_blocks: _Call = _bind(
            library,
            "pkv_batch_get_state_blocks",
            _int,
            _pointer,
            _u32,
            _pointer,
            _pointer,
            _size,
            _pointer,
            _pointer,
            _pointer,
        )
        self.batch_get_kv_indices: _Call = _bind(
            library,
            "pkv_batch_get_kv_indices",
            _int,
            _pointer,
            _u32,
            _int,
            _pointer,
            _size,
            _pointer,
            _pointer,
            _pointer,
        )
        self.snapshot_take: _Call = _bind(library, "pkv_snapshot_take", _int, _pointer, _pointer)
        self.snapshot_open: _Call = _bind(
            library, "pkv_snapshot_open", _int, _pointer, _pointer, _pointer
        )
        self.snapshot_close: _Call = _bind(library, "pkv_snapshot_close", _int, _pointer)
        self.file_save: _Call = _bind(
            library, "pkv_file_save", _int, _pointer, _size, _pointer, _pointer, _pointer, _pointer
        )
        self.file_load: _Call = _bind(
            library,
            "pkv_file_load",
            _int,
            _pointer,
            _pointer,
            _pointer,
            _size,
            _pointer,
            _pointer,
            _pointer,
        )
        self.file_inspect: _Call = _bind(
            library, "pkv_file_inspect", _int, _pointer, _pointer, _pointer
        )
        self.session_match_prefix: _Call = _bind(
            library, "pkv_session_match_prefix", _int, _pointer, _size, _pointer, _pointer
        )
        self.prefix_get_stats: _Call = _bind(
            library, "pkv_prefix_get_stats", _int, _pointer, _pointer, _size, _pointer
        )
        self.prefix_clear: _Call = _bind(
            library, "pkv_prefix_clear", _int, _pointer, _pointer, _size
        )
        self.prefix_probe: _Call = _bind(
            library, "pkv_prefix_probe", _int, _pointer, _pointer, _size, _size, _pointer, _pointer
        )
        self.prefix_pin: _Call = _bind(
            library, "pkv_prefix_pin", _int, _pointer, _pointer, _size, _size, _pointer, _pointer
        )
        self.prefix_unpin: _Call = _bind(
            library, "pkv_prefix_unpin", _int, _pointer, _pointer, _size, _size, _pointer, _pointer
        )
        self.prefix_set_quota: _Call = _bind(
            library, "pkv_prefix_set_quota", _int, _pointer, _pointer, _size, _u64
        )
        self.prefix_read_events: _Call = _bind(
            library,
            "pkv_prefix_read_events",
            _int,
            _pointer,
            _pointer,
            _pointer,
            _pointer,
            _pointer,
        )
        self.prefix_hash_blocks: _Call = _bind(
            library,
            "pkv_prefix_hash_blocks",
            _int,
            _pointer,
            _size,
            _u32,
            _size,
            _pointer,
            _pointer,
        )
        self.store_prefetch: _Call = _bind(
            library, "pkv_store_prefetch", _int, _pointer, _pointer, _size, _size, _pointer
        )
        self.store_wait: _Call = _bind(
            library,
            "pkv_store_wait",
            _int,
            _pointer,
            _pointer,
            _size,
            _size,
            _pointer,
            _u32,
            _pointer,
            _pointer,
        )
        self.store_cancel: _Call = _bind(
            library, "pkv_store_cancel", _int, _pointer, _pointer, _size, _size, _pointer
        )
        self.store_flush: _Call = _bind(library, "pkv_store_flush", _int, _pointer, _u32, _pointer)
        self.store_get_stats: _Call = _bind(
            library, "pkv_store_get_stats", _int, _pointer, _pointer
        )
        self.store_open_directory: _Call = _bind(
            library, "pkv_store_open_directory", _int, _pointer, _pointer
        )
        self.version: _Call = _bind(library, "pkv_version", _u32)
        self.version_string: _Text = _bind(library, "pkv_version_string", _text)
