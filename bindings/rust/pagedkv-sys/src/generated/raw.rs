//! The C interface of libpagedkv.
//!
//! Made by generate_raw.py from bindings/api/api.json: do not edit. Over 800 lines: generated.
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
/// sinks value: no sinks, though the layer's group has some.
pub const PKV_NO_SINKS: u32 = u32::MAX;
/// group of pkv_cache_compute_plan: all of them.
pub const PKV_ALL_GROUPS: u32 = u32::MAX;
/// Slot of a row that is padding: nothing is written or read for it.
pub const PKV_NO_SLOT: c_int = -1;
/// Stands in a block table for a block that was given back (it left a sliding window).
pub const PKV_NO_BLOCK: u32 = u32::MAX;
/// salt_size of pkv_prefix_get_stats and pkv_prefix_clear: every salt. Other functions take it for
/// the size that it is: INVALID_ARGUMENT (salt NULL) or TOO_LARGE.
pub const PKV_ALL_SALTS: usize = usize::MAX;
/// blocks of pkv_prefix_set_quota: what the config says.
pub const PKV_DEFAULT_QUOTA: u64 = u64::MAX;
/// Stands for a token whose id was never told.
pub const PKV_NO_TOKEN: i32 = -1;
/// after of pkv_session_set_return_hint: nothing is known (default).
pub const PKV_RETURN_UNKNOWN: c_int = 0;
/// after of pkv_session_set_return_hint: its text will not go on.
pub const PKV_RETURN_NEVER: u32 = u32::MAX;
/// Version of these headers. While the major version is 0 the interface may still change.
pub const PKV_VERSION_MAJOR: c_int = 0;
pub const PKV_VERSION_MINOR: c_int = 1;
pub const PKV_VERSION_PATCH: c_int = 0;

handle!(pkv_cache_t, pkv_cache);
handle!(pkv_compute_t, pkv_compute);
handle!(pkv_pool_t, pkv_pool);
handle!(pkv_session_t, pkv_session);
handle!(pkv_batch_t, pkv_batch);
handle!(pkv_snapshot_t, pkv_snapshot);

/// A reference to one block: the id in the low 32 bits, the generation of that id in the high 32. A
/// fresh pool gives one thread 0, 1, 2, ... When a block is freed its generation rises, so that a
/// stale reference is told from the block's next life.
pub type pkv_block = u64;

c_enum! {
    /// How a call ended: PKV_OK, or why it failed.
    pkv_status {
        /// The call has done what it was asked for.
        OK = 0,
        /// NULL, an unknown enum or flag, a bad struct_size, a zero size.
        INVALID_ARGUMENT = 100,
        /// An index, layer, token position or block id beyond the end.
        OUT_OF_RANGE = 101,
        /// Sizes whose product or sum no process could hold: 2^56 bytes.
        OVERFLOW = 102,
        /// The count that is needed is in the count pointer.
        BUFFER_TOO_SMALL = 103,
        /// The handle or block was closed, released or never given out.
        STALE_HANDLE = 104,
        /// A block was released more often than it was held.
        DOUBLE_FREE = 105,
        /// A session, batch or snapshot of another cache.
        WRONG_CACHE = 106,
        /// Another call or an open batch uses the object.
        BUSY = 107,
        /// A call from inside one of the caller's own hooks.
        REENTRANT = 108,
        /// A handle inherited by fork(): the child may only close it.
        FORKED = 109,
        /// A write to a block that is sealed.
        BLOCK_SEALED = 110,
        /// Not available for this storage kind, layout or processor.
        UNSUPPORTED = 111,
        /// A layer was not written yet in this step.
        INCOMPLETE = 112,
        /// The session is suspended: resume it first.
        SUSPENDED = 113,
        /// Not enough free blocks; the sentence says how many are short.
        OUT_OF_BLOCKS = 200,
        /// More than the whole cache could ever hold: refuse the request.
        TOO_LARGE = 201,
        /// The allocator refused.
        NO_MEMORY = 202,
        /// The reference count of a block is at its limit.
        REF_LIMIT = 203,
        /// Every slot of the block is taken.
        BLOCK_FULL = 204,
        /// Each session fits, but never all of the batch at once: begin fewer of them at a time.
        BATCH_TOO_LARGE = 205,
        /// Bytes are damaged, cut short, or authenticated with another key.
        CORRUPT = 300,
        /// A file has a format that this library does not know.
        VERSION = 301,
        /// A file has shapes, dtypes or a fingerprint other than the cache's.
        MISMATCH = 302,
        /// The operating system or a server refused; the sentence has its reason.
        IO = 400,
        /// An invariant of the library does not hold: please report it.
        INTERNAL = 500,
    }
}

c_enum! {
    /// Element types, in native byte order. F32, F16 and BF16 are the types of the rows that a
    /// caller passes and of stored keys and values; the others are only stored. Conversions round
    /// to nearest even. INT8 and INT4 get their scale when a row is stored, from that row alone:
    /// what was stored before never changes. With m the largest magnitude of a row (INT8) or of 32
    /// dims (INT4), elements are off by at most m / 254 (INT8) or m / 13.8 (INT4). A NaN or an
    /// infinity among them makes all of them NaN. Where m is below 1e-30 they are stored as 0.
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
        /// OCP E5M2 without a scale, up to 57344; larger finite numbers become that, infinities
        /// stay.
        FP8_E5M2 = 7,
    }
}

c_enum! {
    /// How serious a line of the log is.
    pkv_log_level {
        /// Something is wrong, or slower than it could be.
        WARNING = 1,
        /// Something normal: evictions begin, a store is back.
        INFO = 2,
    }
}

c_enum! {
    /// Where keys and values live. All kinds give the same results; comparing the first two shows
    /// what paging buys.
    pkv_storage {
        /// Fixed-size blocks of one slab, shared between sessions, copied on write (default).
        PAGED = 0,
        /// One growing tensor per session and layer; a fork or a snapshot copies.
        CONTIGUOUS = 1,
        /// Block ids only: the engine keeps the bytes; write, attend and read are UNSUPPORTED.
        NONE = 2,
    }
}

c_enum! {
    /// How the bytes of a paged cache are arranged.
    pkv_layout {
        /// Block-major, made for this library's kernels (default). A block holds
        /// \[layer\]\[tile\]\[kv head\]\[K tile | V tile\], with memory_directory \[layer\]\[kv
        /// head\]\[tile\]\[K tile | V tile\]; a tile is 16 tokens. With p = 2 for BF16, 4 for INT8,
        /// 8 for INT4 and 1 otherwise, element (token t, dim d) of a tile is at K: ((d / p) \* 16 +
        /// t) \* p + d % p V: ((t / p) \* value_dim + d) \* p + (t % p) / 2 + (t % 2) \* (p / 2) (p
        /// = 1: t \* value_dim + d) in units of an element (INT4: nibble i is in byte i / 2, the
        /// even one lower). After the elements come the scales, INT8 \[16 tokens\], INT4 \[ceil(dim
        /// / 32)\]\[16 tokens\]. A tile is padded to a multiple of 64 bytes.
        PACKED = 0,
        /// Layer-major, made for engines with kernels of their own: per layer one K tensor
        /// \[block\]\[block_size\]\[kv head\]\[key_dim\] and one V tensor
        /// \[block\]\[block_size\]\[kv head\]\[value_dim\]. Read them as block tensors, or
        /// token-flat as \[slot\]\[kv head\]\[dim\]. A row of INT8 or INT4 is its elements followed
        /// by its scales.
        PLAIN = 1,
    }
}

c_enum! {
    /// Instruction sets. On x86 each one includes those before it in this order: SSE2, AVX2,
    /// AVX512, AVX512_VNNI, AVX512_BF16, AMX. On Arm the order is NEON, NEON_DOT, NEON_BF16.
    pkv_isa {
        /// The fastest that this processor has.
        AUTO = 0,
        /// Plain C++.
        SCALAR = 1,
        /// Every x86-64 processor has it.
        SSE2 = 2,
        /// With FMA and F16C.
        AVX2 = 3,
        /// F, CD, DQ, BW, VL.
        AVX512 = 4,
        /// AVX512 with VNNI.
        AVX512_VNNI = 5,
        /// AVX512 with BF16 and VNNI.
        AVX512_BF16 = 6,
        /// AVX512_BF16 with AMX-TILE and AMX-BF16, where the system permits them. The permission,
        /// for which AUTO asks, too, makes the least size of signal stacks larger
        /// (guide/threads.md).
        AMX = 7,
        /// Every Arm64 processor has it.
        NEON = 8,
        /// NEON with DotProd.
        NEON_DOT = 9,
        /// NEON with DotProd, BF16 and I8MM.
        NEON_BF16 = 10,
    }
}

c_enum! {
    /// How rows of K and V are rotated before they are stored. Queries are rotated as K, and
    /// outputs back from V, so that callers see no rotation: scores stay the same, and a few large
    /// dims are spread over all others, which is what types of few bits need (guide/quality.md).
    /// The rotation is computed in fp32 and fused into write, attend and read. What is stored is
    /// rotated: blocks, files and items of stores. Reading rows back undoes it up to the rounding
    /// of fp32, also for types that otherwise return what was written. A NaN or an infinity spreads
    /// to all dims that are rotated together.
    pkv_rotation {
        /// Rows are stored as they are (default).
        NONE = 0,
        /// Each run of n dims, the largest power of two that divides the head dim, is multiplied by
        /// 1 / sqrt(n), by the signs of its dims, and by the n x n matrix of Hadamard
        /// (Sylvester's). The sign of dim d is minus where bit d of the fraction of pi is 1: the
        /// bits are those of 0x243F6A88 0x85A308D3 ..., the highest first. Of latent groups, V is
        /// rotated with the runs of K, and value_dim is a multiple of n.
        HADAMARD = 1,
        /// A row becomes row times matrix; the caller gives an orthogonal one for K, for V, or
        /// both.
        MATRIX = 2,
    }
}

c_enum! {
    /// What to ask of the operating system for the slab.
    pkv_huge_pages {
        /// Transparent huge pages where the system offers them (default).
        ADVISE = 0,
        /// Pages of the normal size.
        OFF = 1,
        /// Reserved 2 MiB pages (hugetlbfs) or PKV_NO_MEMORY.
        REQUIRE = 2,
    }
}

c_enum! {
    /// Which cached blocks that nobody uses are evicted first, the ends of texts before their
    /// beginnings.
    pkv_eviction {
        /// Those that earn the fewest hits for their room, as learned from when blocks like them
        /// return.
        LEARNED = 0,
        /// Those that were not used for longest.
        LRU = 1,
        /// Those matched least often since they were stored; among these, as LRU.
        LFU = 2,
    }
}

c_enum! {
    /// What the data of a pkv_mask are.
    pkv_mask_kind {
        /// uint64_t \[rows\]\[row_stride\]: bit j % 64 of word j / 64 says whether the row sees new
        /// token j of its own session. Of the new tokens, those are seen whose bit is set and which
        /// the window does not hide; what was there before the step is seen as without a mask.
        BITS = 1,
        /// int32_t \[rows\]: a tree of speculative tokens by the parent of each new token: its
        /// index among the new tokens of its session, lower than the token's own, or -1 for none. A
        /// new token sees itself, its ancestors and, as without a mask, what was there before the
        /// step.
        PARENTS = 2,
        /// uint8_t, for positions: 0 hides; any other byte shows what the causal rule and the
        /// window do not hide. The byte of query i of sequence s for column c is data\[s \*
        /// batch_stride + i \* row_stride + c\]; with first_rows (of pkv_attention_sequences, or
        /// pkv_batch_set_first_rows), i counts the rows of the padded batch. Positions before the
        /// first column are seen as without a mask.
        BYTES = 3,
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
    /// How long the prefix index keeps what a session leaves behind: all blocks of a lower
    /// retention are evicted before any of a higher one.
    pkv_retention {
        /// For a text that will hardly return: a batch job, an evaluation.
        LOW = -1,
        /// For a text like any other (default).
        NORMAL = 0,
        /// For a text that must stay fast, even if it comes seldom.
        HIGH = 1,
    }
}

c_enum! {
    /// What an index list of pkv_batch_get_kv_indices counts.
    pkv_index_unit {
        /// Ids of blocks.
        BLOCKS = 1,
        /// Slots: block id \* block size + offset in the block.
        SLOTS = 2,
    }
}

c_enum! {
    /// Where bytes come from or go to.
    pkv_stream_kind {
        /// A regular file by its path. Saving writes a new file in the same directory and gives it
        /// the name when it is complete and on disk (fsync of the file, rename, fsync of its
        /// directory): at every moment, and after a crash, the path has the old file or the new
        /// one. Only its owner, the effective user, can read and write a new file (mode 0600). One
        /// that replaces a file keeps the permissions of that file if nobody else can have put it
        /// there: it belongs to the effective user and has no second name (hard link), its
        /// directory belongs to that user or to root, and nobody else may write to that directory,
        /// or it is sticky. Set-id bits are never kept, access control lists neither. Permissions
        /// of other users are kept only together with the Unix group of the old file, and not where
        /// it had an access control list. A path that ends in a symbolic link, a directory, a FIFO,
        /// a socket or a device is refused (PKV_IO). Links before the last name are followed: the
        /// directory is the caller's choice, and whoever may write to it, or rename it, can replace
        /// or delete what was saved. A load does not ask whose a file is: only a key tells that
        /// nobody else wrote it. What a killed process leaves has no name on file systems with
        /// O_TMPFILE. Where it has, and for the moment of a rename, its name is ".pagedkv-", 16
        /// digits and ".tmp". Its writer holds a lock on it (flock), and later saves in the
        /// directory remove those of the effective user that nobody has locked. (On a network file
        /// system whose locks other machines do not see, save from one machine at a time.)
        PATH = 1,
        /// An open, blocking descriptor, from where it stands. It stays open, and what follows the
        /// file in it is left alone. A save that fails leaves what it has written.
        DESCRIPTOR = 2,
        /// The caller's memory.
        BUFFER = 3,
        /// The caller's functions. A load asks for no byte beyond the file.
        CALLBACKS = 4,
    }
}

c_enum! {
    /// What happened to a block position.
    pkv_prefix_event_kind {
        /// A match can end after it now.
        STORED = 1,
        /// It, or what a match that ends after it needs, made room.
        EVICTED = 2,
        /// It went because its salt's quota was full.
        EXPELLED = 3,
        /// It went by pkv_prefix_clear.
        CLEARED = 4,
    }
}

/// Rows in the caller's memory: element (row, head, dim) is at data\[row \* row_stride + head \*
/// head_stride + dim\]. Strides count elements; 0 means dense, \[rows\]\[heads\]\[dim\]. Any
/// alignment works. This struct is pinned: it will not grow. Functions that take rows of several
/// sequences take padded batches as well (in others batch_rows is 0). batch_rows is then the stride
/// from the first row of a sequence to that of the next, counted in rows: row i of sequence s is
/// row s \* batch_rows + i of the tensor. \[batch\]\[n\]\[heads\]\[dim\]   batch_rows n, the other
/// strides dense; \[batch\]\[heads\]\[n\]\[dim\]   batch_rows heads \* n, row_stride dim,
/// head_stride n \* dim.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_tensor {
    /// The caller's memory; only read where the parameter is \[in\].
    pub data: *mut c_void,
    /// F32, F16 or BF16.
    pub dtype: pkv_dtype,
    /// Rows per sequence of a padded batch; 0: they follow each other.
    pub batch_rows: u32,
    /// Elements from row to row; 0, or at least what one row holds.
    pub row_stride: i64,
    /// Elements from head to head; 0, or at least dim.
    pub head_stride: i64,
}

