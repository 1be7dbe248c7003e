//! The C interface of libpagedkv.
//!
//! Made by generate_raw.py from the headers of C: do not edit. Over 800 lines: generated.
#![cfg_attr(rustfmt, rustfmt_skip)]

use std::os::raw::{c_char, c_int, c_void};

/// The version of the headers that this was made from.
pub const VERSION: &str = "1.0.0";
/// Version of these headers. No 1.x breaks what was built for an earlier 1.y.
pub const PKV_VERSION_MAJOR: c_int = 1;
pub const PKV_VERSION_MINOR: c_int = 0;
pub const PKV_VERSION_PATCH: c_int = 0;
/// A `group` parameter of pkv_cache_compute_plan and pkv_cache_get_pool_stats: all groups.
pub const PKV_ALL_GROUPS: u32 = u32::MAX;
/// In a block table: a block that left the window. In a list: an unused entry.
pub const PKV_NO_BLOCK: u32 = u32::MAX;
/// A token whose id the library does not know. Every other id is allowed, also negative ones.
/// Matches compare ids: if an engine makes up ids (for images, say), equal ids must mean equal
/// input.
pub const PKV_NO_TOKEN: i32 = -1;
/// The slot of a padding row: nothing is written or read for it.
pub const PKV_NO_SLOT: c_int = -1;
/// A value of `sinks` that means none, even if the layer's group has some.
pub const PKV_NO_SINKS: u32 = u32::MAX;
/// Pass it as salt_size to pkv_prefix_get_stats or pkv_prefix_clear to mean all salts. Other
/// functions refuse it.
pub const PKV_ALL_SALTS: usize = usize::MAX;
/// Pass it as `blocks` to pkv_prefix_set_quota to mean no limit.
pub const PKV_NO_QUOTA: u64 = u64::MAX;
/// Pass it as duration_ms of RETURN to mean that the text will not continue.
pub const PKV_HINT_NEVER: u64 = u64::MAX;

handle!(pkv_cache_t, pkv_cache);
handle!(pkv_pool_t, pkv_pool);
handle!(pkv_session_t, pkv_session);
handle!(pkv_compute_t, pkv_compute);
handle!(pkv_batch_t, pkv_batch);
handle!(pkv_snapshot_t, pkv_snapshot);

/// A reference to one block: its id in the low 32 bits, the generation of that id in the high 32.
/// Freeing a block raises its generation, so that a stale reference is recognised after the id is
/// allocated again.
pub type pkv_block = u64;

c_enum! {
    /// The result of a call: PKV_OK, or why it failed.
    pkv_status {
        /// The call succeeded.
        OK = 0,
        /// NULL, an unknown enum or flag, a bad struct_size, a size of 0.
        INVALID_ARGUMENT = 100,
        /// An index, layer, position or block id past the end.
        OUT_OF_RANGE = 101,
        /// A size or an index does not fit into its type.
        OVERFLOW = 102,
        /// An array is too short; its count output is the number needed.
        BUFFER_TOO_SMALL = 103,
        /// The handle or block was closed, released or never valid.
        STALE_HANDLE = 104,
        /// A block was released more often than held.
        NOT_HELD = 105,
        /// A session, batch or snapshot of another cache.
        WRONG_CACHE = 106,
        /// Another call or an open batch uses the object.
        BUSY = 107,
        /// A call from inside one of the caller's hooks.
        REENTRANT = 108,
        /// A handle inherited by fork(): the child may only close it.
        FORKED = 109,
        /// Not available in this build, on this CPU or with this config.
        UNSUPPORTED = 110,
        /// A layer was not yet written in this step.
        INCOMPLETE = 111,
        /// The session is suspended: resume it first.
        SUSPENDED = 112,
        /// More than the whole cache can hold: refuse the request.
        TOO_LARGE = 113,
        /// Each session fits, but the batch as a whole never does: begin with fewer sessions.
        BATCH_TOO_LARGE = 114,
        /// Too few free blocks: pkv_last_error_details.
        OUT_OF_BLOCKS = 200,
        /// The allocator returned no memory.
        OUT_OF_MEMORY = 201,
        /// A count is at its limit: open objects or references to a block.
        LIMIT_REACHED = 202,
        /// Data is damaged or cut short.
        CORRUPT = 300,
        /// A file has a format version that this library does not know.
        WRONG_VERSION = 301,
        /// Shapes, dtypes or the fingerprint of a file are not the cache's.
        MISMATCH = 302,
        /// The key is not the file's: a different one, none, or one for a file without a key.
        WRONG_KEY = 303,
        /// The system or a server refused: see pkv_last_error_details.
        IO = 400,
        /// An invariant of the library is broken: please report it.
        INTERNAL = 500,
    }
}

c_enum! {
    /// Element types, in native byte order. Rows that a caller passes are F32, F16 or BF16. Keys
    /// and values can be stored in any type. Conversions round to nearest even. INT8 has one scale
    /// per token and KV head. INT4 has one scale per 32 dims of each. Scales are computed when a
    /// row is stored, from only that row, so rows stored earlier never change. If m is the largest
    /// magnitude among the elements that share a scale, the error of each is at most m / 254 (INT8)
    /// or m / 13.8 (INT4). If one of these elements is NaN or infinite, all become NaN. If m is
    /// below 1e-30, all become 0.
    pkv_dtype {
        /// IEEE binary32.
        F32 = 1,
        /// IEEE binary16.
        F16 = 2,
        /// The upper half of binary32.
        BF16 = 3,
        /// An element is scale \* n, with n a signed byte and one fp32 scale per token and KV head.
        INT8 = 4,
        /// An element is scale \* n, with n a signed nibble and one bf16 scale per 32 dims.
        INT4 = 5,
        /// OCP E4M3 without a scale, up to 448; larger numbers become 448, infinities NaN.
        FP8_E4M3 = 6,
        /// OCP E5M2 without a scale, up to 57344; larger finite numbers become 57344, infinities
        /// stay.
        FP8_E5M2 = 7,
    }
}

c_enum! {
    /// The severity of a log message.
    pkv_log_level {
        /// Something is wrong, or slower than it could be.
        WARNING = 1,
        /// Something normal: evictions begin, a store works again.
        INFO = 2,
    }
}

