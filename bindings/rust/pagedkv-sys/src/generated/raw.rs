//! The C interface of libpagedkv.
//!
//! Made by generate_raw.py from the headers of C: do not edit. Over 800 lines: generated.
#![cfg_attr(rustfmt, rustfmt_skip)]

use std::os::raw::{c_char, c_int, c_void};

/// An enum of C: an integer that may have values which this version does not know.
macro_rules! c_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $constant:ident = $value:literal,)* }) => {
        $(#[$meta])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub c_int);
        impl $name {
            $($(#[$doc])* pub const $constant: Self = Self($value);)*
        }
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.0 {
                    $($value => f.write_str(stringify!($constant)),)*
                    unknown => write!(f, "{}({})", stringify!($name), unknown),
                }
            }
        }
    };
}

/// A handle of C: never an address, and never looked into.
macro_rules! handle {
    ($object:ident, $handle:ident) => {
        #[doc(hidden)]
        #[repr(C)]
        #[derive(Debug)]
        pub struct $object {
            _opaque: [u8; 0],
        }
        pub type $handle = *mut $object;
    };
}

/// A struct that begins with its size.
macro_rules! sized {
    ($name:ident) => {
        impl Default for $name {
            /// The size of the struct; 0 in every other field.
            fn default() -> Self {
                // Numbers, addresses, and functions that may be missing: 0 is a value of each.
                let zeros: Self = unsafe { std::mem::zeroed() };
                Self { struct_size: std::mem::size_of::<Self>() as u32, ..zeros }
            }
        }
    };
}

/// The version of the headers that this was made from.
pub const VERSION: &str = "0.1.0";
/// Version of these headers. While the major version is 0, the interface may change.
pub const PKV_VERSION_MAJOR: c_int = 0;
pub const PKV_VERSION_MINOR: c_int = 1;
pub const PKV_VERSION_PATCH: c_int = 0;
/// group of pkv_cache_compute_plan: all groups.
pub const PKV_ALL_GROUPS: u32 = u32::MAX;
/// The entry in a block table for a block that was freed because it left a sliding window.
pub const PKV_NO_BLOCK: u32 = u32::MAX;
/// A token whose id the library does not know.
pub const PKV_NO_TOKEN: i32 = -1;
/// after of pkv_session_set_return_hint: unknown (default).
pub const PKV_RETURN_UNKNOWN: c_int = 0;
/// after of pkv_session_set_return_hint: the text will not continue.
pub const PKV_RETURN_NEVER: u32 = u32::MAX;
/// The slot of a padding row: nothing is written or read for it.
pub const PKV_NO_SLOT: c_int = -1;
/// sinks of pkv_attention_params: none, even if the layer's group has some.
pub const PKV_NO_SINKS: u32 = u32::MAX;
/// The salt_size for all salts, in pkv_prefix_get_stats and pkv_prefix_clear. Other functions
/// return INVALID_ARGUMENT (salt NULL) or TOO_LARGE for it.
pub const PKV_ALL_SALTS: usize = usize::MAX;
/// The blocks of pkv_prefix_set_quota for the limit in the config.
pub const PKV_DEFAULT_QUOTA: u64 = u64::MAX;

handle!(pkv_cache_t, pkv_cache);
handle!(pkv_pool_t, pkv_pool);
handle!(pkv_session_t, pkv_session);
handle!(pkv_compute_t, pkv_compute);
handle!(pkv_batch_t, pkv_batch);
handle!(pkv_snapshot_t, pkv_snapshot);

/// A reference to one block: its id in the low 32 bits, the generation of that id in the high 32. A
/// new pool returns 0, 1, 2, ... to a single thread. Freeing a block raises its generation, so that
/// a stale reference is recognised after the id is allocated again.
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
        /// Sizes whose product or sum no process can hold: 2^56 bytes.
        OVERFLOW = 102,
        /// The count pointer has the count that is needed.
        BUFFER_TOO_SMALL = 103,
        /// The handle or block was closed, released or never valid.
        STALE_HANDLE = 104,
        /// A block was released more often than it was held.
        DOUBLE_FREE = 105,
        /// A session, batch or snapshot of another cache.
        WRONG_CACHE = 106,
        /// Another call or an open batch uses the object.
        BUSY = 107,
        /// A call from inside one of the caller's hooks.
        REENTRANT = 108,
        /// A handle inherited by fork(): the child may only close it.
        FORKED = 109,
        /// A write to a block that is sealed.
        BLOCK_SEALED = 110,
        /// Not available for this storage, layout or CPU.
        UNSUPPORTED = 111,
        /// A layer was not yet written in this step.
        INCOMPLETE = 112,
        /// The session is suspended: resume it first.
        SUSPENDED = 113,
        /// Too few free blocks; the error message says how many are short.
        OUT_OF_BLOCKS = 200,
        /// More than the whole cache can hold: refuse the request.
        TOO_LARGE = 201,
        /// The allocator returned no memory.
        NO_MEMORY = 202,
        /// The reference count of a block is at its limit.
        REF_LIMIT = 203,
        /// Every slot of the block is used.
        BLOCK_FULL = 204,
        /// Each session fits, but all of the batch at once never does: begin with fewer sessions.
        BATCH_TOO_LARGE = 205,
        /// Data is damaged, cut short, or authenticated with another key.
        CORRUPT = 300,
        /// A file has a format version that this library does not know.
        VERSION = 301,
        /// Shapes, dtypes or the fingerprint of a file are not the cache's.
        MISMATCH = 302,
        /// The system or a server refused; the error message says why.
        IO = 400,
        /// An invariant of the library is broken: please report it.
        INTERNAL = 500,
    }
}

c_enum! {
    /// Element types, in native byte order. Rows that a caller passes are F32, F16 or BF16. Keys
    /// and values can be stored in any type. Conversions round to nearest even. The scales of INT8
    /// and INT4 are computed when a row is stored, from only that row, so rows stored earlier never
    /// change. If m is the largest magnitude of a row (INT8) or of 32 dims (INT4), the error of an
    /// element is at most m / 254 (INT8) or m / 13.8 (INT4). A NaN or an infinity among them makes
    /// all of them NaN. If m is below 1e-30, they are stored as 0.
    pkv_dtype {
        /// IEEE binary32.
        F32 = 1,
        /// IEEE binary16.
        F16 = 2,
        /// The upper half of binary32.
        BF16 = 3,
        /// scale \* n: a byte n (two's complement) per element, an fp32 scale per row (token and KV
        /// head).
        INT8 = 4,
        /// scale \* n: a nibble n (two's complement) per element, a bf16 scale per 32 dims.
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
    /// Where keys and values are stored. All kinds give the same results; compare the first two to
    /// see what paging is worth.
    pkv_storage {
        /// Blocks of fixed size, shared between sessions and copied on write (default).
        PAGED = 0,
        /// One growing tensor per session and layer; a fork or a snapshot copies it.
        CONTIGUOUS = 1,
        /// Only block ids: the engine has the memory; write, attend and read are UNSUPPORTED.
        NONE = 2,
    }
}

c_enum! {
    /// The layout of the bytes of a paged cache.
    pkv_layout {
        /// Block-major, for this library's kernels (default). A block holds \[layer\]\[tile\]\[kv
        /// head\]\[K tile | V tile\], or with memory_directory \[layer\]\[kv head\]\[tile\]\[K tile
        /// | V tile\]; a tile is 16 tokens. Let p be 2 for BF16, 4 for INT8, 8 for INT4 and 1 for
        /// other types. Element (token t, dim d) of a tile is at K: ((d / p) \* 16 + t) \* p + d %
        /// p V: ((t / p) \* value_dim + d) \* p + (t % p) / 2 + (t % 2) \* (p / 2) (p = 1: t \*
        /// value_dim + d) in units of an element (INT4: nibble i is in byte i / 2, even i in the
        /// lower half). The scales follow the elements: INT8 \[16 tokens\], INT4 \[ceil(dim /
        /// 32)\]\[16 tokens\]. A tile is padded to a multiple of 64 bytes.
        PACKED = 0,
        /// Layer-major, for engines with their own kernels: per layer one K tensor
        /// \[block\]\[block_size\]\[kv head\]\[key_dim\] and one V tensor
        /// \[block\]\[block_size\]\[kv head\]\[value_dim\]. They can also be read by slot, as
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
        /// AVX512 with BF16 and VNNI.
        AVX512_BF16 = 6,
        /// AVX512_BF16 with AMX-TILE and AMX-BF16, if the system permits them. The library asks for
        /// this permission, also with AUTO; it raises the minimum size of signal stacks
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
    /// How rows of K and V are rotated before they are stored. A rotation spreads a few large dims
    /// over all others, which makes types of few bits more exact (guide/quality.md). Queries are
    /// rotated like K, and outputs are rotated back, so scores stay the same and callers see no
    /// rotation. The rotation is computed in fp32, in write, attend and read. Blocks, files and
    /// items of stores hold rotated rows. Reading rows back undoes the rotation up to fp32
    /// rounding, also for types that otherwise return exactly what was written. A NaN or an
    /// infinity spreads to all dims that are rotated together.
    pkv_rotation {
        /// Rows are stored as they are (default).
        NONE = 0,
        /// Each run of n dims, where n is the largest power of two that divides the head dim, is
        /// multiplied by 1 / sqrt(n), by the signs of its dims, and by the n x n Hadamard matrix
        /// (Sylvester's). The sign of dim d is minus if bit d of the fraction of pi is 1: the bits
        /// of 0x243F6A88 0x85A308D3 ..., highest first. In latent groups, V is rotated with the
        /// runs of K, and value_dim must be a multiple of n.
        HADAMARD = 1,
        /// Rows are multiplied by the caller's orthogonal matrix, for K, for V or for both.
        MATRIX = 2,
    }
}

c_enum! {
    /// Huge pages for the memory of K and V.
    pkv_huge_pages {
        /// Transparent huge pages if the system has them (default).
        ADVISE = 0,
        /// Normal pages.
        OFF = 1,
        /// Reserved 2 MiB pages (hugetlbfs), else PKV_NO_MEMORY.
        REQUIRE = 2,
    }
}

c_enum! {
    /// Which unused cached blocks are evicted first. The end of a sequence goes before its
    /// beginning.
    pkv_eviction {
        /// Blocks with the fewest expected hits for their size, learned from when similar blocks
        /// were used again.
        LEARNED = 0,
        /// The least recently used blocks.
        LRU = 1,
        /// The blocks matched least often since they were stored; among equals, as LRU.
        LFU = 2,
    }
}

c_enum! {
    /// What a session does with the prefix index of its cache, if there is one.
    pkv_prefix_use {
        /// Matches, and publishes what it computes (default).
        SHARE = 0,
        /// Matches only.
        MATCH = 1,
        /// Neither.
        OFF = 2,
    }
}

c_enum! {
    /// How long the prefix index keeps the blocks of a session: all blocks of lower retention are
    /// evicted before any of higher retention.
    pkv_retention {
        /// Prompts that hardly come again: batch jobs, evaluations.
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
        /// uint64_t \[rows\]\[row_stride\]: if bit j % 64 of word j / 64 is set, the row sees new
        /// token j of its own session, unless the window hides it. Tokens from before the step are
        /// seen as without a mask.
        BITS = 1,
        /// int32_t \[rows\]: a tree of speculative tokens, as the parent of each new token: an
        /// index among the new tokens of the session, lower than the token's own, or -1 for none. A
        /// new token sees itself, its ancestors and, as without a mask, the tokens from before the
        /// step.
        PARENTS = 2,
        /// uint8_t, one per position: 0 hides the position; any other byte shows it, unless the
        /// causal rule or the window hides it. The byte of query i of sequence s for column c is
        /// data\[s \* batch_stride + i \* row_stride + c\]; with first_rows (of
        /// pkv_attention_sequences, or pkv_batch_set_first_rows), i counts the rows of the padded
        /// batch. Positions before the first column are seen as without a mask.
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
        /// A match can now end after it.
        STORED = 1,
        /// It, or a block that such a match needs, was evicted.
        EVICTED = 2,
        /// It was removed because its salt's quota was full.
        EXPELLED = 3,
        /// It was removed by pkv_prefix_clear.
        CLEARED = 4,
    }
}

c_enum! {
    /// Where the bytes of a file come from or go to.
    pkv_stream_kind {
        /// A regular file by its path. A save writes a new file in the same directory and renames
        /// it when it is complete and on disk (fsync of the file, rename, fsync of its directory):
        /// at any time, even after a crash, the path is the old file or the new one. A new file can
        /// be read and written only by its owner, the effective user (mode 0600). A file that
        /// replaces another keeps its permissions if nobody else can have put that one there: it
        /// belongs to the effective user and has no second hard link, its directory belongs to that
        /// user or to root, and other users cannot write to that directory, or it is sticky. Set-id
        /// bits and access control lists are never kept. Permissions of other users are kept only
        /// if the Unix group of the old file is kept, too, and the old file had no access control
        /// list. A path that ends in a symbolic link, a directory, a FIFO, a socket or a device is
        /// refused (PKV_IO). Links earlier in the path are followed: the caller chooses the
        /// directory, and anyone who can write to it or rename it can replace or delete saved
        /// files. A load does not check the owner of a file: only a key proves that nobody else
        /// wrote it. On file systems with O_TMPFILE, an unfinished file has no name. Otherwise, and
        /// during a rename, its name is ".pagedkv-", 16 digits and ".tmp". Its writer holds a lock
        /// on it (flock). Later saves in the directory delete unlocked ones of the effective user,
        /// which killed processes left. (If a network file system does not share locks between
        /// machines, save from one machine at a time.)
        PATH = 1,
        /// An open, blocking descriptor, from its current position. It stays open; bytes after the
        /// file are not touched. A failed save leaves the bytes that it wrote.
        DESCRIPTOR = 2,
        /// The caller's memory.
        BUFFER = 3,
        /// The caller's functions. A load reads no byte after the file.
        CALLBACKS = 4,
    }
}

/// Rows in the caller's memory: element (row, head, dim) is at data\[row \* row_stride + head \*
/// head_stride + dim\]. Strides are in elements; 0 means dense, \[rows\]\[heads\]\[dim\]. Any
/// alignment works. This struct will never grow. Functions that take rows of several sequences also
/// take padded batches: batch_rows is the distance, in rows, from the first row of a sequence to
/// that of the next, so row i of sequence s is row s \* batch_rows + i of the tensor. In other
/// functions batch_rows is 0. \[batch\]\[n\]\[heads\]\[dim\]   batch_rows n, the other strides
/// dense; \[batch\]\[heads\]\[n\]\[dim\]   batch_rows heads \* n, row_stride dim, head_stride n \*
/// dim.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_tensor {
    /// The caller's memory; only read if the parameter is \[in\].
    pub data: *mut c_void,
    /// F32, F16 or BF16.
    pub dtype: pkv_dtype,
    /// Rows per sequence of a padded batch; 0: not padded.
    pub batch_rows: u32,
    /// Elements from row to row; 0, or at least those of one row.
    pub row_stride: i64,
    /// Elements from head to head; 0, or at least dim.
    pub head_stride: i64,
}

/// Memory supplied by the caller. If alloc returns memory with the wrong alignment, the library
/// frees it at once and the call returns PKV_NO_MEMORY.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_allocator {
    /// Returns size bytes at a multiple of alignment (a power of two), or NULL: PKV_NO_MEMORY.
    pub alloc: Option<unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void>,
    /// Frees memory; size and alignment are those passed to alloc.
    pub free: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize, usize)>,
    /// Passed to both functions.
    pub user: *mut c_void,
}