/// Memory supplied by the caller. Memory that is not aligned as asked goes back to free at once,
/// and the call returns PKV_NO_MEMORY.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_allocator {
    /// Returns size bytes at a multiple of alignment (a power of two), or NULL: PKV_NO_MEMORY.
    pub alloc: Option<unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void>,
    /// Takes memory back; size and alignment are those of its alloc.
    pub free: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize, usize)>,
    /// Passed to both functions.
    pub user: *mut c_void,
}

/// Receives what the library has to say. The library itself never prints.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_logger {
    /// Takes one line without a newline; the message is valid during the call.
    pub log: Option<unsafe extern "C" fn(*mut c_void, pkv_log_level, *const c_char)>,
    /// Passed to log.
    pub user: *mut c_void,
}

/// Threads supplied by the caller, in the place of the library's own. Results do not depend on how
/// tasks are spread over them. A runner that leaves a task out, asks for one twice (it runs once)
/// or for one that does not exist makes the call that used it return PKV_INVALID_ARGUMENT. What the
/// call was to write is undefined then, and a step in flight is as far as it was before.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_runner {
    /// Calls task(context, i, worker) once for every i in \[0, n), on any threads and in any order,
    /// and returns when all of them have returned. worker is below threads, and no two calls at
    /// once have the same worker. task does not throw.
    pub run: Option<unsafe extern "C" fn(*mut c_void, usize, Option<unsafe extern "C" fn(*mut
        c_void, usize, u32)>, *mut c_void)>,
    /// Passed to run.
    pub user: *mut c_void,
    /// How many workers there are; 1 or more.
    pub threads: u32,
    /// 0.
    pub reserved: u32,
}

/// Counts of one pool of blocks: of a pkv_pool, or of a layer group of a cache. blocks = free +
/// used + retired.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_pool_stats {
    /// sizeof(pkv_pool_stats): the caller sets it.
    pub struct_size: u32,
    /// Slots (tokens) per block.
    pub block_size: u32,
    /// Capacity in blocks; of a group with shared_memory the blocks of the pages that it has now.
    pub blocks: u64,
    /// Blocks that nobody holds.
    pub free: u64,
    /// Blocks with at least one reference.
    pub used: u64,
    /// The most blocks in use at once so far. With 4096 blocks or more it is an estimate where
    /// several threads took blocks at the same moment.
    pub used_peak: u64,
    /// Blocks with more than one reference.
    pub shared: u64,
    /// Blocks out of service because their generation ran out.
    pub retired: u64,
    /// References to all blocks.
    pub references: u64,
    /// Slots that hold a token; those of a shared block count once.
    pub slots_filled: u64,
}
sized!(pkv_pool_stats);

/// Counts of a cache over all layer groups. Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_cache_stats {
    /// sizeof(pkv_cache_stats): the caller sets it.
    pub struct_size: u32,
    /// Open sessions.
    pub sessions: u32,
    /// Open snapshots.
    pub snapshots: u32,
    /// Batches begun and neither committed nor aborted.
    pub batches: u32,
    /// Sessions suspended now.
    pub suspended_sessions: u64,
    /// Capacity in blocks, summed over groups; with shared_memory the blocks of the pages that
    /// groups have now.
    pub blocks: u64,
    /// Blocks that are free.
    pub free_blocks: u64,
    /// Blocks in use; a shared block counts once.
    pub used_blocks: u64,
    /// The most blocks in use at once so far.
    pub used_blocks_peak: u64,
    /// Used blocks that only the prefix index holds: begin takes them where free ones are short.
    pub evictable_blocks: u64,
    /// Committed tokens of all sessions; shared ones count in each.
    pub tokens: u64,
    /// Slots that hold a token, over all groups; shared ones count once.
    pub slots_filled: u64,
    /// Slots of blocks in use; slots_filled of them are utilized.
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
    /// Pages that belong to no group now.
    pub free_pages: u64,
}
sized!(pkv_cache_stats);

/// A group of layers with the same shape. A plain model is one group. Hybrid models have several,
/// for example one of full and one of sliding-window layers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_layer_group {
    /// sizeof(pkv_layer_group): the caller sets it.
    pub struct_size: u32,
    /// How many layers.
    pub layers: u32,
    /// \[layers\]: which layers of the model. NULL (default): those after the last of the previous
    /// group.
    pub layer_indices: *const u32,
    /// A multiple of kv_heads.
    pub query_heads: u32,
    /// KV heads of each layer, 1 or more.
    pub kv_heads: u32,
    /// Head dim of queries and keys; a multiple of 16, 16 to 576.
    pub key_dim: u32,
    /// Head dim of values and outputs; 0 (default): key_dim.
    pub value_dim: u32,
    /// Type of stored keys, and of values; 0 (default): PKV_F32.
    pub dtype: pkv_dtype,
    /// Type of stored values, if another one; 0 (default): dtype.
    pub value_dtype: pkv_dtype,
    /// A token sees itself and window - 1 tokens before it; 0 (default): all of them. Blocks that
    /// leave the window are given back one step late, so that what a trim to the length before the
    /// last step needs is still there. Where blocks are short, pkv_batch_begin and
    /// pkv_session_reserve give them back at once, so that a session needs no more than its window
    /// and its new tokens; neither an abort nor OUT_OF_BLOCKS restores them.
    pub window: u32,
    /// With a window: this many first tokens stay visible and in memory for ever (Xiao et al.
    /// 2023).
    pub sinks: u32,
    /// 1: V is the first value_dim dims of K and is stored once, with it (the absorbed form of
    /// MLA).
    pub latent: u32,
    /// How rows are rotated before they are stored. Default NONE.
    pub rotation: pkv_rotation,
    /// Rotation MATRIX: \[key_dim\]\[key_dim\], the matrix of K and of queries. Its rows have
    /// length 1 and are orthogonal to each other, to within 1e-4. NULL: K is not rotated. Other
    /// rotations: NULL.
    pub key_rotation: *const f32,
    /// Rotation MATRIX: \[value_dim\]\[value_dim\], the matrix of V and of outputs. NULL: V is not
    /// rotated, nor may it be in a latent group.
    pub value_rotation: *const f32,
    /// The layers keep a state of this many bytes each, in place of K and V (linear attention,
    /// state spaces, short convolutions); 0 (default): they keep K and V. With it heads, dims,
    /// dtypes, window, sinks and latent stay 0. A block holds one state of all layers. Not with
    /// storage CONTIGUOUS. See pkv_batch_get_states.
    pub state_bytes: u64,
    /// With states: a step that reaches past a multiple of this many tokens keeps the state there,
    /// for as long as the session has that token. A multiple of block_size; 0 (default): no such
    /// checkpoints.
    pub checkpoint_tokens: u32,
    /// With states: a step of at most this many new tokens of a session keeps the state after each
    /// of them until its commit, so that pkv_batch_accept can end at any; up to 256. Default 0.
    pub draft_tokens: u32,
    /// Blocks of this group; 0 (default): those of the config.
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
    /// The most block positions that are pinned at once (pkv_prefix_pin); 0 (default): a quarter of
    /// the blocks of the largest group.
    pub pinned_blocks: u64,
    /// The most block positions that are cached of one salt, unless pkv_prefix_set_quota says
    /// otherwise; 0 (default): no limit.
    pub salt_blocks: u64,
    /// How many events are kept for pkv_prefix_read_events, 40 bytes each; up to 2^24. Default 0.
    pub events: u32,
    /// Depth in tokens at which computing a token takes twice as long as at the beginning of a
    /// text, since it attends to all before it: about w / (2 l h) for a model of w weights (those
    /// used for a token) with l layers of h query heads times head dim. LEARNED then weighs a block
    /// by the time that its hit saves. 0 (default): all blocks weigh the same.
    pub doubling_depth: u32,
}
sized!(pkv_prefix_config);

/// What pkv_cache_create makes: the model, its memory, its threads, what is kept of ended sessions,
/// and the caller's hooks. What pointers lead to is copied; hooks themselves must outlive the
/// cache. A plain model is one group: pkv_layer_group model = {.struct_size = sizeof model, .layers
/// = 32, .query_heads = 32, .kv_heads = 8, .key_dim = 128}; pkv_cache_config config = {.struct_size
/// = sizeof config, .groups = &model , .blocks = 4096};
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_cache_config {
    /// sizeof(pkv_cache_config): the caller sets it.
    pub struct_size: u32,
    /// How many groups; 0 (default): 1.
    pub group_count: u32,
    /// \[group_count\]: groups, each of groups\[0\].struct_size bytes.
    pub groups: *const pkv_layer_group,
    /// Default PAGED.
    pub storage: pkv_storage,
    /// Default PACKED. Only storage PAGED has a layout.
    pub layout: pkv_layout,
    /// Tokens per block: a multiple of 16, 16 to 256; 0 (default): 16.
    pub block_size: u32,
    /// 1: the groups share memory_bytes, so that what one of them does not use another can. It is
    /// cut into pages, each of which has blocks of one group at a time (guide/shared_memory.md).
    /// Needs layout PACKED, and not storage CONTIGUOUS; no numbers of blocks are given. 0
    /// (default): each group has a pool of its own.
    pub shared_memory: u32,
    /// Capacity in blocks per group. Give this or memory_bytes.
    pub blocks: u64,
    /// Capacity in bytes of K and V: every group gets the same number of blocks, as many as fit;
    /// or, with shared_memory, as many as it needs at the time.
    pub memory_bytes: u64,
    /// Blocks of each group that only sessions which hold tokens may take. What begins (a first
    /// step, a resume, room reserved for an empty session) leaves this many free, so that running
    /// sessions can finish. A session that grew into them and was suspended cannot be resumed, even
    /// alone. Exact while one thread begins. Default 0.
    pub watermark: u32,
    /// Default ADVISE.
    pub huge_pages: pkv_huge_pages,
    /// 1: create touches all memory, in parallel, so that no later call meets a page fault. Default
    /// 0.
    pub prefault: u32,
    /// 0.
    pub reserved: u32,
    /// K and V, and states, live in a file in this directory, of which the system keeps in memory
    /// what it has room for: for texts that are larger than memory and read by chosen blocks
    /// (guide/slow_tier.md). Once mapped, the file has no name; it is the owner's alone, is not
    /// encrypted and ends with the cache. All of its room is taken at once; its device has to work,
    /// since an error later ends the process with SIGBUS or brings older bytes back. Neither
    /// children of fork() nor core dumps have this memory. Needs storage PAGED, and not huge_pages
    /// REQUIRE; ADVISE has no effect, and the allocator is not asked for it. Copied by the call.
    /// NULL: memory.
    pub memory_directory: *const c_char,
    /// How many, the caller's included, at most one per CPU; 0 (default): that many.
    pub threads: u32,
    /// AUTO (default): the best this CPU has. Another: that one or UNSUPPORTED.
    pub isa: pkv_isa,
    /// Keeps it for new sessions that begin alike; NULL (default): off. Not with storage
    /// CONTIGUOUS.
    pub prefix: *const pkv_prefix_config,
    /// Where blocks go when memory is short (store.h); NULL (default): nowhere. Needs storage PAGED
    /// and a prefix index.
    pub store: *const pkv_store_config,
    /// Memory for keys and values, pools, tokens and block tables; NULL (default): the system's.
    pub allocator: *const pkv_allocator,
    /// The caller's threads; threads must be 0 then. NULL: oneTBB's.
    pub runner: *const pkv_runner,
    /// Hears of what works, but worse than it should (guide/diagnose.md). NULL (default): silence.
    pub logger: *const pkv_logger,
}
sized!(pkv_cache_config);