c_enum! {
    /// Whether a call that writes files waits until they are on disk (fsync).
    pkv_durability {
        /// ON for pkv_file_save, OFF for a directory as a store.
        DEFAULT = 0,
        /// It waits.
        ON = 1,
        /// It does not wait: a power failure may destroy the files that were written last, and
        /// those that they replace. (A killed process destroys neither.)
        OFF = 2,
    }
}

c_enum! {
    /// Where keys and values are stored.
    pkv_storage {
        /// In the library's blocks (default).
        PAGED = 0,
        /// In the engine's memory; the cache has only block ids. Write, attend and read are
        /// UNSUPPORTED. The library can still copy the blocks if all groups are opaque
        /// (PKV_LAYERS_OPAQUE_KV, PKV_LAYERS_OPAQUE_STATES).
        NONE = 1,
    }
}

c_enum! {
    /// The layout of the bytes of a paged cache.
    pkv_layout {
        /// Block-major, for this library's kernels (default). A tile is 16 tokens of one KV head. A
        /// block holds \[layer\]\[tile\]\[kv head\]\[K tile | V tile\], or with memory_directory
        /// \[layer\]\[kv head\]\[tile\]\[K tile | V tile\]. Let p be 2 for BF16, 4 for INT8, 8 for
        /// INT4 and 1 for other types. Element (token t, dim d) of a tile is at K: ((d / p) \* 16 +
        /// t) \* p + d % p V: ((t / p) \* value_dim + d) \* p + (t % p) / 2 + (t % 2) \* (p / 2) (p
        /// = 1: t \* value_dim + d) counted in elements (INT4: nibble i is in byte i / 2, even i in
        /// the lower half). The scales follow the elements: INT8 \[16 tokens\], INT4 \[ceil(dim /
        /// 32)\]\[16 tokens\]. A tile is padded to a multiple of 64 bytes. Later versions may order
        /// these bytes differently; those of PLAIN stay.
        PACKED = 0,
        /// Layer-major, for engines with their own kernels: per layer one K tensor
        /// \[block\]\[block_size\]\[kv head\]\[key_dim\] and one V tensor
        /// \[block\]\[block_size\]\[kv head\]\[value_dim\]. Each can also be indexed by slot, as
        /// \[slot\]\[kv head\]\[dim\]. A row of INT8 or INT4 is its elements followed by its
        /// scales.
        PLAIN = 1,
    }
}

c_enum! {
    /// Instruction sets. On x86 each one includes those before it in this order: SSE2, AVX2,
    /// AVX512, AVX512_VNNI, AVX512_BF16, AMX. On Arm the order is NEON, NEON_DOT, NEON_BF16.
    pkv_isa {
        /// The fastest that this CPU has.
        AUTO = 0,
        /// Plain C++.
        SCALAR = 1,
        /// Every x86-64 CPU has it.
        SSE2 = 2,
        /// With FMA and F16C.
        AVX2 = 3,
        /// F, CD, DQ, BW, VL.
        AVX512 = 4,
        /// AVX512 with VNNI.
        AVX512_VNNI = 5,
        /// AVX512 with BF16, VBMI and VNNI.
        AVX512_BF16 = 6,
        /// AVX512_BF16 with AMX-TILE and AMX-BF16, if the system permits them. With AMX and AUTO
        /// the library asks for this permission, which raises the minimum size of signal stacks
        /// (guide/threads.md).
        AMX = 7,
        /// Every Arm64 CPU has it.
        NEON = 8,
        /// NEON with DotProd.
        NEON_DOT = 9,
        /// NEON with DotProd, BF16 and I8MM.
        NEON_BF16 = 10,
    }
}

c_enum! {
    /// How rows of K and V are rotated before they are stored (not RoPE). A rotation spreads a few
    /// large dims over all others, which makes low-bit types more accurate (guide/quality.md).
    /// Queries are rotated like K, and outputs are rotated back, so scores stay the same and
    /// callers see no rotation. The rotation is computed in fp32, in write, attend and read.
    /// Blocks, files and items of stores hold rotated rows. Rows that are read back have an fp32
    /// rounding error, even with types that otherwise return exactly what was written. A NaN or an
    /// infinity spreads to all dims that are rotated together.
    pkv_rotation {
        /// Rows are stored as they are (default).
        NONE = 0,
        /// Let n be the largest power of two that divides the head dim. Each run of n dims is
        /// multiplied by 1 / sqrt(n), by a sign for each dim, and by the n x n Hadamard matrix
        /// (Sylvester's). The sign of dim d is minus if bit d of the fraction of pi is 1: the bits
        /// of 0x243F6A88 0x85A308D3 ..., highest first. In latent groups, n is that of K, and
        /// value_dim must be a multiple of it.
        HADAMARD = 1,
    }
}

c_enum! {
    /// Huge pages for the memory of K and V.
    pkv_huge_pages {
        /// Transparent huge pages if the system has them (default).
        ADVISE = 0,
        /// Normal pages.
        OFF = 1,
        /// Reserved 2 MiB pages (hugetlbfs), else PKV_OUT_OF_MEMORY.
        REQUIRE = 2,
    }
}

c_enum! {
    /// What the layers of a group keep.
    pkv_layer_kind {
        /// Keys and values (default).
        KV = 0,
        /// Keys; V is the first value_dim dims of K (MLA, absorbed).
        LATENT = 1,
        /// A state of layer_bytes bytes (linear attention, state-space models, short convolutions).
        /// A block holds one state of each layer. See pkv_batch_get_states.
        STATES = 2,
        /// Keys and values that only the engine can read and write: they are on a device, say. A
        /// block has layer_bytes bytes in each layer, and block_io copies it. Calls that need the
        /// numbers (write, attend, read, kv_view) are UNSUPPORTED; the engine copies blocks as
        /// pkv_batch_get_block_copies says. With storage NONE, all groups are opaque, or none.
        OPAQUE_KV = 3,
        /// States that only the engine can read and write, with the rules of OPAQUE_KV.
        OPAQUE_STATES = 4,
    }
}

c_enum! {
    /// Which unused cached blocks are evicted first. The end of a sequence is evicted before its
    /// beginning, except for blocks that left a window (prefix.h).
    pkv_eviction {
        /// The blocks with the fewest expected hits per time in the cache. The cache learns these
        /// from how soon similar blocks were used again.
        LEARNED = 0,
        /// The least recently used blocks.
        LRU = 1,
    }
}