/// Receives the library's log messages. The library itself never prints.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_logger {
    /// Receives one line without a newline; message is valid only during the call.
    pub log: Option<unsafe extern "C" fn(*mut c_void, pkv_log_level, *const c_char)>,
    /// Passed to log.
    pub user: *mut c_void,
}

/// Threads supplied by the caller, used instead of the library's own. Results do not depend on
/// which thread runs a task. If a runner skips a task, calls one twice (it runs once) or calls one
/// that does not exist, the call that used it returns PKV_INVALID_ARGUMENT. The outputs of that
/// call are then undefined, and a step in progress is as it was before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_runner {
    /// Calls task(context, i, worker) once for every i in \[0, n), on any threads and in any order,
    /// and returns when all calls have returned. worker must be below threads, and calls that run
    /// at the same time must have different workers. task does not throw.
    pub run: Option<unsafe extern "C" fn(*mut c_void, usize, Option<unsafe extern "C" fn(*mut
        c_void, usize, u32)>, *mut c_void)>,
    /// Passed to run.
    pub user: *mut c_void,
    /// The number of workers; 1 or more.
    pub threads: u32,
    /// Must be 0.
    pub reserved: u32,
}

/// Statistics of a pkv_pool, or of one layer group of a cache. blocks = free + used + retired.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_pool_stats {
    /// sizeof(pkv_pool_stats): the caller sets it.
    pub struct_size: u32,
    /// Slots (tokens) per block.
    pub block_size: u32,
    /// Capacity in blocks. With shared_memory: blocks in the pages that the group has now.
    pub blocks: u64,
    /// Blocks without references.
    pub free: u64,
    /// Blocks with at least one reference.
    pub used: u64,
    /// The most blocks in use at once so far. With 4096 blocks or more, it is an estimate if
    /// several threads took blocks at the same time.
    pub used_peak: u64,
    /// Blocks with more than one reference.
    pub shared: u64,
    /// Blocks no longer used because their generation reached its limit.
    pub retired: u64,
    /// References to all blocks.
    pub references: u64,
    /// Slots that hold a token; a shared block counts once.
    pub slots_filled: u64,
}
sized!(pkv_pool_stats);

/// Statistics of a cache over all layer groups. Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_cache_stats {
    /// sizeof(pkv_cache_stats): the caller sets it.
    pub struct_size: u32,
    /// Open sessions.
    pub sessions: u32,
    /// Open snapshots.
    pub snapshots: u32,
    /// Batches in progress: neither committed nor aborted.
    pub batches: u32,
    /// Sessions suspended now.
    pub suspended_sessions: u64,
    /// Capacity in blocks, summed over groups. With shared_memory: blocks in the pages that groups
    /// have now.
    pub blocks: u64,
    /// Blocks that are free.
    pub free_blocks: u64,
    /// Blocks in use; a shared block counts once.
    pub used_blocks: u64,
    /// The most blocks in use at once so far.
    pub used_blocks_peak: u64,
    /// Used blocks that only the prefix index holds. They are evicted when free blocks run out.
    pub evictable_blocks: u64,
    /// Committed tokens of all sessions; shared ones count in each session.
    pub tokens: u64,
    /// Slots that hold a token, over all groups; a shared block counts once.
    pub slots_filled: u64,
    /// Slots of blocks in use, filled or not.
    pub slots_reserved: u64,
    /// Bytes of K and V memory that the cache has mapped or allocated.
    pub bytes_reserved: u64,
    /// Blocks copied by copy-on-write so far.
    pub copied_blocks: u64,
    /// Batches committed so far.
    pub commits: u64,
    /// Batches aborted so far.
    pub aborts: u64,
    /// Tokens committed so far.
    pub committed_tokens: u64,
    /// Sessions suspended so far.
    pub suspensions: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Pages in all.
    pub pages: u64,
    /// Pages of no group now.
    pub free_pages: u64,
}
sized!(pkv_cache_stats);

/// A group of layers with the same shape. A plain model is one group. A hybrid model has several,
/// for example one for its full and one for its sliding-window layers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_layer_group {
    /// sizeof(pkv_layer_group): the caller sets it.
    pub struct_size: u32,
    /// The number of layers.
    pub layers: u32,
    /// \[layers\]: indices of the layers in the model. NULL (default): the layers after the last
    /// one of the previous group.
    pub layer_indices: *const u32,
    /// A multiple of kv_heads.
    pub query_heads: u32,
    /// KV heads of each layer, 1 or more.
    pub kv_heads: u32,
    /// Head dim of queries and keys; a multiple of 16, 16 to 576.
    pub key_dim: u32,
    /// Head dim of values and outputs; 0 (default): key_dim.
    pub value_dim: u32,
    /// Type of stored keys and values; 0 (default): PKV_F32.
    pub dtype: pkv_dtype,
    /// Type of stored values; 0 (default): dtype.
    pub value_dtype: pkv_dtype,
    /// A token sees itself and the window - 1 tokens before it; 0 (default): all tokens before it.
    /// Blocks that leave the window are freed one step late, so that the session can still be
    /// trimmed to its length before the last step. If the pool is short of blocks, pkv_batch_begin
    /// and pkv_session_reserve free them at once, so that a session needs only its window and its
    /// new tokens; neither an abort nor OUT_OF_BLOCKS restores them.
    pub window: u32,
    /// With a window: this many first tokens stay visible and in memory (Xiao et al. 2023).
    pub sinks: u32,
    /// 1: V is the first value_dim dims of K and is not stored again (the absorbed form of MLA).
    pub latent: u32,
    /// How rows are rotated before they are stored. Default NONE.
    pub rotation: pkv_rotation,
    /// Rotation MATRIX: \[key_dim\]\[key_dim\], the matrix for K and queries. Its rows must have
    /// length 1 and be orthogonal to each other, to within 1e-4. NULL: K is not rotated. Other
    /// rotations: NULL.
    pub key_rotation: *const f32,
    /// Rotation MATRIX: \[value_dim\]\[value_dim\], the matrix for V and outputs. NULL: V is not
    /// rotated. Must be NULL in a latent group.
    pub value_rotation: *const f32,
    /// Each layer keeps a state of this many bytes instead of K and V (linear attention, state
    /// spaces, short convolutions); 0 (default): layers keep K and V. With states, heads, dims,
    /// dtypes, window, sinks and latent must be 0. A block holds one state of each layer. Not with
    /// storage CONTIGUOUS. See pkv_batch_get_states.
    pub state_bytes: u64,
    /// With states: a step that reaches past a multiple of this many tokens keeps the state at that
    /// multiple (a checkpoint), as long as the session has that token. A multiple of block_size; 0
    /// (default): no checkpoints.
    pub checkpoint_tokens: u32,
    /// With states: if a session has at most this many new tokens in a step, the state after each
    /// of them is kept until the commit, so that pkv_batch_accept can end at any of them; up to
    /// 256. Default 0.
    pub draft_tokens: u32,
    /// Blocks of this group; 0 (default): as in the config.
    pub blocks: u64,
}
sized!(pkv_layer_group);

/// The prefix index of a cache: see prefix.h. A block position is one block in each layer group.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_prefix_config {
    /// sizeof(pkv_prefix_config): the caller sets it.
    pub struct_size: u32,
    /// Which blocks are evicted first. Default LEARNED.
    pub eviction: pkv_eviction,
    /// The most block positions that can be pinned at once (pkv_prefix_pin); 0 (default): a quarter
    /// of the blocks of the largest group.
    pub pinned_blocks: u64,
    /// The most block positions that each salt may have cached, unless pkv_prefix_set_quota sets
    /// another limit; 0 (default): no limit.
    pub salt_blocks: u64,
    /// How many events are kept for pkv_prefix_read_events, 40 bytes each; up to 2^24. Default 0.
    pub events: u32,
    /// The position at which computing a token takes twice as long as at position 0, because it
    /// attends to all tokens before it: about w / (2 l h) for a model with w weights used per token
    /// and l layers, where h is query heads times head dim. LEARNED then weighs a block by the time
    /// that a hit on it saves. 0 (default): all blocks weigh the same.
    pub doubling_depth: u32,
}
sized!(pkv_prefix_config);

/// Options for pkv_cache_create: the model, its memory, its threads, what is kept of ended
/// sessions, and the caller's hooks. The library copies what pointers point to, but the hooks
/// themselves must outlive the cache. A plain model is one group: pkv_layer_group model =
/// {.struct_size = sizeof model, .layers = 32, .query_heads = 32, .kv_heads = 8, .key_dim = 128};
/// pkv_cache_config config = {.struct_size = sizeof config, .groups = &model, .blocks = 4096};
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_cache_config {
    /// sizeof(pkv_cache_config): the caller sets it.
    pub struct_size: u32,
    /// The number of groups; 0 (default): 1.
    pub group_count: u32,
    /// \[group_count\]: the groups, each of groups\[0\].struct_size bytes.
    pub groups: *const pkv_layer_group,
    /// Default PAGED.
    pub storage: pkv_storage,
    /// Default PACKED. Only for storage PAGED.
    pub layout: pkv_layout,
    /// Tokens per block: a multiple of 16, 16 to 256; 0 (default): 16.
    pub block_size: u32,
    /// 1: the groups share memory_bytes, so that one can use what another does not need. The memory
    /// is cut into pages; each holds blocks of one group at a time (guide/shared_memory.md). Needs
    /// memory_bytes instead of numbers of blocks, and layout PACKED; not with storage CONTIGUOUS. 0
    /// (default): each group has its own memory.
    pub shared_memory: u32,
    /// Blocks per group. Set this or memory_bytes.
    pub blocks: u64,
    /// Bytes for K and V. Every group gets the same number of blocks, as many as fit; with
    /// shared_memory, as many as it needs at the time.
    pub memory_bytes: u64,
    /// Blocks of each group that only sessions with tokens may take, so that running sessions can
    /// finish. A first step, a resume, or a reserve for an empty session leaves this many blocks
    /// free. A session that grew into these blocks and was suspended cannot be resumed, even if it
    /// is the only one. Exact while only one thread makes such calls. Default 0.
    pub watermark: u32,
    /// Default ADVISE.
    pub huge_pages: pkv_huge_pages,
    /// 1: create touches all memory, in parallel, so that later calls cause no page faults. Default
    /// 0.
    pub prefault: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Keeps K, V and states in a file in this directory instead of in memory, for sequences that
    /// are larger than memory and read with chosen blocks (guide/slow_tier.md). The system keeps in
    /// memory what fits of the file. The file has no name once it is mapped, only its owner can
    /// read it, it is not encrypted, and it ends with the cache. All of its disk space is taken at
    /// once. The device must be reliable: a later I/O error ends the process with SIGBUS or brings
    /// back older bytes. Children of fork() and core dumps do not have this memory. Needs storage
    /// PAGED; not with huge_pages REQUIRE. huge_pages ADVISE has no effect, and the allocator is
    /// not called for this memory. Copied by the call. NULL (default): memory.
    pub memory_directory: *const c_char,
    /// The number of threads, including the caller's, at most one per CPU; 0 (default): one per
    /// CPU.
    pub threads: u32,
    /// AUTO (default): the fastest that this CPU has. Any other: that one, or UNSUPPORTED.
    pub isa: pkv_isa,
    /// The prefix index, for new sessions that begin alike; NULL (default): none. Not with storage
    /// CONTIGUOUS.
    pub prefix: *const pkv_prefix_config,
    /// A store for blocks outside memory (store.h); NULL (default): none. Needs storage PAGED and a
    /// prefix index.
    pub store: *const pkv_store_config,
    /// Allocates keys and values, pools, tokens and block tables; NULL (default): the system does.
    pub allocator: *const pkv_allocator,
    /// The caller's threads; then threads must be 0. NULL: oneTBB's.
    pub runner: *const pkv_runner,
    /// Receives messages about what works badly (guide/diagnose.md). NULL (default): no log.
    pub logger: *const pkv_logger,
}
sized!(pkv_cache_config);

/// Sizes of K and V, for one layer group or all of them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_cache_plan {
    /// sizeof(pkv_cache_plan): the caller sets it.
    pub struct_size: u32,
    /// The number of groups that these sizes cover.
    pub groups: u32,
    /// K and V of one token in all layers; states have none.
    pub bytes_per_token: u64,
    /// block_size times that, or a state of each layer.
    pub bytes_per_block: u64,
    /// Blocks, summed over groups; with shared_memory, each group counts as if it had all of it.
    pub blocks: u64,
    /// Tokens that fit: the minimum over groups with neither a window nor states, or over all
    /// groups if there is none.
    pub tokens: u64,
    /// Bytes of all K and V memory.
    pub total_bytes: u64,
    /// Bytes of the pools' own tables.
    pub bookkeeping_bytes: u64,
}
sized!(pkv_cache_plan);