/// Sizes of K and V, of one layer group or of all.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_cache_plan {
    /// sizeof(pkv_cache_plan): the caller sets it.
    pub struct_size: u32,
    /// How many groups these sizes are of.
    pub groups: u32,
    /// K and V of one token in all layers; states have none.
    pub bytes_per_token: u64,
    /// block_size times that, or a state of every layer.
    pub bytes_per_block: u64,
    /// Blocks, summed over groups; with shared_memory those that all of it would be, of each.
    pub blocks: u64,
    /// Tokens that fit: the smallest over groups with neither a window nor states (over all, if
    /// there is none).
    pub tokens: u64,
    /// Bytes of all K and V memory.
    pub total_bytes: u64,
    /// What the allocator's own tables take beside it.
    pub bookkeeping_bytes: u64,
}
sized!(pkv_cache_plan);

/// What a cache was made with, defaults filled in.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_cache_info {
    /// sizeof(pkv_cache_info): the caller sets it.
    pub struct_size: u32,
    /// Where K and V live.
    pub storage: pkv_storage,
    /// How the bytes of a block are arranged.
    pub layout: pkv_layout,
    /// Tokens per block.
    pub block_size: u32,
    /// How many layer groups.
    pub groups: u32,
    /// Over all groups.
    pub layers: u32,
    /// Threads that compute attention.
    pub threads: u32,
    /// The one whose kernels run.
    pub isa: pkv_isa,
}
sized!(pkv_cache_info);

/// What pkv_compute_create makes. Hooks must outlive the pkv_compute.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_compute_config {
    /// sizeof(pkv_compute_config): the caller sets it.
    pub struct_size: u32,
    /// How many, the caller's included, at most one per processor; 0 (default): that many.
    pub threads: u32,
    /// AUTO (default): the best this processor has. Another: that one or UNSUPPORTED.
    pub isa: pkv_isa,
    /// 0.
    pub reserved: u32,
    /// Working memory of calls; NULL (default): the system's.
    pub allocator: *const pkv_allocator,
    /// The caller's threads, with the priority and the processors that the caller gave them;
    /// threads must be 0 then. NULL (default): oneTBB's.
    pub runner: *const pkv_runner,
}
sized!(pkv_compute_config);

/// What a pkv_compute runs on.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_compute_info {
    /// sizeof(pkv_compute_info): the caller sets it.
    pub struct_size: u32,
    /// The caller's included.
    pub threads: u32,
    /// The one whose kernels run.
    pub isa: pkv_isa,
    /// 0.
    pub reserved: u32,
}
sized!(pkv_compute_info);

/// K and V of one layer in paged memory: a cache's (pkv_cache_get_kv_view) or the caller's own.
/// Strides count elements of the dtype; of INT8 and INT4, whose rows end in scales, bytes. Block b
/// begins at b \* block_stride. In it PLAIN   element (token t, head h, dim d) is at t \*
/// row_stride + h \* head_stride + d; PACKED  tile t / 16 begins at (t / 16) \* row_stride + h \*
/// head_stride; inside, see PKV_LAYOUT_PACKED. Where block_stride == block_size \* row_stride
/// (PLAIN) the same memory is token-flat: slot s begins at s \* row_stride.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_kv_view {
    /// sizeof(pkv_kv_view): the caller sets it.
    pub struct_size: u32,
    /// How the bytes of a block are arranged.
    pub layout: pkv_layout,
    /// Tokens per block. PACKED: a multiple of 16. PLAIN: 1 or more.
    pub block_size: u32,
    /// KV heads of this layer.
    pub kv_heads: u32,
    /// Dims of a row of K.
    pub key_dim: u32,
    /// Dims of a row of V.
    pub value_dim: u32,
    /// Type of K, and of V.
    pub dtype: pkv_dtype,
    /// Type of V, if another one; 0: dtype.
    pub value_dtype: pkv_dtype,
    /// Blocks that the memory holds; no id at or above this is followed.
    pub blocks: u64,
    /// Only pkv_kv_write and pkv_kv_write_slots write to it.
    pub k: *mut c_void,
    /// As k. NULL: V is the first value_dim dims of K.
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
    /// How the rows in the memory are rotated (cache.h); those of callers never are. 0: NONE.
    /// Kernels of the caller's have to rotate queries and outputs themselves.
    pub rotation: pkv_rotation,
    /// 0.
    pub reserved: u32,
    /// MATRIX: \[key_dim\]\[key_dim\]. It has to be orthogonal, which no call checks. NULL: none of
    /// K.
    pub key_rotation: *const f32,
    /// MATRIX: \[value_dim\]\[value_dim\]. NULL: none of V.
    pub value_rotation: *const f32,
}
sized!(pkv_kv_view);

/// A ragged set of sequences over one pkv_kv_view, described by the caller. Lists with an entry per
/// query have those of all sequences, one after the other, also where tensors are padded.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_attention_sequences {
    /// sizeof(pkv_attention_sequences): the caller sets it.
    pub struct_size: u32,
    /// A multiple of the view's kv_heads.
    pub query_heads: u32,
    /// How many sequences.
    pub count: u64,
    /// \[count\]: query rows of each sequence; they are its last positions.
    pub query_lengths: *const u32,
    /// \[count\]: positions of each sequence, the queries' own included; at least query_lengths, or
    /// with query_positions at least 1.
    pub kv_lengths: *const u64,
    /// \[count\]\[block_table_stride\]: block ids. Entries beyond kv_lengths, or before a window,
    /// are not read.
    pub block_tables: *const u32,
    /// Entries from one sequence's table to the next.
    pub block_table_stride: u64,
    /// \[count\]: the first row of each sequence: in a padded batch the rows before it are padding,
    /// in other tensors it counts from the beginning (as the list of cumulative lengths of a packed
    /// batch). NULL (default): 0 in a padded batch; else rows follow each other.
    pub first_rows: *const u32,
    /// \[queries\]: the position of each query, for the causal rule, windows and slopes, where it
    /// is not one of the last ones: queries over the text of another sequence, or the depths of a
    /// tree. In causal attention with a mask of new tokens (BITS or PARENTS), none may be before
    /// the last position before the step. NULL (default): the last ones.
    pub query_positions: *const i64,
}
sized!(pkv_attention_sequences);

/// Which positions each query sees, besides what the causal rule and the window say.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_mask {
    /// sizeof(pkv_mask): the caller sets it.
    pub struct_size: u32,
    /// What data is.
    pub kind: pkv_mask_kind,
    /// Only read.
    pub data: *const c_void,
    /// BITS: words per row, at most 2^26; 64 bits of each must reach the new tokens of every
    /// session. BYTES: bytes from row to row; 0: all queries of a sequence have the same row.
    /// PARENTS: 0.
    pub row_stride: i64,
    /// BYTES: bytes from sequence to sequence; 0: all have the same rows.
    pub batch_stride: i64,
    /// BYTES: they reach the last position of every sequence.
    pub columns: u64,
    /// BYTES: \[sequences\]: the position of column 0. A negative one is the number of first
    /// columns that stand for no position, such as padding on the left. NULL: 0.
    pub first_positions: *const i64,
}
sized!(pkv_mask);

/// Which blocks queries read, in place of all of them (guide/chosen_blocks.md). Each query reads,
/// for each KV head, the blocks that it chooses, the first and last ones, and those with tokens of
/// the step. Windows, sinks and masks hide what they hide anyway. Not with ALiBi, or positions that
/// the caller gives.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_chosen_blocks {
    /// sizeof(pkv_chosen_blocks): the caller sets it.
    pub struct_size: u32,
    /// How many blocks each query chooses for each KV head: those with the highest bounds (Tang et
    /// al. 2024), among those in which it sees a token. The bound of a block is the sum, over the
    /// query heads of the KV head and over the dims, of the larger of q \* min and q \* max of its
    /// keys. Needs a cache. 0: lists are given.
    pub top: u32,
    /// How many first blocks are read as well; 1 suits most models.
    pub first: u32,
    /// How many blocks before those of the step are read as well, likewise.
    pub last: u32,
    /// With top: 1: the new tokens of a session choose the same blocks, those with the highest sums
    /// of their bounds, and read them together: for trees of speculative tokens, say. 0 (default):
    /// each chooses its own.
    pub together: u32,
    /// 0.
    pub reserved: u32,
    /// \[rows\]\[kv_heads\]\[list_size\]: the blocks that each query reads for each KV head, in
    /// place of top: their indices in the block table, rising, PKV_NO_BLOCK after the last. Blocks
    /// that are read in any case may be among them. NULL: top is given.
    pub lists: *const u32,
    /// Indices per query and KV head.
    pub list_size: u64,
    /// Out, \[rows\]\[kv_heads\]\[top\]: what top chose, as lists, for another layer say. NULL
    /// (default): not wanted.
    pub chosen: *mut u32,
}
sized!(pkv_chosen_blocks);

/// The attention mass of each entry of a block table: the sum of the weights (after the softmax)
/// that the queries of the sequence give to the tokens of the block, 0 where they see none. A query
/// has the mass 1 to give, less what a sink logit takes. It takes one more reading of the keys. Not
/// for storage CONTIGUOUS, and not with chosen blocks.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_block_mass {
    /// sizeof(pkv_block_mass): the caller sets it.
    pub struct_size: u32,
    /// Only this many last new tokens of each session count; 0 (default): all.
    pub queries: u32,
    /// Out, \[sequences\]\[query_heads\]\[size\]: the masses. Entries beyond the blocks of a
    /// sequence, and those of one without queries, are left as they are.
    pub masses: *mut f32,
    /// Entries per query head: those of the longest sequence, or more.
    pub size: u64,
}
sized!(pkv_block_mass);

/// Which attention is computed. Variants combine freely. Lists of \[rows\] have the rows of all
/// sequences, one after the other, also where tensors are padded.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_attention_params {
    /// sizeof(pkv_attention_params): the caller sets it.
    pub struct_size: u32,
    /// Factor of the scores, finite; 0 (default): 1 / sqrt(key_dim).
    pub scale: f32,
    /// 0 (default): a query sees nothing after its position (causal). 1: its whole sequence.
    pub bidirectional: u32,
    /// A query sees its position and window - 1 before it. 0 (default): the window of the layer's
    /// group; all positions if it has none.
    pub window: u32,
    /// First positions that are seen whatever the window. 0 (default): those of the layer's group;
    /// PKV_NO_SINKS: none.
    pub sinks: u32,
    /// Bound of the scores, finite, not negative; 0 (default): none.
    pub softcap: f32,
    /// \[kv_heads\]: the window of each KV head, in place of `window`: the queries that use the
    /// head see only that far back. 0: that of the layer's group. NULL (default): `window`.
    pub head_windows: *const u32,
    /// \[kv_heads\]: the sinks of each KV head, in place of `sinks`. NULL (default): `sinks`.
    pub head_sinks: *const u32,
    /// \[query_heads\]: slopes of ALiBi. NULL (default): none.
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
    /// Out, \[rows\]\[query_heads\]: log of the sum of exp(score), sink_logits included. Where
    /// nothing was seen, it has the sink_logits alone, or is -infinity without them. NULL
    /// (default): not wanted.
    pub lse: *mut f32,
}
sized!(pkv_attention_params);

/// What pkv_pool_create makes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_pool_config {
    /// sizeof(pkv_pool_config): the caller sets it.
    pub struct_size: u32,
    /// How many blocks; 1 to 2^31 - 1. No default.
    pub blocks: u32,
    /// Slots (tokens) per block; 1 to 256; 0 (default): 16.
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
    /// How often this id has been freed.
    pub generation: u32,
    /// 0: free.
    pub references: u32,
    /// Slots claimed, 0 to block_size.
    pub filled: u32,
    /// 1: read only.
    pub sealed: u32,
}
sized!(pkv_block_state);

/// What a session has from its beginning.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_session_config {
    /// sizeof(pkv_session_config): the caller sets it.
    pub struct_size: u32,
    /// pkv_batch_choose_victims chooses higher ones last. Default 0.
    pub priority: i32,
    /// Default SHARE.
    pub prefix: pkv_prefix_use,
    /// Of blocks that it uses and stores; the highest of all users counts.
    pub retention: pkv_retention,
    /// salt_size bytes, copied: only sessions with the same salt share prefixes. NULL (default):
    /// none.
    pub salt: *const c_void,
    /// Up to 256.
    pub salt_size: u64,
}
sized!(pkv_session_config);

/// What a session holds now.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_session_info {
    /// sizeof(pkv_session_info): the caller sets it.
    pub struct_size: u32,
    /// That of the session's config, or set since.
    pub priority: i32,
    /// 1: between pkv_session_suspend and pkv_session_resume.
    pub suspended: u32,
    /// 0.
    pub reserved: u32,
    /// Committed tokens.
    pub length: u64,
    /// With remembered ones that are to be computed again.
    pub total: u64,
    /// Blocks held, over all groups, reserved ones too.
    pub blocks: u64,
    /// Of these, held by nobody else: a suspend or a close frees them.
    pub exclusive_blocks: u64,
}
sized!(pkv_session_info);