c_enum! {
    /// What a session does with the prefix index of its cache, if there is one.
    pkv_prefix_use {
        /// Takes cached blocks, and adds its own to the index (default).
        SHARE = 0,
        /// Takes cached blocks, and adds none.
        MATCH = 1,
        /// Neither.
        OFF = 2,
    }
}

c_enum! {
    /// How long the prefix index keeps blocks: all unused blocks of lower retention are evicted
    /// before any of higher retention. Hints set it: see hint.h. A shared block has the highest of
    /// all its sessions.
    pkv_retention {
        /// Prompts that hardly ever return: batch jobs, evaluations.
        LOW = -1,
        /// Any other prompt (default).
        NORMAL = 0,
        /// Prompts that must stay fast, even if they are rare.
        HIGH = 1,
    }
}

c_enum! {
    /// The kind of data of a pkv_mask.
    pkv_mask_kind {
        /// uint64_t \[rows\]\[row_stride\]: a row sees new token j of its own session if bit j % 64
        /// of word j / 64 is set, unless the window hides it. Tokens from before the step are seen
        /// as without a mask. With a window or slopes, `positions` must be set.
        BITS = 1,
        /// int32_t \[rows\]: a tree of speculative tokens. Each new token has the index of its
        /// parent among the new tokens of its session, which must be lower than its own, or -1 for
        /// none. It sees itself, its ancestors and, as without a mask, the tokens from before the
        /// step. For windows, sinks and slopes, its position is the number of tokens before the
        /// step plus its depth, wherever its row is. A session whose new tokens are a chain (-1, 0,
        /// 1, ...), such as a chunk of a prompt beside trees, costs as much as without a mask.
        PARENTS = 2,
        /// uint8_t, one per query and position: 0 hides the position; any other value shows it,
        /// unless the causal rule or the window hides it. The byte of query i of sequence s for
        /// column c is data\[s \* batch_stride + i \* row_stride + c\]. i counts the queries of the
        /// sequence from 0; in a padded batch with first rows it counts its rows, padding included.
        /// Positions before the first column are seen as without a mask.
        BYTES = 3,
    }
}

c_enum! {
    /// The unit of the indices of pkv_batch_get_kv_indices.
    pkv_index_unit {
        /// Block ids.
        BLOCKS = 1,
        /// Slots: block id \* block size + offset in the block.
        SLOTS = 2,
    }
}

c_enum! {
    /// What happened to a block position.
    pkv_prefix_event_kind {
        /// A match can now end right after it.
        STORED = 1,
        /// A match can no longer end there: a block that it needs was evicted.
        EVICTED = 2,
        /// It was removed because its salt's quota was full.
        EXPELLED = 3,
        /// It was removed by pkv_prefix_clear or DROP.
        CLEARED = 4,
    }
}

c_enum! {
    /// What to do with the blocks of a range.
    pkv_hint_action {
        /// Evicts blocks later or earlier than others, as `retention` says. For a text, it applies
        /// to the blocks cached now. A duration limits it in time, and may only raise the
        /// retention. For a session, it applies to the blocks that the session leaves behind; the
        /// duration starts when the session ends. Where ranges overlap, the latest hint wins; \[0,
        /// 0) without a duration replaces all earlier ones. A shared block has the highest
        /// retention of all its sessions.
        RETAIN = 1,
        /// Says that a later session will probably begin with the tokens of this one in about
        /// duration_ms, for example when a tool returns. PKV_HINT_NEVER: none will; 0: unknown.
        /// Only for sessions. The policy LEARNED measures when sequences with similar hints (equal
        /// when rounded down to a power of two) really return, so a wrong hint costs little. Other
        /// policies ignore it. Forks and snapshots inherit it.
        RETURN = 2,
        /// Keeps what is in memory before `end`, used or not, until the duration has passed, UNPIN
        /// ends it, or a step needs the blocks. What is cached later is not pinned: pin again after
        /// the prefill or PREFETCH. There is one pin for each text and `end`: pinning again can
        /// make it last longer, never shorter, and one UNPIN ends it.
        PIN = 3,
        /// Ends the pin that the same hint made with PIN, even if that was clipped. `tokens` of the
        /// result is where the pin ended.
        UNPIN = 4,
        /// Reads blocks that are in the store, but not in memory, into the prefix index, with the
        /// given retention; a later match finds those that have arrived. Uses only free and
        /// evictable blocks. Requests are served round-robin by salt, at most 64 pending; one more
        /// cancels the newest request of the salt with the most. A request that has not started
        /// within the duration is discarded. See pkv_store_wait.
        PREFETCH = 5,
        /// Writes what is cached before `end` to the store now, instead of when its session ends.
        SHARE = 6,
        /// As SHARE; blocks of the range get the retention LOW once all are written.
        DEMOTE = 7,
        /// Removes cached blocks from `end` back to `first`, stopping at the first block that
        /// something uses or that another text continues. Items in the store stay. On an open
        /// session, the drop happens at close and ignores `end`: everything from the lowest `first`
        /// of its DROP hints on is removed and not written to the store. Trimming to that point or
        /// before it cancels the drop. On a suspended session, blocks that are being written to the
        /// store stay.
        DROP = 8,
    }
}

c_enum! {
    /// Whether a hint was done.
    pkv_hint_outcome {
        /// Done.
        ACCEPTED = 1,
        /// Done for fewer tokens than asked; the reason says why.
        CLIPPED = 2,
        /// It is queued, or waits for the end of the session.
        DEFERRED = 3,
        /// Not done; the reason says why.
        REJECTED = 4,
        /// Nothing of the range is cached, no full block lies in it, or there is no such pin.
        MISSING = 5,
    }
}

c_enum! {
    /// Why a hint was not done, or not for all tokens.
    pkv_hint_reason {
        /// It was done for all tokens.
        NO_REASON = 0,
        /// The rest is not cached.
        NOT_CACHED = 1,
        /// PIN: max_pinned_blocks. RETAIN: 64 ranges of a session. PREFETCH: 64 are pending. SHARE
        /// and DEMOTE: half of max_queued_blocks wait to be written.
        LIMIT = 2,
        /// The quota of the salt; pins may take half of it.
        QUOTA = 3,
        /// Sessions, pins, a store or longer texts need the rest.
        IN_USE = 4,
        /// The cache has no store.
        NO_STORE = 5,
        /// The store failed, and is not asked for a while.
        STORE_DOWN = 6,
        /// The session does not use the prefix index (PKV_PREFIX_OFF).
        NO_INDEX = 7,
    }
}