/// The options of a cache, with defaults filled in.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_cache_info {
    /// sizeof(pkv_cache_info): the caller sets it.
    pub struct_size: u32,
    /// Where K and V are stored.
    pub storage: pkv_storage,
    /// The layout of the bytes.
    pub layout: pkv_layout,
    /// Tokens per block.
    pub block_size: u32,
    /// The number of layer groups.
    pub groups: u32,
    /// Layers of all groups.
    pub layers: u32,
    /// Threads that compute attention.
    pub threads: u32,
    /// The instruction set of the kernels that run.
    pub isa: pkv_isa,
}
sized!(pkv_cache_info);

/// Options for pkv_pool_create.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_pool_config {
    /// sizeof(pkv_pool_config): the caller sets it.
    pub struct_size: u32,
    /// The number of blocks, 1 to 2^31 - 1. No default.
    pub blocks: u32,
    /// Slots (tokens) per block, 1 to 256. 0 (default): 16.
    pub block_size: u32,
    /// 0.
    pub reserved: u32,
    /// Copied; what it points to must outlive the pool. NULL (default): the system's.
    pub allocator: *const pkv_allocator,
}
sized!(pkv_pool_config);

/// The state of one block.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_block_state {
    /// sizeof(pkv_block_state): the caller sets it.
    pub struct_size: u32,
    /// The block id.
    pub id: u32,
    /// The number of times that this id was freed.
    pub generation: u32,
    /// 0: free.
    pub references: u32,
    /// Slots claimed, 0 to block_size.
    pub filled: u32,
    /// 1: read-only.
    pub sealed: u32,
}
sized!(pkv_block_state);

/// Options for pkv_session_open.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_session_config {
    /// sizeof(pkv_session_config): the caller sets it.
    pub struct_size: u32,
    /// pkv_batch_choose_victims chooses higher ones last. Default 0.
    pub priority: i32,
    /// Default SHARE.
    pub prefix: pkv_prefix_use,
    /// Retention of the blocks that the session uses. A block has the highest of all its users.
    pub retention: pkv_retention,
    /// salt_size bytes, copied. Only sessions with the same salt share prefixes. NULL (default):
    /// none.
    pub salt: *const c_void,
    /// Up to 256.
    pub salt_size: u64,
}
sized!(pkv_session_config);

/// The current state of a session.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_session_info {
    /// sizeof(pkv_session_info): the caller sets it.
    pub struct_size: u32,
    /// From the session's config, or set later.
    pub priority: i32,
    /// 1: between pkv_session_suspend and pkv_session_resume.
    pub suspended: u32,
    /// 0.
    pub reserved: u32,
    /// Committed tokens.
    pub length: u64,
    /// Committed tokens and those to be computed again.
    pub total: u64,
    /// Blocks held, over all groups, including reserved ones.
    pub blocks: u64,
    /// Blocks held by nothing else: suspend or close frees them.
    pub exclusive_blocks: u64,
}
sized!(pkv_session_info);

/// Options for pkv_compute_create. Hooks must outlive the pkv_compute.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_compute_config {
    /// sizeof(pkv_compute_config): the caller sets it.
    pub struct_size: u32,
    /// Threads, including the caller's: at most one per CPU. 0 (default): one per CPU.
    pub threads: u32,
    /// AUTO (default): the best of this CPU. Another: UNSUPPORTED if this CPU lacks it.
    pub isa: pkv_isa,
    /// 0.
    pub reserved: u32,
    /// For working memory. NULL (default): the system's.
    pub allocator: *const pkv_allocator,
    /// Runs calls on the caller's threads, with the priority and CPUs that the caller gave them;
    /// threads must then be 0. NULL (default): threads of oneTBB.
    pub runner: *const pkv_runner,
}
sized!(pkv_compute_config);

/// The threads and instruction set of a pkv_compute.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_compute_info {
    /// sizeof(pkv_compute_info): the caller sets it.
    pub struct_size: u32,
    /// Threads, including the caller's.
    pub threads: u32,
    /// The instruction set of its kernels.
    pub isa: pkv_isa,
    /// 0.
    pub reserved: u32,
}
sized!(pkv_compute_info);

/// K and V of one layer in paged memory: a cache's (pkv_cache_get_kv_view) or the caller's own.
/// Strides count elements of the dtype, but bytes for INT8 and INT4, whose rows end in scales.
/// Block b begins at b \* block_stride. In it PLAIN   element (token t, head h, dim d) is at t \*
/// row_stride + h \* head_stride + d; PACKED  tile t / 16 begins at (t / 16) \* row_stride + h \*
/// head_stride; inside, see PKV_LAYOUT_PACKED. With PLAIN and block_stride == block_size \*
/// row_stride, slot s begins at s \* row_stride.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_kv_view {
    /// sizeof(pkv_kv_view): the caller sets it.
    pub struct_size: u32,
    /// How the bytes of a block are arranged.
    pub layout: pkv_layout,
    /// Tokens per block. PACKED: a multiple of 16. PLAIN: 1 or more.
    pub block_size: u32,
    /// KV heads of the layer.
    pub kv_heads: u32,
    /// Dims of K per head.
    pub key_dim: u32,
    /// Dims of V per head.
    pub value_dim: u32,
    /// Type of K; of V, too, if value_dtype is 0.
    pub dtype: pkv_dtype,
    /// Type of V; 0: dtype.
    pub value_dtype: pkv_dtype,
    /// Blocks in the memory; ids must be lower than this.
    pub blocks: u64,
    /// K. Only pkv_kv_write and pkv_kv_write_slots write to it.
    pub k: *mut c_void,
    /// V, as k. NULL: V is the first value_dim dims of K.
    pub v: *mut c_void,
    /// K: from block to block.
    pub k_block_stride: i64,
    /// K: from token to token; PACKED: from tile to tile.
    pub k_row_stride: i64,
    /// K: from KV head to KV head.
    pub k_head_stride: i64,
    /// V: from block to block.
    pub v_block_stride: i64,
    /// V: from token to token; PACKED: from tile to tile.
    pub v_row_stride: i64,
    /// V: from KV head to KV head.
    pub v_head_stride: i64,
    /// How the rows in the memory are rotated (cache.h); callers pass and get unrotated rows. 0:
    /// NONE. The caller's own kernels must rotate queries and outputs themselves.
    pub rotation: pkv_rotation,
    /// 0.
    pub reserved: u32,
    /// MATRIX: \[key_dim\]\[key_dim\]. Must be orthogonal (not checked). NULL: K is not rotated.
    pub key_rotation: *const f32,
    /// MATRIX: \[value_dim\]\[value_dim\]. NULL: V is not rotated.
    pub value_rotation: *const f32,
}
sized!(pkv_kv_view);

/// Sequences of different lengths over one pkv_kv_view. A list with an entry per query has the
/// entries of all sequences, one sequence after the other, without padding even if tensors are
/// padded.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_attention_sequences {
    /// sizeof(pkv_attention_sequences): the caller sets it.
    pub struct_size: u32,
    /// A multiple of the view's kv_heads.
    pub query_heads: u32,
    /// The number of sequences.
    pub count: u64,
    /// \[count\]: query rows of each sequence, by default its last positions.
    pub query_lengths: *const u32,
    /// \[count\]: positions of each sequence, including its queries; at least query_lengths, or at
    /// least 1 with query_positions.
    pub kv_lengths: *const u64,
    /// \[count\]\[block_table_stride\]: block ids. Entries after kv_lengths or before a window are
    /// not read.
    pub block_tables: *const u32,
    /// Entries from one sequence's table to the next.
    pub block_table_stride: u64,
    /// \[count\]: the first row of each sequence. In a padded batch, the rows before it are
    /// padding; in other tensors, it counts from the beginning of the tensor (like the cumulative
    /// lengths of a packed batch). NULL (default): 0 in a padded batch; otherwise the rows of one
    /// sequence follow those of the one before.
    pub first_rows: *const u32,
    /// \[queries\]: the position of each query, for the causal rule, windows and slopes. For
    /// queries that are not the last positions: over the keys of another sequence, or in a tree of
    /// drafts. In causal attention with a mask of new tokens (BITS or PARENTS), none may be lower
    /// than the last position before the new tokens. NULL (default): the last positions.
    pub query_positions: *const i64,
}
sized!(pkv_attention_sequences);

/// A mask: which positions each query sees, in addition to the causal rule and the window.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_mask {
    /// sizeof(pkv_mask): the caller sets it.
    pub struct_size: u32,
    /// The kind of data.
    pub kind: pkv_mask_kind,
    /// Only read.
    pub data: *const c_void,
    /// BITS: words of 64 bits per row, at most 2^26; they must cover the new tokens of every
    /// session. BYTES: bytes from row to row; 0: all queries of a sequence have the same row.
    /// PARENTS: 0.
    pub row_stride: i64,
    /// BYTES: bytes from sequence to sequence; 0: all have the same rows.
    pub batch_stride: i64,
    /// BYTES: must reach the last position of every sequence.
    pub columns: u64,
    /// BYTES: \[sequences\]: the position of column 0. If it is -n, the first n columns have no
    /// position, such as padding on the left. NULL: 0.
    pub first_positions: *const i64,
}
sized!(pkv_mask);

/// Lets queries read only some blocks (guide/chosen_blocks.md). For each KV head, each query reads
/// the blocks that it chooses, the first and last ones, and those with tokens of the step. Windows,
/// sinks and masks still apply. Not with ALiBi or query_positions.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_chosen_blocks {
    /// sizeof(pkv_chosen_blocks): the caller sets it.
    pub struct_size: u32,
    /// How many blocks each query chooses for each KV head: those with the highest bounds (Tang et
    /// al. 2024), among the blocks in which it sees a token. The bound of a block is the sum, over
    /// the query heads of the KV head and over the dims, of the larger of q \* min and q \* max of
    /// its keys. Needs a cache. 0: lists must be set.
    pub top: u32,
    /// How many first blocks are also read; 1 suits most models.
    pub first: u32,
    /// How many blocks before those of the step are also read; likewise.
    pub last: u32,
    /// With top: 1: the new tokens of a session choose the same blocks, by the highest sums of
    /// their bounds, and read them together, for example in trees of speculative tokens. 0
    /// (default): each token chooses its own.
    pub together: u32,
    /// Must be 0.
    pub reserved: u32,
    /// \[rows\]\[kv_heads\]\[list_size\]: the blocks that each query reads for each KV head,
    /// instead of top: ascending indices in the block table, then PKV_NO_BLOCK after the last.
    /// Blocks that are read anyway are allowed. NULL: top must be set.
    pub lists: *const u32,
    /// Indices per query and KV head.
    pub list_size: u64,
    /// Out, \[rows\]\[kv_heads\]\[top\]: the blocks that top chose, in the form of lists, for
    /// example for another layer. NULL (default): not wanted.
    pub chosen: *mut u32,
}
sized!(pkv_chosen_blocks);

/// Asks for the attention mass of each entry of a block table: the sum of the weights (after the
/// softmax) that the queries of the sequence give to the tokens of the block; 0 if they see none of
/// them. The masses from one query sum to 1, less what a sink logit takes. This reads the keys once
/// more. Not for storage CONTIGUOUS, and not with chosen blocks.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_block_mass {
    /// sizeof(pkv_block_mass): the caller sets it.
    pub struct_size: u32,
    /// How many of the last new tokens of each session count; 0 (default): all.
    pub queries: u32,
    /// Out, \[sequences\]\[query_heads\]\[size\]: the masses. Entries beyond the blocks of a
    /// sequence, and all entries of a sequence without queries, are not changed.
    pub masses: *mut f32,
    /// Entries per query head: at least the blocks of the longest sequence.
    pub size: u64,
}
sized!(pkv_block_mass);

/// The kind of attention. Variants combine freely, except where noted. Lists of \[rows\] have the
/// rows of all sequences, one after the other, even if tensors are padded.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_attention_params {
    /// sizeof(pkv_attention_params): the caller sets it.
    pub struct_size: u32,
    /// Factor of the scores, finite; 0 (default): 1 / sqrt(key_dim).
    pub scale: f32,
    /// 0 (default): a query sees nothing after its position (causal). 1: its whole sequence.
    pub bidirectional: u32,
    /// A query sees its position and the window - 1 positions before it. 0 (default): the window of
    /// the layer's group; all positions if it has none.
    pub window: u32,
    /// How many first positions are seen whatever the window is. 0 (default): as in the layer's
    /// group; PKV_NO_SINKS: none.
    pub sinks: u32,
    /// Bound of the scores, finite, not negative; 0 (default): none.
    pub softcap: f32,
    /// \[kv_heads\]: the window for each KV head and the query heads that use it, instead of
    /// `window`. 0: that of the layer's group. NULL (default): `window`.
    pub head_windows: *const u32,
    /// \[kv_heads\]: the sinks of each KV head, instead of `sinks`. NULL (default): `sinks`.
    pub head_sinks: *const u32,
    /// \[query_heads\]: ALiBi slopes. NULL (default): none.
    pub alibi_slopes: *const f32,
    /// \[query_heads\]: logits that take part in the softmax without a value (learned attention
    /// sinks). NULL (default): none.
    pub sink_logits: *const f32,
    /// NULL (default): none.
    pub mask: *const pkv_mask,
    /// NULL (default): queries read all blocks.
    pub chosen_blocks: *const pkv_chosen_blocks,
    /// NULL (default): not wanted.
    pub block_mass: *const pkv_block_mass,
    /// Out, \[rows\]\[query_heads\]: log of the sum of exp(score), including sink_logits. If a
    /// query sees nothing, only the sink logit counts; without one, lse is -infinity. NULL
    /// (default): not wanted.
    pub lse: *mut f32,
}
sized!(pkv_attention_params);