/// One stream. Only the fields of its kind are looked at.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_stream {
    /// sizeof(pkv_stream): the caller sets it.
    pub struct_size: u32,
    /// Where the bytes come from or go to.
    pub kind: pkv_stream_kind,
    /// PATH: the file.
    pub path: *const c_char,
    /// DESCRIPTOR: the descriptor.
    pub descriptor: i32,
    /// 0.
    pub reserved: u32,
    /// BUFFER: the memory; a save writes it, others only read it.
    pub data: *mut c_void,
    /// BUFFER: its bytes; of a load, just those of the file.
    pub size: u64,
    /// CALLBACKS: moves up to n bytes to the library; returns how many, or a negative errno. 0 ends
    /// the file. A hook: see common.h.
    pub read: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, u64) -> i64>,
    /// CALLBACKS: takes up to n bytes from the library; returns how many, or a negative errno. 0 is
    /// an error. A hook: see common.h.
    pub write: Option<unsafe extern "C" fn(*mut c_void, *const c_void, u64) -> i64>,
    /// CALLBACKS: passed to both functions.
    pub user: *mut c_void,
}
sized!(pkv_stream);

/// What goes with saving and with loading.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_file_config {
    /// sizeof(pkv_file_config): the caller sets it.
    pub struct_size: u32,
    /// 1: with the prefix index, as far as the cache has one. Default 0.
    pub prefix_index: u32,
    /// Loading into a cache with a prefix index: 1 takes salts from a file without a key. Default
    /// 0: such a file is a MISMATCH if it has texts under a salt, since whoever can write it
    /// chooses to which tenant's index they go. Texts without a salt are taken either way: load no
    /// file that others can write without a key. Saving does not look at it.
    pub trust_salts: u32,
    /// Saving to PATH: 0 (default) waits for the disk. With 1 a power cut may lose the old file and
    /// the new one; a killed process loses neither.
    pub skip_fsync: u32,
    /// Names the model (a hash of its weights, say); a file with another one is a MISMATCH. NULL:
    /// none.
    pub fingerprint: *const c_void,
    /// Its bytes, up to 64.
    pub fingerprint_size: u64,
    /// Secret bytes that encrypt and authenticate the file. NULL: checksums, which tell accidents
    /// only.
    pub key: *const c_void,
    /// Its bytes, 16 to 64.
    pub key_size: u64,
}
sized!(pkv_file_config);

/// One sequence to save: a session or a snapshot. This struct is pinned: it will not grow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_file_item {
    /// NULL where there is a snapshot.
    pub session: pkv_session,
    /// NULL where there is a session.
    pub snapshot: pkv_snapshot,
    /// The caller's name for it, which pkv_file_load gives back.
    pub label: u64,
}

/// What a file says of itself.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_file_info {
    /// sizeof(pkv_file_info): the caller sets it.
    pub struct_size: u32,
    /// Version of the format: 1 without a key, 2 with one.
    pub version: u32,
    /// Size of the file.
    pub bytes: u64,
    /// Of these, keys and values.
    pub kv_bytes: u64,
    /// Sequences.
    pub sessions: u64,
    /// Tokens of all sequences; shared ones count in each.
    pub tokens: u64,
    /// Positions whose K and V are stored; shared ones count once.
    pub stored_tokens: u64,
    /// Texts of the prefix index.
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
    /// What the saver named the model by.
    pub fingerprint: [u8; 64],
}
sized!(pkv_file_info);

/// Figures of one salt's share of the index, or of all of it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_prefix_stats {
    /// sizeof(pkv_prefix_stats): the caller sets it.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// Calls of pkv_session_match_prefix, and resumes.
    pub matches: u64,
    /// Tokens asked for.
    pub asked_tokens: u64,
    /// Tokens found.
    pub matched_tokens: u64,
    /// Whole block positions found.
    pub matched_blocks: u64,
    /// Block positions stored so far.
    pub published_blocks: u64,
    /// Block positions removed so far because memory was needed.
    pub evicted_blocks: u64,
    /// Block positions removed so far because their salt's quota was full.
    pub expelled_blocks: u64,
    /// Block positions removed so far by pkv_prefix_clear.
    pub cleared_blocks: u64,
    /// Block positions stored now.
    pub cached_blocks: u64,
    /// Of these, used by nobody and not pinned.
    pub evictable_blocks: u64,
    /// Of these, pinned.
    pub pinned_blocks: u64,
}
sized!(pkv_prefix_stats);

/// What happened to one block position. A match of a text ends after the last of its positions that
/// were stored and have not gone. Without windows a position is stored after the one that precedes
/// it, and goes before it; where a group has a window, positions before it may have gone. This
/// struct is pinned: it will not grow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_prefix_event {
    /// Counts from 0.
    pub number: u64,
    /// Hash of the block and all before it: see pkv_prefix_hash_blocks.
    pub hash: u64,
    /// Hash of the block before it; of the first block, hash of the salt.
    pub parent: u64,
    /// Position of its first token.
    pub position: u64,
    /// What happened.
    pub kind: pkv_prefix_event_kind,
    /// 0.
    pub reserved: u32,
}

/// One block of one layer group, as a store keeps it. This struct is pinned: it will not grow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_store_item {
    /// Its name.
    pub key: [u8; 32],
    /// put: size bytes to store, only read. get: room for size bytes. probe and drop: NULL.
    pub data: *mut c_void,
    /// get and probe set it to the bytes under the key, 0 for none; get copies as many as have
    /// room.
    pub size: u64,
}

/// A store: functions that a cache calls, one call at a time from each of its two threads (put from
/// one, the others from both). They are hooks: see common.h. put, get, probe and drop return how
/// many of the n items they stored, found or dropped, or a negative errno where the store cannot be
/// reached; then the cache leaves it alone for a while.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_store {
    /// sizeof(pkv_store): the caller sets it.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// Passed to all functions.
    pub user: *mut c_void,
    /// Stores items; one that is there already may be left as it is. Items may be lost at any time.
    pub put: Option<unsafe extern "C" fn(*mut c_void, usize, *const pkv_store_item) -> i64>,
    /// Reads items.
    pub get: Option<unsafe extern "C" fn(*mut c_void, usize, *mut pkv_store_item) -> i64>,
    /// Sets the sizes of items as get does, without their bytes.
    pub probe: Option<unsafe extern "C" fn(*mut c_void, usize, *mut pkv_store_item) -> i64>,
    /// Forgets items: what they held was not what had been put.
    pub drop: Option<unsafe extern "C" fn(*mut c_void, usize, *const pkv_store_item) -> i64>,
    /// Closes the store; no call follows.
    pub close: Option<unsafe extern "C" fn(*mut c_void)>,
}
sized!(pkv_store);

/// The tier of a cache: give it to pkv_cache_config.store. Only storage PAGED with a prefix index
/// has one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_store_config {
    /// sizeof(pkv_store_config): the caller sets it.
    pub struct_size: u32,
    /// How long pkv_session_match_prefix and pkv_session_resume wait for what the store has of
    /// their text. Default 0: they take what is in memory.
    pub wait_ms: u32,
    /// Copied. pkv_cache_destroy closes it; if pkv_cache_create fails, it is still the caller's.
    pub store: *const pkv_store,
    /// Names the model (a hash of its weights, say). NULL: none.
    pub fingerprint: *const c_void,
    /// Its bytes, up to 64.
    pub fingerprint_size: u64,
    /// Secret bytes that encrypt and authenticate what is stored. NULL: checksums only.
    pub key: *const c_void,
    /// Its bytes, 16 to 64.
    pub key_size: u64,
    /// Memory of each of the two threads for bytes on their way; 0 (default): 4 MiB. At least one
    /// block, at most as many as the cache has.
    pub buffer_bytes: u64,
    /// The most block positions that wait to be written; what ends while so many wait is not
    /// written. 0 (default): a quarter of the blocks.
    pub queue_blocks: u64,
}
sized!(pkv_store_config);

/// What a tier has done so far. An item is a block of one layer group.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_store_stats {
    /// sizeof(pkv_store_stats): the caller sets it.
    pub struct_size: u32,
    /// 1: the store failed lately and is left alone for a while.
    pub down: u32,
    /// Block positions that wait to be written.
    pub queued_blocks: u64,
    /// Block positions not written: the queue was full, memory was needed, or the store failed.
    pub dropped_blocks: u64,
    /// Items that the store took.
    pub written_items: u64,
    /// Bytes of these items.
    pub written_bytes: u64,
    /// Items not written because the store had them already.
    pub known_items: u64,
    /// Items that were looked for in the store.
    pub asked_items: u64,
    /// Items that the store gave back.
    pub read_items: u64,
    /// Bytes of these items.
    pub read_bytes: u64,
    /// Items that were not as they had been put: misses.
    pub corrupt_items: u64,
    /// Calls that the store failed.
    pub failures: u64,
}
sized!(pkv_store_stats);

/// A directory of files, one for each item. It survives restarts, and several processes of one user
/// may use it at once. The files belong to that user, and nobody else may read them (mode 0600).
/// The directory must belong to the effective user, and no other user may write to it, not even
/// where it is sticky; the same holds for the 256 folders that the store makes in it. A symbolic
/// link is not followed, neither to the directory nor inside it. Only what the store itself makes
/// is read, counted and deleted: in folders named 00 to ff, regular files of that user that are
/// named by 62 hexadecimal digits and ".kv", and temporary files (see file.h). Whatever else is
/// there is left alone; where it takes the place of a folder or a file of the store, what belongs
/// there cannot be stored.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_directory_config {
    /// sizeof(pkv_directory_config): the caller sets it.
    pub struct_size: u32,
    /// 1: put returns when its files are on disk. Default 0: after a power cut some are missing or
    /// empty, which are misses.
    pub durable: u32,
    /// Made if it is not there, with mode 0700; the directory above it must be there. In a
    /// directory of another user, name a new one.
    pub path: *const c_char,
    /// Bytes of all files; beyond that, those that were not used for longest are deleted. 0
    /// (default): no limit. Temporary files that are being written count; those that killed
    /// processes left go first.
    pub capacity_bytes: u64,
}
sized!(pkv_directory_config);