c_enum! {
    /// Where the bytes of a file come from or go to.
    pkv_stream_kind {
        /// A regular file by its path. A save writes a new file in the same directory and renames
        /// it when it is complete and on disk (fsync of the file, rename, fsync of its directory):
        /// at any time, even after a crash, the path is the old file or the new one. A new file has
        /// mode 0600 and belongs to the effective user. If it replaces a file that no other user
        /// can have put there, it keeps that file's permissions. This requires that (1) the old
        /// file belongs to the effective user and has one hard link, (2) its directory belongs to
        /// that user or to root, and (3) other users cannot write to the directory, or it is
        /// sticky. Set-id bits and access control lists are never kept. The permissions of the
        /// group and of others are kept only if the old file had no access control list and the new
        /// one can have the same Unix group. A path that ends in a symbolic link, a directory, a
        /// FIFO, a socket or a device is refused (PKV_IO). Links earlier in the path are followed.
        /// Anyone who can write to the directory or rename it can replace or delete saved files,
        /// and a load does not check a file's owner: only a key proves that nobody else wrote it.
        /// On file systems with O_TMPFILE, an unfinished file has no name. Otherwise, and during a
        /// rename, its name is ".pagedkv-", 16 hexadecimal digits and ".tmp", and its writer holds
        /// a lock on it (flock). Later saves in the directory delete such files of the effective
        /// user that nobody has locked. (If a network file system does not share locks between
        /// machines, save from one machine at a time.)
        PATH = 1,
        /// An open, blocking descriptor, from its current position. It stays open; bytes after the
        /// file are neither read nor changed. A failed save leaves the bytes that it wrote.
        DESCRIPTOR = 2,
        /// The caller's memory.
        BUFFER = 3,
        /// The caller's functions. A load reads no byte after the file.
        CALLBACKS = 4,
    }
}

c_struct! {
    pkv_error_details {
        status: pkv_status, group: u32, index: u64, blocks_short: u64, system_error: i32,
        reserved: u32,
    }
}

c_struct! {
    pkv_tensor {
        data: *mut c_void, dtype: pkv_dtype, row_stride: i64, head_stride: i64, batch_stride: i64,
    }
}

c_struct! {
    pkv_allocator {
        alloc: Option<unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void>,
        free: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize, usize)>,
        user: *mut c_void,
    }
}

c_struct! {
    pkv_logger {
        log: Option<unsafe extern "C" fn(*mut c_void, pkv_log_level, *const c_char)>,
        user: *mut c_void,
    }
}

c_struct! {
    pkv_clock {
        now_ms: Option<unsafe extern "C" fn(*mut c_void) -> u64>, user: *mut c_void,
    }
}

c_struct! {
    pkv_runner {
        run: Option<unsafe extern "C" fn(*mut c_void, usize, Option<unsafe extern "C" fn(*mut
            c_void, usize, u32)>, *mut c_void)>, user: *mut c_void, threads: u32, reserved: u32,
    }
}

c_struct! {
    pkv_block_io {
        struct_size: u32, reserved: u32, user: *mut c_void,
        read: Option<unsafe extern "C" fn(*mut c_void, u32, usize, *const u32, *const u32, *mut
            c_void) -> i32>,
        write: Option<unsafe extern "C" fn(*mut c_void, u32, usize, *const u32, *const c_void) ->
            i32>,
    }
}

c_struct! {
    /// Statistics of a pkv_pool, of one layer group of a cache, or sums over all groups. Blocks
    /// that are neither free nor in use are retired: they are never used again because their
    /// generation reached its limit.
    pkv_pool_stats {
        /// Must be sizeof(pkv_pool_stats).
        struct_size: u32,
        /// 0.
        reserved: u32,
        /// Capacity. With groups_share_memory: blocks in the pages that the group has now.
        blocks: u64,
        /// Blocks without references.
        free_blocks: u64,
        /// Blocks with at least one reference.
        used_blocks: u64,
        /// The most blocks used at once so far; of all groups, the sum of what each used at most.
        /// An estimate if the pool has 4096 blocks or more and several threads took blocks at the
        /// same time.
        used_blocks_peak: u64,
        /// Blocks with more than one reference.
        shared_blocks: u64,
        /// References to all blocks.
        references: u64,
    }
}

c_struct! {
    /// Statistics of a cache over all layer groups, beside those of their pools. Fields "so far"
    /// only rise; the others are current values. Since 1.0.
    pkv_cache_stats {
        /// Must be sizeof(pkv_cache_stats).
        struct_size: u32,
        /// Open sessions.
        sessions: u32,
        /// Open snapshots.
        snapshots: u32,
        /// Batches in progress: neither committed nor aborted.
        batches: u32,
        /// Sessions suspended now.
        suspended_sessions: u64,
        /// Blocks in use that only the prefix index holds and that are not pinned. They are evicted
        /// when free blocks run out.
        evictable_blocks: u64,
        /// Committed tokens of all sessions; shared ones count in each session.
        tokens: u64,
        /// Slots that hold a token, over all groups; a shared block counts once.
        filled_slots: u64,
        /// Bytes of K and V memory that the cache has mapped or allocated.
        memory_bytes: u64,
        /// Blocks copied by copy-on-write so far.
        copied_blocks: u64,
        /// Batches committed so far.
        commits: u64,
        /// Tokens committed so far.
        committed_tokens: u64,
        /// Sessions suspended so far.
        suspensions: u64,
        /// Pages in all.
        pages: u64,
        /// Pages of no group now.
        free_pages: u64,
        /// Blocks that it copies now; the library may not give them up.
        moving_blocks: u64,
        /// Calls of it that failed so far.
        failed_copies: u64,
    }
}

c_struct! {
    pkv_layer_group {
        struct_size: u32, layers: u32, layer_indices: *const u32, kind: pkv_layer_kind,
        query_heads: u32, kv_heads: u32, key_dim: u32, value_dim: u32, dtype: pkv_dtype,
        value_dtype: pkv_dtype, window: u32, sinks: u32, rotation: pkv_rotation,
        rotation_matrices: *const pkv_rotation_matrices, layer_bytes: u64, checkpoint_tokens: u32,
        max_draft_tokens: u32, blocks: u64,
    }
}