/// Statistics of the index, for one salt or all.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_prefix_stats {
    /// sizeof(pkv_prefix_stats): the caller sets it.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// Calls of pkv_session_match_prefix, and resumes.
    pub matches: u64,
    /// Tokens looked for.
    pub asked_tokens: u64,
    /// Tokens found.
    pub matched_tokens: u64,
    /// Whole block positions found.
    pub matched_blocks: u64,
    /// Block positions cached so far.
    pub published_blocks: u64,
    /// Block positions removed so far because memory was needed.
    pub evicted_blocks: u64,
    /// Block positions removed so far because their salt's quota was full.
    pub expelled_blocks: u64,
    /// Block positions removed so far by pkv_prefix_clear.
    pub cleared_blocks: u64,
    /// Block positions cached now.
    pub cached_blocks: u64,
    /// Of these, unused and not pinned.
    pub evictable_blocks: u64,
    /// Of these, pinned.
    pub pinned_blocks: u64,
}
sized!(pkv_prefix_stats);

/// A change of one block position. A match of a prompt ends after the last of its positions that
/// were stored and not removed since. Without windows, a position is stored after the one before it
/// and removed before it; if a group has a window, positions before it may be missing. This struct
/// is pinned: it will not grow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_prefix_event {
    /// Counts from 0.
    pub number: u64,
    /// Hash of the block and all before it: see pkv_prefix_hash_blocks.
    pub hash: u64,
    /// Hash of the block before it; for the first block, of the salt.
    pub parent: u64,
    /// Position of its first token.
    pub position: u64,
    /// What happened.
    pub kind: pkv_prefix_event_kind,
    /// 0.
    pub reserved: u32,
}

/// A stream. Only the fields of its kind are used.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_stream {
    /// sizeof(pkv_stream): the caller sets it.
    pub struct_size: u32,
    /// Which of the fields below are used.
    pub kind: pkv_stream_kind,
    /// PATH: the file.
    pub path: *const c_char,
    /// DESCRIPTOR: the descriptor.
    pub descriptor: i32,
    /// 0.
    pub reserved: u32,
    /// BUFFER: the memory; only a save writes to it.
    pub data: *mut c_void,
    /// BUFFER: its bytes; for a load, exactly those of the file.
    pub size: u64,
    /// CALLBACKS: copies up to n bytes to `to`. Returns how many, or a negative errno; 0 is the end
    /// of the stream. A hook: see common.h.
    pub read: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, u64) -> i64>,
    /// CALLBACKS: writes up to n bytes from `from`. Returns how many, or a negative errno; 0 is an
    /// error. A hook: see common.h.
    pub write: Option<unsafe extern "C" fn(*mut c_void, *const c_void, u64) -> i64>,
    /// CALLBACKS: passed to both functions.
    pub user: *mut c_void,
}
sized!(pkv_stream);

/// Options for saving and loading.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_file_config {
    /// sizeof(pkv_file_config): the caller sets it.
    pub struct_size: u32,
    /// 1: includes the prefix index, if the cache has one. Default 0.
    pub prefix_index: u32,
    /// For loading into a cache with a prefix index. 1: accepts salts from a file without a key.
    /// Default 0: a file without a key but with salts is a MISMATCH, since anyone who can write it
    /// chooses which tenants find its sequences. Sequences without a salt are accepted in both
    /// cases: without a key, do not load a file that others can write. Not used for saving.
    pub trust_salts: u32,
    /// For saving to PATH. 0 (default): waits for the disk. 1: a power failure may destroy the old
    /// file and the new one; a killed process destroys neither.
    pub skip_fsync: u32,
    /// Names the model (a hash of its weights, say). A file with another fingerprint is a MISMATCH.
    /// NULL: none.
    pub fingerprint: *const c_void,
    /// Its bytes, up to 64.
    pub fingerprint_size: u64,
    /// Secret bytes that encrypt and authenticate the file. NULL: checksums, which detect only
    /// accidental changes.
    pub key: *const c_void,
    /// Its bytes, 16 to 64.
    pub key_size: u64,
}
sized!(pkv_file_config);

/// A session or a snapshot to save. This struct is pinned: it will not grow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_file_item {
    /// NULL if there is a snapshot.
    pub session: pkv_session,
    /// NULL if there is a session.
    pub snapshot: pkv_snapshot,
    /// The caller's name for it, returned by pkv_file_load.
    pub label: u64,
}

/// The properties of a file.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_file_info {
    /// sizeof(pkv_file_info): the caller sets it.
    pub struct_size: u32,
    /// Version of the format: 1 without a key, 2 with one.
    pub version: u32,
    /// Size of the file.
    pub bytes: u64,
    /// Of these, bytes of K and V.
    pub kv_bytes: u64,
    /// Sessions and snapshots.
    pub sessions: u64,
    /// Tokens of all of these; shared ones count in each.
    pub tokens: u64,
    /// Positions whose K and V are stored; shared ones count once.
    pub stored_tokens: u64,
    /// Entries of the prefix index.
    pub prefix_entries: u64,
    /// Tokens per block of the cache that was saved.
    pub block_size: u32,
    /// Layer groups.
    pub groups: u32,
    /// Layers over all groups.
    pub layers: u32,
    /// 0: saved with storage NONE.
    pub has_kv: u32,
    /// 1: saved with a key, so encrypted and authenticated.
    pub authenticated: u32,
    /// Bytes of the fingerprint; 0: the file has none.
    pub fingerprint_size: u32,
    /// The fingerprint.
    pub fingerprint: [u8; 64],
}
sized!(pkv_file_info);

/// One block of one layer group, as a store keeps it. This struct is pinned: it will not grow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_store_item {
    /// The name of the item.
    pub key: [u8; 32],
    /// put: size bytes to store, read-only. get: a buffer of size bytes. probe, drop: NULL.
    pub data: *mut c_void,
    /// get and probe set it to the size of the stored item, or 0 if there is none. get copies as
    /// many bytes as fit.
    pub size: u64,
}

/// A store: functions that a cache calls from its two threads, put from one and the others from
/// both. Each thread makes one call at a time. The functions are hooks: see common.h. put, get,
/// probe and drop return how many of the n items they stored, found or dropped, or a negative errno
/// if the store cannot be reached. The cache then makes no calls for a while.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_store {
    /// sizeof(pkv_store): the caller sets it.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// Passed to all functions.
    pub user: *mut c_void,
    /// Stores items. An item that exists may be left as it is. A store may lose items at any time.
    pub put: Option<unsafe extern "C" fn(*mut c_void, usize, *const pkv_store_item) -> i64>,
    /// Reads items.
    pub get: Option<unsafe extern "C" fn(*mut c_void, usize, *mut pkv_store_item) -> i64>,
    /// Sets the sizes of items, as get does, but copies no bytes.
    pub probe: Option<unsafe extern "C" fn(*mut c_void, usize, *mut pkv_store_item) -> i64>,
    /// Deletes items. Called for items whose bytes are not those that were put.
    pub drop: Option<unsafe extern "C" fn(*mut c_void, usize, *const pkv_store_item) -> i64>,
    /// Closes the store. No call follows.
    pub close: Option<unsafe extern "C" fn(*mut c_void)>,
}
sized!(pkv_store);

/// How a cache uses a store: see pkv_cache_config.store. Needs storage PAGED and a prefix index.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_store_config {
    /// sizeof(pkv_store_config): the caller sets it.
    pub struct_size: u32,
    /// How long pkv_session_match_prefix and pkv_session_resume wait for blocks from the store, in
    /// milliseconds. Default 0: they take only what is in memory.
    pub wait_ms: u32,
    /// Copied. pkv_cache_destroy closes it. If pkv_cache_create fails, the caller closes it.
    pub store: *const pkv_store,
    /// Names the model (a hash of its weights, say). NULL: none.
    pub fingerprint: *const c_void,
    /// Its bytes, up to 64.
    pub fingerprint_size: u64,
    /// Secret bytes that encrypt and authenticate items. NULL: only checksums.
    pub key: *const c_void,
    /// Its bytes, 16 to 64.
    pub key_size: u64,
    /// The buffer of each of the two threads. 0 (default): 4 MiB. Raised to one block, and limited
    /// to all blocks of the cache.
    pub buffer_bytes: u64,
    /// The most block positions that wait to be written; others that end meanwhile are not written.
    /// 0 (default): a quarter of the blocks.
    pub queue_blocks: u64,
}
sized!(pkv_store_config);

/// Statistics of a cache's store. An item is one block of one layer group.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_store_stats {
    /// sizeof(pkv_store_stats): the caller sets it.
    pub struct_size: u32,
    /// 1: the store failed recently, and gets no calls for a while.
    pub down: u32,
    /// Block positions that wait to be written.
    pub queued_blocks: u64,
    /// Block positions not written: the queue was full, memory was needed, or the store failed.
    pub dropped_blocks: u64,
    /// Items that the store accepted.
    pub written_items: u64,
    /// Bytes of these items.
    pub written_bytes: u64,
    /// Items not written because the store had them.
    pub known_items: u64,
    /// Items looked for in the store.
    pub asked_items: u64,
    /// Items that the store returned.
    pub read_items: u64,
    /// Bytes of these items.
    pub read_bytes: u64,
    /// Items with changed bytes: misses.
    pub corrupt_items: u64,
    /// Calls of the store that failed.
    pub failures: u64,
}
sized!(pkv_store_stats);

/// A directory with one file per item. It survives restarts, and several processes of one user may
/// use it at once. The files belong to that user, and other users cannot read them (mode 0600). The
/// directory must belong to the effective user, and other users must not be able to write to it,
/// even if it is sticky. The same holds for the 256 folders that the store creates in it. Symbolic
/// links are not followed, neither to the directory nor inside it. The store reads, counts and
/// deletes only its own files: in folders named 00 to ff, regular files of that user whose names
/// are 62 hexadecimal digits and ".kv", and temporary files (see file.h). Other files are left
/// alone; if one has the name of a folder or file of the store, the items that belong there cannot
/// be stored.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_directory_config {
    /// sizeof(pkv_directory_config): the caller sets it.
    pub struct_size: u32,
    /// 1: put returns when its files are on disk. Default 0: after a power failure, some files may
    /// be missing or empty; these are misses.
    pub durable: u32,
    /// Created with mode 0700 if it does not exist; its parent must exist. In another user's
    /// directory, such as /tmp, name a new one.
    pub path: *const c_char,
    /// The most bytes of all files; beyond that, the least recently used files are deleted. 0
    /// (default): no limit. Temporary files in use count; those of killed processes are deleted
    /// first.
    pub capacity_bytes: u64,
}
sized!(pkv_directory_config);