/// Hands the list of all functions to a macro: linked and opened at run time they are
/// the same ones.
macro_rules! for_each_function {
    ($use:ident) => {
        $use! {
            /// Gives the name of a status, "PKV_OUT_OF_BLOCKS". Any thread. Static storage. Since
            /// 0.1.
            ///
            /// - `status`: The status; for an unknown value the name is "PKV_UNKNOWN_STATUS".
            fn pkv_status_string(status: pkv_status) -> *const c_char;
            /// Tells in one sentence, with its numbers, why the last failed call on this thread
            /// failed: "begin needs 12 blocks in group 0, 3 are free (9 short)". Never NULL; ""
            /// when nothing failed yet. Calls that succeed leave the sentence alone. The text
            /// belongs to the library and stays valid until the next failing call on the same
            /// thread. Since 0.1.
            fn pkv_last_error() -> *const c_char;
            /// Tells what a cache of this config would take; allocates nothing. Statuses:
            /// INVALID_ARGUMENT, OUT_OF_RANGE, OVERFLOW, TOO_LARGE, UNSUPPORTED (isa; an index or a
            /// store that the storage cannot have). Since 0.1.
            ///
            /// - `config`: The config.
            /// - `group`: The index of one group, or PKV_ALL_GROUPS.
            /// - `out`: The sizes.
            fn pkv_cache_compute_plan(config: *const pkv_cache_config, group: u32, out: *mut
                pkv_cache_plan) -> pkv_status;
            /// Makes a cache. Memory is reserved now; it is touched as blocks are first used,
            /// unless prefault is set. Statuses: INVALID_ARGUMENT, OUT_OF_RANGE (layer_indices),
            /// OVERFLOW, TOO_LARGE, NO_MEMORY, UNSUPPORTED (as pkv_cache_compute_plan), IO
            /// (memory_directory). Since 0.1.
            ///
            /// - `config`: The config.
            /// - `out`: The cache, to be destroyed by pkv_cache_destroy.
            fn pkv_cache_create(config: *const pkv_cache_config, out: *mut pkv_cache) -> pkv_status;
            /// Closes a cache with its sessions, batches and snapshots: their handles are stale
            /// from now on. Statuses: STALE_HANDLE, BUSY. Since 0.1.
            ///
            /// - `cache`: The cache. NULL is OK.
            fn pkv_cache_destroy(cache: pkv_cache) -> pkv_status;
            /// Tells what a cache was made with. Statuses: none of its own. Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `out`: The answer.
            fn pkv_cache_get_info(cache: pkv_cache, out: *mut pkv_cache_info) -> pkv_status;
            /// Tells the counts of a cache over all groups. Exact while no other thread uses the
            /// cache. Statuses: none of its own. Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `out`: The counts.
            fn pkv_cache_get_stats(cache: pkv_cache, out: *mut pkv_cache_stats) -> pkv_status;
            /// Tells the counts of the pool of one group. Statuses: OUT_OF_RANGE. Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `group`: The index of the group.
            /// - `out`: The counts.
            fn pkv_cache_get_pool_stats(cache: pkv_cache, group: u32, out: *mut pkv_pool_stats) ->
                pkv_status;
            /// Writes the figures of a cache as text in the exposition format of Prometheus, ready
            /// to be served: gauges of blocks by group and state, of memory and of open objects;
            /// counters of tokens, steps, suspensions, copies and of the prefix index (over all
            /// salts). Statuses: BUFFER_TOO_SMALL. Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `capacity`: Bytes that text has room for. The text grows while others use the
            /// cache: leave some room.
            /// - `text`: \[capacity\]: the text with a final NUL. May be NULL if capacity is 0.
            /// - `size`: Bytes of the text with its NUL; written on PKV_OK and on BUFFER_TOO_SMALL.
            fn pkv_cache_format_metrics(cache: pkv_cache, capacity: usize, text: *mut c_char, size:
                *mut usize) -> pkv_status;
            /// Checks every invariant: those of the pools, and that the references of all sessions,
            /// snapshots and batches are just those that the pools count. Call it while no other
            /// thread uses the cache. Statuses: INTERNAL (the sentence has what does not hold).
            /// Since 0.1.
            ///
            /// - `cache`: The cache.
            fn pkv_cache_validate(cache: pkv_cache) -> pkv_status;
            /// Tells whether this build has kernels for an instruction set and this processor can
            /// run them. Statuses: INVALID_ARGUMENT. Since 0.1.
            ///
            /// - `isa`: The instruction set. AUTO is always there.
            /// - `out`: 1 if so, else 0.
            fn pkv_isa_supported(isa: pkv_isa, out: *mut i32) -> pkv_status;
            /// Gives the name of an instruction set, "avx512". Static storage. Since 0.1.
            ///
            /// - `isa`: The instruction set; for an unknown value the name is "unknown".
            fn pkv_isa_name(isa: pkv_isa) -> *const c_char;
            /// Makes a pkv_compute. Statuses: INVALID_ARGUMENT, UNSUPPORTED (isa), NO_MEMORY. Since
            /// 0.1.
            ///
            /// - `config`: The config. NULL: defaults.
            /// - `out`: The pkv_compute, to be destroyed by pkv_compute_destroy.
            fn pkv_compute_create(config: *const pkv_compute_config, out: *mut pkv_compute) ->
                pkv_status;
            /// Ends the threads of a pkv_compute and gives back its working memory. Statuses:
            /// STALE_HANDLE, BUSY. Since 0.1.
            ///
            /// - `compute`: The pkv_compute. NULL is OK.
            fn pkv_compute_destroy(compute: pkv_compute) -> pkv_status;
            /// Tells what a pkv_compute runs on. Statuses: none of its own. Since 0.1.
            ///
            /// - `compute`: The pkv_compute. NULL: the process's default.
            /// - `out`: The answer.
            fn pkv_compute_get_info(compute: pkv_compute, out: *mut pkv_compute_info) -> pkv_status;
            /// Gives the OpenMP threads of the process as a runner: those that a host's own matrix
            /// products run on, such as PyTorch's. A call then wakes no threads beside them, and
            /// has their number and the processors that they are bound to. For the config of a
            /// pkv_compute or a cache. libgomp, libomp and libiomp5 will do. The library is looked
            /// up among the symbols that all of the process sees: where it was loaded with another
            /// one, before it or by RTLD_GLOBAL. A forked child whose parent computed on them has
            /// no such threads: there the calling thread does all tasks. Statuses: UNSUPPORTED (the
            /// process has loaded no OpenMP library). Since 0.1.
            ///
            /// - `out`: The runner. Its threads are as many as omp_get_max_threads() tells now.
            fn pkv_openmp_runner(out: *mut pkv_runner) -> pkv_status;
            /// Tells where one layer of a paged cache is in memory, for engines with kernels of
            /// their own. Read only. The addresses stay valid as long as the cache;
            /// pkv_session_get_block_table tells which blocks hold what. Statuses: OUT_OF_RANGE
            /// (layer), UNSUPPORTED (not PAGED). Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `layer`: The layer of the model.
            /// - `out`: The view.
            fn pkv_cache_get_kv_view(cache: pkv_cache, layer: u32, out: *mut pkv_kv_view) ->
                pkv_status;
            /// Lays out K and V of one layer in a run of memory of the caller's, as a cache of the
            /// same layout has them: fills in the strides of a view and tells its size. Allocates
            /// and touches nothing. Statuses: INVALID_ARGUMENT, OVERFLOW. Since 0.1.
            ///
            /// - `kv`: Filled in by the caller: layout, block_size, kv_heads, key_dim, value_dim
            /// (0: key_dim), dtype, value_dtype, blocks, rotation and its matrices. Filled in by
            /// the call: the rest.
            /// - `latent`: 1: V is the first value_dim dims of K; 0: it has memory of its own.
            /// - `memory`: Where K and V are to lie, best at a multiple of 64; this call does not
            /// touch it. NULL: only the strides and the size are wanted; k and v become NULL.
            /// - `bytes`: The size of K and V.
            fn pkv_kv_view_plan(kv: *mut pkv_kv_view, latent: u32, memory: *mut c_void, bytes: *mut
                u64) -> pkv_status;
            /// Stores rows of K and V in memory of the caller's, converted, quantised and packed as
            /// a cache stores them. Any thread. Slot s is in block s / block_size, at s %
            /// block_size. Of several rows with the same slot the last one stays. Memory of slots
            /// that are not in the list does not change. Statuses: INVALID_ARGUMENT, OUT_OF_RANGE
            /// (a slot), OVERFLOW, NO_MEMORY. Since 0.1.
            ///
            /// - `compute`: What it runs on. NULL: all processors.
            /// - `kv`: The memory of K and V. Its slots may not overlap.
            /// - `rows`: How many rows.
            /// - `slots`: \[rows\]: a slot for each row, or PKV_NO_SLOT.
            /// - `k`: Keys, \[rows\]\[kv_heads\]\[key_dim\].
            /// - `v`: Values, \[rows\]\[kv_heads\]\[value_dim\]. NULL if V is in the dims of K.
            fn pkv_kv_write_slots(compute: pkv_compute, kv: *const pkv_kv_view, rows: usize, slots:
                *const i64, k: *const pkv_tensor, v: *const pkv_tensor) -> pkv_status;
            /// Copies K and V of some slots to dense rows, converted to their dtype. Any thread.
            /// Statuses: INVALID_ARGUMENT, OUT_OF_RANGE (a slot), OVERFLOW, NO_MEMORY. Since 0.1.
            ///
            /// - `compute`: What it runs on. NULL: all processors.
            /// - `kv`: The memory of K and V.
            /// - `rows`: How many rows.
            /// - `slots`: \[rows\]: a slot for each row, or PKV_NO_SLOT: the row stays as it is.
            /// - `k`: Keys, \[rows\]\[kv_heads\]\[key_dim\]. NULL: not wanted.
            /// - `v`: Values, \[rows\]\[kv_heads\]\[value_dim\]. NULL: not wanted.
            fn pkv_kv_read_slots(compute: pkv_compute, kv: *const pkv_kv_view, rows: usize, slots:
                *const i64, k: *const pkv_tensor, v: *const pkv_tensor) -> pkv_status;
            /// Stores rows of K and V of the queries' own positions, as pkv_kv_write_slots. Any
            /// thread. Statuses: INVALID_ARGUMENT, OUT_OF_RANGE (a block id, a length or a
            /// position), OVERFLOW, NO_MEMORY. Since 0.1.
            ///
            /// - `compute`: What it runs on. NULL: all processors.
            /// - `kv`: The memory of K and V. Its slots may not overlap.
            /// - `sequences`: The sequences. Row i of a sequence goes to its position
            /// query_positions\[i\], or to the last ones in order.
            /// - `k`: Keys, \[queries\]\[kv_heads\]\[key_dim\].
            /// - `v`: Values, \[queries\]\[kv_heads\]\[value_dim\]. NULL if V is in the dims of K.
            fn pkv_kv_write(compute: pkv_compute, kv: *const pkv_kv_view, sequences: *const
                pkv_attention_sequences, k: *const pkv_tensor, v: *const pkv_tensor) -> pkv_status;
            /// Computes attention without a cache: over a view and block tables that the caller
            /// owns. Any thread. Statuses: INVALID_ARGUMENT, OUT_OF_RANGE (a block id or a length),
            /// UNSUPPORTED (top), OVERFLOW, NO_MEMORY. Since 0.1.
            ///
            /// - `compute`: What it runs on. NULL: all processors.
            /// - `kv`: The memory of K and V.
            /// - `sequences`: The sequences; rows of q and out are theirs, one after the other or
            /// in a padded batch.
            /// - `params`: Which attention. NULL: defaults.
            /// - `q`: Queries, \[sum of query_lengths\]\[query_heads\]\[key_dim\].
            /// - `out`: Results, \[sum of query_lengths\]\[query_heads\]\[value_dim\].
            fn pkv_attention(compute: pkv_compute, kv: *const pkv_kv_view, sequences: *const
                pkv_attention_sequences, params: *const pkv_attention_params, q: *const pkv_tensor,
                out: *const pkv_tensor) -> pkv_status;
            /// Combines the results of several attention calls over the same queries and different
            /// positions: merged = sum_i exp(lse\[i\]) outs\[i\] / sum_i exp(lse\[i\]). Any thread.
            /// Sink logits belong into one of the calls only. Statuses: INVALID_ARGUMENT,
            /// OUT_OF_RANGE, OVERFLOW, NO_MEMORY. Since 0.1.
            ///
            /// - `compute`: Whose instruction set it uses, on the calling thread. NULL: the best.
            /// - `count`: How many results.
            /// - `outs`: \[count\]: results, each \[rows\]\[heads\]\[dim\].
            /// - `lse`: \[count\]: their lse, each \[rows\]\[heads\]. A result with -infinity
            /// counts for nothing, and so does one with +infinity, which FlashAttention 2 gives
            /// where nothing was seen. If none counts, the merged result is 0 and its lse
            /// -infinity. NaN makes both NaN.
            /// - `rows`: Rows of each result.
            /// - `heads`: Query heads.
            /// - `dim`: Head dim of the results.
            /// - `merged`: The merged result, \[rows\]\[heads\]\[dim\].
            /// - `merged_lse`: Its lse, \[rows\]\[heads\]. May be NULL.
            fn pkv_attention_merge(compute: pkv_compute, count: usize, outs: *const pkv_tensor, lse:
                *const *const f32, rows: usize, heads: u32, dim: u32, merged: *const pkv_tensor,
                merged_lse: *mut f32) -> pkv_status;
            /// Makes a pool with every block free. Statuses: INVALID_ARGUMENT, TOO_LARGE,
            /// NO_MEMORY. Since 0.1.
            ///
            /// - `config`: How many blocks, and of what size.
            /// - `out`: The pool, to be destroyed by pkv_pool_destroy.
            fn pkv_pool_create(config: *const pkv_pool_config, out: *mut pkv_pool) -> pkv_status;
            /// Frees a pool; its blocks become stale. Statuses: STALE_HANDLE, BUSY (a call is under
            /// way). Since 0.1.
            ///
            /// - `pool`: The pool. NULL is OK.
            fn pkv_pool_destroy(pool: pkv_pool) -> pkv_status;
            /// Takes n blocks, all or none, each with one reference, no slot filled, not sealed.
            /// The lowest free ids near the caller's last one come first. Statuses: OUT_OF_BLOCKS
            /// (nothing is taken), TOO_LARGE (n exceeds the pool). Since 0.1.
            ///
            /// - `pool`: The pool.
            /// - `n`: How many blocks; 0 is OK.
            /// - `blocks`: \[n\]: the blocks.
            fn pkv_pool_alloc(pool: pkv_pool, n: usize, blocks: *mut pkv_block) -> pkv_status;
            /// Adds one reference to each of n blocks, to all or to none. Statuses: OUT_OF_RANGE
            /// (no such id), STALE_HANDLE (freed since), REF_LIMIT. Since 0.1.
            ///
            /// - `pool`: The pool.
            /// - `n`: How many entries the list has.
            /// - `blocks`: \[n\]: the blocks. One may stand in the list more than once.
            fn pkv_pool_retain(pool: pkv_pool, n: usize, blocks: *const pkv_block) -> pkv_status;
            /// Drops one reference of each of n blocks. A block whose last reference goes is free,
            /// its slots empty. Statuses: OUT_OF_RANGE, DOUBLE_FREE (already free, freed and given
            /// out again, or twice in the list), NO_MEMORY (lists of more than 64 blocks need
            /// scratch). Since 0.1.
            ///
            /// - `pool`: The pool.
            /// - `n`: How many entries the list has.
            /// - `blocks`: \[n\]: the blocks, each once. All are checked before anything is
            /// released.
            fn pkv_pool_release(pool: pkv_pool, n: usize, blocks: *const pkv_block) -> pkv_status;
            /// Claims the next n free slots of a block for writing. Only the owner of a block that
            /// nobody shares writes to it. Statuses: OUT_OF_RANGE, STALE_HANDLE, BLOCK_SEALED,
            /// BLOCK_FULL (fewer than n slots are left), BUSY (shared). Since 0.1.
            ///
            /// - `pool`: The pool.
            /// - `block`: The block.
            /// - `n`: How many slots.
            /// - `offset`: The offset in the block of the first slot.
            fn pkv_pool_claim(pool: pkv_pool, block: pkv_block, n: u32, offset: *mut u32) ->
                pkv_status;
            /// Makes a block read-only until it is freed or reset. Sealing twice is OK. Statuses:
            /// OUT_OF_RANGE, STALE_HANDLE. Since 0.1.
            ///
            /// - `pool`: The pool.
            /// - `block`: The block.
            fn pkv_pool_seal(pool: pkv_pool, block: pkv_block) -> pkv_status;
            /// Empties and unseals a block that only the caller holds. Statuses: OUT_OF_RANGE,
            /// STALE_HANDLE, BUSY (shared). Since 0.1.
            ///
            /// - `pool`: The pool.
            /// - `block`: The block.
            fn pkv_pool_reset(pool: pkv_pool, block: pkv_block) -> pkv_status;
            /// Tells the state of a block now, free or not. Statuses: OUT_OF_RANGE. Since 0.1.
            ///
            /// - `pool`: The pool.
            /// - `id`: The block id.
            /// - `out`: The state.
            fn pkv_pool_get_block_state(pool: pkv_pool, id: u32, out: *mut pkv_block_state) ->
                pkv_status;
            /// Tells the counts of a pool; exact while no other call is under way. Statuses: none
            /// of its own. Since 0.1.
            ///
            /// - `pool`: The pool.
            /// - `out`: The counts.
            fn pkv_pool_get_stats(pool: pkv_pool, out: *mut pkv_pool_stats) -> pkv_status;
            /// Checks every invariant of a pool (free bits, counter, references, fill). Call it
            /// while no other call is under way. Statuses: INTERNAL (the sentence has the equation
            /// that does not hold). Since 0.1.
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
            /// Closes a session and gives back every block that nobody else holds. Statuses:
            /// STALE_HANDLE, BUSY (in a batch). Since 0.1.
            ///
            /// - `session`: The session. NULL is OK.
            fn pkv_session_close(session: pkv_session) -> pkv_status;
            /// Tells how many tokens are committed; 0 while the session is suspended. Statuses:
            /// none of its own. Since 0.1.
            ///
            /// - `session`: The session.
            /// - `tokens`: The length in tokens.
            fn pkv_session_get_length(session: pkv_session, tokens: *mut u64) -> pkv_status;
            /// Tells of how many tokens one layer holds K and V: more than the length while a step
            /// is in flight and the layer was written. Statuses: OUT_OF_RANGE. Since 0.1.
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
            /// - `tokens`: \[n\]: the ids; PKV_NO_TOKEN where none was told.
            fn pkv_session_get_tokens(session: pkv_session, first: u64, n: usize, tokens: *mut i32)
                -> pkv_status;
            /// Tells the ids of positions that were committed without them (by pkv_session_append).
            /// If forks that share a block are told different ids, the prefix index caches it as
            /// one of the texts only. Statuses: OUT_OF_RANGE, INVALID_ARGUMENT (a position that has
            /// another id already). Since 0.1.
            ///
            /// - `session`: The session.
            /// - `first`: The first position.
            /// - `n`: How many.
            /// - `tokens`: \[n\]: the ids.
            fn pkv_session_set_tokens(session: pkv_session, first: u64, n: usize, tokens: *const
                i32) -> pkv_status;
            /// Makes room in all groups or in none, so that later steps up to there cannot run out
            /// of blocks, however they are cut and whatever other sessions take. Never shrinks. The
            /// room lasts until the session is that long, or pkv_session_trim, pkv_session_suspend
            /// or pkv_session_close gives it back. It has no blocks for copies of what the session
            /// shares later: after pkv_session_fork, pkv_snapshot_take or pkv_file_save, call it
            /// again. A state that others shared would not come back, so until the room ends the
            /// prefix index gets the session's last full block only if the states there are
            /// checkpoints. Statuses: OUT_OF_BLOCKS, TOO_LARGE, NO_MEMORY, BUSY. Since 0.1.
            ///
            /// - `session`: The session.
            /// - `total_tokens`: Tokens to have room for, those that it holds included.
            fn pkv_session_reserve(session: pkv_session, total_tokens: u64) -> pkv_status;
            /// Appends n tokens to a session, one layer per call, without a batch. The first call
            /// begins a step. When every layer was given once, the step is committed and the
            /// session is n tokens longer. pkv_session_trim (to any length up to
            /// pkv_session_get_length) ends an unfinished step; trim to 0 first to replace what the
            /// session holds. for (layer = 0; layer \< layers; layer++) pkv_session_append(session,
            /// layer, n, &k , &v ); Statuses: OUT_OF_BLOCKS, TOO_LARGE, NO_MEMORY, OUT_OF_RANGE
            /// (layer), INVALID_ARGUMENT (another n than the step's), UNSUPPORTED (storage NONE),
            /// BUSY, SUSPENDED. Since 0.1.
            ///
            /// - `session`: The session.
            /// - `layer`: The layer of the model; in any order. Until the step is complete a layer
            /// may be given again.
            /// - `n`: How many tokens; the same in every call of a step.
            /// - `k`: Keys, \[n\]\[kv_heads\]\[key_dim\].
            /// - `v`: Values, \[n\]\[kv_heads\]\[value_dim\]. NULL in a latent group.
            fn pkv_session_append(session: pkv_session, layer: u32, n: usize, k: *const pkv_tensor,
                v: *const pkv_tensor) -> pkv_status;
            /// Keeps the first tokens of a session and gives back every block beyond them, reserved
            /// ones too. Ends an unfinished pkv_session_append. Statuses: OUT_OF_RANGE (longer than
            /// the session is, a group with a window no longer has what it needs, one with states
            /// has none there, or the next token would go into a dropped block; see
            /// pkv_session_get_last_trim), BUSY. Since 0.1.
            ///
            /// - `session`: The session.
            /// - `length`: How many tokens to keep.
            fn pkv_session_trim(session: pkv_session, length: u64) -> pkv_status;
            /// Tells to which length a session can be trimmed: with a window or with states not to
            /// every one. Statuses: none of its own. Since 0.1.
            ///
            /// - `session`: The session.
            /// - `limit`: The longest length that is of use.
            /// - `length`: The longest one, up to limit and to the length of the session, that
            /// pkv_session_trim can keep; 0 if there is no other.
            fn pkv_session_get_last_trim(session: pkv_session, limit: u64, length: *mut u64) ->
                pkv_status;
            /// Tells about how long after a session its text is expected to go on in another one: a
            /// tool is running, say, or the user reads the answer. Set it before the session is
            /// closed, suspended or trimmed; it stays until it is set again, and forks and
            /// snapshots inherit it. The eviction policy LEARNED learns when texts with such a hint
            /// do return, by powers of two of it. So its unit is the caller's, if it is always the
            /// same, and a hint that is wrong costs little. Where blocks are shared with other
            /// texts, how often they are used counts instead. Other policies, and sessions that do
            /// not use the prefix index, take no notice. Statuses: BUSY. Since 0.1.
            ///
            /// - `session`: The session.
            /// - `after`: How long, in seconds for example; PKV_RETURN_UNKNOWN or PKV_RETURN_NEVER.
            fn pkv_session_set_return_hint(session: pkv_session, after: u32) -> pkv_status;
            /// Forgets blocks in the middle of a session: gives them back, in one layer group. What
            /// is left keeps its positions; later tokens do not see the tokens of these blocks (as
            /// if masked), and neither do slot mappings, KV indices and pkv_session_read. Layers of
            /// other groups still see them. From the first block dropped on, the session no longer
            /// shares its blocks through the prefix index: what only this session used there is
            /// taken from the index, and later tokens are not published. A resume after
            /// pkv_session_suspend brings the whole text back, to be computed again. Forks,
            /// snapshots and files lack what was dropped. Statuses: OUT_OF_RANGE (group; a block
            /// that is not full of tokens), INVALID_ARGUMENT (not rising), UNSUPPORTED (CONTIGUOUS;
            /// a group with states), BUSY, SUSPENDED. Since 0.1.
            ///
            /// - `session`: The session.
            /// - `group`: The index of the group.
            /// - `count`: How many blocks.
            /// - `blocks`: \[count\]: their indices in the block table, rising; each full of
            /// tokens. Those that were dropped already, or left the window, may be among them.
            fn pkv_session_drop_blocks(session: pkv_session, group: u32, count: usize, blocks:
                *const u32) -> pkv_status;
            /// Opens a session with the same tokens. Blocks are shared, the part-filled last one
            /// too; whoever writes to it first copies that one block. Storage CONTIGUOUS copies
            /// everything. The new session has the priority, the use of the prefix index, the salt,
            /// the retention and the return hint of the old one. Reserved blocks stay with the old
            /// one, and so do tokens that it remembers since pkv_session_suspend and has not
            /// computed again. Statuses: NO_MEMORY, REF_LIMIT, OUT_OF_BLOCKS (CONTIGUOUS), BUSY,
            /// SUSPENDED. Since 0.1.
            ///
            /// - `session`: The session; it goes on unchanged.
            /// - `out`: The new session.
            fn pkv_session_fork(session: pkv_session, out: *mut pkv_session) -> pkv_status;
            /// Gives back every block that nobody else holds (preemption) and remembers the token
            /// ids. The session is empty then, and its length is 0. Until it is resumed or trimmed,
            /// calls that would add to it return PKV_SUSPENDED. Needs no memory. Suspending twice
            /// is OK. Ends an unfinished pkv_session_append. Statuses: BUSY. Since 0.1.
            ///
            /// - `session`: The session.
            fn pkv_session_suspend(session: pkv_session) -> pkv_status;
            /// Ends a suspension: reserves the blocks that the remembered tokens need, all or none
            /// (in groups with a window: those of one window; with states: those for batches of any
            /// size or, where there can never be as many, for one batch), and says which K and V
            /// must be computed again: those of positions \[\*length, \*total).
            /// pkv_session_get_tokens tells the ids of these positions. Prefill them by batches of
            /// any size, which may go beyond total; a commit without ids takes the remembered ones,
            /// one with other ids is refused. A trim forgets what is remembered. For a session that
            /// is not suspended the call is OK and tells its length and what it remembers.
            /// Statuses: OUT_OF_BLOCKS, TOO_LARGE, NO_MEMORY (with these three it stays suspended),
            /// BUSY. Since 0.1.
            ///
            /// - `session`: The session.
            /// - `length`: Tokens whose K and V are there.
            /// - `total`: Tokens with the remembered ones.
            /// - `blocks_short`: How many blocks must be freed before the same call can work;
            /// written on OUT_OF_BLOCKS only. May be NULL.
            fn pkv_session_resume(session: pkv_session, length: *mut u64, total: *mut u64,
                blocks_short: *mut u64) -> pkv_status;
            /// Changes the priority that pkv_session_config gave. Statuses: BUSY. Since 0.1.
            ///
            /// - `session`: The session.
            /// - `priority`: pkv_batch_choose_victims chooses higher ones last.
            fn pkv_session_set_priority(session: pkv_session, priority: i32) -> pkv_status;
            /// Tells what a session holds. Statuses: none of its own. Since 0.1.
            ///
            /// - `session`: The session.
            /// - `out`: The answer.
            fn pkv_session_get_info(session: pkv_session, out: *mut pkv_session_info) -> pkv_status;
            /// Tells the block ids of one group: ids\[i\] is logical block i (tokens i \*
            /// block_size and on), reserved blocks included. Statuses: OUT_OF_RANGE,
            /// BUFFER_TOO_SMALL, UNSUPPORTED (CONTIGUOUS). Since 0.1.
            ///
            /// - `session`: The session.
            /// - `group`: The index of the group.
            /// - `capacity`: Entries that ids has room for.
            /// - `ids`: \[capacity\]: block ids; PKV_NO_BLOCK where the block left the window (one
            /// step late: see pkv_layer_group) or was dropped. May be NULL if capacity is 0.
            /// - `count`: How many entries there are; written on PKV_OK and on BUFFER_TOO_SMALL.
            fn pkv_session_get_block_table(session: pkv_session, group: u32, capacity: usize, ids:
                *mut u32, count: *mut usize) -> pkv_status;
            /// Reads K and V of positions \[first, first + n) of one layer back as rows. Positions
            /// of a step in flight are there once the layer was written. Statuses: OUT_OF_RANGE
            /// (also: gone from the window, or dropped), UNSUPPORTED (NONE). Since 0.1.
            ///
            /// - `session`: The session.
            /// - `layer`: The layer of the model.
            /// - `first`: The first position.
            /// - `n`: How many.
            /// - `k`: Keys, \[n\]\[kv_heads\]\[key_dim\]. NULL: not wanted.
            /// - `v`: Values, \[n\]\[kv_heads\]\[value_dim\]. NULL: not wanted.
            fn pkv_session_read(session: pkv_session, layer: u32, first: u64, n: usize, k: *const
                pkv_tensor, v: *const pkv_tensor) -> pkv_status;
            /// Copies the state of one layer of a group with states. Held are those after the last
            /// token, after the last full block and at checkpoints. Statuses: OUT_OF_RANGE (layer;
            /// this state is not held), INVALID_ARGUMENT (size), UNSUPPORTED (the layer keeps K and
            /// V; NONE). Since 0.1.
            ///
            /// - `session`: The session.
            /// - `layer`: The layer of the model.
            /// - `tokens`: After how many committed tokens.
            /// - `size`: Bytes that state has room for: state_bytes of the group.
            /// - `state`: \[size\]: the state.
            fn pkv_session_read_state(session: pkv_session, layer: u32, tokens: u64, size: usize,
                state: *mut c_void) -> pkv_status;
            /// Begins a step: reserves the blocks of all new tokens in all groups, for every
            /// session or for none. Statuses: OUT_OF_BLOCKS (suspend what pkv_batch_choose_victims
            /// names), TOO_LARGE (one of the sessions can never get its blocks), BATCH_TOO_LARGE
            /// (each can, but not all at once; also: more sessions than can be open, 2^22),
            /// OVERFLOW, NO_MEMORY, WRONG_CACHE, BUSY (a session is in a batch already, or twice in
            /// the list), SUSPENDED, STALE_HANDLE. Since 0.1.
            ///
            /// - `cache`: The cache of the sessions.
            /// - `count`: How many sessions.
            /// - `sessions`: \[count\]: the sessions, each once.
            /// - `new_tokens`: \[count\]: how many new tokens each session brings; 0 is OK.
            /// - `blocks_short`: How many blocks must be freed before the same call can work;
            /// written on OUT_OF_BLOCKS only. May be NULL.
            /// - `out`: The batch, to be ended by pkv_batch_commit or pkv_batch_abort.
            fn pkv_batch_begin(cache: pkv_cache, count: usize, sessions: *const pkv_session,
                new_tokens: *const u32, blocks_short: *mut u64, out: *mut pkv_batch) -> pkv_status;
            /// Names sessions to suspend (or close) so that pkv_batch_begin with the rest of this
            /// list gets its blocks. Victims are those of the lowest priority, and among these the
            /// ones that were opened last. Sessions of the list may be among them, but never the
            /// first in rank. Sessions that another call or batch uses, and those that hold no
            /// block, are left out. What victims share counts as freed once all its holders are
            /// victims. The answer holds until something else takes or gives back blocks. This is
            /// for the thread that schedules: it looks at every session, and calls that would
            /// change one meanwhile return BUSY. Statuses: OUT_OF_BLOCKS (even with all others
            /// suspended), TOO_LARGE, BATCH_TOO_LARGE (only: more sessions than can be open) and
            /// OVERFLOW (as pkv_batch_begin), BUFFER_TOO_SMALL, WRONG_CACHE, NO_MEMORY, BUSY (a
            /// session of the list), SUSPENDED. Since 0.1.
            ///
            /// - `cache`: The cache of the sessions.
            /// - `count`: How many sessions the list has.
            /// - `sessions`: \[count\]: the sessions of the step, each once.
            /// - `new_tokens`: \[count\]: how many new tokens each session brings.
            /// - `capacity`: Entries that victims has room for.
            /// - `victims`: \[capacity\]: the sessions to suspend. May be NULL if capacity is 0.
            /// - `victim_count`: How many victims there are; 0: begin needs none. Written on PKV_OK
            /// and on BUFFER_TOO_SMALL.
            fn pkv_batch_choose_victims(cache: pkv_cache, count: usize, sessions: *const
                pkv_session, new_tokens: *const u32, capacity: usize, victims: *mut pkv_session,
                victim_count: *mut usize) -> pkv_status;
            /// Tells where the rows of each session begin in the tensors of pkv_batch_write and
            /// pkv_batch_attend, for batches that are padded on the left or have gaps. Statuses:
            /// none of its own. Since 0.1.
            ///
            /// - `batch`: The batch.
            /// - `first_rows`: \[sessions\]: as first_rows of pkv_attention_sequences. NULL: as
            /// without this call, rows follow each other, or begin with the entries of a padded
            /// batch.
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
            /// Computes attention of all rows over their sessions, the new tokens included. Where a
            /// row of q of a head is not finite, its result is what IEEE 754 says, or NaN where K
            /// is INT8 or INT4; results of other rows are not touched. Where V is INT4, an element
            /// of it that is not finite makes NaN of the results that see it, of its 32 dims or of
            /// all. Statuses: INCOMPLETE (the layer was not written), OUT_OF_RANGE (layer, a window
            /// larger than the group's, or a block list), UNSUPPORTED (NONE; chosen blocks with
            /// CONTIGUOUS), NO_MEMORY. Since 0.1.
            ///
            /// - `batch`: The batch.
            /// - `layer`: The layer of the model; it must be written.
            /// - `params`: Which attention. NULL: defaults.
            /// - `q`: Queries, \[rows\]\[query_heads\]\[key_dim\].
            /// - `out`: Results, \[rows\]\[query_heads\]\[value_dim\]. May not overlap q.
            fn pkv_batch_attend(batch: pkv_batch, layer: u32, params: *const pkv_attention_params,
                q: *const pkv_tensor, out: *const pkv_tensor) -> pkv_status;
            /// Ends a step: every session is longer by its new tokens, full blocks are sealed, and
            /// the batch is closed. If the call fails, the batch is still open. Statuses:
            /// INCOMPLETE (a layer was not written; not with storage NONE), INVALID_ARGUMENT
            /// (another id than the remembered one), NO_MEMORY. Since 0.1.
            ///
            /// - `batch`: The batch.
            /// - `tokens`: \[rows\]: the ids of the new tokens. NULL: they stay PKV_NO_TOKEN, or
            /// what pkv_session_suspend remembered.
            fn pkv_batch_commit(batch: pkv_batch, tokens: *const i32) -> pkv_status;
            /// Keeps only some of the new tokens of one session: the accepted path of a tree of
            /// speculative tokens. May be called once per session, after every layer was written;
            /// then only commit and abort are left. The keys and values of these tokens move
            /// together, bit by bit, to where a commit of just these tokens has them. The tokens of
            /// pkv_batch_commit stay \[rows\]. Statuses: OUT_OF_RANGE, INVALID_ARGUMENT (not
            /// rising, or a second time), INCOMPLETE, UNSUPPORTED (NONE), NO_MEMORY. Since 0.1.
            ///
            /// - `batch`: The batch.
            /// - `i`: The index of the session in the list of begin.
            /// - `count`: How many tokens to keep.
            /// - `kept`: \[count\]: indices among the session's new tokens, 0 the first, rising.
            fn pkv_batch_accept(batch: pkv_batch, i: usize, count: usize, kept: *const u32) ->
                pkv_status;
            /// Ends a step as if it had never begun, and closes the batch. Statuses: none of its
            /// own. Since 0.1.
            ///
            /// - `batch`: The batch. NULL is OK.
            fn pkv_batch_abort(batch: pkv_batch) -> pkv_status;
            /// Tells the slots of all new tokens in one group: where an engine with bytes of its
            /// own writes them. Statuses: OUT_OF_RANGE, BUFFER_TOO_SMALL, UNSUPPORTED (CONTIGUOUS).
            /// Since 0.1.
            ///
            /// - `batch`: The batch.
            /// - `group`: The index of the group.
            /// - `capacity`: Entries that slots has room for.
            /// - `slots`: \[capacity\]: one slot per row. May be NULL if capacity is 0.
            /// - `count`: How many slots there are; written on PKV_OK and on BUFFER_TOO_SMALL.
            fn pkv_batch_get_slot_mapping(batch: pkv_batch, group: u32, capacity: usize, slots: *mut
                i64, count: *mut usize) -> pkv_status;
            /// Tells the blocks that begin replaced in one group because they were shared and
            /// part-filled: the step writes to block to\[i\] in the place of from\[i\]. Where all
            /// sessions that hold such a block are in the batch and write to it, one of them keeps
            /// it: n of them take n - 1 new blocks. Storage PAGED has copied the bytes already;
            /// with storage NONE the engine makes all copies of the batch before it writes the
            /// first row. Statuses: as pkv_batch_get_slot_mapping. Since 0.1.
            ///
            /// - `batch`: The batch.
            /// - `group`: The index of the group.
            /// - `capacity`: Entries that from and to have room for.
            /// - `from`: \[capacity\]: the shared blocks. May be NULL if capacity is 0.
            /// - `to`: \[capacity\]: the blocks in their place. May be NULL if capacity is 0.
            /// - `count`: How many pairs there are; written on PKV_OK and on BUFFER_TOO_SMALL.
            fn pkv_batch_get_block_copies(batch: pkv_batch, group: u32, capacity: usize, from: *mut
                u32, to: *mut u32, count: *mut usize) -> pkv_status;
            /// Gives the states of one layer of a group with state_bytes: where the engine reads
            /// the state before its new tokens, and where it writes the one after them. A session
            /// with new tokens always gets a place for the state after the last of them. A step
            /// that reaches past a checkpoint (checkpoint_tokens) gets places for the states there
            /// and after the last full block, too, and a step of at most draft_tokens new tokens a
            /// place after each: the state after a token of a draft is that of the token and what
            /// precedes it in its branch. Which ones these are, pkv_batch_get_state_blocks tells.
            /// The engine writes all of `after` before the commit; their bytes are undefined until
            /// then. Nobody else sees them before the commit, and what `before` points to does not
            /// change in the step. Statuses: OUT_OF_RANGE (layer), BUFFER_TOO_SMALL, UNSUPPORTED
            /// (the layer keeps K and V; NONE), INVALID_ARGUMENT (after pkv_batch_accept). Since
            /// 0.1.
            ///
            /// - `batch`: The batch.
            /// - `layer`: The layer of the model. It counts as written from now on.
            /// - `before`: \[sessions\]: the state that each session has, state_bytes bytes at a
            /// multiple of 64; NULL: it has no token yet.
            /// - `capacity`: Entries that after has room for.
            /// - `after`: \[capacity\]: where to write. May be NULL if capacity is 0.
            /// - `count`: How many entries after has; written on PKV_OK and on BUFFER_TOO_SMALL.
            fn pkv_batch_get_states(batch: pkv_batch, layer: u32, before: *mut *const c_void,
                capacity: usize, after: *mut *mut c_void, count: *mut usize) -> pkv_status;
            /// Tells which states a step keeps in a group, and in which blocks they are. The states
            /// that session i keeps are those after its new tokens tokens\[indptr\[i\]\] to
            /// tokens\[indptr\[i + 1\] - 1\]. An engine with memory of its own (storage NONE), or
            /// with kernels that take block ids, reads the state in before\[i\] and writes those in
            /// after; with storage PAGED pkv_batch_get_states gives addresses. Statuses:
            /// OUT_OF_RANGE, BUFFER_TOO_SMALL, UNSUPPORTED (the group keeps K and V). Since 0.1.
            ///
            /// - `batch`: The batch.
            /// - `group`: The index of the group.
            /// - `before`: \[sessions\]: the block with the state that each session has;
            /// PKV_NO_BLOCK: it has no token yet. May be NULL.
            /// - `indptr`: \[sessions + 1\]: where the states of each session begin, and the end.
            /// - `capacity`: Entries that tokens and after have room for.
            /// - `tokens`: \[capacity\]: indices among the session's new tokens, 0 the first,
            /// rising. May be NULL if capacity is 0.
            /// - `after`: \[capacity\]: the blocks to write. May be NULL.
            /// - `count`: How many states there are; written on PKV_OK and on BUFFER_TOO_SMALL.
            fn pkv_batch_get_state_blocks(batch: pkv_batch, group: u32, before: *mut u32, indptr:
                *mut usize, capacity: usize, tokens: *mut u32, after: *mut u32, count: *mut usize)
                -> pkv_status;
            /// Gives forward metadata as compressed rows: session i reads indices\[indptr\[i\]\] to
            /// indices\[indptr\[i + 1\] - 1\], in token order, the new tokens included and what
            /// left the window left out. Statuses: as pkv_batch_get_slot_mapping. Since 0.1.
            ///
            /// - `batch`: The batch.
            /// - `group`: The index of the group.
            /// - `unit`: What indices are: block ids or slots.
            /// - `indptr`: \[sessions + 1\]: where the indices of each session begin, and the end
            /// of the last.
            /// - `capacity`: Entries that indices has room for.
            /// - `indices`: \[capacity\]: block ids or slots. May be NULL if capacity is 0.
            /// - `count`: How many indices there are; written on PKV_OK and on BUFFER_TOO_SMALL.
            /// - `last_block_length`: \[sessions\]: how many tokens the last block of each session
            /// holds. May be NULL.
            fn pkv_batch_get_kv_indices(batch: pkv_batch, group: u32, unit: pkv_index_unit, indptr:
                *mut i64, capacity: usize, indices: *mut i64, count: *mut usize, last_block_length:
                *mut u32) -> pkv_status;
            /// Freezes what a session holds now. The snapshot outlives the session. Storage
            /// CONTIGUOUS copies. Besides tokens, the snapshot has what pkv_session_fork passes on,
            /// for sessions opened from it. Statuses: NO_MEMORY, REF_LIMIT, OUT_OF_BLOCKS
            /// (CONTIGUOUS), BUSY (a step is in flight), SUSPENDED. Since 0.1.
            ///
            /// - `session`: The session; it goes on unchanged.
            /// - `out`: The snapshot, to be closed by pkv_snapshot_close.
            fn pkv_snapshot_take(session: pkv_session, out: *mut pkv_snapshot) -> pkv_status;
            /// Opens a new session with the frozen content. Statuses: WRONG_CACHE, NO_MEMORY,
            /// REF_LIMIT, OUT_OF_BLOCKS (CONTIGUOUS). Since 0.1.
            ///
            /// - `cache`: The cache of the snapshot.
            /// - `snapshot`: The snapshot; it can be opened any number of times.
            /// - `out`: The session.
            fn pkv_snapshot_open(cache: pkv_cache, snapshot: pkv_snapshot, out: *mut pkv_session) ->
                pkv_status;
            /// Closes a snapshot and drops its references. Sessions that were opened from it keep
            /// theirs. Statuses: STALE_HANDLE, BUSY. Since 0.1.
            ///
            /// - `snapshot`: The snapshot. NULL is OK.
            fn pkv_snapshot_close(snapshot: pkv_snapshot) -> pkv_status;
            /// Saves sequences of a cache and, if the config says so, its prefix index: tokens, K
            /// and V as they are stored, what a window has left, priorities, uses of the prefix
            /// index, retentions, salts, tokens remembered by a suspension. Storage NONE saves
            /// tokens and tables only. Reserved blocks and return hints are not saved. A snapshot
            /// is saved with what the session had when it was taken. Sequences stay in use until
            /// the call returns. The prefix index does not: steps evict from it as ever, and a text
            /// whose blocks they take before these were written is shorter in the file. Statuses:
            /// BUFFER_TOO_SMALL, WRONG_CACHE, BUSY (a step is in flight), IO, UNSUPPORTED (a key,
            /// in a build without libsodium or libcrypto), TOO_LARGE (fingerprint, key), REF_LIMIT.
            /// Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `n`: How many sequences; 0 is OK.
            /// - `items`: \[n\]: the sequences.
            /// - `config`: The config. NULL: defaults.
            /// - `to`: Where the file goes. The data of a buffer may be NULL if its size is 0.
            /// - `bytes`: The size of the file; written on PKV_OK and, for a buffer, on
            /// BUFFER_TOO_SMALL. May be NULL.
            fn pkv_file_save(cache: pkv_cache, n: usize, items: *const pkv_file_item, config: *const
                pkv_file_config, to: *const pkv_stream, bytes: *mut u64) -> pkv_status;
            /// Opens every sequence of a file as a session of the cache, in the order of
            /// pkv_file_save. - Layers, KV heads, dims, windows and sinks must be those of the
            /// cache. Blocks may have any size, except that what a group with a window holds must
            /// fill whole blocks (it does if the new size divides the old one). A path or a buffer
            /// must end where the file ends. - Blocks are taken as by pkv_batch_begin, cached ones
            /// that nobody uses included. Those are evicted only after all of the file was checked
            /// or, where a stream cannot be read twice (a pipe, callbacks), as soon as its tables
            /// were checked. - Of the prefix index, entries that the cache has already are not
            /// loaded twice. Entries for which there is no memory are left out, and so are those
            /// used longest ago of a file whose entries would fill the cache more than 64 times.
            /// Pins, quotas and what the cache has learned of reuse are not saved. Statuses:
            /// BUFFER_TOO_SMALL, CORRUPT (also a wrong key), VERSION, MISMATCH (another model,
            /// fingerprint, dtype or storage; a key where there is none in the file, or none given
            /// where there is; salts without a key, see trust_salts), IO, OUT_OF_BLOCKS, TOO_LARGE,
            /// UNSUPPORTED (as pkv_file_save), REF_LIMIT. Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `config`: The config. NULL: defaults.
            /// - `from`: Where the file comes from.
            /// - `capacity`: Entries that sessions and labels have room for.
            /// - `sessions`: \[capacity\]: the sessions, to be closed by the caller. May be NULL if
            /// capacity is 0.
            /// - `labels`: \[capacity\]: the label of each session. May be NULL.
            /// - `count`: How many sequences the file has; written on PKV_OK and on
            /// BUFFER_TOO_SMALL.
            fn pkv_file_load(cache: pkv_cache, config: *const pkv_file_config, from: *const
                pkv_stream, capacity: usize, sessions: *mut pkv_session, labels: *mut u64, count:
                *mut usize) -> pkv_status;
            /// Reads the tables of a file, not its K and V, and tells what it holds. Needs no
            /// cache. Statuses: CORRUPT, VERSION, MISMATCH (key, fingerprint), IO, UNSUPPORTED,
            /// TOO_LARGE. Since 0.1.
            ///
            /// - `config`: Its key is used, and its fingerprint compared. NULL: neither.
            /// - `from`: Where the file comes from.
            /// - `out`: The answer.
            fn pkv_file_inspect(config: *const pkv_file_config, from: *const pkv_stream, out: *mut
                pkv_file_info) -> pkv_status;
            /// Gives an empty session the longest cached beginning of a text: it holds K and V of
            /// tokens \[0, \*matched) then, and \*matched is its length. A session that was
            /// suspended takes what is cached of its own text when it is resumed. Statuses:
            /// INVALID_ARGUMENT (the session holds or remembers tokens, or has reserved blocks,
            /// also where there is no index; or PKV_NO_TOKEN), SUSPENDED, BUSY. Since 0.1.
            ///
            /// - `session`: The session.
            /// - `n`: How many tokens are asked for; leave out the last one of a text if its output
            /// is needed.
            /// - `tokens`: \[n\]: the ids of the text.
            /// - `matched`: How many tokens were found; 0 if none, if the cache has no index, or if
            /// the session does not use it.
            fn pkv_session_match_prefix(session: pkv_session, n: usize, tokens: *const i32, matched:
                *mut u64) -> pkv_status;
            /// Tells the figures of one salt, or of the whole index. Statuses: UNSUPPORTED (no
            /// index), TOO_LARGE (salt). Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `salt`: The salt. NULL with size 0: sessions without one.
            /// - `salt_size`: Bytes of the salt, or PKV_ALL_SALTS.
            /// - `out`: The figures.
            fn pkv_prefix_get_stats(cache: pkv_cache, salt: *const c_void, salt_size: usize, out:
                *mut pkv_prefix_stats) -> pkv_status;
            /// Drops every cached block that nobody uses and that is not pinned, of one salt or of
            /// all. Statuses: UNSUPPORTED (no index), TOO_LARGE (salt). Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `salt`: The salt. NULL with size 0: sessions without one.
            /// - `salt_size`: Bytes of the salt, or PKV_ALL_SALTS.
            fn pkv_prefix_clear(cache: pkv_cache, salt: *const c_void, salt_size: usize) ->
                pkv_status;
            /// Tells how much of a text is cached in memory, without a session: nothing is matched,
            /// counted or held, and what is evicted next does not change. Statuses: UNSUPPORTED (no
            /// index), TOO_LARGE (salt). Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `salt`: The salt. NULL with size 0: none.
            /// - `salt_size`: Bytes of the salt.
            /// - `n`: How many tokens the text has.
            /// - `tokens`: \[n\]: the ids of the text.
            /// - `cached`: How many tokens a match would find now, in whole blocks; it may find
            /// some more in the block after them, and blocks that only a store has.
            fn pkv_prefix_probe(cache: pkv_cache, salt: *const c_void, salt_size: usize, n: usize,
                tokens: *const i32, cached: *mut u64) -> pkv_status;
            /// Pins what is cached of a text: its whole blocks stay cached, though nobody uses
            /// them, until they are unpinned as often. Compute a system prompt once, close its
            /// session, pin it. Statuses: UNSUPPORTED (no index), TOO_LARGE (salt), OUT_OF_BLOCKS
            /// (beyond pinned_blocks: nothing is pinned), REF_LIMIT. Since 0.1.
            ///
            /// - `cache`: The cache; pinned_blocks of its prefix config bounds what is pinned in
            /// all.
            /// - `salt`: The salt. NULL with size 0: none.
            /// - `salt_size`: Bytes of the salt.
            /// - `n`: How many tokens the text has.
            /// - `tokens`: \[n\]: the ids of the text.
            /// - `pinned`: How many tokens are pinned, in whole blocks; 0 where nothing is cached.
            fn pkv_prefix_pin(cache: pkv_cache, salt: *const c_void, salt_size: usize, n: usize,
                tokens: *const i32, pinned: *mut u64) -> pkv_status;
            /// Takes back the longest pin of a beginning of a text. Statuses: UNSUPPORTED (no
            /// index), TOO_LARGE (salt), DOUBLE_FREE (no beginning of the text is pinned). Since
            /// 0.1.
            ///
            /// - `cache`: The cache.
            /// - `salt`: The salt. NULL with size 0: none.
            /// - `salt_size`: Bytes of the salt.
            /// - `n`: How many tokens the text has.
            /// - `tokens`: \[n\]: the ids of the text.
            /// - `unpinned`: How many tokens that pin had.
            fn pkv_prefix_unpin(cache: pkv_cache, salt: *const c_void, salt_size: usize, n: usize,
                tokens: *const i32, unpinned: *mut u64) -> pkv_status;
            /// Bounds what is cached of one salt from now on. Where a salt is full, those of its
            /// own blocks that nobody uses make room, the ones that were not used for longest
            /// first; where all are in use, what its sessions compute is not cached. What is over
            /// the quota already goes at once if nobody uses it. Statuses: UNSUPPORTED (no index),
            /// TOO_LARGE (salt), NO_MEMORY. Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `salt`: The salt. NULL with size 0: sessions without one.
            /// - `salt_size`: Bytes of the salt.
            /// - `blocks`: The most block positions; 0: no limit; PKV_DEFAULT_QUOTA: that of the
            /// config again.
            fn pkv_prefix_set_quota(cache: pkv_cache, salt: *const c_void, salt_size: usize, blocks:
                u64) -> pkv_status;
            /// Copies events in their order, those of all salts. Several readers may each keep a
            /// number of their own. Statuses: UNSUPPORTED (no index, or its config keeps no
            /// events). Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `next`: The number of the first event wanted, 0 at first; afterwards that of the
            /// next one.
            /// - `n`: Entries that events has room for; afterwards how many were written.
            /// - `events`: \[\*n\] as given: the events.
            /// - `lost`: How many of those wanted were overwritten, since the cache keeps only the
            /// last ones; if any were, learn by another way what is cached. May be NULL.
            fn pkv_prefix_read_events(cache: pkv_cache, next: *mut u64, n: *mut usize, events: *mut
                pkv_prefix_event, lost: *mut u64) -> pkv_status;
            /// Computes the hashes that events have for the whole blocks of a text. They say where
            /// a text is likely cached, never what is the same. The hash of a block is XXH3 (64
            /// bits) of its token ids (int32, native byte order) with the hash of the block before
            /// it as seed; that of the first block has XXH3 of the salt's bytes (without a seed) as
            /// seed. Statuses: TOO_LARGE (salt). Since 0.1.
            ///
            /// - `salt`: The salt. NULL with size 0: none.
            /// - `salt_size`: Bytes of the salt.
            /// - `block_size`: Tokens per block: a multiple of 16, 16 to 256.
            /// - `n`: How many tokens the text has.
            /// - `tokens`: \[n\]: the ids of the text.
            /// - `hashes`: \[n / block_size\]: the hashes.
            fn pkv_prefix_hash_blocks(salt: *const c_void, salt_size: usize, block_size: u32, n:
                usize, tokens: *const i32, hashes: *mut u64) -> pkv_status;
            /// Begins to read what the store has of a text into the prefix index, beyond what is in
            /// memory, and returns. Call it when a request begins to wait for its turn; a later
            /// pkv_session_match_prefix finds what has come. Only blocks that are free or evictable
            /// are taken. At most 64 texts wait; then the oldest is given up. Statuses: UNSUPPORTED
            /// (the cache has no store), TOO_LARGE (salt). Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `salt`: The salt. NULL with size 0: none.
            /// - `salt_size`: Bytes of the salt.
            /// - `n`: How many tokens the text has.
            /// - `tokens`: \[n\]: the ids of the text.
            fn pkv_store_prefetch(cache: pkv_cache, salt: *const c_void, salt_size: usize, n: usize,
                tokens: *const i32) -> pkv_status;
            /// Waits for the prefetches of a text, and of texts that agree with it as far as both
            /// go, until all are done or given up. Statuses: UNSUPPORTED (the cache has no store),
            /// TOO_LARGE (salt). Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `salt`: The salt. NULL with size 0: none.
            /// - `salt_size`: Bytes of the salt.
            /// - `n`: How many tokens the text has.
            /// - `tokens`: \[n\]: the ids of the text.
            /// - `timeout_ms`: How long to wait at most.
            /// - `cached`: How many tokens of the text are in memory now, in whole blocks.
            /// - `pending`: How many of these prefetches are not done: 0, unless the time was over
            /// first. May be NULL.
            fn pkv_store_wait(cache: pkv_cache, salt: *const c_void, salt_size: usize, n: usize,
                tokens: *const i32, timeout_ms: u32, cached: *mut u64, pending: *mut u64) ->
                pkv_status;
            /// Gives up the prefetches that pkv_store_wait would wait for. If the store is just
            /// being read for one, what this read brings may still be added to the cache after this
            /// call, and no pkv_store_wait waits for that. Statuses: UNSUPPORTED (the cache has no
            /// store), TOO_LARGE (salt). Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `salt`: The salt. NULL with size 0: none.
            /// - `salt_size`: Bytes of the salt.
            /// - `n`: How many tokens the text has.
            /// - `tokens`: \[n\]: the ids of the text.
            fn pkv_store_cancel(cache: pkv_cache, salt: *const c_void, salt_size: usize, n: usize,
                tokens: *const i32) -> pkv_status;
            /// Waits until what ended before is written. pkv_cache_destroy does the same without a
            /// limit, for as long as the store takes what it is given. Statuses: UNSUPPORTED (the
            /// cache has no store). Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `timeout_ms`: How long to wait at most.
            /// - `queued`: How many block positions still wait to be written.
            fn pkv_store_flush(cache: pkv_cache, timeout_ms: u32, queued: *mut u64) -> pkv_status;
            /// Tells what the tier of a cache has done so far. Statuses: UNSUPPORTED (the cache has
            /// no store). Since 0.1.
            ///
            /// - `cache`: The cache.
            /// - `out`: The figures.
            fn pkv_store_get_stats(cache: pkv_cache, out: *mut pkv_store_stats) -> pkv_status;
            /// Opens a directory as a store. Deletes what killed processes left unfinished in it.
            /// Statuses: IO (the errno in the sentence is EPERM where the directory is another
            /// user's or other users may write to it, ELOOP for a symbolic link). Since 0.1.
            ///
            /// - `config`: The config.
            /// - `out`: The store. Close it with out-\>close(out-\>user), unless a cache does.
            fn pkv_store_open_directory(config: *const pkv_directory_config, out: *mut pkv_store) ->
                pkv_status;
            /// Version of the loaded library as major \* 1000000 + minor \* 1000 + patch. Any
            /// thread. Since 0.1.
            fn pkv_version() -> u32;
            /// Version of the loaded library as text, "0.1.0". Static storage. Any thread. Since
            /// 0.1.
            fn pkv_version_string() -> *const c_char;
        }
    };
}
pub(crate) use for_each_function;