c_struct! {
    pkv_prefix_config {
        struct_size: u32, eviction: pkv_eviction, max_pinned_blocks: u64, max_blocks_per_salt: u64,
        max_events: u32, reserved: u32, active_parameters: u64,
    }
}

c_struct! {
    pkv_cache_config {
        struct_size: u32, group_count: u32, groups: *const pkv_layer_group, storage: pkv_storage,
        layout: pkv_layout, block_size: u32, groups_share_memory: u32, memory_bytes: u64,
        watermark_blocks: u32, huge_pages: pkv_huge_pages, prefault: u32, reserved: u32,
        memory_directory: *const c_char, threads: u32, isa: pkv_isa,
        prefix: *const pkv_prefix_config, store: *const pkv_store_config,
        allocator: *const pkv_allocator, runner: *const pkv_runner, logger: *const pkv_logger,
        block_io: *const pkv_block_io, clock: *const pkv_clock,
    }
}

c_struct! {
    /// Sizes of K and V, for one layer group or all of them.
    pkv_cache_plan {
        /// Must be sizeof(pkv_cache_plan).
        struct_size: u32,
        /// The number of groups that these sizes cover.
        group_count: u32,
        /// K and V of one token in all layers; states have none. With OPAQUE_KV: its part of a
        /// block, rounded up.
        bytes_per_token: u64,
        /// K and V of block_size tokens, or one state, in all layers.
        bytes_per_block: u64,
        /// Blocks, summed over groups; with groups_share_memory, each group counts as if it had all
        /// memory.
        blocks: u64,
        /// Tokens that fit: the lowest number of any group without a window or states. If there is
        /// no such group, the lowest of all groups.
        tokens: u64,
        /// Bytes of all K and V memory; of opaque groups, the engine's.
        memory_bytes: u64,
        /// Bytes of the pools' own tables.
        bookkeeping_bytes: u64,
    }
}

c_struct! {
    /// The options of a cache, with defaults filled in.
    pkv_cache_info {
        /// Must be sizeof(pkv_cache_info).
        struct_size: u32,
        /// Where K and V are stored.
        storage: pkv_storage,
        /// The layout of the bytes.
        layout: pkv_layout,
        /// Tokens per block.
        block_size: u32,
        /// The number of layer groups.
        group_count: u32,
        /// Layers of all groups.
        layers: u32,
        /// Threads that compute attention.
        threads: u32,
        /// The instruction set of the kernels that run.
        isa: pkv_isa,
    }
}

c_struct! {
    pkv_pool_config {
        struct_size: u32, blocks: u32, allocator: *const pkv_allocator,
    }
}

c_struct! {
    pkv_session_config {
        struct_size: u32, priority: i32, prefix_use: pkv_prefix_use, reserved: u32,
        salt: *const c_void, salt_size: u64,
    }
}

c_struct! {
    /// The properties of a session.
    pkv_session_info {
        /// Must be sizeof(pkv_session_info).
        struct_size: u32,
        /// From the session's config, or set later.
        priority: i32,
        /// 1: suspended, and neither resumed nor trimmed since.
        suspended: u32,
        /// 0.
        reserved: u32,
        /// Committed tokens.
        length: u64,
        /// Committed tokens, plus those to be computed again.
        total: u64,
        /// Blocks held, over all groups, including reserved ones.
        blocks: u64,
        /// Blocks held by nothing else: suspend or close frees them.
        exclusive_blocks: u64,
    }
}

c_struct! {
    pkv_compute_config {
        struct_size: u32, threads: u32, isa: pkv_isa, reserved: u32,
        allocator: *const pkv_allocator, runner: *const pkv_runner,
    }
}

c_struct! {
    /// The threads and instruction set of a pkv_compute.
    pkv_compute_info {
        /// Must be sizeof(pkv_compute_info).
        struct_size: u32,
        /// Threads, including the caller's.
        threads: u32,
        /// The instruction set of its kernels.
        isa: pkv_isa,
        /// 0.
        reserved: u32,
    }
}

c_struct! {
    pkv_kv_view {
        struct_size: u32, layout: pkv_layout, block_size: u32, kv_heads: u32, key_dim: u32,
        value_dim: u32, dtype: pkv_dtype, value_dtype: pkv_dtype, blocks: u64, k: *mut c_void,
        v: *mut c_void, k_bytes: u64, v_bytes: u64, k_block_stride: i64, k_row_stride: i64,
        k_head_stride: i64, v_block_stride: i64, v_row_stride: i64, v_head_stride: i64,
        rotation: pkv_rotation, latent: u32, rotation_matrices: *const pkv_rotation_matrices,
    }
}

c_struct! {
    pkv_kv_sequences {
        struct_size: u32, query_heads: u32, count: u64, query_lengths: *const u32,
        kv_lengths: *const u64, block_tables: *const u32, block_table_stride: u64,
        first_rows: *const u32, query_positions: *const i64,
    }
}

c_struct! {
    pkv_mask {
        struct_size: u32, kind: pkv_mask_kind, data: *const c_void, row_stride: i64,
        batch_stride: i64, columns: u64, first_positions: *const i64, positions: *const i64,
    }
}

c_struct! {
    pkv_attention_params {
        struct_size: u32, scale: f32, bidirectional: u32, window: u32, sinks: u32, softcap: f32,
        head_windows: *const u32, head_sinks: *const u32, alibi_slopes: *const f32,
        sink_logits: *const f32, mask: *const pkv_mask, chosen_blocks: *const pkv_chosen_blocks,
    }
}

c_struct! {
    pkv_attention_outputs {
        struct_size: u32, reserved: u32, lse: *mut f32, blocks: *const pkv_block_outputs,
    }
}

c_struct! {
    pkv_text {
        salt: *const c_void, salt_size: usize, tokens: *const i32, n: usize,
    }
}

c_struct! {
    /// Statistics of the index, for one salt or all.
    pkv_prefix_stats {
        /// Must be sizeof(pkv_prefix_stats).
        struct_size: u32,
        /// 0.
        reserved: u32,
        /// Admitted sessions, and resumes.
        matches: u64,
        /// Tokens looked for.
        asked_tokens: u64,
        /// Tokens found.
        matched_tokens: u64,
        /// Full block positions found.
        matched_blocks: u64,
        /// Block positions cached so far.
        published_blocks: u64,
        /// Block positions removed so far because memory was needed.
        evicted_blocks: u64,
        /// Block positions removed so far because a salt's quota was full.
        expelled_blocks: u64,
        /// Block positions removed so far by pkv_prefix_clear and DROP.
        cleared_blocks: u64,
        /// Block positions cached now.
        cached_blocks: u64,
        /// Cached ones that are unused and not pinned.
        evictable_blocks: u64,
        /// Cached ones that are pinned.
        pinned_blocks: u64,
        /// Pins that ended so far because a step needed their blocks.
        yielded_pins: u64,
    }
}