/// Hands the list of all functions to a macro: linked and opened at run time they are
/// the same ones.
macro_rules! for_each_function {
    ($use:ident) => {
        $use! {
            /// Returns the name of a status, such as "PKV_OUT_OF_BLOCKS". Any thread. Static
            /// storage. Since 0.1.
            ///
            /// - `status`: The status; for an unknown value the name is "PKV_UNKNOWN_STATUS".
            fn pkv_status_string(status: pkv_status) -> *const c_char;
            /// Returns the error message of the last failed call on this thread: one sentence, with
            /// the numbers, such as "begin needs 12 blocks in group 0, 3 are free (9 short)". Never
            /// NULL; "" if no call failed yet. Calls that succeed do not change it. The text
            /// belongs to the library and stays valid until the next failing call on the same
            /// thread. Since 0.1.
            fn pkv_last_error() -> *const c_char;
            /// Returns the version of the loaded library: major \* 1000000 + minor \* 1000 + patch.
            /// Any thread. Since 0.1.
            fn pkv_version() -> u32;
            /// Returns the version of the loaded library, "0.1.0". Static storage. Any thread.
            /// Since 0.1.
            fn pkv_version_string() -> *const c_char;
            /// Computes the sizes that a cache of this config would have. Allocates nothing.
            /// Statuses: INVALID_ARGUMENT, OUT_OF_RANGE, OVERFLOW, TOO_LARGE, UNSUPPORTED (isa; an
            /// index or a store with a storage that cannot have it). Since 0.1.
            ///
            /// - `config`: The config.
            /// - `group`: The index of one group, or PKV_ALL_GROUPS.
            /// - `out`: The sizes.
            fn pkv_cache_compute_plan(config: *const pkv_cache_config, group: u32, out: *mut
                pkv_cache_plan) -> pkv_status;
            /// Creates a cache. Memory is reserved now, and touched when blocks are first used,
            /// unless prefault is set. Statuses: INVALID_ARGUMENT, OUT_OF_RANGE (layer_indices),
            /// OVERFLOW, TOO_LARGE, NO_MEMORY, UNSUPPORTED (as pkv_cache_compute_plan), IO
            /// (memory_directory). Since 0.1.
            ///
            /// - `config`: The config.
            /// - `out`: The cache, to be destroyed by pkv_cache_destroy.
            fn pkv_cache_create(config: *const pkv_cache_config, out: *mut pkv_cache) -> pkv_status;
            /// Closes a cache and its sessions, batches and snapshots. Their handles are stale from
            /// then on. Statuses: STALE_HANDLE, BUSY. Since 0.1.
            ///
            /// - `cache`: The cache. NULL is OK.
            fn pkv_cache_destroy(cache: pkv_cache) -> pkv_status;
            /// Returns the options of a cache. Statuses: none of its own. Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `out`: The options.
            fn pkv_cache_get_info(cache: pkv_cache, out: *mut pkv_cache_info) -> pkv_status;
            /// Returns the statistics of a cache over all groups. Exact while no other thread uses
            /// the cache. Statuses: none of its own. Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `out`: The statistics.
            fn pkv_cache_get_stats(cache: pkv_cache, out: *mut pkv_cache_stats) -> pkv_status;
            /// Returns the statistics of the pool of one group. Statuses: OUT_OF_RANGE. Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `group`: The index of the group.
            /// - `out`: The statistics.
            fn pkv_cache_get_pool_stats(cache: pkv_cache, group: u32, out: *mut pkv_pool_stats) ->
                pkv_status;
            /// Writes the metrics of a cache as text in Prometheus' exposition format, ready to be
            /// served: gauges of blocks by group and state, of memory and of open objects; counters
            /// of tokens, steps, suspensions, copies and of the prefix index (over all salts).
            /// Statuses: BUFFER_TOO_SMALL. Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `capacity`: Bytes that text has room for. The text grows while the cache is in
            /// use: leave some room.
            /// - `text`: \[capacity\]: the text with a final NUL. May be NULL if capacity is 0.
            /// - `size`: Bytes of the text with its NUL; written on PKV_OK and on BUFFER_TOO_SMALL.
            fn pkv_cache_format_metrics(cache: pkv_cache, capacity: usize, text: *mut c_char, size:
                *mut usize) -> pkv_status;
            /// Checks every invariant: those of the pools, and that the references of all sessions,
            /// snapshots and batches equal the counts of the pools. Call it while no other thread
            /// uses the cache. Statuses: INTERNAL (the error message says which invariant is
            /// broken). Since 0.1.
            ///
            /// - `cache`: The cache.
            fn pkv_cache_validate(cache: pkv_cache) -> pkv_status;
            /// Reports whether this build has kernels for an instruction set and this CPU can run
            /// them. Statuses: INVALID_ARGUMENT. Since 0.1.
            ///
            /// - `isa`: The instruction set. AUTO is always supported.
            /// - `out`: 1 if so, else 0.
            fn pkv_isa_supported(isa: pkv_isa, out: *mut i32) -> pkv_status;
            /// Returns the name of an instruction set, such as "avx512". Static storage. Since 0.1.
            ///
            /// - `isa`: The instruction set; for an unknown value the name is "unknown".
            fn pkv_isa_name(isa: pkv_isa) -> *const c_char;
            /// Creates a pool whose blocks are all free. Statuses: INVALID_ARGUMENT, TOO_LARGE,
            /// NO_MEMORY. Since 0.1.
            ///
            /// - `config`: The number of blocks and their size.
            /// - `out`: The pool. Destroy it with pkv_pool_destroy.
            fn pkv_pool_create(config: *const pkv_pool_config, out: *mut pkv_pool) -> pkv_status;
            /// Frees a pool; its blocks become stale. Statuses: STALE_HANDLE, BUSY (a call is in
            /// progress). Since 0.1.
            ///
            /// - `pool`: The pool. NULL is OK.
            fn pkv_pool_destroy(pool: pkv_pool) -> pkv_status;
            /// Allocates n blocks, all or none, each with one reference, no slot filled, not
            /// sealed. Prefers the lowest free ids near the last one that the thread got. Statuses:
            /// OUT_OF_BLOCKS (nothing is allocated), TOO_LARGE (n exceeds the pool). Since 0.1.
            ///
            /// - `pool`: The pool.
            /// - `n`: The number of blocks; 0 is OK.
            /// - `blocks`: \[n\]: the blocks.
            fn pkv_pool_alloc(pool: pkv_pool, n: usize, blocks: *mut pkv_block) -> pkv_status;
            /// Adds one reference to each of n blocks, to all or to none. Statuses: OUT_OF_RANGE
            /// (no such id), STALE_HANDLE (freed since), REF_LIMIT. Since 0.1.
            ///
            /// - `pool`: The pool.
            /// - `n`: The number of entries in the list.
            /// - `blocks`: \[n\]: the blocks. The same block may be in the list more than once.
            fn pkv_pool_retain(pool: pkv_pool, n: usize, blocks: *const pkv_block) -> pkv_status;
            /// Releases one reference to each of n blocks. A block without references is free, and
            /// its slots are empty. Statuses: OUT_OF_RANGE, DOUBLE_FREE (already free, freed and
            /// allocated again, or twice in the list), NO_MEMORY (a list of more than 64 blocks
            /// needs working memory). Since 0.1.
            ///
            /// - `pool`: The pool.
            /// - `n`: The number of entries in the list.
            /// - `blocks`: \[n\]: the blocks, each once. All are checked before any is released.
            fn pkv_pool_release(pool: pkv_pool, n: usize, blocks: *const pkv_block) -> pkv_status;
            /// Claims the next n free slots of a block for writing. Only the owner of a block that
            /// is not shared may write to it. Statuses: OUT_OF_RANGE, STALE_HANDLE, BLOCK_SEALED,
            /// BLOCK_FULL (fewer than n slots are free), BUSY (shared). Since 0.1.
            ///
            /// - `pool`: The pool.
            /// - `block`: The block.
            /// - `n`: The number of slots.
            /// - `offset`: The offset of the first slot in the block.
            fn pkv_pool_claim(pool: pkv_pool, block: pkv_block, n: u32, offset: *mut u32) ->
                pkv_status;
            /// Makes a block read-only until it is freed or reset. Sealing twice is OK. Statuses:
            /// OUT_OF_RANGE, STALE_HANDLE. Since 0.1.
            ///
            /// - `pool`: The pool.
            /// - `block`: The block.
            fn pkv_pool_seal(pool: pkv_pool, block: pkv_block) -> pkv_status;
            /// Empties and unseals a block that has one reference. Statuses: OUT_OF_RANGE,
            /// STALE_HANDLE, BUSY (shared). Since 0.1.
            ///
            /// - `pool`: The pool.
            /// - `block`: The block.
            fn pkv_pool_reset(pool: pkv_pool, block: pkv_block) -> pkv_status;
            /// Returns the current state of a block, free or not. Statuses: OUT_OF_RANGE. Since
            /// 0.1.
            ///
            /// - `pool`: The pool.
            /// - `id`: The block id.
            /// - `out`: The state.
            fn pkv_pool_get_block_state(pool: pkv_pool, id: u32, out: *mut pkv_block_state) ->
                pkv_status;
            /// Returns the statistics of a pool. They are exact if no other call is in progress.
            /// Statuses: none of its own. Since 0.1.
            ///
            /// - `pool`: The pool.
            /// - `out`: The statistics.
            fn pkv_pool_get_stats(pool: pkv_pool, out: *mut pkv_pool_stats) -> pkv_status;
            /// Checks every invariant of a pool (free bits, counter, references, fill). Call it
            /// when no other call is in progress. Statuses: INTERNAL (the error message has the
            /// equation that does not hold). Since 0.1.
            ///
            /// - `pool`: The pool.
            fn pkv_pool_validate(pool: pkv_pool) -> pkv_status;
            /// Opens an empty session. Statuses: OUT_OF_BLOCKS, TOO_LARGE, NO_MEMORY. Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `config`: The config. NULL: defaults.
            /// - `out`: The session, to be closed by pkv_session_close.
            fn pkv_session_open(cache: pkv_cache, config: *const pkv_session_config, out: *mut
                pkv_session) -> pkv_status;
            /// Closes a session and frees the blocks that nothing else holds. Statuses:
            /// STALE_HANDLE, BUSY (in a batch). Since 0.1.
            ///
            /// - `session`: The session. NULL is OK.
            fn pkv_session_close(session: pkv_session) -> pkv_status;
            /// Returns how many tokens are committed; 0 while the session is suspended. Statuses:
            /// none of its own. Since 0.1.
            ///
            /// - `session`: The session.
            /// - `tokens`: The length in tokens.
            fn pkv_session_get_length(session: pkv_session, tokens: *mut u64) -> pkv_status;
            /// Returns how many tokens have K and V in a layer: more than the length once the layer
            /// was written in a step in progress. Statuses: OUT_OF_RANGE. Since 0.1.
            ///
            /// - `session`: The session.
            /// - `layer`: The layer of the model.
            /// - `tokens`: The number of tokens.
            fn pkv_session_get_layer_length(session: pkv_session, layer: u32, tokens: *mut u64) ->
                pkv_status;
            /// Copies the token ids of positions \[first, first + n): committed ones, and those
            /// that pkv_session_suspend remembered. Statuses: OUT_OF_RANGE. Since 0.1.
            ///
            /// - `session`: The session.
            /// - `first`: The first position.
            /// - `n`: How many.
            /// - `tokens`: \[n\]: the ids; PKV_NO_TOKEN where an id is unknown.
            fn pkv_session_get_tokens(session: pkv_session, first: u64, n: usize, tokens: *mut i32)
                -> pkv_status;
            /// Sets the ids of tokens that were committed without ids (by pkv_session_append). If
            /// forks that share a block set different ids, the prefix index caches the block for
            /// only one of the sequences. Statuses: OUT_OF_RANGE, INVALID_ARGUMENT (a position
            /// already has another id). Since 0.1.
            ///
            /// - `session`: The session.
            /// - `first`: The first position.
            /// - `n`: How many.
            /// - `tokens`: \[n\]: the ids.
            fn pkv_session_set_tokens(session: pkv_session, first: u64, n: usize, tokens: *const
                i32) -> pkv_status;
            /// Reserves blocks for total_tokens tokens, in all groups or in none. Later steps up to
            /// that length cannot run out of blocks, however large they are and whatever other
            /// sessions take. Never shrinks. The reservation lasts until the session is that long,
            /// or until pkv_session_trim, pkv_session_suspend or pkv_session_close frees it. It has
            /// no blocks to copy what the session shares later: call it again after
            /// pkv_session_fork, pkv_snapshot_take or pkv_file_save. Until the reservation ends,
            /// the prefix index gets the session's last full block only if its states are
            /// checkpoints, because another state would not be free again for later steps once it
            /// is shared. Statuses: OUT_OF_BLOCKS, TOO_LARGE, NO_MEMORY, BUSY. Since 0.1.
            ///
            /// - `session`: The session.
            /// - `total_tokens`: The length to reserve, including the tokens that the session has.
            fn pkv_session_reserve(session: pkv_session, total_tokens: u64) -> pkv_status;
            /// Appends n tokens to a session, one layer per call, without a batch. The first call
            /// begins a step. When every layer was written once, the step is committed and the
            /// session is n tokens longer. pkv_session_trim (to any length up to
            /// pkv_session_get_length) ends an unfinished step. To replace the contents of a
            /// session, trim it to 0 first. for (layer = 0; layer \< layers; layer++)
            /// pkv_session_append(session, layer, n, &k, &v); Statuses: OUT_OF_BLOCKS, TOO_LARGE,
            /// NO_MEMORY, OUT_OF_RANGE (layer), INVALID_ARGUMENT (n is not that of the step),
            /// UNSUPPORTED (storage NONE), BUSY, SUSPENDED. Since 0.1.
            ///
            /// - `session`: The session.
            /// - `layer`: The layer of the model, in any order. A layer may be written again until
            /// the step is complete.
            /// - `n`: How many tokens; the same in every call of a step.
            /// - `k`: Keys, \[n\]\[kv_heads\]\[key_dim\].
            /// - `v`: Values, \[n\]\[kv_heads\]\[value_dim\]. NULL in a latent group.
            fn pkv_session_append(session: pkv_session, layer: u32, n: usize, k: *const pkv_tensor,
                v: *const pkv_tensor) -> pkv_status;
            /// Removes the last tokens of a session and frees their blocks, including reserved
            /// ones. Ends an unfinished pkv_session_append. Statuses: OUT_OF_RANGE (length is above
            /// the session's, a group with a window no longer has the blocks it needs, a group with
            /// states has no state there, or the next token would go into a dropped block; see
            /// pkv_session_get_last_trim), BUSY. Since 0.1.
            ///
            /// - `session`: The session.
            /// - `length`: How many tokens to keep.
            fn pkv_session_trim(session: pkv_session, length: u64) -> pkv_status;
            /// Returns the longest length, up to a limit, to which a session can be trimmed. With
            /// windows, states or dropped blocks, not every length is possible. Statuses: none of
            /// its own. Since 0.1.
            ///
            /// - `session`: The session.
            /// - `limit`: The longest length wanted.
            /// - `length`: The longest length, up to limit and to the session's, that
            /// pkv_session_trim accepts; 0 if there is no other.
            fn pkv_session_get_last_trim(session: pkv_session, limit: u64, length: *mut u64) ->
                pkv_status;
            /// Sets how long after this session its text will probably continue in another one, for
            /// example because a tool runs or the user reads the answer. Call it before the session
            /// is closed, suspended or trimmed. The hint stays until it is set again; forks and
            /// snapshots inherit it. The eviction policy LEARNED measures when texts really return,
            /// for each power of two of the hint. So any unit works if it is always the same, and a
            /// wrong hint costs little. For blocks that other texts share, it counts how often they
            /// are used instead. Other policies, and sessions that do not use the prefix index,
            /// ignore the hint. Statuses: BUSY. Since 0.1.
            ///
            /// - `session`: The session.
            /// - `after`: How long, for example in seconds; or PKV_RETURN_UNKNOWN or
            /// PKV_RETURN_NEVER.
            fn pkv_session_set_return_hint(session: pkv_session, after: u32) -> pkv_status;
            /// Frees blocks anywhere in a session, in one layer group. Other tokens keep their
            /// positions. Later tokens do not see the tokens of these blocks, as if they were
            /// masked; slot mappings, KV indices and pkv_session_read do not have them either.
            /// Layers of other groups still see them. From the first dropped block on, the session
            /// shares no blocks through the prefix index: blocks that only this session used leave
            /// the index, and later tokens are not published. A resume after pkv_session_suspend
            /// brings back the whole sequence, to be computed again. Forks, snapshots and files
            /// lack the dropped blocks. Statuses: OUT_OF_RANGE (group; a block that is not full),
            /// INVALID_ARGUMENT (not ascending), UNSUPPORTED (CONTIGUOUS; a group with states),
            /// BUSY, SUSPENDED. Since 0.1.
            ///
            /// - `session`: The session.
            /// - `group`: The index of the group.
            /// - `count`: How many blocks.
            /// - `blocks`: \[count\]: their indices in the block table, ascending; each must be
            /// full. Blocks that were already dropped or left the window are allowed.
            fn pkv_session_drop_blocks(session: pkv_session, group: u32, count: usize, blocks:
                *const u32) -> pkv_status;
            /// Opens a session with the same tokens. It shares all blocks, even the last one if it
            /// is not full; the first session to write to that block copies it. Storage CONTIGUOUS
            /// copies everything. The new session inherits priority, use of the prefix index, salt,
            /// retention and return hint. It does not get reserved blocks, nor tokens that the old
            /// one remembers since pkv_session_suspend and has not computed again. Statuses:
            /// NO_MEMORY, REF_LIMIT, OUT_OF_BLOCKS (CONTIGUOUS), BUSY, SUSPENDED. Since 0.1.
            ///
            /// - `session`: The session; it does not change.
            /// - `out`: The new session.
            fn pkv_session_fork(session: pkv_session, out: *mut pkv_session) -> pkv_status;
            /// Frees the blocks that nothing else holds (preemption) and remembers the token ids.
            /// The session is then empty and its length is 0. Until it is resumed or trimmed, calls
            /// that would add to it return PKV_SUSPENDED. Needs no memory. Suspending twice is OK.
            /// Ends an unfinished pkv_session_append. Statuses: BUSY. Since 0.1.
            ///
            /// - `session`: The session.
            fn pkv_session_suspend(session: pkv_session) -> pkv_status;
            /// Ends a suspension: reserves all blocks that the remembered tokens need, or none, and
            /// returns which K and V must be computed again: those of positions \[\*length,
            /// \*total). Groups with a window reserve the blocks of one window; groups with states
            /// reserve those for batches of any size, or for one batch if the cache can never have
            /// that many. pkv_session_get_tokens returns the ids of these positions. Prefill them
            /// in batches of any size, which may go beyond total. A commit without ids uses the
            /// remembered ones; a commit with other ids is refused. A trim drops the remembered
            /// ids. If the session is not suspended, the call returns PKV_OK, its length, and the
            /// total with any remembered tokens. Statuses: OUT_OF_BLOCKS, TOO_LARGE, NO_MEMORY
            /// (after these three the session is still suspended), BUSY. Since 0.1.
            ///
            /// - `session`: The session.
            /// - `length`: Tokens that have K and V.
            /// - `total`: Tokens including the remembered ones.
            /// - `blocks_short`: How many blocks must be freed before the same call can succeed;
            /// written only on OUT_OF_BLOCKS. May be NULL.
            fn pkv_session_resume(session: pkv_session, length: *mut u64, total: *mut u64,
                blocks_short: *mut u64) -> pkv_status;
            /// Changes the priority of a session. Statuses: BUSY. Since 0.1.
            ///
            /// - `session`: The session.
            /// - `priority`: pkv_batch_choose_victims chooses higher ones last.
            fn pkv_session_set_priority(session: pkv_session, priority: i32) -> pkv_status;
            /// Returns the current state of a session. Statuses: none of its own. Since 0.1.
            ///
            /// - `session`: The session.
            /// - `out`: The state.
            fn pkv_session_get_info(session: pkv_session, out: *mut pkv_session_info) -> pkv_status;
            /// Returns the block table of one group: ids\[i\] is the block of tokens i \*
            /// block_size and on. It includes reserved blocks. Statuses: OUT_OF_RANGE,
            /// BUFFER_TOO_SMALL, UNSUPPORTED (CONTIGUOUS). Since 0.1.
            ///
            /// - `session`: The session.
            /// - `group`: The index of the group.
            /// - `capacity`: Entries that ids has room for.
            /// - `ids`: \[capacity\]: block ids; PKV_NO_BLOCK if the block left the window (one
            /// step late: see pkv_layer_group) or was dropped. May be NULL if capacity is 0.
            /// - `count`: How many entries there are; written on PKV_OK and on BUFFER_TOO_SMALL.
            fn pkv_session_get_block_table(session: pkv_session, group: u32, capacity: usize, ids:
                *mut u32, count: *mut usize) -> pkv_status;
            /// Copies K and V of positions \[first, first + n) of one layer, as rows. This includes
            /// positions of a step in progress once the layer was written. Statuses: OUT_OF_RANGE
            /// (also: left the window, or dropped), UNSUPPORTED (NONE). Since 0.1.
            ///
            /// - `session`: The session.
            /// - `layer`: The layer of the model.
            /// - `first`: The first position.
            /// - `n`: How many.
            /// - `k`: Keys, \[n\]\[kv_heads\]\[key_dim\]. NULL: not wanted.
            /// - `v`: Values, \[n\]\[kv_heads\]\[value_dim\]. NULL: not wanted.
            fn pkv_session_read(session: pkv_session, layer: u32, first: u64, n: usize, k: *const
                pkv_tensor, v: *const pkv_tensor) -> pkv_status;
            /// Copies a state of one layer of a group with states. A session holds the states after
            /// its last token, after its last full block and at checkpoints. Statuses: OUT_OF_RANGE
            /// (layer; the session does not hold this state), INVALID_ARGUMENT (size), UNSUPPORTED
            /// (the layer keeps K and V; NONE). Since 0.1.
            ///
            /// - `session`: The session.
            /// - `layer`: The layer of the model.
            /// - `tokens`: The number of committed tokens before the state.
            /// - `size`: Bytes that state has room for: state_bytes of the group.
            /// - `state`: \[size\]: the state.
            fn pkv_session_read_state(session: pkv_session, layer: u32, tokens: u64, size: usize,
                state: *mut c_void) -> pkv_status;
            /// Creates a pkv_compute. Statuses: INVALID_ARGUMENT, UNSUPPORTED (isa), NO_MEMORY.
            /// Since 0.1.
            ///
            /// - `config`: The config. NULL: defaults.
            /// - `out`: The pkv_compute. Destroy it with pkv_compute_destroy.
            fn pkv_compute_create(config: *const pkv_compute_config, out: *mut pkv_compute) ->
                pkv_status;
            /// Ends the threads of a pkv_compute and frees its working memory. Statuses:
            /// STALE_HANDLE, BUSY. Since 0.1.
            ///
            /// - `compute`: The pkv_compute. NULL is OK.
            fn pkv_compute_destroy(compute: pkv_compute) -> pkv_status;
            /// Returns the threads and instruction set of a pkv_compute. Statuses: none of its own.
            /// Since 0.1.
            ///
            /// - `compute`: The pkv_compute. NULL: the default of the process.
            /// - `out`: The result.
            fn pkv_compute_get_info(compute: pkv_compute, out: *mut pkv_compute_info) -> pkv_status;
            /// Returns a runner over the OpenMP threads of the process, for example those on which
            /// PyTorch multiplies matrices. Calls then start no threads of their own and keep to
            /// the CPUs to which these are bound. Use it in the config of a pkv_compute or a cache.
            /// It finds libgomp, libomp or libiomp5 if its symbols are visible to the whole
            /// process: linked into the program, preloaded, or loaded with RTLD_GLOBAL. In a forked
            /// child whose parent computed on these threads they do not exist: there the calling
            /// thread runs all tasks. Statuses: UNSUPPORTED (the process has loaded no OpenMP
            /// library). Since 0.1.
            ///
            /// - `out`: The runner, with as many threads as omp_get_max_threads() returns now.
            fn pkv_openmp_runner(out: *mut pkv_runner) -> pkv_status;
            /// Returns where one layer of a paged cache is in memory, for engines with their own
            /// kernels. The memory is read-only. The addresses stay valid as long as the cache.
            /// pkv_session_get_block_table returns the blocks of each session. Statuses:
            /// OUT_OF_RANGE (layer), UNSUPPORTED (not PAGED). Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `layer`: The layer of the model.
            /// - `out`: The view.
            fn pkv_cache_get_kv_view(cache: pkv_cache, layer: u32, out: *mut pkv_kv_view) ->
                pkv_status;
            /// Lays out K and V of one layer in contiguous memory of the caller, as a cache of the
            /// same layout does: fills in the strides of a view and returns its size. Allocates and
            /// touches no memory. Statuses: INVALID_ARGUMENT, OVERFLOW. Since 0.1.
            ///
            /// - `kv`: The caller sets layout, block_size, kv_heads, key_dim, value_dim (0:
            /// key_dim), dtype, value_dtype, blocks, rotation and its matrices. The call sets the
            /// rest.
            /// - `latent`: 1: V is the first value_dim dims of K; 0: V has its own memory.
            /// - `memory`: The memory for K and V, best at a multiple of 64; this call does not
            /// touch it. NULL: only strides and size are computed; k and v become NULL.
            /// - `bytes`: The size of K and V.
            fn pkv_kv_view_plan(kv: *mut pkv_kv_view, latent: u32, memory: *mut c_void, bytes: *mut
                u64) -> pkv_status;
            /// Writes rows of K and V to slots of the caller's memory, converted, quantised and
            /// packed as in a cache. Any thread. Slot s is in block s / block_size, at s %
            /// block_size. If several rows have the same slot, the last one stays. Other slots do
            /// not change. Statuses: INVALID_ARGUMENT, OUT_OF_RANGE (a slot), OVERFLOW, NO_MEMORY.
            /// Since 0.1.
            ///
            /// - `compute`: Threads and kernels. NULL: all CPUs.
            /// - `kv`: The memory of K and V. Its slots may not overlap.
            /// - `rows`: The number of rows.
            /// - `slots`: \[rows\]: the slot of each row, or PKV_NO_SLOT.
            /// - `k`: Keys, \[rows\]\[kv_heads\]\[key_dim\].
            /// - `v`: Values, \[rows\]\[kv_heads\]\[value_dim\]. NULL if V is part of K.
            fn pkv_kv_write_slots(compute: pkv_compute, kv: *const pkv_kv_view, rows: usize, slots:
                *const i64, k: *const pkv_tensor, v: *const pkv_tensor) -> pkv_status;
            /// Copies K and V from slots to rows, converted to the dtype of these. Any thread.
            /// Statuses: INVALID_ARGUMENT, OUT_OF_RANGE (a slot), OVERFLOW, NO_MEMORY. Since 0.1.
            ///
            /// - `compute`: Threads and kernels. NULL: all CPUs.
            /// - `kv`: The memory of K and V.
            /// - `rows`: The number of rows.
            /// - `slots`: \[rows\]: the slot of each row. PKV_NO_SLOT: the row is not changed.
            /// - `k`: Keys, \[rows\]\[kv_heads\]\[key_dim\]. NULL: not copied.
            /// - `v`: Values, \[rows\]\[kv_heads\]\[value_dim\]. NULL: not copied.
            fn pkv_kv_read_slots(compute: pkv_compute, kv: *const pkv_kv_view, rows: usize, slots:
                *const i64, k: *const pkv_tensor, v: *const pkv_tensor) -> pkv_status;
            /// Writes rows of K and V to the positions of the queries, as pkv_kv_write_slots does.
            /// Any thread. Statuses: INVALID_ARGUMENT, OUT_OF_RANGE (a block id, a length or a
            /// position), OVERFLOW, NO_MEMORY. Since 0.1.
            ///
            /// - `compute`: Threads and kernels. NULL: all CPUs.
            /// - `kv`: The memory of K and V. Its slots may not overlap.
            /// - `sequences`: The sequences. The rows of a sequence go to its query_positions, or
            /// else to its last positions, in order.
            /// - `k`: Keys, \[queries\]\[kv_heads\]\[key_dim\].
            /// - `v`: Values, \[queries\]\[kv_heads\]\[value_dim\]. NULL if V is part of K.
            fn pkv_kv_write(compute: pkv_compute, kv: *const pkv_kv_view, sequences: *const
                pkv_attention_sequences, k: *const pkv_tensor, v: *const pkv_tensor) -> pkv_status;
            /// Computes attention without a cache, over a view and block tables that the caller
            /// owns. Any thread. Statuses: INVALID_ARGUMENT, OUT_OF_RANGE (a block id or a length),
            /// UNSUPPORTED (top), OVERFLOW, NO_MEMORY. Since 0.1.
            ///
            /// - `compute`: The threads and kernels. NULL: all CPUs.
            /// - `kv`: The memory of K and V.
            /// - `sequences`: The sequences. q and out have their rows, one sequence after the
            /// other or in a padded batch.
            /// - `params`: The kind of attention. NULL: defaults.
            /// - `q`: Queries, \[sum of query_lengths\]\[query_heads\]\[key_dim\].
            /// - `out`: Results, \[sum of query_lengths\]\[query_heads\]\[value_dim\].
            fn pkv_attention(compute: pkv_compute, kv: *const pkv_kv_view, sequences: *const
                pkv_attention_sequences, params: *const pkv_attention_params, q: *const pkv_tensor,
                out: *const pkv_tensor) -> pkv_status;
            /// Merges the results of attention calls with the same queries over different
            /// positions: merged = sum_i exp(lse\[i\]) outs\[i\] / sum_i exp(lse\[i\]). Any thread.
            /// Set sink logits in only one of the calls. Statuses: INVALID_ARGUMENT, OUT_OF_RANGE,
            /// OVERFLOW, NO_MEMORY. Since 0.1.
            ///
            /// - `compute`: Its instruction set is used, on the calling thread. NULL: the fastest.
            /// - `count`: The number of results.
            /// - `outs`: \[count\]: results, each \[rows\]\[heads\]\[dim\].
            /// - `lse`: \[count\]: their lse, each \[rows\]\[heads\]. Results with -infinity are
            /// ignored, and so are those with +infinity, which FlashAttention 2 returns if nothing
            /// was seen. If all are ignored, the merged result is 0 and its lse is -infinity. NaN
            /// makes both NaN.
            /// - `rows`: Rows of each result.
            /// - `heads`: Query heads.
            /// - `dim`: Head dim of the results.
            /// - `merged`: The merged result, \[rows\]\[heads\]\[dim\].
            /// - `merged_lse`: Its lse, \[rows\]\[heads\]. May be NULL.
            fn pkv_attention_merge(compute: pkv_compute, count: usize, outs: *const pkv_tensor, lse:
                *const *const f32, rows: usize, heads: u32, dim: u32, merged: *const pkv_tensor,
                merged_lse: *mut f32) -> pkv_status;
            /// Begins a step: reserves the blocks for all new tokens in all groups, for every
            /// session or for none. Statuses: OUT_OF_BLOCKS (suspend the sessions that
            /// pkv_batch_choose_victims names), TOO_LARGE (one of the sessions can never get its
            /// blocks), BATCH_TOO_LARGE (each can, but not all at once; also: more sessions than
            /// can be open, 2^22), OVERFLOW, NO_MEMORY, WRONG_CACHE, BUSY (a session is already in
            /// a batch, or twice in the list), SUSPENDED, STALE_HANDLE. Since 0.1.
            ///
            /// - `cache`: The cache of the sessions.
            /// - `count`: How many sessions.
            /// - `sessions`: \[count\]: the sessions, each once.
            /// - `new_tokens`: \[count\]: how many new tokens each session brings; 0 is OK.
            /// - `blocks_short`: How many blocks must be freed before the same call can succeed;
            /// written only on OUT_OF_BLOCKS. May be NULL.
            /// - `out`: The batch, to be ended by pkv_batch_commit or pkv_batch_abort.
            fn pkv_batch_begin(cache: pkv_cache, count: usize, sessions: *const pkv_session,
                new_tokens: *const u32, blocks_short: *mut u64, out: *mut pkv_batch) -> pkv_status;
            /// Chooses sessions to suspend (or close) so that pkv_batch_begin gets its blocks for
            /// the other sessions of the list. Victims are the sessions of lowest priority, and
            /// among equals those opened last. Sessions of the list may be victims, except the one
            /// that would be chosen last. Sessions that another call or batch uses, or that hold no
            /// block, are never victims. A shared block counts as freed once all its holders are
            /// victims. The result is valid until something else takes or frees blocks. Call it
            /// from the thread that schedules: it looks at every session, and calls that would
            /// change a session meanwhile return BUSY. Statuses: OUT_OF_BLOCKS (even if all others
            /// are suspended), TOO_LARGE, BATCH_TOO_LARGE (only: more sessions than can be open)
            /// and OVERFLOW (as pkv_batch_begin), BUFFER_TOO_SMALL, WRONG_CACHE, NO_MEMORY, BUSY (a
            /// session of the list), SUSPENDED. Since 0.1.
            ///
            /// - `cache`: The cache of the sessions.
            /// - `count`: How many sessions are in the list.
            /// - `sessions`: \[count\]: the sessions of the step, each once.
            /// - `new_tokens`: \[count\]: how many new tokens each session brings.
            /// - `capacity`: Entries that victims has room for.
            /// - `victims`: \[capacity\]: the sessions to suspend. May be NULL if capacity is 0.
            /// - `victim_count`: The number of victims; 0: begin needs none. Written on PKV_OK and
            /// on BUFFER_TOO_SMALL.
            fn pkv_batch_choose_victims(cache: pkv_cache, count: usize, sessions: *const
                pkv_session, new_tokens: *const u32, capacity: usize, victims: *mut pkv_session,
                victim_count: *mut usize) -> pkv_status;
            /// Sets where the rows of each session begin in the tensors of pkv_batch_write and
            /// pkv_batch_attend, for batches that are padded on the left or have gaps. Statuses:
            /// none of its own. Since 0.1.
            ///
            /// - `batch`: The batch.
            /// - `first_rows`: \[sessions\]: as first_rows of pkv_attention_sequences. NULL: as
            /// without this call, rows follow each other, or are padded on the right.
            fn pkv_batch_set_first_rows(batch: pkv_batch, first_rows: *const u32) -> pkv_status;
            /// Stores K and V of one layer. A layer may be written again before the commit.
            /// Statuses: OUT_OF_RANGE (layer), UNSUPPORTED (NONE). Since 0.1.
            ///
            /// - `batch`: The batch.
            /// - `layer`: The layer of the model.
            /// - `k`: Keys, \[rows\]\[kv_heads\]\[key_dim\].
            /// - `v`: Values, \[rows\]\[kv_heads\]\[value_dim\]. NULL in a latent group.
            fn pkv_batch_write(batch: pkv_batch, layer: u32, k: *const pkv_tensor, v: *const
                pkv_tensor) -> pkv_status;
            /// Computes attention of all rows over their sessions, including the new tokens. If a
            /// row of q of a head is not finite, its result is what IEEE 754 says, or NaN if K is
            /// INT8 or INT4; results of other rows are not affected. If V is INT4, an element that
            /// is not finite makes the results that see it NaN, in its 32 dims or in all. Statuses:
            /// INCOMPLETE (the layer was not written), OUT_OF_RANGE (layer, a window larger than
            /// the group's, or a block list), UNSUPPORTED (NONE; chosen blocks with CONTIGUOUS),
            /// NO_MEMORY. Since 0.1.
            ///
            /// - `batch`: The batch.
            /// - `layer`: The layer of the model; it must be written.
            /// - `params`: The kind of attention. NULL: defaults.
            /// - `q`: Queries, \[rows\]\[query_heads\]\[key_dim\].
            /// - `out`: Results, \[rows\]\[query_heads\]\[value_dim\]. May not overlap q.
            fn pkv_batch_attend(batch: pkv_batch, layer: u32, params: *const pkv_attention_params,
                q: *const pkv_tensor, out: *const pkv_tensor) -> pkv_status;
            /// Ends a step: adds the new tokens to every session, seals full blocks and closes the
            /// batch. If the call fails, the batch is still open. Statuses: INCOMPLETE (a layer was
            /// not written; not with storage NONE), INVALID_ARGUMENT (an id is not the remembered
            /// one), NO_MEMORY. Since 0.1.
            ///
            /// - `batch`: The batch.
            /// - `tokens`: \[rows\]: the ids of the new tokens. NULL: they stay PKV_NO_TOKEN, or
            /// what pkv_session_suspend remembered.
            fn pkv_batch_commit(batch: pkv_batch, tokens: *const i32) -> pkv_status;
            /// Keeps only some of the new tokens of one session: the accepted path of a tree of
            /// speculative tokens. May be called once per session, after every layer was written.
            /// After it, no layer of the batch can be written or attended. The keys and values of
            /// these tokens are moved, bit by bit, to where they would be if the step had only
            /// these tokens. The tokens of pkv_batch_commit are still \[rows\]. Statuses:
            /// OUT_OF_RANGE, INVALID_ARGUMENT (not ascending, or the second call), INCOMPLETE,
            /// UNSUPPORTED (NONE), NO_MEMORY. Since 0.1.
            ///
            /// - `batch`: The batch.
            /// - `i`: The index of the session in the list of begin.
            /// - `count`: How many tokens to keep.
            /// - `kept`: \[count\]: indices among the session's new tokens, from 0, ascending.
            fn pkv_batch_accept(batch: pkv_batch, i: usize, count: usize, kept: *const u32) ->
                pkv_status;
            /// Ends a step as if it had never begun, and closes the batch. Statuses: none of its
            /// own. Since 0.1.
            ///
            /// - `batch`: The batch. NULL is OK.
            fn pkv_batch_abort(batch: pkv_batch) -> pkv_status;
            /// Returns the slots of all new tokens in one group, where an engine with its own
            /// memory writes them. Statuses: OUT_OF_RANGE, BUFFER_TOO_SMALL, UNSUPPORTED
            /// (CONTIGUOUS). Since 0.1.
            ///
            /// - `batch`: The batch.
            /// - `group`: The index of the group.
            /// - `capacity`: Entries that slots has room for.
            /// - `slots`: \[capacity\]: one slot per row. May be NULL if capacity is 0.
            /// - `count`: The number of slots; written on PKV_OK and on BUFFER_TOO_SMALL.
            fn pkv_batch_get_slot_mapping(batch: pkv_batch, group: u32, capacity: usize, slots: *mut
                i64, count: *mut usize) -> pkv_status;
            /// Returns the blocks of one group that begin replaced because they were shared and not
            /// full: the step writes to block to\[i\] instead of from\[i\]. If all sessions that
            /// hold such a block are in the batch and write to it, one of them keeps it: n sessions
            /// take n - 1 new blocks. With storage PAGED the bytes are already copied; with storage
            /// NONE the engine makes all copies of the batch before it writes the first row.
            /// Statuses: as pkv_batch_get_slot_mapping. Since 0.1.
            ///
            /// - `batch`: The batch.
            /// - `group`: The index of the group.
            /// - `capacity`: Entries that from and to have room for.
            /// - `from`: \[capacity\]: the shared blocks. May be NULL if capacity is 0.
            /// - `to`: \[capacity\]: the blocks that replace them. May be NULL if capacity is 0.
            /// - `count`: The number of pairs; written on PKV_OK and on BUFFER_TOO_SMALL.
            fn pkv_batch_get_block_copies(batch: pkv_batch, group: u32, capacity: usize, from: *mut
                u32, to: *mut u32, count: *mut usize) -> pkv_status;
            /// Returns addresses of states of one layer in a group with states: where the engine
            /// reads the state before the new tokens of each session, and where it writes the
            /// states after them. A session with new tokens always gets a place for the state after
            /// the last of them. If it reaches past a checkpoint (checkpoint_tokens), it also gets
            /// places for the states at the checkpoint and after its last full block. If it has at
            /// most draft_tokens new tokens, it gets a place after each of them; in a tree, the
            /// state after a token is that of the token and its ancestors.
            /// pkv_batch_get_state_blocks returns which tokens these are. The engine must write all
            /// of `after` before the commit; these bytes are undefined until it does. Other
            /// sessions do not see them before the commit. What `before` points to does not change
            /// during the step. Statuses: OUT_OF_RANGE (layer), BUFFER_TOO_SMALL, UNSUPPORTED (the
            /// layer keeps K and V; NONE), INVALID_ARGUMENT (after pkv_batch_accept). Since 0.1.
            ///
            /// - `batch`: The batch.
            /// - `layer`: The layer of the model. It counts as written after this call.
            /// - `before`: \[sessions\]: the state of each session, state_bytes bytes at a multiple
            /// of 64; NULL: the session has no token yet.
            /// - `capacity`: Entries that after has room for.
            /// - `after`: \[capacity\]: where to write. May be NULL if capacity is 0.
            /// - `count`: The number of entries of after; written on PKV_OK and on
            /// BUFFER_TOO_SMALL.
            fn pkv_batch_get_states(batch: pkv_batch, layer: u32, before: *mut *const c_void,
                capacity: usize, after: *mut *mut c_void, count: *mut usize) -> pkv_status;
            /// Returns which states a step keeps in a group, and their blocks. Session i keeps the
            /// states after its new tokens tokens\[indptr\[i\]\] to tokens\[indptr\[i + 1\] - 1\].
            /// An engine with its own memory (storage NONE), or with kernels that take block ids,
            /// reads the state in block before\[i\] and writes those in the blocks of after. With
            /// storage PAGED, pkv_batch_get_states returns addresses. Statuses: OUT_OF_RANGE,
            /// BUFFER_TOO_SMALL, UNSUPPORTED (the group keeps K and V). Since 0.1.
            ///
            /// - `batch`: The batch.
            /// - `group`: The index of the group.
            /// - `before`: \[sessions\]: the block with the state of each session; PKV_NO_BLOCK:
            /// the session has no token yet. May be NULL.
            /// - `indptr`: \[sessions + 1\]: where the states of each session begin, and the end.
            /// - `capacity`: Entries that tokens and after have room for.
            /// - `tokens`: \[capacity\]: indices among the session's new tokens, from 0, ascending.
            /// May be NULL if capacity is 0.
            /// - `after`: \[capacity\]: the blocks to write. May be NULL.
            /// - `count`: The number of states; written on PKV_OK and on BUFFER_TOO_SMALL.
            fn pkv_batch_get_state_blocks(batch: pkv_batch, group: u32, before: *mut u32, indptr:
                *mut usize, capacity: usize, tokens: *mut u32, after: *mut u32, count: *mut usize)
                -> pkv_status;
            /// Returns what each session reads, in compressed rows: session i reads
            /// indices\[indptr\[i\]\] to indices\[indptr\[i + 1\] - 1\], in token order, including
            /// its new tokens and without blocks that left the window or were dropped. Statuses: as
            /// pkv_batch_get_slot_mapping. Since 0.1.
            ///
            /// - `batch`: The batch.
            /// - `group`: The index of the group.
            /// - `unit`: The unit of indices: block ids or slots.
            /// - `indptr`: \[sessions + 1\]: where the indices of each session begin, and the end
            /// of the last.
            /// - `capacity`: Entries that indices has room for.
            /// - `indices`: \[capacity\]: block ids or slots. May be NULL if capacity is 0.
            /// - `count`: The number of indices; written on PKV_OK and on BUFFER_TOO_SMALL.
            /// - `last_block_length`: \[sessions\]: how many tokens the last block of each session
            /// holds. May be NULL.
            fn pkv_batch_get_kv_indices(batch: pkv_batch, group: u32, unit: pkv_index_unit, indptr:
                *mut i64, capacity: usize, indices: *mut i64, count: *mut usize, last_block_length:
                *mut u32) -> pkv_status;
            /// Takes a snapshot of a session, which outlives the session. With storage CONTIGUOUS
            /// it copies. Sessions opened from it get all that pkv_session_fork passes on.
            /// Statuses: NO_MEMORY, REF_LIMIT, OUT_OF_BLOCKS (CONTIGUOUS), BUSY (a step is in
            /// flight), SUSPENDED. Since 0.1.
            ///
            /// - `session`: The session; it does not change.
            /// - `out`: The snapshot. Close it with pkv_snapshot_close.
            fn pkv_snapshot_take(session: pkv_session, out: *mut pkv_snapshot) -> pkv_status;
            /// Opens a new session with the content of a snapshot. Statuses: WRONG_CACHE,
            /// NO_MEMORY, REF_LIMIT, OUT_OF_BLOCKS (CONTIGUOUS). Since 0.1.
            ///
            /// - `cache`: The cache of the snapshot.
            /// - `snapshot`: The snapshot. Any number of sessions can be opened from it.
            /// - `out`: The session.
            fn pkv_snapshot_open(cache: pkv_cache, snapshot: pkv_snapshot, out: *mut pkv_session) ->
                pkv_status;
            /// Closes a snapshot and drops its references. Sessions opened from it keep theirs.
            /// Statuses: STALE_HANDLE, BUSY. Since 0.1.
            ///
            /// - `snapshot`: The snapshot. NULL is OK.
            fn pkv_snapshot_close(snapshot: pkv_snapshot) -> pkv_status;
            /// Finds the longest cached prefix of a prompt and gives it to an empty session, which
            /// then has K and V of tokens \[0, \*matched) and the length \*matched. A suspended
            /// session needs no match: a resume takes what is cached of its own tokens. Statuses:
            /// INVALID_ARGUMENT (the session has or remembers tokens or has reserved blocks, even
            /// if there is no index; or an id is PKV_NO_TOKEN), SUSPENDED, BUSY. Since 0.1.
            ///
            /// - `session`: The session.
            /// - `n`: The number of tokens to look for. Leave out the last one of a prompt if its
            /// output is needed.
            /// - `tokens`: \[n\]: the token ids of the prompt.
            /// - `matched`: The number of tokens found; 0 if none, if the cache has no index, or if
            /// the session does not use it.
            fn pkv_session_match_prefix(session: pkv_session, n: usize, tokens: *const i32, matched:
                *mut u64) -> pkv_status;
            /// Returns statistics of the index, for one salt or all. Statuses: UNSUPPORTED (no
            /// index), TOO_LARGE (salt). Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `salt`: The salt. NULL with size 0: sessions without one.
            /// - `salt_size`: Bytes of the salt, or PKV_ALL_SALTS.
            /// - `out`: The statistics.
            fn pkv_prefix_get_stats(cache: pkv_cache, salt: *const c_void, salt_size: usize, out:
                *mut pkv_prefix_stats) -> pkv_status;
            /// Removes every cached block that is unused and not pinned, of one salt or of all.
            /// Statuses: UNSUPPORTED (no index), TOO_LARGE (salt). Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `salt`: The salt. NULL with size 0: sessions without one.
            /// - `salt_size`: Bytes of the salt, or PKV_ALL_SALTS.
            fn pkv_prefix_clear(cache: pkv_cache, salt: *const c_void, salt_size: usize) ->
                pkv_status;
            /// Returns how much of a prompt is cached in memory. Needs no session, changes no
            /// statistics, holds no blocks, and does not change which blocks are evicted next.
            /// Statuses: UNSUPPORTED (no index), TOO_LARGE (salt). Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `salt`: The salt. NULL with size 0: none.
            /// - `salt_size`: Bytes of the salt.
            /// - `n`: The number of tokens in the prompt.
            /// - `tokens`: \[n\]: the token ids of the prompt.
            /// - `cached`: The number of tokens that a match would find now, in whole blocks. It
            /// may also find a part of the next block, and blocks that only a store has.
            fn pkv_prefix_probe(cache: pkv_cache, salt: *const c_void, salt_size: usize, n: usize,
                tokens: *const i32, cached: *mut u64) -> pkv_status;
            /// Pins the whole cached blocks of a prompt: they stay cached, even if unused, until
            /// they are unpinned as often as pinned. Compute a system prompt once, close its
            /// session, then pin it. Statuses: UNSUPPORTED (no index), TOO_LARGE (salt),
            /// OUT_OF_BLOCKS (more than pinned_blocks: nothing is pinned), REF_LIMIT. Since 0.1.
            ///
            /// - `cache`: The cache; pinned_blocks of its prefix config limits all pins together.
            /// - `salt`: The salt. NULL with size 0: none.
            /// - `salt_size`: Bytes of the salt.
            /// - `n`: The number of tokens in the prompt.
            /// - `tokens`: \[n\]: the token ids of the prompt.
            /// - `pinned`: The number of tokens pinned, in whole blocks; 0 if nothing is cached.
            fn pkv_prefix_pin(cache: pkv_cache, salt: *const c_void, salt_size: usize, n: usize,
                tokens: *const i32, pinned: *mut u64) -> pkv_status;
            /// Removes one pin: the longest one on a prefix of a prompt. Statuses: UNSUPPORTED (no
            /// index), TOO_LARGE (salt), DOUBLE_FREE (no prefix of the prompt is pinned). Since
            /// 0.1.
            ///
            /// - `cache`: The cache.
            /// - `salt`: The salt. NULL with size 0: none.
            /// - `salt_size`: Bytes of the salt.
            /// - `n`: The number of tokens in the prompt.
            /// - `tokens`: \[n\]: the token ids of the prompt.
            /// - `unpinned`: The number of tokens of that pin.
            fn pkv_prefix_unpin(cache: pkv_cache, salt: *const c_void, salt_size: usize, n: usize,
                tokens: *const i32, unpinned: *mut u64) -> pkv_status;
            /// Limits what one salt may have cached from now on. When the quota is full, the salt's
            /// own unused blocks are removed, least recently used first; if all are in use, new
            /// blocks of its sessions are not cached. Unused blocks that are already over the quota
            /// are removed at once. Statuses: UNSUPPORTED (no index), TOO_LARGE (salt), NO_MEMORY.
            /// Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `salt`: The salt. NULL with size 0: sessions without one.
            /// - `salt_size`: Bytes of the salt.
            /// - `blocks`: The most block positions. 0: no limit; PKV_DEFAULT_QUOTA: the limit in
            /// the config.
            fn pkv_prefix_set_quota(cache: pkv_cache, salt: *const c_void, salt_size: usize, blocks:
                u64) -> pkv_status;
            /// Copies the events of all salts, in order. Several readers may each keep their own
            /// number. Statuses: UNSUPPORTED (no index, or events is 0 in its config). Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `next`: In: the number of the first event to read, 0 at first. Out: the number of
            /// the next one.
            /// - `n`: In: the entries that fit into events. Out: the number written.
            /// - `events`: \[\*n\], as passed in: the events.
            /// - `lost`: The number of events from \*next on that were overwritten, since the cache
            /// keeps only recent ones. If it is not 0, find out in another way what is cached. May
            /// be NULL.
            fn pkv_prefix_read_events(cache: pkv_cache, next: *mut u64, n: *mut usize, events: *mut
                pkv_prefix_event, lost: *mut u64) -> pkv_status;
            /// Computes the hashes that events have for the whole blocks of a prompt. Equal hashes
            /// are a hint that a prompt is cached, no proof. The hash of a block is XXH3 (64 bits)
            /// of its token ids (int32, native byte order), with the hash of the block before it as
            /// seed. The seed of the first block is XXH3 of the salt's bytes, without a seed.
            /// Statuses: TOO_LARGE (salt). Since 0.1.
            ///
            /// - `salt`: The salt. NULL with size 0: none.
            /// - `salt_size`: Bytes of the salt.
            /// - `block_size`: Tokens per block: a multiple of 16, 16 to 256.
            /// - `n`: The number of tokens in the prompt.
            /// - `tokens`: \[n\]: the token ids of the prompt.
            /// - `hashes`: \[n / block_size\]: the hashes.
            fn pkv_prefix_hash_blocks(salt: *const c_void, salt_size: usize, block_size: u32, n:
                usize, tokens: *const i32, hashes: *mut u64) -> pkv_status;
            /// Saves sessions, snapshots and, if the config says so, the prefix index of a cache:
            /// tokens, K and V as stored (of a group with a window, what it still has), priorities,
            /// uses of the prefix index, retentions, salts, and the tokens that suspended sessions
            /// remember. Storage NONE saves only tokens and tables. Reserved blocks and return
            /// hints are not saved. A snapshot is saved with all that its session had when it was
            /// taken. The items are held until the call returns. The prefix index is not: steps may
            /// evict its blocks before they are written, and their sequences are then shorter in
            /// the file. Statuses: BUFFER_TOO_SMALL, WRONG_CACHE, BUSY (a step is in flight), IO,
            /// UNSUPPORTED (a key, in a build without libsodium or libcrypto), TOO_LARGE
            /// (fingerprint, key), REF_LIMIT. Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `n`: The number of items; 0 is OK.
            /// - `items`: \[n\]: the sessions and snapshots.
            /// - `config`: The config. NULL: defaults.
            /// - `to`: The stream to write. The data of a buffer may be NULL if its size is 0.
            /// - `bytes`: The size of the file; set on PKV_OK and, for a buffer, on
            /// BUFFER_TOO_SMALL. May be NULL.
            fn pkv_file_save(cache: pkv_cache, n: usize, items: *const pkv_file_item, config: *const
                pkv_file_config, to: *const pkv_stream, bytes: *mut u64) -> pkv_status;
            /// Opens every item of a file as a session of the cache, in the order of pkv_file_save.
            /// - Layers, KV heads, dims, windows and sinks must be those of the cache. The block
            /// size may differ, but the tokens that a group with a window holds must fill whole
            /// blocks (they do if the new size divides the old one). A path or a buffer must end
            /// where the file ends. - Blocks are allocated as by pkv_batch_begin, which may evict
            /// unused cached blocks. Nothing is evicted before the whole file was checked or, if
            /// the stream cannot be read twice (a pipe, callbacks), before its tables were checked.
            /// - Entries of the prefix index that the cache has are not loaded again. Entries that
            /// do not fit into memory are left out. If the entries of a file would fill the cache
            /// more than 64 times, the least recently used are left out, too. Pins, quotas and what
            /// the cache has learned about reuse are not in files. Statuses: BUFFER_TOO_SMALL,
            /// CORRUPT (also a wrong key), VERSION, MISMATCH (another model, fingerprint, dtype or
            /// storage; a key for a file without one, or none for a file with one; salts without a
            /// key, see trust_salts), IO, OUT_OF_BLOCKS, TOO_LARGE, UNSUPPORTED (as pkv_file_save),
            /// REF_LIMIT. Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `config`: The config. NULL: defaults.
            /// - `from`: The stream to read.
            /// - `capacity`: The number of entries that fit into sessions and labels.
            /// - `sessions`: \[capacity\]: the sessions, which the caller closes. May be NULL if
            /// capacity is 0.
            /// - `labels`: \[capacity\]: the label of each session. May be NULL.
            /// - `count`: The number of items in the file; set on PKV_OK and BUFFER_TOO_SMALL.
            fn pkv_file_load(cache: pkv_cache, config: *const pkv_file_config, from: *const
                pkv_stream, capacity: usize, sessions: *mut pkv_session, labels: *mut u64, count:
                *mut usize) -> pkv_status;
            /// Returns the properties of a file. Reads its tables, but not its K and V. Needs no
            /// cache. Statuses: CORRUPT, VERSION, MISMATCH (key, fingerprint), IO, UNSUPPORTED,
            /// TOO_LARGE. Since 0.1.
            ///
            /// - `config`: For the key and the fingerprint, which is compared. NULL: neither.
            /// - `from`: The stream to read.
            /// - `out`: The properties.
            fn pkv_file_inspect(config: *const pkv_file_config, from: *const pkv_stream, out: *mut
                pkv_file_info) -> pkv_status;
            /// Starts to read blocks of a prompt that are in the store, but not in memory, into the
            /// prefix index, and returns. Call it when a request is queued; a later
            /// pkv_session_match_prefix finds the blocks that have arrived. It uses only free and
            /// evictable blocks. At most 64 prefetches wait; one more cancels the oldest. Statuses:
            /// UNSUPPORTED (the cache has no store), TOO_LARGE (salt). Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `salt`: The salt. NULL with size 0: none.
            /// - `salt_size`: Bytes of the salt.
            /// - `n`: The number of tokens in the prompt.
            /// - `tokens`: \[n\]: the token ids of the prompt.
            fn pkv_store_prefetch(cache: pkv_cache, salt: *const c_void, salt_size: usize, n: usize,
                tokens: *const i32) -> pkv_status;
            /// Waits for the prefetches of a prompt, and of prompts that are a prefix of it or
            /// begin with it, until all are done or cancelled. Statuses: UNSUPPORTED (the cache has
            /// no store), TOO_LARGE (salt). Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `salt`: The salt. NULL with size 0: none.
            /// - `salt_size`: Bytes of the salt.
            /// - `n`: The number of tokens in the prompt.
            /// - `tokens`: \[n\]: the token ids of the prompt.
            /// - `timeout_ms`: The longest time to wait, in milliseconds.
            /// - `cached`: The number of tokens of the prompt in memory now, in whole blocks.
            /// - `pending`: The number of these prefetches that are not done: 0, unless the time
            /// ran out. May be NULL.
            fn pkv_store_wait(cache: pkv_cache, salt: *const c_void, salt_size: usize, n: usize,
                tokens: *const i32, timeout_ms: u32, cached: *mut u64, pending: *mut u64) ->
                pkv_status;
            /// Cancels the prefetches that pkv_store_wait would wait for. Blocks of a read already
            /// in progress may still be added to the cache after this call; pkv_store_wait does not
            /// wait for them. Statuses: UNSUPPORTED (the cache has no store), TOO_LARGE (salt).
            /// Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `salt`: The salt. NULL with size 0: none.
            /// - `salt_size`: Bytes of the salt.
            /// - `n`: The number of tokens in the prompt.
            /// - `tokens`: \[n\]: the token ids of the prompt.
            fn pkv_store_cancel(cache: pkv_cache, salt: *const c_void, salt_size: usize, n: usize,
                tokens: *const i32) -> pkv_status;
            /// Waits until the blocks of sessions that ended before are written. pkv_cache_destroy
            /// does the same without a time limit, for as long as the store accepts items.
            /// Statuses: UNSUPPORTED (the cache has no store). Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `timeout_ms`: The longest time to wait, in milliseconds.
            /// - `queued`: The number of block positions that still wait to be written.
            fn pkv_store_flush(cache: pkv_cache, timeout_ms: u32, queued: *mut u64) -> pkv_status;
            /// Returns statistics of a cache's store. Statuses: UNSUPPORTED (the cache has no
            /// store). Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `out`: The statistics.
            fn pkv_store_get_stats(cache: pkv_cache, out: *mut pkv_store_stats) -> pkv_status;
            /// Opens a directory as a store. Deletes unfinished files of killed processes in it.
            /// Statuses: IO (the errno in the error message is EPERM if the directory belongs to
            /// another user or other users may write to it, ELOOP for a symbolic link). Since 0.1.
            ///
            /// - `config`: The config.
            /// - `out`: The store. Close it with out-\>close(out-\>user), unless a cache does.
            fn pkv_store_open_directory(config: *const pkv_directory_config, out: *mut pkv_store) ->
                pkv_status;
        }
    };
}
pub(crate) use for_each_function;