c_struct! {
    /// A change of one block position; an unknown kind is a removal. To predict a match, find the
    /// last block of the prompt with an event STORED and no later removal: the match ends after it.
    /// Without windows and states, all positions before it are stored as well; with them, some may
    /// be missing. This struct will never grow.
    pkv_prefix_event {
        /// Counts from 0.
        number: u64,
        /// Hash of the block and all blocks before it: see pkv_prefix_hash_blocks.
        hash: u64,
        /// Hash of the previous block; for the first block, of the salt.
        parent: u64,
        /// Position of its first token in the sequence.
        position: u64,
        /// What happened.
        kind: pkv_prefix_event_kind,
        /// 0.
        reserved: u32,
    }
}

c_struct! {
    pkv_hint {
        struct_size: u32, action: pkv_hint_action, first: u64, end: u64, retention: pkv_retention,
        reserved: u32, duration_ms: u64,
    }
}

c_struct! {
    /// The result of a hint.
    pkv_hint_result {
        /// Must be sizeof(pkv_hint_result).
        struct_size: u32,
        /// Whether it was done.
        outcome: pkv_hint_outcome,
        /// Why it was not done, or not for all tokens.
        reason: pkv_hint_reason,
        /// 0.
        reserved: u32,
        /// How many tokens the hint covers, in full blocks: of the range, or (PIN, UNPIN, PREFETCH,
        /// SHARE, DEMOTE) of everything before `end`. RETURN: all tokens of the session.
        tokens: u64,
    }
}

c_struct! {
    pkv_stream {
        struct_size: u32, kind: pkv_stream_kind, path: *const c_char, descriptor: i32,
        reserved: u32, data: *mut c_void, size: u64,
        read: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, u64) -> i64>,
        write: Option<unsafe extern "C" fn(*mut c_void, *const c_void, u64) -> i64>,
        user: *mut c_void,
    }
}

c_struct! {
    pkv_file_config {
        struct_size: u32, prefix_index: u32, trust_salts: u32, durable: pkv_durability,
        fingerprint: *const c_void, fingerprint_size: u64, secret_key: *const c_void,
        secret_key_size: u64, max_tokens: u64,
    }
}

c_struct! {
    pkv_file_item {
        session: pkv_session, snapshot: pkv_snapshot, label: u64,
    }
}

c_struct! {
    /// The properties of a file.
    pkv_file_info {
        /// Must be sizeof(pkv_file_info).
        struct_size: u32,
        /// Version of the format: 1.
        version: u32,
        /// Size of the file.
        bytes: u64,
        /// Bytes of K and V.
        kv_bytes: u64,
        /// Sessions and snapshots.
        sessions: u64,
        /// Tokens of all of these; shared ones count in each.
        tokens: u64,
        /// Positions whose K and V are in the file; shared ones count once.
        stored_tokens: u64,
        /// Entries of the prefix index.
        prefix_entries: u64,
        /// Tokens per block of the cache that was saved.
        block_size: u32,
        /// Layer groups.
        group_count: u32,
        /// Layers over all groups.
        layers: u32,
        /// 0: saved with storage NONE, without opaque groups.
        has_kv: u32,
        /// 1: saved with a key, so encrypted and authenticated.
        authenticated: u32,
        /// Bytes of the fingerprint; 0: the file has none.
        fingerprint_size: u32,
        /// The fingerprint.
        fingerprint: [u8; 64],
    }
}

c_struct! {
    pkv_store_item {
        name: [u8; 32], data: *mut c_void, size: u64,
    }
}

c_struct! {
    pkv_store {
        struct_size: u32, reserved: u32, user: *mut c_void,
        put: Option<unsafe extern "C" fn(*mut c_void, usize, *const pkv_store_item) -> i64>,
        get: Option<unsafe extern "C" fn(*mut c_void, usize, *mut pkv_store_item) -> i64>,
        probe: Option<unsafe extern "C" fn(*mut c_void, usize, *mut pkv_store_item) -> i64>,
        drop: Option<unsafe extern "C" fn(*mut c_void, usize, *const pkv_store_item) -> i64>,
        close: Option<unsafe extern "C" fn(*mut c_void)>,
        last_error: Option<unsafe extern "C" fn(*mut c_void) -> *const c_char>,
    }
}

c_struct! {
    pkv_store_config {
        struct_size: u32, wait_ms: u32, store: *const pkv_store, fingerprint: *const c_void,
        fingerprint_size: u64, secret_key: *const c_void, secret_key_size: u64, buffer_bytes: u64,
        max_queued_blocks: u64,
    }
}

c_struct! {
    /// Statistics of a cache's store. An item is one block of one layer group.
    pkv_store_stats {
        /// Must be sizeof(pkv_store_stats).
        struct_size: u32,
        /// 1: the store failed recently; reads or writes pause for a while.
        down: u32,
        /// Block positions that wait to be written.
        queued_blocks: u64,
        /// Block positions not written, because the queue was full, memory was needed, or the store
        /// failed.
        unwritten_blocks: u64,
        /// Items that the store accepted.
        written_items: u64,
        /// Bytes of these items.
        written_bytes: u64,
        /// Items not written because the store had them.
        known_items: u64,
        /// Items looked for in the store.
        asked_items: u64,
        /// Items that the store returned.
        read_items: u64,
        /// Bytes of these items.
        read_bytes: u64,
        /// Items with wrong bytes; they count as misses.
        corrupt_items: u64,
        /// Calls that failed, or did not store or use all items.
        failures: u64,
    }
}

c_struct! {
    pkv_directory_config {
        struct_size: u32, durable: pkv_durability, path: *const c_char, max_bytes: u64,
    }
}

c_struct! {
    pkv_chosen_blocks {
        struct_size: u32, top_blocks: u32, first_blocks: u32, last_blocks: u32,
        tokens_per_choice: u32, list_blocks: u32, lists: *const u32,
    }
}

c_struct! {
    pkv_block_outputs {
        struct_size: u32, mass_queries: u32, chosen: *mut u32, masses: *mut f32, mass_blocks: u64,
    }
}

c_struct! {
    pkv_rotation_matrices {
        struct_size: u32, reserved: u32, key: *const f32, value: *const f32,
    }
}

#[cfg(feature = "redis")]
c_struct! {
    pkv_redis_config {
        struct_size: u32, ttl_seconds: u32, servers: *const c_char, user: *const c_char,
        password: *const c_char, key_prefix: *const c_char, max_pipeline_bytes: u64,
        connect_timeout_ms: u32, command_timeout_ms: u32, connect_later: u32, tls: u32,
        tls_ca_file: *const c_char, tls_ca_directory: *const c_char,
        tls_certificate_file: *const c_char, tls_key_file: *const c_char,
        tls_server_name: *const c_char, tls_insecure_no_verify: u32, reserved: u32,
    }
}

/// Hands the list of all functions to a macro: linked and opened at run time they are
/// the same ones.
macro_rules! for_each_function {
    ($use:ident) => {
        $use! {
            fn pkv_status_name(status: pkv_status) -> *const c_char;
            fn pkv_last_error() -> *const c_char;
            fn pkv_last_error_details() -> *const pkv_error_details;
            fn pkv_version() -> u32;
            fn pkv_cache_compute_plan(config: *const pkv_cache_config, group: u32, out: *mut
                pkv_cache_plan) -> pkv_status;
            fn pkv_cache_create(config: *const pkv_cache_config, out: *mut pkv_cache) -> pkv_status;
            fn pkv_cache_destroy(cache: pkv_cache) -> pkv_status;
            fn pkv_cache_get_info(cache: pkv_cache, out: *mut pkv_cache_info) -> pkv_status;
            fn pkv_cache_get_stats(cache: pkv_cache, out: *mut pkv_cache_stats) -> pkv_status;
            fn pkv_cache_get_pool_stats(cache: pkv_cache, group: u32, out: *mut pkv_pool_stats) ->
                pkv_status;
            fn pkv_cache_format_metrics(cache: pkv_cache, capacity: usize, text: *mut c_char, size:
                *mut usize) -> pkv_status;
            fn pkv_cache_validate(cache: pkv_cache) -> pkv_status;
            fn pkv_isa_name(isa: pkv_isa) -> *const c_char;
            fn pkv_pool_create(config: *const pkv_pool_config, out: *mut pkv_pool) -> pkv_status;
            fn pkv_pool_destroy(pool: pkv_pool) -> pkv_status;
            fn pkv_pool_alloc(pool: pkv_pool, n: usize, blocks: *mut pkv_block) -> pkv_status;
            fn pkv_pool_retain(pool: pkv_pool, n: usize, blocks: *const pkv_block) -> pkv_status;
            fn pkv_pool_release(pool: pkv_pool, n: usize, blocks: *const pkv_block) -> pkv_status;
            fn pkv_pool_get_stats(pool: pkv_pool, out: *mut pkv_pool_stats) -> pkv_status;
            fn pkv_pool_validate(pool: pkv_pool) -> pkv_status;
            fn pkv_session_open(cache: pkv_cache, config: *const pkv_session_config, out: *mut
                pkv_session) -> pkv_status;
            fn pkv_session_close(session: pkv_session) -> pkv_status;
            fn pkv_session_get_length(session: pkv_session, tokens: *mut u64) -> pkv_status;
            fn pkv_session_get_tokens(session: pkv_session, first: u64, n: usize, tokens: *mut i32)
                -> pkv_status;
            fn pkv_session_set_tokens(session: pkv_session, first: u64, n: usize, tokens: *const
                i32) -> pkv_status;
            fn pkv_session_reserve(session: pkv_session, total_tokens: u64) -> pkv_status;
            fn pkv_session_trim(session: pkv_session, length: u64) -> pkv_status;
            fn pkv_session_get_trim_point(session: pkv_session, limit: u64, length: *mut u64) ->
                pkv_status;
            fn pkv_session_fork(session: pkv_session, out: *mut pkv_session) -> pkv_status;
            fn pkv_session_suspend(session: pkv_session) -> pkv_status;
            fn pkv_session_resume(session: pkv_session, length: *mut u64, total: *mut u64) ->
                pkv_status;
            fn pkv_session_set_priority(session: pkv_session, priority: i32) -> pkv_status;
            fn pkv_session_get_info(session: pkv_session, out: *mut pkv_session_info) -> pkv_status;
            fn pkv_session_get_block_table(session: pkv_session, group: u32, capacity: usize, ids:
                *mut u32, count: *mut usize) -> pkv_status;
            fn pkv_session_read(session: pkv_session, layer: u32, first: u64, n: usize, k: *const
                pkv_tensor, v: *const pkv_tensor) -> pkv_status;
            fn pkv_session_read_state(session: pkv_session, layer: u32, tokens: u64, size: usize,
                state: *mut c_void) -> pkv_status;
            fn pkv_compute_create(config: *const pkv_compute_config, out: *mut pkv_compute) ->
                pkv_status;
            fn pkv_compute_destroy(compute: pkv_compute) -> pkv_status;
            fn pkv_compute_get_info(compute: pkv_compute, out: *mut pkv_compute_info) -> pkv_status;
            fn pkv_openmp_runner(out: *mut pkv_runner) -> pkv_status;
            fn pkv_cache_get_kv_view(cache: pkv_cache, layer: u32, out: *mut pkv_kv_view) ->
                pkv_status;
            fn pkv_kv_view_plan(kv: *mut pkv_kv_view, bytes: *mut u64) -> pkv_status;
            fn pkv_kv_write_slots(compute: pkv_compute, kv: *const pkv_kv_view, rows: usize, slots:
                *const i64, k: *const pkv_tensor, v: *const pkv_tensor) -> pkv_status;
            fn pkv_kv_read_slots(compute: pkv_compute, kv: *const pkv_kv_view, rows: usize, slots:
                *const i64, k: *const pkv_tensor, v: *const pkv_tensor) -> pkv_status;
            fn pkv_kv_write(compute: pkv_compute, kv: *const pkv_kv_view, sequences: *const
                pkv_kv_sequences, k: *const pkv_tensor, v: *const pkv_tensor) -> pkv_status;
            fn pkv_kv_read(compute: pkv_compute, kv: *const pkv_kv_view, sequences: *const
                pkv_kv_sequences, k: *const pkv_tensor, v: *const pkv_tensor) -> pkv_status;
            fn pkv_kv_attend(compute: pkv_compute, kv: *const pkv_kv_view, sequences: *const
                pkv_kv_sequences, params: *const pkv_attention_params, q: *const pkv_tensor, out:
                *const pkv_tensor, outputs: *const pkv_attention_outputs) -> pkv_status;
            fn pkv_attention_merge(compute: pkv_compute, count: usize, outs: *const pkv_tensor, lse:
                *const *const f32, rows: usize, heads: u32, dim: u32, merged: *const pkv_tensor,
                merged_lse: *mut f32) -> pkv_status;
            fn pkv_batch_begin(cache: pkv_cache, count: usize, sessions: *const pkv_session,
                new_tokens: *const u32, out: *mut pkv_batch) -> pkv_status;
            fn pkv_batch_choose_victims(cache: pkv_cache, count: usize, sessions: *const
                pkv_session, new_tokens: *const u32, capacity: usize, victims: *mut pkv_session,
                victim_count: *mut usize) -> pkv_status;
            fn pkv_batch_set_first_rows(batch: pkv_batch, count: usize, first_rows: *const u32) ->
                pkv_status;
            fn pkv_batch_write(batch: pkv_batch, layer: u32, k: *const pkv_tensor, v: *const
                pkv_tensor) -> pkv_status;
            fn pkv_batch_attend(batch: pkv_batch, layer: u32, params: *const pkv_attention_params,
                q: *const pkv_tensor, out: *const pkv_tensor, outputs: *const pkv_attention_outputs)
                -> pkv_status;
            fn pkv_batch_commit(batch: pkv_batch, n: usize, tokens: *const i32) -> pkv_status;
            fn pkv_batch_accept(batch: pkv_batch, i: usize, count: usize, kept: *const u32) ->
                pkv_status;
            fn pkv_batch_abort(batch: pkv_batch) -> pkv_status;
            fn pkv_batch_get_slot_mapping(batch: pkv_batch, group: u32, capacity: usize, slots: *mut
                i64, count: *mut usize) -> pkv_status;
            fn pkv_batch_get_block_copies(batch: pkv_batch, group: u32, capacity: usize, from: *mut
                u32, to: *mut u32, count: *mut usize) -> pkv_status;
            fn pkv_batch_get_states(batch: pkv_batch, layer: u32, before: *mut *const c_void,
                capacity: usize, after: *mut *mut c_void, count: *mut usize) -> pkv_status;
            fn pkv_batch_get_state_blocks(batch: pkv_batch, group: u32, before: *mut u32, indptr:
                *mut u32, capacity: usize, tokens: *mut u32, after: *mut u32, count: *mut usize) ->
                pkv_status;
            fn pkv_batch_get_kv_indices(batch: pkv_batch, group: u32, unit: pkv_index_unit, indptr:
                *mut u32, capacity: usize, indices: *mut u32, count: *mut usize, last_block_length:
                *mut u32) -> pkv_status;
            fn pkv_snapshot_take(session: pkv_session, out: *mut pkv_snapshot) -> pkv_status;
            fn pkv_snapshot_fork(snapshot: pkv_snapshot, out: *mut pkv_session) -> pkv_status;
            fn pkv_snapshot_close(snapshot: pkv_snapshot) -> pkv_status;
            fn pkv_session_admit(session: pkv_session, n: usize, tokens: *const i32, total_tokens:
                u64, matched: *mut u64) -> pkv_status;
            fn pkv_prefix_get_stats(cache: pkv_cache, salt: *const c_void, salt_size: usize, out:
                *mut pkv_prefix_stats) -> pkv_status;
            fn pkv_prefix_clear(cache: pkv_cache, salt: *const c_void, salt_size: usize) ->
                pkv_status;
            fn pkv_prefix_probe(cache: pkv_cache, prompt: *const pkv_text, cached: *mut u64) ->
                pkv_status;
            fn pkv_prefix_set_quota(cache: pkv_cache, salt: *const c_void, salt_size: usize, blocks:
                u64) -> pkv_status;
            fn pkv_prefix_read_events(cache: pkv_cache, next: *mut u64, n: usize, events: *mut
                pkv_prefix_event, count: *mut usize, lost: *mut u64) -> pkv_status;
            fn pkv_prefix_hash_blocks(prompt: *const pkv_text, block_size: u32, hashes: *mut u64) ->
                pkv_status;
            fn pkv_hint_text(cache: pkv_cache, text: *const pkv_text, hint: *const pkv_hint, result:
                *mut pkv_hint_result) -> pkv_status;
            fn pkv_hint_session(session: pkv_session, hint: *const pkv_hint, result: *mut
                pkv_hint_result) -> pkv_status;
            fn pkv_file_save(cache: pkv_cache, n: usize, items: *const pkv_file_item, config: *const
                pkv_file_config, to: *const pkv_stream, bytes: *mut u64) -> pkv_status;
            fn pkv_file_load(cache: pkv_cache, config: *const pkv_file_config, from: *const
                pkv_stream, capacity: usize, sessions: *mut pkv_session, labels: *mut u64, count:
                *mut usize) -> pkv_status;
            fn pkv_file_inspect(config: *const pkv_file_config, from: *const pkv_stream, out: *mut
                pkv_file_info) -> pkv_status;
            fn pkv_store_wait(cache: pkv_cache, prompt: *const pkv_text, timeout_ms: u32, cached:
                *mut u64, pending: *mut u64) -> pkv_status;
            fn pkv_store_cancel(cache: pkv_cache, prompt: *const pkv_text) -> pkv_status;
            fn pkv_store_flush(cache: pkv_cache, timeout_ms: u32, queued: *mut u64) -> pkv_status;
            fn pkv_store_get_stats(cache: pkv_cache, out: *mut pkv_store_stats) -> pkv_status;
            fn pkv_store_open_directory(config: *const pkv_directory_config, out: *mut pkv_store) ->
                pkv_status;
            fn pkv_store_close(store: *mut pkv_store) -> pkv_status;
            fn pkv_session_drop_blocks(session: pkv_session, group: u32, count: usize, indices:
                *const u32) -> pkv_status;
        }
    };
}
pub(crate) use for_each_function;
