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

/// The version of the headers that this was made from.
pub const VERSION: &str = "0.1.0";
/// window value: the window of the layer's group.
pub const PKV_WINDOW_OF_LAYER: u32 = u32::MAX;
/// sinks value: the sinks of the layer's group.
pub const PKV_SINKS_OF_LAYER: u32 = u32::MAX;
/// group of pkv_cache_compute_plan: all of them.
pub const PKV_ALL_GROUPS: u32 = u32::MAX;
/// Stands in a block table for a block that was given back (it left a sliding window).
pub const PKV_NO_BLOCK: u32 = u32::MAX;
/// salt_size of pkv_prefix_get_stats and pkv_prefix_clear: every salt. Others take it for the size
/// that it is: INVALID_ARGUMENT (salt NULL) or TOO_LARGE.
pub const PKV_ALL_SALTS: usize = usize::MAX;
/// blocks of pkv_prefix_set_quota: what the config says.
pub const PKV_DEFAULT_QUOTA: u64 = u64::MAX;
/// Stands for a token whose id was never told.
pub const PKV_NO_TOKEN: i32 = -1;
/// Version of these headers. While the major version is 0 the interface may still grow.
pub const PKV_VERSION_MAJOR: c_int = 0;
pub const PKV_VERSION_MINOR: c_int = 1;
pub const PKV_VERSION_PATCH: c_int = 0;

handle!(pkv_pool_t, pkv_pool);
handle!(pkv_cache_t, pkv_cache);
handle!(pkv_session_t, pkv_session);
handle!(pkv_batch_t, pkv_batch);
handle!(pkv_snapshot_t, pkv_snapshot);

/// A reference to one block: the id in the low 32 bits, the generation of that id in the high 32. A
/// fresh pool gives one thread 0, 1, 2, ...; when a block is freed its generation rises, so that a
/// stale reference is told from the block's next life.
pub type pkv_block = u64;

c_enum! {
    pkv_status {
        /// It is done.
        OK = 0,
        /// NULL, an unknown enum or flag, a bad struct_size, a zero dimension.
        INVALID_ARGUMENT = 100,
        /// An index, a layer, a token position or a block id beyond the end.
        OUT_OF_RANGE = 101,
        /// Sizes whose product or sum no process could hold: 2^56 bytes.
        OVERFLOW = 102,
        /// The count needed is written to the count pointer.
        BUFFER_TOO_SMALL = 103,
        /// A handle or block that was closed, released or never given out.
        STALE_HANDLE = 104,
        /// A block released more often than it was held.
        DOUBLE_FREE = 105,
        /// A session, batch or snapshot of another cache.
        WRONG_CACHE = 106,
        /// Another call or an open batch holds the object.
        BUSY = 107,
        /// A call from inside one of the caller's own hooks.
        REENTRANT = 108,
        /// A handle inherited through fork(): the child may only close it.
        FORKED = 109,
        /// A write to a block that is sealed.
        BLOCK_SEALED = 110,
        /// Not available for this storage kind, layout or processor.
        UNSUPPORTED = 111,
        /// A layer that was not written yet in this step.
        INCOMPLETE = 112,
        /// The session is suspended: resume it first.
        SUSPENDED = 113,
        /// Not enough free blocks; the sentence says how many are short.
        OUT_OF_BLOCKS = 200,
        /// More than the whole cache could ever hold.
        TOO_LARGE = 201,
        /// The allocator said no.
        NO_MEMORY = 202,
        /// A block's reference count is at its limit.
        REF_LIMIT = 203,
        /// Every slot of the block is taken.
        BLOCK_FULL = 204,
        /// Bytes that are not those that were saved: damaged, cut short, or tagged with another
        /// key.
        CORRUPT = 300,
        /// A file of a format that this library does not know.
        VERSION = 301,
        /// A file of another model: shapes, dtypes or fingerprint are not the cache's.
        MISMATCH = 302,
        /// The operating system or a server said no; the sentence has its reason.
        IO = 400,
        /// An invariant of the library does not hold: please report it.
        INTERNAL = 500,
    }
}

c_enum! {
    /// Element types. The first three are those of the rows a caller passes and of stored keys and
    /// values; the others are only stored. Native byte order. Conversions round to nearest even.
    /// Quantised types get their scale when a row is stored, from that row alone: what was stored
    /// before never changes. With m the largest magnitude of a row (INT8) or of 32 dims (INT4),
    /// elements are off by at most m / 254 and m / 13.8; a NaN or an infinity among them makes all
    /// of them NaN, and below 1e-30 they are stored as 0.
    pkv_dtype {
        /// IEEE binary32.
        F32 = 1,
        /// IEEE binary16.
        F16 = 2,
        /// The upper half of binary32.
        BF16 = 3,
        /// A byte n (two's complement) per element and an fp32 scale per row (token and KV head):
        /// scale \* n.
        INT8 = 4,
        /// A nibble n (two's complement) per element and a bf16 scale per 32 dims: scale \* n.
        INT4 = 5,
        /// OCP E4M3, without a scale: up to 448, and beyond stored as 448; infinities become NaN.
        FP8_E4M3 = 6,
        /// OCP E5M2, without a scale: up to 57344, and finite numbers beyond stored as that; keeps
        /// infinities.
        FP8_E5M2 = 7,
    }
}

c_enum! {
    /// What a line is about.
    pkv_log_level {
        WARNING = 1,
        INFO = 2,
    }
}

c_enum! {
    /// Where keys and values live. All kinds give the same results; comparing the first two shows
    /// what paging buys.
    pkv_storage {
        /// Fixed-size blocks of one slab, shared between sessions, copied on write.
        PAGED = 1,
        /// One growing tensor per session and layer; a fork or a snapshot copies.
        CONTIGUOUS = 2,
        /// Block ids only: the engine keeps the bytes; write, attend and materialize are
        /// UNSUPPORTED.
        NONE = 3,
    }
}

c_enum! {
    /// How the bytes of a paged cache are arranged.
    pkv_layout {
        /// Block-major, made for this library's kernels (default). A block holds
        /// \[layer\]\[tile\]\[kv head\]\[K tile | V tile\]; a tile is 16 tokens. With p = 2 for
        /// BF16, 4 for INT8, 8 for INT4 and 1 otherwise, element (token t, dim d) of a tile is K:
        /// ((d / p) \* 16 + t) \* p + d % p V: ((t / p) \* value_dim + d) \* p + (t % p) / 2 + (t %
        /// 2) \* (p / 2)     (p = 1: t \* value_dim + d) in units of an element (INT4: nibble i is
        /// in byte i / 2, the even one lower). After the elements come the scales, INT8 \[16
        /// tokens\], INT4 \[ceil(dim / 32)\]\[16 tokens\]; a tile is padded to a multiple of 64
        /// bytes.
        PACKED = 1,
        /// Layer-major, made for engines with kernels of their own: per layer one K tensor
        /// \[block\]\[block_size\]\[kv head\]\[key_dim\] and one V tensor
        /// \[block\]\[block_size\]\[kv head\]\[value_dim\]. Read as block tensors, or token-flat as
        /// \[slot\]\[kv head\]\[dim\]. A row of INT8 or INT4 is its elements followed by its
        /// scales.
        PLAIN = 2,
    }
}

c_enum! {
    /// Instruction sets. Each of x86 has what those before it in this order have: SSE2, AVX2,
    /// AVX512, AVX512_VNNI, AVX512_BF16.
    pkv_isa {
        AUTO = 0,
        SCALAR = 1,
        SSE2 = 2,
        /// With FMA and F16C.
        AVX2 = 3,
        /// F, CD, DQ, BW, VL.
        AVX512 = 4,
        /// AVX512 with BF16 and VNNI.
        AVX512_BF16 = 5,
        NEON = 6,
        AVX512_VNNI = 7,
    }
}

c_enum! {
    /// What to ask of the operating system for the slab.
    pkv_huge_pages {
        /// Transparent huge pages where the system offers them (default).
        ADVISE = 0,
        OFF = 1,
        /// Reserved 2 MiB pages (hugetlbfs) or PKV_NO_MEMORY.
        REQUIRE = 2,
    }
}

c_enum! {
    /// Which cached blocks that nobody uses go first when memory is needed, tails of texts before
    /// their beginnings.
    pkv_eviction {
        /// Those that earn the fewest hits for their room, by what was learned of when blocks like
        /// them return.
        DEFAULT = 0,
        /// Those not used for longest.
        LRU = 1,
        /// Those matched least often since they were stored; of these, as LRU.
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
        OFF = 2,
    }
}

c_enum! {
    /// How long the prefix index keeps what a session leaves behind: blocks of a lower retention
    /// are evicted before all of a higher.
    pkv_retention {
        NORMAL = 0,
        /// A text that will hardly come again: a batch job, an evaluation.
        LOW = 1,
        /// One that must stay fast, even if it comes seldom.
        HIGH = 2,
    }
}

c_enum! {
    /// What an index list of pkv_batch_kv_indices counts.
    pkv_index_unit {
        BLOCKS = 1,
        SLOTS = 2,
    }
}

c_enum! {
    /// What happened to a block position.
    pkv_prefix_event_kind {
        /// A block is cached now.
        STORED = 1,
        /// It went because memory was needed.
        EVICTED = 2,
        /// It went because its salt's quota was full.
        EXPELLED = 3,
        /// It went by pkv_prefix_clear.
        CLEARED = 4,
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
        /// or it is sticky. Set-id bits are never kept, access control lists neither. What the
        /// group and others were allowed is kept only together with the old file's group, and not
        /// where it had an access control list. A path that ends in a symbolic link, a directory, a
        /// FIFO, a socket or a device is refused (PKV_IO). Links before the last name are followed:
        /// the directory is the caller's choice, and whoever may write to it, or rename it, can
        /// replace or delete what was saved. A load does not ask whose a file is: only a key tells
        /// that nobody else wrote it. What a killed process leaves has no name on file systems with
        /// O_TMPFILE. Where it has, and for the moment of a rename, it is named ".pagedkv-" and 16
        /// digits and ".tmp"; its writer holds a lock on it (flock), and later saves in the
        /// directory remove those of the effective user that nobody has locked. (On a network file
        /// system whose locks other machines do not see, save from one machine at a time.)
        PATH = 1,
        /// An open, blocking descriptor, from where it stands; stays open. Whatever follows in it
        /// is left alone. A save that fails leaves what it has written.
        DESCRIPTOR = 2,
        /// The caller's memory.
        BUFFER = 3,
        /// The caller's functions. What follows what a load needs is not asked for.
        CALLBACKS = 4,
    }
}

/// Rows in the caller's memory: element (row, head, dim) is at data\[row \* row_stride + head \*
/// head_stride + dim\]. Strides count elements; 0 means dense, \[rows\]\[heads\]\[dim\]. Any
/// alignment works. This struct is pinned: it will not grow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_tensor {
    /// The caller's; only read where the function says "in".
    pub data: *mut c_void,
    /// F32, F16 or BF16.
    pub dtype: pkv_dtype,
    /// 0.
    pub reserved: u32,
    /// 0, or at least the extent of what a row holds.
    pub row_stride: i64,
    /// 0, or at least dim.
    pub head_stride: i64,
}

/// Memory supplied by the caller. alignment is a power of two. alloc returns NULL to refuse:
/// PKV_NO_MEMORY. Memory that is not aligned as asked goes back to free at once, and is
/// PKV_NO_MEMORY as well.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_allocator {
    pub alloc: Option<unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void>,
    pub free: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize, usize)>,
    pub user: *mut c_void,
}

/// Receives one line without a newline. The library itself never prints.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_logger {
    pub log: Option<unsafe extern "C" fn(*mut c_void, pkv_log_level, *const c_char)>,
    pub user: *mut c_void,
}

/// Threads supplied by the caller, in the place of the library's own. run calls task(context, i,
/// worker) once for every i in \[0, n), on any threads and in any order, and returns when all of
/// them have returned. worker is below threads; no two calls at once have the same worker. task
/// does not throw. Results do not depend on how the calls are spread. A runner that leaves a task
/// out, asks for one twice (it runs once) or for one that there is not makes its call
/// PKV_INVALID_ARGUMENT: what the call was to write is undefined then, and a step in flight is as
/// far as it was before.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_runner {
    pub run: Option<unsafe extern "C" fn(*mut c_void, usize, Option<unsafe extern "C" fn(*mut
        c_void, usize, u32)>, *mut c_void)>,
    pub user: *mut c_void,
    /// 1 or more.
    pub threads: u32,
    /// 0.
    pub reserved: u32,
}

/// Counts of one pool of blocks: of a pkv_pool, or of a layer group of a cache. blocks = free +
/// used + retired.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_pool_stats {
    pub struct_size: u32,
    /// Tokens per block.
    pub block_size: u32,
    /// Capacity.
    pub blocks: u64,
    /// Blocks nobody holds.
    pub free: u64,
    /// Blocks with at least one reference.
    pub used: u64,
    /// Blocks with more than one.
    pub shared: u64,
    /// Blocks out of service because their generation ran out.
    pub retired: u64,
    /// References in all.
    pub references: u64,
    /// Slots that hold a token; those of a shared block count once.
    pub slots_filled: u64,
    /// The most blocks in use at once so far. With 4096 blocks or more it is an estimate where
    /// several threads took some at the same moment.
    pub used_peak: u64,
}

/// Counts of a cache over all layer groups. Since 0.1.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_cache_stats {
    pub struct_size: u32,
    /// Open sessions.
    pub sessions: u32,
    /// Open snapshots.
    pub snapshots: u32,
    /// Batches begun and neither committed nor aborted.
    pub batches: u32,
    /// Capacity, summed over groups.
    pub blocks: u64,
    /// Of those, free.
    pub free_blocks: u64,
    /// Of those, in use; a shared block counts once.
    pub used_blocks: u64,
    pub used_blocks_peak: u64,
    /// Committed tokens over all sessions (shared ones count in each).
    pub tokens: u64,
    /// Slots that hold a token, over all blocks and groups; a shared one counts once.
    pub slots_filled: u64,
    /// Slots of all blocks in use. slots_filled / slots_reserved is the utilization.
    pub slots_reserved: u64,
    /// Bytes of K and V memory the cache has mapped or allocated.
    pub bytes_reserved: u64,
    /// Blocks copied by copy-on-write so far.
    pub copied_blocks: u64,
    /// Batches committed so far.
    pub commits: u64,
    /// Batches aborted so far.
    pub aborts: u64,
    /// Tokens committed so far.
    pub committed_tokens: u64,
    /// Sessions suspended now.
    pub suspended_sessions: u64,
    /// Sessions suspended so far.
    pub suspensions: u64,
    /// Used blocks that only the prefix index holds: begin takes them where free ones are short.
    pub evictable_blocks: u64,
}

/// What pkv_pool_create makes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_pool_config {
    pub struct_size: u32,
    /// How many blocks; 1 to 2^31 - 1. No default.
    pub blocks: u32,
    /// Slots (tokens) per block; 1 to 256. Default 16.
    pub block_size: u32,
    /// 0.
    pub reserved: u32,
    /// Copied; NULL: the system's. Must outlive the pool.
    pub allocator: *const pkv_allocator,
}

/// What one word per block holds.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_block_state {
    pub struct_size: u32,
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

/// Layers with the same shape. A plain model is one group and needs none of this: it fills the
/// fields of pkv_cache_config. Hybrid models list their groups, for example one of full and one of
/// sliding-window layers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_layer_group {
    pub struct_size: u32,
    /// How many layers.
    pub layers: u32,
    /// Which layers of the model, `layers` of them; NULL: those after the previous group's last.
    pub layer_indices: *const u32,
    /// A multiple of kv_heads.
    pub query_heads: u32,
    pub kv_heads: u32,
    /// Head dim of queries and keys; a multiple of 16, 16 to 576.
    pub key_dim: u32,
    /// Head dim of values and outputs; 0: key_dim.
    pub value_dim: u32,
    /// Of stored keys and values; 0: PKV_F32.
    pub dtype: pkv_dtype,
    /// A token sees itself and window - 1 before it; 0: all. Blocks that leave the window are given
    /// back, one step late: what a trim to the length before the last step needs is there still.
    /// Where all blocks of the group are too few for that and the next step, pkv_batch_begin and
    /// pkv_session_reserve give them back at once; an abort does not bring them again.
    pub window: u32,
    /// Blocks of this group; 0: those of the config.
    pub blocks: u64,
    /// Of stored values; 0: dtype.
    pub value_dtype: pkv_dtype,
    /// With a window: the first tokens that stay visible, and in memory, for ever (Xiao et al.
    /// 2023).
    pub sinks: u32,
    /// 1: V is the first value_dim dims of K and is stored once, with it (the absorbed form of
    /// MLA).
    pub latent: u32,
    /// 0.
    pub reserved: u32,
}

/// The prefix index of a cache: see prefix.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_prefix_config {
    pub struct_size: u32,
    pub eviction: pkv_eviction,
    /// At most so many block positions are pinned at once (pkv_prefix_pin); 0: a quarter of the
    /// blocks of the largest group.
    pub pinned_blocks: u64,
    /// At most so many are cached of one salt, where pkv_prefix_set_quota says nothing else; 0: no
    /// limit.
    pub salt_blocks: u64,
    /// How many events are kept for pkv_prefix_read_events, 40 bytes each, at most 2^24. Default 0:
    /// none.
    pub events: u32,
    /// 0.
    pub reserved: u32,
}

/// What pkv_cache_create makes: the model, its memory, and who does the work.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_cache_config {
    pub struct_size: u32,
    /// Default PAGED.
    pub storage: pkv_storage,
    /// Default PACKED. Only PAGED storage has it.
    pub layout: pkv_layout,
    /// Tokens per block: a multiple of 16, 16 to 256. Default 16.
    pub block_size: u32,
    /// The model: see pkv_layer_group for these seven and the three at the end. All 0 when groups
    /// are given.
    pub layers: u32,
    pub query_heads: u32,
    pub kv_heads: u32,
    pub key_dim: u32,
    pub value_dim: u32,
    pub dtype: pkv_dtype,
    pub window: u32,
    /// 0: one group, described by the fields above.
    pub group_count: u32,
    /// group_count of them, each of groups\[0\].struct_size bytes; copied.
    pub groups: *const pkv_layer_group,
    /// Capacity in blocks per group. Give this or memory_bytes.
    pub blocks: u64,
    /// Capacity as a budget for K and V: every group gets the same number of blocks, as many as
    /// fit.
    pub memory_bytes: u64,
    /// Threads that compute attention, the caller's included, at most one per processor; 0: that
    /// many.
    pub threads: u32,
    /// AUTO (default): the best this processor has. Another: that one or UNSUPPORTED.
    pub isa: pkv_isa,
    pub huge_pages: pkv_huge_pages,
    /// 1: touch all memory in create, in parallel, so that no later call meets a page fault.
    pub prefault: u32,
    /// For keys and values, pools, tokens and block tables; copied; NULL: the system's. Must
    /// outlive the cache.
    pub allocator: *const pkv_allocator,
    /// Copied; NULL: silence. Must outlive the cache.
    pub logger: *const pkv_logger,
    /// These three belong to the description of the model, too.
    pub value_dtype: pkv_dtype,
    pub sinks: u32,
    pub latent: u32,
    /// Blocks of each group that only sessions which have tokens already may take: what begins (a
    /// first step, a resume, room that is reserved for an empty session) leaves so many free, so
    /// that those that run can finish. Exact while one thread begins. Default 0.
    pub watermark: u32,
    /// Threads of the caller's, copied; threads must be 0 then. NULL: oneTBB. Must outlive the
    /// cache.
    pub runner: *const pkv_runner,
    /// Keeps what ended sessions computed, for new ones that begin alike: copied; NULL: off. Not
    /// with storage CONTIGUOUS.
    pub prefix: *const pkv_prefix_config,
    /// Where blocks go when memory is short: store.h; copied; NULL: nowhere. Needs storage PAGED
    /// and a prefix index.
    pub store: *const pkv_store_config,
}

/// Sizes of K and V before anything is allocated.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_cache_plan {
    pub struct_size: u32,
    pub groups: u32,
    /// K and V of one token in all layers (of the group or of all groups).
    pub bytes_per_token: u64,
    /// block_size times that.
    pub bytes_per_block: u64,
    /// Blocks, summed over groups.
    pub blocks: u64,
    /// Tokens that fit: the smallest over groups without a window (over all, if each has one).
    pub tokens: u64,
    /// Bytes of all K and V memory.
    pub total_bytes: u64,
    /// What the allocator's own tables take beside it.
    pub bookkeeping_bytes: u64,
}

/// What a cache was made with, defaults filled in.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_cache_info {
    pub struct_size: u32,
    pub storage: pkv_storage,
    pub layout: pkv_layout,
    pub block_size: u32,
    pub groups: u32,
    /// Over all groups.
    pub layers: u32,
    pub threads: u32,
    /// The one whose kernels run.
    pub isa: pkv_isa,
}

/// What a session has from its beginning.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_session_config {
    pub struct_size: u32,
    /// Higher ones are the last to be chosen by pkv_batch_choose_victims. Default 0.
    pub priority: i32,
    /// As pkv_session_reserve at once. Default 0.
    pub reserve_tokens: u64,
    pub prefix: pkv_prefix_use,
    /// Of what this session uses and stores; a block has the highest of its users.
    pub retention: pkv_retention,
    /// Sessions share prefixes with those of the same salt only; salt_size bytes, up to 256,
    /// copied. NULL: none.
    pub salt: *const c_void,
    pub salt_size: u64,
}

/// What a session holds now.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_session_info {
    pub struct_size: u32,
    pub priority: i32,
    /// 1: between pkv_session_suspend and pkv_session_resume.
    pub suspended: u32,
    /// 0.
    pub reserved: u32,
    /// Committed tokens.
    pub length: u64,
    /// With the remembered ones that are to be computed again; length if there are none.
    pub total: u64,
    /// Blocks held, over all groups, reserved ones too.
    pub blocks: u64,
    /// Of those, held by nobody else: what a suspend or a close gives back.
    pub exclusive_blocks: u64,
}

/// Which attention is computed. Variants combine freely.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_attention_params {
    pub struct_size: u32,
    /// Factor of the scores, finite; 0 (default): 1 / sqrt(key_dim).
    pub scale: f32,
    /// 1 (default): a query sees no position after its own. 0: all of its sequence.
    pub causal: u32,
    /// A query sees its own position and window - 1 before it; 0: all. Default PKV_WINDOW_OF_LAYER
    /// (stateless: all).
    pub window: u32,
    /// 0 (default): none. Finite, not negative.
    pub softcap: f32,
    /// \[query_heads\]; NULL: none.
    pub alibi_slopes: *const f32,
    /// \[query_heads\] logits that take part in the softmax without a value, as learned attention
    /// sinks; NULL: none.
    pub sink_logits: *const f32,
    /// Which new tokens of its own session a new token sees, \[rows\]\[mask_words\]: bit j % 64 of
    /// word j / 64 stands for the session's new token j. What was there before the step is seen as
    /// ever, by causal, window and sinks; of the new tokens just those are whose bit is set and
    /// which the window does not hide. For trees of speculative tokens. NULL: no mask.
    pub mask: *const u64,
    /// Words per row, at most 2^26: 64 \* mask_words must reach the new tokens of every session.
    pub mask_words: u64,
    /// First positions seen whatever the window; PKV_SINKS_OF_LAYER (default; stateless: none).
    pub sinks: u32,
    /// 0.
    pub reserved: u32,
    /// Out, \[rows\]\[query_heads\]: log of the sum of exp(score), sink_logits included (and alone
    /// where nothing was seen; without them -infinity). NULL: not wanted.
    pub lse: *mut f32,
}

/// K and V of one layer in paged memory: a cache's (pkv_cache_kv_view) or the caller's own. Strides
/// count elements of dtype; of INT8 and INT4, whose rows end in scales, bytes. Block b begins at b
/// \* block_stride; in it PLAIN   element (token t, head h, dim d) is at t \* row_stride + h \*
/// head_stride + d; PACKED  tile t / 16 begins at (t / 16) \* row_stride + h \* head_stride;
/// inside, see PKV_LAYOUT_PACKED. Where block_stride == block_size \* row_stride (PLAIN) the same
/// memory is token-flat: slot s begins at s \* row_stride.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_kv_view {
    pub struct_size: u32,
    pub dtype: pkv_dtype,
    pub layout: pkv_layout,
    /// PACKED: a multiple of 16. PLAIN: 1 or more.
    pub block_size: u32,
    pub kv_heads: u32,
    pub key_dim: u32,
    pub value_dim: u32,
    /// Of V; 0: dtype.
    pub value_dtype: pkv_dtype,
    /// How many blocks the memory holds: no id at or above this is followed.
    pub blocks: u64,
    pub k: *const c_void,
    /// NULL: V is the first value_dim dims of K.
    pub v: *const c_void,
    pub k_block_stride: i64,
    pub k_row_stride: i64,
    pub k_head_stride: i64,
    pub v_block_stride: i64,
    pub v_row_stride: i64,
    pub v_head_stride: i64,
}

/// A ragged set of sequences over one pkv_kv_view, described by the caller.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_attention_sequences {
    pub struct_size: u32,
    /// A multiple of the view's kv_heads.
    pub query_heads: u32,
    /// Sequences.
    pub count: u64,
    /// \[count\] query rows of each; they are the last positions of the sequence.
    pub query_lengths: *const u32,
    /// \[count\] positions of each, the queries' own included; at least query_lengths.
    pub kv_lengths: *const u64,
    /// \[count\]\[block_table_stride\] block ids; entries beyond kv_lengths, or before a window,
    /// are not read.
    pub block_tables: *const u32,
    pub block_table_stride: u64,
}

/// Figures of one salt's share of the index, or of all of it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_prefix_stats {
    pub struct_size: u32,
    pub reserved: u32,
    /// Calls of pkv_session_match_prefix, and resumes.
    pub matches: u64,
    /// Tokens asked for.
    pub asked_tokens: u64,
    /// Tokens found.
    pub matched_tokens: u64,
    /// Whole blocks found, positions counted once over all groups.
    pub matched_blocks: u64,
    /// Block positions stored.
    pub published_blocks: u64,
    /// Block positions removed for want of memory.
    pub evicted_blocks: u64,
    /// Block positions stored now.
    pub cached_blocks: u64,
    /// Of those, used by nobody and not pinned.
    pub evictable_blocks: u64,
    /// Block positions removed so far because their salt's quota was full.
    pub expelled_blocks: u64,
    /// Block positions removed so far by pkv_prefix_clear.
    pub cleared_blocks: u64,
    /// Block positions pinned now.
    pub pinned_blocks: u64,
}

/// One block position, of all layer groups. A block is stored after and goes before the one that
/// precedes it. This struct is pinned: it will not grow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_prefix_event {
    /// Counts from 0.
    pub number: u64,
    /// Of the block and all before it: see pkv_prefix_hash_blocks.
    pub hash: u64,
    /// Hash of the block before it; of the first block, of the salt.
    pub parent: u64,
    /// Of its first token.
    pub position: u64,
    pub kind: pkv_prefix_event_kind,
    pub reserved: u32,
}

/// One stream; of path, descriptor, data and size, and functions just those of its kind are looked
/// at.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_stream {
    pub struct_size: u32,
    pub kind: pkv_stream_kind,
    pub path: *const c_char,
    pub descriptor: i32,
    /// 0.
    pub reserved: u32,
    /// BUFFER: written by a save, only read by others.
    pub data: *mut c_void,
    /// Its bytes; of a load, just those of the file.
    pub size: u64,
    /// Moves up to n bytes; returns how many, or a negative errno. 0: the end (read), or an error
    /// (write). A hook: see common.h. Called by the thread that saves or loads.
    pub read: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, u64) -> i64>,
    pub write: Option<unsafe extern "C" fn(*mut c_void, *const c_void, u64) -> i64>,
    pub user: *mut c_void,
}

/// What goes with saving and with loading.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_file_config {
    pub struct_size: u32,
    /// 1: save and load the prefix index, too, as far as the cache has one. Default 0.
    pub prefix_index: u32,
    /// Names the model (a hash of its weights, say): up to 64 bytes; a file with another one is a
    /// MISMATCH. NULL: none.
    pub fingerprint: *const c_void,
    pub fingerprint_size: u64,
    /// 16 to 64 secret bytes: the file is encrypted and authenticated with it. NULL: it is neither;
    /// checksums tell accidents only.
    pub key: *const c_void,
    /// Its bytes.
    pub key_size: u64,
    /// PATH: 1 (default) waits for the disk. With 0 a power cut may lose both files; a killed
    /// process does not.
    pub durable: u32,
    /// Loading into a cache with a prefix index: 1 takes salts from a file without a key. Default
    /// 0: such a file is a MISMATCH if it has texts under a salt, since whoever can write it
    /// chooses to which tenant's index they go. Texts without a salt are taken either way: load no
    /// file that others can write without a key. Saving does not look at it.
    pub trust_salts: u32,
}

/// One sequence to save: a session or a snapshot, the other one NULL. This struct is pinned: it
/// will not grow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_file_item {
    pub session: pkv_session,
    pub snapshot: pkv_snapshot,
    /// The caller's name for it, which pkv_file_load gives back.
    pub label: u64,
}

/// What a file says of itself.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_file_info {
    pub struct_size: u32,
    /// Of the format: 1 without a key, 2 with one.
    pub version: u32,
    /// The file.
    pub bytes: u64,
    /// Of those, keys and values.
    pub kv_bytes: u64,
    pub sessions: u64,
    /// Of all sessions; shared ones count in each.
    pub tokens: u64,
    /// Positions that keys and values are stored of; shared ones count once.
    pub stored_tokens: u64,
    /// Texts of the prefix index.
    pub prefix_entries: u64,
    /// Of the cache that was saved.
    pub block_size: u32,
    pub groups: u32,
    /// Over all groups.
    pub layers: u32,
    /// 0: saved with storage NONE.
    pub has_kv: u32,
    /// 1: saved with a key, so encrypted and authenticated.
    pub authenticated: u32,
    pub fingerprint_size: u32,
    pub fingerprint: [u8; 64],
}

/// One block of one layer group. This struct is pinned: it will not grow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_store_item {
    pub key: [u8; 32],
    /// put: `size` bytes to store, which are only read. get: room for them. probe and drop: NULL.
    pub data: *mut c_void,
    /// get and probe set it: bytes there are under the key; 0 where there is nothing. get copies as
    /// many as there is room for.
    pub size: u64,
}

/// A store: functions that a cache calls, one call at a time from each of its two threads (put from
/// one, the others from both). They return how many of the n items they stored, found or dropped,
/// or a negative errno where the store cannot be reached; then the cache leaves it alone for a
/// while. They are hooks: see common.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_store {
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    pub user: *mut c_void,
    /// Stores items; one that is there already may be left as it is. What is stored may be lost at
    /// any time.
    pub put: Option<unsafe extern "C" fn(*mut c_void, usize, *const pkv_store_item) -> i64>,
    pub get: Option<unsafe extern "C" fn(*mut c_void, usize, *mut pkv_store_item) -> i64>,
    /// As get, without the bytes.
    pub probe: Option<unsafe extern "C" fn(*mut c_void, usize, *mut pkv_store_item) -> i64>,
    /// Forgets items: what they held was not what had been put.
    pub drop: Option<unsafe extern "C" fn(*mut c_void, usize, *const pkv_store_item) -> i64>,
    /// The last call.
    pub close: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// The tier of a cache: give it to pkv_cache_config.store. Storage PAGED with a prefix index has
/// one; others are refused.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_store_config {
    pub struct_size: u32,
    /// How long pkv_session_match_prefix and pkv_session_resume wait for what the store has of
    /// their text. Default 0: they take what is in memory.
    pub wait_ms: u32,
    /// Copied. The cache closes it in pkv_cache_destroy; if pkv_cache_create fails it is the
    /// caller's still.
    pub store: *const pkv_store,
    /// Names the model (a hash of its weights, say): up to 64 bytes.
    pub fingerprint: *const c_void,
    pub fingerprint_size: u64,
    /// 16 to 64 secret bytes: what the store has is encrypted and authenticated with them. NULL:
    /// checksums.
    pub key: *const c_void,
    /// Its bytes.
    pub key_size: u64,
    /// Memory of each of the two threads for bytes on their way; 0: 4 MiB. At least one block, at
    /// most as many as the cache has.
    pub buffer_bytes: u64,
    /// What ends while so many block positions wait to be written is not written. 0: a quarter of
    /// the blocks.
    pub queue_blocks: u64,
}

/// Items are blocks of one layer group.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_store_stats {
    pub struct_size: u32,
    /// 1: the store failed lately and is left alone for a while.
    pub down: u32,
    /// Block positions that wait to be written.
    pub queued_blocks: u64,
    /// Block positions not written: the queue was full, their memory was needed, or the store
    /// failed.
    pub dropped_blocks: u64,
    pub written_items: u64,
    pub written_bytes: u64,
    /// That the store had already.
    pub known_items: u64,
    /// Looked for in the store.
    pub asked_items: u64,
    pub read_items: u64,
    pub read_bytes: u64,
    /// That were not as they had been put: misses.
    pub corrupt_items: u64,
    /// Calls that the store failed.
    pub failures: u64,
}

/// A directory of files, one for each item: survives restarts, and several processes of one user
/// may use it at once. The files belong to that user, and nobody else may read them (mode 0600).
/// The directory must belong to the effective user, and neither its group nor others may write to
/// it, sticky or not; the same holds for the 256 folders that the store makes in it. A symbolic
/// link is not followed, neither to the directory nor inside it. Only what the store itself makes
/// is read, counted and deleted: in folders named 00 to ff, regular files of that user that are
/// named by 62 hexadecimal digits and ".kv", and temporary files (see file.h). Whatever else is
/// there is left alone; where it takes the place of a folder or a file of the store, what belongs
/// there cannot be stored.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pkv_directory_config {
    pub struct_size: u32,
    /// 1: put returns when its files are on disk. Default 0: after a power cut some are missing or
    /// empty, which are misses.
    pub durable: u32,
    /// Made if it is not there, with mode 0700. In a directory of somebody else's, name a new one.
    pub path: *const c_char,
    /// Where the files are larger in all, those not used for longest are deleted; 0: no limit.
    /// Temporary files that are being written count; those that killed processes left go first.
    pub capacity_bytes: u64,
}

/// Hands the list of all functions to a macro: linked and opened at run time they are
/// the same ones.
macro_rules! for_each_function {
    ($use:ident) => {
        $use! {
            /// The name of a status, "PKV_OUT_OF_BLOCKS"; for an unknown value
            /// "PKV_UNKNOWN_STATUS". Static storage. Any thread. Since 0.1.
            fn pkv_status_string(status: pkv_status) -> *const c_char;
            /// One sentence about the last call on this thread that did not return PKV_OK, with its
            /// numbers: "begin needs 12 blocks in group 0, 3 are free (9 short)". Never NULL; ""
            /// when nothing failed yet. Successful calls leave it alone. The text belongs to the
            /// library and stays valid until the next failing call on the same thread. Since 0.1.
            fn pkv_last_error() -> *const c_char;
            /// Version of the loaded library as major \* 1000000 + minor \* 1000 + patch. Any
            /// thread. Since 0.1.
            fn pkv_version() -> u32;
            /// Version of the loaded library as text, "0.1.0". Static storage. Any thread. Since
            /// 0.1.
            fn pkv_version_string() -> *const c_char;
            /// Fills \*config with defaults. Statuses: INVALID_ARGUMENT. Since 0.1.
            fn pkv_pool_config_init(config: *mut pkv_pool_config, struct_size: usize) -> pkv_status;
            /// Makes a pool with every block free. Statuses: INVALID_ARGUMENT, TOO_LARGE,
            /// NO_MEMORY. Since 0.1.
            fn pkv_pool_create(config: *const pkv_pool_config, out: *mut pkv_pool) -> pkv_status;
            /// Frees the pool; its blocks become stale. NULL is OK. Statuses: STALE_HANDLE, BUSY (a
            /// call is under way). Since 0.1.
            fn pkv_pool_destroy(pool: pkv_pool) -> pkv_status;
            /// Takes n blocks, all or none, each with one reference, no slot filled, not sealed.
            /// The lowest free ids near the caller's last one come first. n = 0 is OK. Statuses:
            /// OUT_OF_BLOCKS (nothing taken), TOO_LARGE (n exceeds the pool). Since 0.1.
            fn pkv_pool_alloc(pool: pkv_pool, n: usize, blocks: *mut pkv_block) -> pkv_status;
            /// Adds one reference to each of n blocks, all or none. A block may stand in the list
            /// more than once. Statuses: OUT_OF_RANGE (no such id), STALE_HANDLE (freed since),
            /// REF_LIMIT. Since 0.1.
            fn pkv_pool_retain(pool: pkv_pool, n: usize, blocks: *const pkv_block) -> pkv_status;
            /// Drops one reference of each of n blocks; a block whose last reference goes is free,
            /// its slots empty. The whole list is checked before anything is released. Statuses:
            /// OUT_OF_RANGE, DOUBLE_FREE (already free, freed and given out again, or twice in the
            /// list), NO_MEMORY (lists of more than 64 blocks need scratch). Since 0.1.
            fn pkv_pool_release(pool: pkv_pool, n: usize, blocks: *const pkv_block) -> pkv_status;
            /// Claims the next n free slots of a block for writing and returns the offset of the
            /// first. Only the owner of a block that nobody shares writes to it. Statuses:
            /// OUT_OF_RANGE, STALE_HANDLE, BLOCK_SEALED, BLOCK_FULL (fewer than n slots are left),
            /// BUSY (shared). Since 0.1.
            fn pkv_pool_claim(pool: pkv_pool, block: pkv_block, n: u32, offset: *mut u32) ->
                pkv_status;
            /// Makes a block read-only until it is freed or reset. Sealing twice is OK. Statuses:
            /// OUT_OF_RANGE, STALE_HANDLE. Since 0.1.
            fn pkv_pool_seal(pool: pkv_pool, block: pkv_block) -> pkv_status;
            /// Empties and unseals a block that only the caller holds. Statuses: OUT_OF_RANGE,
            /// STALE_HANDLE, BUSY (shared). Since 0.1.
            fn pkv_pool_reset(pool: pkv_pool, block: pkv_block) -> pkv_status;
            /// The state of the block with this id now, free or not. Statuses: OUT_OF_RANGE. Since
            /// 0.1.
            fn pkv_pool_block_state(pool: pkv_pool, id: u32, out: *mut pkv_block_state) ->
                pkv_status;
            /// Counts of the pool; exact when the pool is at rest. Statuses: none of its own. Since
            /// 0.1.
            fn pkv_pool_get_stats(pool: pkv_pool, out: *mut pkv_pool_stats) -> pkv_status;
            /// Checks every invariant of the pool (free bits, counter, references, fill). Call it
            /// with the pool at rest. Statuses: INTERNAL with the equation that does not hold.
            /// Since 0.1.
            fn pkv_pool_validate(pool: pkv_pool) -> pkv_status;
            /// Fills \*config with defaults. Statuses: INVALID_ARGUMENT. Since 0.1.
            fn pkv_cache_config_init(config: *mut pkv_cache_config, struct_size: usize) ->
                pkv_status;
            /// Fills \*group with defaults (a dense value_dim, F32, no window). Statuses:
            /// INVALID_ARGUMENT. Since 0.1.
            fn pkv_layer_group_init(group: *mut pkv_layer_group, struct_size: usize) -> pkv_status;
            /// What a cache of this config would take; allocates nothing. group: an index for one
            /// group, or PKV_ALL_GROUPS. Statuses: INVALID_ARGUMENT, OUT_OF_RANGE, OVERFLOW,
            /// TOO_LARGE, UNSUPPORTED (isa; an index or a store that the storage cannot have).
            /// Since 0.1.
            fn pkv_cache_compute_plan(config: *const pkv_cache_config, group: u32, out: *mut
                pkv_cache_plan) -> pkv_status;
            /// Makes a cache. Memory is reserved now; it is touched as blocks are first used,
            /// unless prefault is set. Statuses: INVALID_ARGUMENT, OUT_OF_RANGE (layer_indices),
            /// OVERFLOW, TOO_LARGE, NO_MEMORY, UNSUPPORTED (as above). Since 0.1.
            fn pkv_cache_create(config: *const pkv_cache_config, out: *mut pkv_cache) -> pkv_status;
            /// Closes the cache, its sessions, batches and snapshots: their handles are stale from
            /// now on. NULL is OK. Statuses: STALE_HANDLE, BUSY. Since 0.1.
            fn pkv_cache_destroy(cache: pkv_cache) -> pkv_status;
            /// Tells what the cache was made with. Statuses: none of its own. Since 0.1.
            fn pkv_cache_get_info(cache: pkv_cache, out: *mut pkv_cache_info) -> pkv_status;
            /// Counts over all groups. Exact while no other thread uses the cache. Statuses: none
            /// of its own. Since 0.1.
            fn pkv_cache_get_stats(cache: pkv_cache, out: *mut pkv_cache_stats) -> pkv_status;
            /// Counts of the pool of one group. Statuses: OUT_OF_RANGE. Since 0.1.
            fn pkv_cache_get_pool_stats(cache: pkv_cache, group: u32, out: *mut pkv_pool_stats) ->
                pkv_status;
            /// The figures of the cache as text in the exposition format of Prometheus, ready to be
            /// served: gauges of blocks by group and state, memory, open objects; counters of
            /// tokens, steps, suspensions, copies and of the prefix index (over all salts). text
            /// gets \*size bytes with the final NUL; \*size is written on BUFFER_TOO_SMALL, too.
            /// Counts move while others use the cache: leave some room. Statuses: BUFFER_TOO_SMALL.
            /// Since 0.1.
            fn pkv_cache_format_metrics(cache: pkv_cache, capacity: usize, text: *mut c_char, size:
                *mut usize) -> pkv_status;
            /// Checks every invariant: pools, and that the references of all sessions, snapshots
            /// and batches are just those the pools count. Call it while no other thread uses the
            /// cache. Statuses: INTERNAL with what does not hold. Since 0.1.
            fn pkv_cache_validate(cache: pkv_cache) -> pkv_status;
            /// 1 in \*out if this build has kernels for the instruction set and this processor can
            /// run them. AUTO is always there. Statuses: INVALID_ARGUMENT. Since 0.1.
            fn pkv_isa_supported(isa: pkv_isa, out: *mut i32) -> pkv_status;
            /// "avx512"; for an unknown value "unknown". Static storage. Since 0.1.
            fn pkv_isa_name(isa: pkv_isa) -> *const c_char;
            /// Fills \*config with defaults. Statuses: INVALID_ARGUMENT. Since 0.1.
            fn pkv_session_config_init(config: *mut pkv_session_config, struct_size: usize) ->
                pkv_status;
            /// Opens an empty session. config may be NULL. Statuses: OUT_OF_BLOCKS, TOO_LARGE,
            /// NO_MEMORY. Since 0.1.
            fn pkv_session_open(cache: pkv_cache, config: *const pkv_session_config, out: *mut
                pkv_session) -> pkv_status;
            /// Gives every block back that nobody else holds. NULL is OK. Statuses: STALE_HANDLE,
            /// BUSY (in a batch). Since 0.1.
            fn pkv_session_close(session: pkv_session) -> pkv_status;
            /// Committed tokens; 0 while the session is suspended. Statuses: none of its own. Since
            /// 0.1.
            fn pkv_session_length(session: pkv_session, tokens: *mut u64) -> pkv_status;
            /// Tokens whose K and V this layer holds: more than the length while a step is in
            /// flight and the layer was written. Statuses: OUT_OF_RANGE. Since 0.1.
            fn pkv_session_layer_length(session: pkv_session, layer: u32, tokens: *mut u64) ->
                pkv_status;
            /// Copies token ids of positions \[first, first + n): committed ones, and those
            /// remembered by pkv_session_suspend. Statuses: OUT_OF_RANGE. Since 0.1.
            fn pkv_session_tokens(session: pkv_session, first: u64, n: usize, tokens: *mut i32) ->
                pkv_status;
            /// Tells the ids of committed positions that were committed without
            /// (pkv_session_prefill, pkv_session_push). Statuses: OUT_OF_RANGE, INVALID_ARGUMENT (a
            /// position that has another id already). Since 0.1.
            fn pkv_session_set_tokens(session: pkv_session, first: u64, n: usize, tokens: *const
                i32) -> pkv_status;
            /// Makes room for total_tokens tokens in all, all groups or none; a later step up to
            /// there cannot run out of blocks. Never shrinks. Statuses: OUT_OF_BLOCKS, TOO_LARGE,
            /// NO_MEMORY, BUSY. Since 0.1.
            fn pkv_session_reserve(session: pkv_session, total_tokens: u64) -> pkv_status;
            /// Replaces what the session holds, one layer per call, without a batch: n rows of keys
            /// (in, \[n\]\[kv_heads\]\[key_dim\]) and values (in, \[n\]\[kv_heads\]\[value_dim\]).
            /// The first call begins the step; when every layer was given once the step is
            /// committed and the length is n. Every call of a step has the same n. The old content
            /// is gone from the first call on. pkv_session_trim (to any length up to
            /// pkv_session_length) ends an unfinished step. Statuses: OUT_OF_BLOCKS, TOO_LARGE,
            /// NO_MEMORY, OUT_OF_RANGE (layer), INVALID_ARGUMENT (another n than the step's),
            /// UNSUPPORTED (storage NONE), BUSY. Since 0.1.
            fn pkv_session_prefill(session: pkv_session, layer: u32, n: usize, k: *const pkv_tensor,
                v: *const pkv_tensor) -> pkv_status;
            /// As pkv_session_prefill, but appends one row of keys and values. Statuses: as there.
            /// Since 0.1.
            fn pkv_session_push(session: pkv_session, layer: u32, k: *const pkv_tensor, v: *const
                pkv_tensor) -> pkv_status;
            /// Keeps the first `length` tokens and gives back every block beyond them (reserved
            /// ones too). Ends an unfinished pkv_session_prefill or pkv_session_push. Statuses:
            /// OUT_OF_RANGE (longer than it is, or a window group no longer has what it needs),
            /// BUSY. Since 0.1.
            fn pkv_session_trim(session: pkv_session, length: u64) -> pkv_status;
            /// Opens a session with the same tokens. Blocks are shared, the part-filled last one
            /// too; whoever writes to it first copies that one block. Storage CONTIGUOUS copies
            /// everything. Statuses: NO_MEMORY, REF_LIMIT, OUT_OF_BLOCKS (CONTIGUOUS), BUSY. Since
            /// 0.1.
            fn pkv_session_fork(session: pkv_session, out: *mut pkv_session) -> pkv_status;
            /// Gives back every block that nobody else holds (preemption) and remembers the token
            /// ids. The session is empty then, and its length 0. Until it is resumed, trimmed or
            /// prefilled anew, calls that would add to it return PKV_SUSPENDED. Needs no memory.
            /// Suspending twice is OK. Ends an unfinished pkv_session_prefill or pkv_session_push.
            /// Statuses: BUSY. Since 0.1.
            fn pkv_session_suspend(session: pkv_session) -> pkv_status;
            /// Ends the suspension: reserves the blocks that the remembered tokens need, for all or
            /// for none (window groups: those of one window), and says from where on their K and V
            /// must be computed again: positions \[\*length, \*total), whose ids pkv_session_tokens
            /// tells. Prefill them by batches of any size, which may go beyond total; a commit
            /// without ids takes the remembered ones, one with others is refused. A trim, or
            /// pkv_session_prefill, forgets what is remembered. A session that is not suspended:
            /// OK, with its length and what it remembers. blocks_short (may be NULL) as in
            /// pkv_batch_begin. Statuses: OUT_OF_BLOCKS, TOO_LARGE, NO_MEMORY (suspended still),
            /// BUSY. Since 0.1.
            fn pkv_session_resume(session: pkv_session, length: *mut u64, total: *mut u64,
                blocks_short: *mut u64) -> pkv_status;
            /// Changes the priority of pkv_session_config. Statuses: BUSY. Since 0.1.
            fn pkv_session_set_priority(session: pkv_session, priority: i32) -> pkv_status;
            /// Tells what the session holds. Statuses: none of its own. Since 0.1.
            fn pkv_session_get_info(session: pkv_session, out: *mut pkv_session_info) -> pkv_status;
            /// Block ids of one group, logical block i (tokens i \* block_size and on) at ids\[i\];
            /// PKV_NO_BLOCK where the block left the window (one step late: see pkv_layer_group).
            /// \*count is the number of entries, written on PKV_OK and on BUFFER_TOO_SMALL;
            /// reserved blocks are among them. ids may be NULL if capacity is 0. Statuses:
            /// OUT_OF_RANGE, BUFFER_TOO_SMALL, UNSUPPORTED (CONTIGUOUS). Since 0.1.
            fn pkv_session_block_table(session: pkv_session, group: u32, capacity: usize, ids: *mut
                u32, count: *mut usize) -> pkv_status;
            /// Slots of positions \[first, first + n) of one group: block id \* block_size +
            /// offset, -1 where the block left the window. Positions up to the end of the last
            /// block held may be asked for. Statuses: OUT_OF_RANGE, UNSUPPORTED (CONTIGUOUS). Since
            /// 0.1.
            fn pkv_session_slot_mapping(session: pkv_session, group: u32, first: u64, n: usize,
                slots: *mut i64) -> pkv_status;
            /// Slots attention reads now in one group, in token order: those of all committed
            /// tokens and of the step in flight that the window still holds. \*count as in
            /// pkv_session_block_table. Statuses: as there. Since 0.1.
            fn pkv_session_kv_indices(session: pkv_session, group: u32, capacity: usize, slots: *mut
                i64, count: *mut usize) -> pkv_status;
            /// Reads keys and values of one layer back as dense rows: k
            /// \[n\]\[kv_heads\]\[key_dim\] and v \[n\]\[kv_heads\]\[value_dim\] (out; either may
            /// be NULL) for positions \[first, first + n). Positions of a step in flight are there
            /// once the layer was written. Statuses: OUT_OF_RANGE (also: the window no longer holds
            /// them), UNSUPPORTED (NONE). Since 0.1.
            fn pkv_session_materialize(session: pkv_session, layer: u32, first: u64, n: usize, k:
                *const pkv_tensor, v: *const pkv_tensor) -> pkv_status;
            /// Fills \*params with defaults. Statuses: INVALID_ARGUMENT. Since 0.1.
            fn pkv_attention_params_init(params: *mut pkv_attention_params, struct_size: usize) ->
                pkv_status;
            /// The memory of one layer of a paged cache, for engines with kernels of their own. The
            /// addresses stay valid as long as the cache; which blocks hold what is told by
            /// pkv_session_block_table. Read only. Statuses: OUT_OF_RANGE (layer), UNSUPPORTED (not
            /// PAGED). Since 0.1.
            fn pkv_cache_kv_view(cache: pkv_cache, layer: u32, out: *mut pkv_kv_view) -> pkv_status;
            /// Attention without a cache: over a view and block tables that the caller owns. q (in)
            /// is \[sum of query_lengths\]\[query_heads\]\[key_dim\], out \[same
            /// rows\]\[query_heads\]\[value_dim\]. params may be NULL. Runs on all processors.
            /// Nothing is kept. Any thread. Statuses: INVALID_ARGUMENT, OUT_OF_RANGE (a block id or
            /// a length), OVERFLOW, NO_MEMORY. Since 0.1.
            fn pkv_attention(kv: *const pkv_kv_view, sequences: *const pkv_attention_sequences,
                params: *const pkv_attention_params, q: *const pkv_tensor, out: *const pkv_tensor)
                -> pkv_status;
            /// Combines results of several attention calls over the same queries and different
            /// positions, by their lse: merged = sum_i exp(lse\[i\]) out\[i\] / sum_i
            /// exp(lse\[i\]). outs (\[count\], in) are \[rows\]\[heads\]\[dim\], lse (\[count\],
            /// in) \[rows\]\[heads\], merged (out) \[rows\]\[heads\]\[dim\], merged_lse (out, may
            /// be NULL) \[rows\]\[heads\]. A result with lse -infinity counts for nothing. Sink
            /// logits belong into one of the calls only. Any thread. Statuses: INVALID_ARGUMENT,
            /// OUT_OF_RANGE, OVERFLOW, NO_MEMORY. Since 0.1.
            fn pkv_merge_states(count: usize, outs: *const pkv_tensor, lse: *const *const f32, rows:
                usize, heads: u32, dim: u32, merged: *const pkv_tensor, merged_lse: *mut f32) ->
                pkv_status;
            /// Begins a step: reserves the blocks of all new tokens in all groups, for every
            /// session or for none. new_tokens\[i\] may be 0. blocks_short (may be NULL) is written
            /// on OUT_OF_BLOCKS: how many blocks must be freed before the same call can work.
            /// Statuses: OUT_OF_BLOCKS, TOO_LARGE (also: more sessions than can be open, 2^22),
            /// OVERFLOW, NO_MEMORY, WRONG_CACHE, BUSY (a session is in a batch already, or twice in
            /// the list), SUSPENDED, STALE_HANDLE. Since 0.1.
            fn pkv_batch_begin(cache: pkv_cache, count: usize, sessions: *const pkv_session,
                new_tokens: *const u32, blocks_short: *mut u64, out: *mut pkv_batch) -> pkv_status;
            /// Sessions to suspend (or close) so that pkv_batch_begin with the rest of this list
            /// gets its blocks: those of the lowest priority first, and of those the one opened
            /// last. Sessions of the list may be among them; the first in rank never is. Left out
            /// are sessions in use by another call or batch, and those that hold no block. What
            /// victims share counts as freed once all holders are victims. \*count is how many
            /// there are, 0: begin needs none; as in pkv_session_block_table. The answer holds
            /// until something else takes or gives blocks. For the thread that schedules: it looks
            /// at every session, and calls that would change one meanwhile return BUSY. Statuses:
            /// OUT_OF_BLOCKS (even with all others suspended), TOO_LARGE and OVERFLOW as above,
            /// BUFFER_TOO_SMALL, WRONG_CACHE, NO_MEMORY, BUSY (a session of the list), SUSPENDED.
            /// Since 0.1.
            fn pkv_batch_choose_victims(cache: pkv_cache, count: usize, sessions: *const
                pkv_session, new_tokens: *const u32, capacity: usize, victims: *mut pkv_session,
                victim_count: *mut usize) -> pkv_status;
            /// Rows of this batch: the sum of new_tokens. Statuses: none of its own. Since 0.1.
            fn pkv_batch_rows(batch: pkv_batch, rows: *mut usize) -> pkv_status;
            /// Stores keys (in, \[rows\]\[kv_heads\]\[key_dim\]) and values (in,
            /// \[rows\]\[kv_heads\]\[value_dim\]) of one layer. A layer may be written again before
            /// the commit. Statuses: OUT_OF_RANGE (layer), UNSUPPORTED (NONE). Since 0.1.
            fn pkv_batch_write(batch: pkv_batch, layer: u32, k: *const pkv_tensor, v: *const
                pkv_tensor) -> pkv_status;
            /// Attention of all rows over their sessions, the new tokens included: q (in)
            /// \[rows\]\[query_heads\]\[key_dim\], out \[rows\]\[query_heads\]\[value_dim\]. params
            /// may be NULL. out may not overlap q. A head's row of q that is not finite gives what
            /// IEEE 754 says, or NaN where K is INT8 or INT4; it does not touch the results of
            /// other rows. Where V is INT4, an element of it that is not finite makes NaN of the
            /// results that see it, of its 32 dims or of all. Statuses: INCOMPLETE (the layer was
            /// not written), OUT_OF_RANGE (layer, or a window larger than the group's), UNSUPPORTED
            /// (NONE), NO_MEMORY. Since 0.1.
            fn pkv_batch_attend(batch: pkv_batch, layer: u32, params: *const pkv_attention_params,
                q: *const pkv_tensor, out: *const pkv_tensor) -> pkv_status;
            /// Ends the step: every session is longer by its new tokens, full blocks are sealed,
            /// and the batch handle is closed. tokens (\[rows\], in) are the ids of the new tokens;
            /// NULL: they stay PKV_NO_TOKEN, or what pkv_session_suspend remembered. Statuses:
            /// INCOMPLETE (a layer was not written; not for NONE), INVALID_ARGUMENT (another id
            /// than the remembered one), NO_MEMORY: the batch is still open then. Since 0.1.
            fn pkv_batch_commit(batch: pkv_batch, tokens: *const i32) -> pkv_status;
            /// Keeps only some of the new tokens of the batch's session number i (in the order of
            /// begin): kept (\[count\], rising) are indices among its new tokens, 0 the first.
            /// Their keys and values move together, bit by bit, to where a commit of just these
            /// tokens has them: the accepted path of a tree of speculative tokens. Every layer must
            /// be written; then only commit and abort are left. The tokens of commit stay \[rows\].
            /// May be called once per session. Statuses: OUT_OF_RANGE, INVALID_ARGUMENT (not
            /// rising, or a second time), INCOMPLETE, UNSUPPORTED (NONE), NO_MEMORY. Since 0.1.
            fn pkv_batch_accept(batch: pkv_batch, i: usize, count: usize, kept: *const u32) ->
                pkv_status;
            /// Ends the step as if it had never begun; the handle is closed. NULL is OK. Statuses:
            /// none of its own. Since 0.1.
            fn pkv_batch_abort(batch: pkv_batch) -> pkv_status;
            /// Slots of all new tokens in one group, \[rows\]: where an engine with bytes of its
            /// own writes them. Statuses: OUT_OF_RANGE, BUFFER_TOO_SMALL, UNSUPPORTED (CONTIGUOUS).
            /// \*count as in pkv_session_block_table. Since 0.1.
            fn pkv_batch_slot_mapping(batch: pkv_batch, group: u32, capacity: usize, slots: *mut
                i64, count: *mut usize) -> pkv_status;
            /// Blocks that begin replaced in one group because they were shared and part-filled:
            /// the step writes into to\[i\] in the place of from\[i\]. Storage PAGED has copied the
            /// bytes already; with storage NONE the engine copies them before it writes. \*count as
            /// in pkv_session_block_table. Statuses: as pkv_batch_slot_mapping. Since 0.1.
            fn pkv_batch_block_copies(batch: pkv_batch, group: u32, capacity: usize, from: *mut u32,
                to: *mut u32, count: *mut usize) -> pkv_status;
            /// Forward metadata in compressed rows: session i reads indices\[indptr\[i\] ..
            /// indptr\[i + 1\]) (block ids or slots, the new tokens included, in token order, what
            /// left the window left out). indptr has count + 1 entries. last_block_length
            /// (\[count\], may be NULL) tells how many tokens the last block holds. \*count is the
            /// number of indices, as in pkv_session_block_table. Statuses: as
            /// pkv_batch_slot_mapping. Since 0.1.
            fn pkv_batch_kv_indices(batch: pkv_batch, group: u32, unit: pkv_index_unit, indptr: *mut
                i64, capacity: usize, indices: *mut i64, count: *mut usize, last_block_length: *mut
                u32) -> pkv_status;
            /// Freezes what the session holds now. It outlives the session. Storage CONTIGUOUS
            /// copies. Statuses: NO_MEMORY, REF_LIMIT, OUT_OF_BLOCKS (CONTIGUOUS), BUSY (a step is
            /// in flight). Since 0.1.
            fn pkv_snapshot_take(session: pkv_session, out: *mut pkv_snapshot) -> pkv_status;
            /// Opens a new session with the frozen content. Statuses: WRONG_CACHE, NO_MEMORY,
            /// REF_LIMIT, OUT_OF_BLOCKS (CONTIGUOUS). Since 0.1.
            fn pkv_snapshot_open(cache: pkv_cache, snapshot: pkv_snapshot, out: *mut pkv_session) ->
                pkv_status;
            /// Tokens it holds. Statuses: none of its own. Since 0.1.
            fn pkv_snapshot_length(snapshot: pkv_snapshot, tokens: *mut u64) -> pkv_status;
            /// Drops the references. NULL is OK. Statuses: STALE_HANDLE, BUSY. Since 0.1.
            fn pkv_snapshot_close(snapshot: pkv_snapshot) -> pkv_status;
            /// Fills \*config with defaults. Statuses: INVALID_ARGUMENT. Since 0.1.
            fn pkv_prefix_config_init(config: *mut pkv_prefix_config, struct_size: usize) ->
                pkv_status;
            /// Gives an empty session (or one that was suspended, before it is stepped) the longest
            /// cached beginning of a text: tokens \[0, \*matched) have their K and V then, and the
            /// session's length is \*matched. n tokens are asked for; leave the last one out where
            /// its output is needed. Nothing found: \*matched is 0. A cache without an index, or a
            /// session that does not use it: 0, too. Statuses: INVALID_ARGUMENT (the session holds
            /// tokens or reserved blocks, also where there is no index; or PKV_NO_TOKEN),
            /// SUSPENDED, BUSY. Since 0.1.
            fn pkv_session_match_prefix(session: pkv_session, n: usize, tokens: *const i32, matched:
                *mut u64) -> pkv_status;
            /// Tells the figures of one salt. NULL with size 0: of sessions without one;
            /// PKV_ALL_SALTS: of the whole index. Statuses: UNSUPPORTED (no index), TOO_LARGE
            /// (salt). Since 0.1.
            fn pkv_prefix_get_stats(cache: pkv_cache, salt: *const c_void, salt_size: usize, out:
                *mut pkv_prefix_stats) -> pkv_status;
            /// Drops every cached block that nobody uses and that is not pinned, of one salt or
            /// (PKV_ALL_SALTS) of all. Statuses: as above. Since 0.1.
            fn pkv_prefix_clear(cache: pkv_cache, salt: *const c_void, salt_size: usize) ->
                pkv_status;
            /// Pins what is cached of a text: its whole blocks stay cached, though nobody uses
            /// them, until they are unpinned as often. \*pinned says how many tokens that is, 0
            /// where nothing is cached. Compute a system prompt once, close its session, pin it.
            /// The config's pinned_blocks bounds what is pinned in all. Statuses: UNSUPPORTED (no
            /// index), TOO_LARGE (salt), OUT_OF_BLOCKS (beyond pinned_blocks: nothing is pinned),
            /// REF_LIMIT. Since 0.1.
            fn pkv_prefix_pin(cache: pkv_cache, salt: *const c_void, salt_size: usize, n: usize,
                tokens: *const i32, pinned: *mut u64) -> pkv_status;
            /// Takes back the longest pin of a beginning of the text; \*unpinned says how many
            /// tokens it had. Statuses: as above; DOUBLE_FREE (nothing of it is pinned). Since 0.1.
            fn pkv_prefix_unpin(cache: pkv_cache, salt: *const c_void, salt_size: usize, n: usize,
                tokens: *const i32, unpinned: *mut u64) -> pkv_status;
            /// At most so many block positions are cached of one salt from now on; 0: no limit;
            /// PKV_DEFAULT_QUOTA: that of the config again. Where a salt is full, its own blocks
            /// that nobody uses make room, those used longest ago first; where all are in use, what
            /// its sessions compute is not cached. What is over the quota already goes at once if
            /// nobody uses it. Statuses: UNSUPPORTED, TOO_LARGE (salt), NO_MEMORY. Since 0.1.
            fn pkv_prefix_set_quota(cache: pkv_cache, salt: *const c_void, salt_size: usize, blocks:
                u64) -> pkv_status;
            /// Copies events in their order. \*next: the number of the first one wanted, 0 at
            /// first; afterwards that of the next one. \*n: room in `events`; afterwards how many
            /// were written. \*lost (may be NULL): how many of those wanted had been overwritten,
            /// since the cache keeps only the last ones; then ask again for all there is by another
            /// way. Several readers may each keep a number of their own. Whoever reads events sees
            /// those of all salts. Statuses: UNSUPPORTED (no index, or its config keeps no events).
            /// Since 0.1.
            fn pkv_prefix_read_events(cache: pkv_cache, next: *mut u64, n: *mut usize, events: *mut
                pkv_prefix_event, lost: *mut u64) -> pkv_status;
            /// The hashes that events have for the whole blocks of a text: n / block_size of them
            /// are written. That of a block is XXH3 (64 bits) of its token ids (int32, native byte
            /// order) with the hash of the block before as seed; before the first stands XXH3 of
            /// the salt's bytes without a seed. They say where a text is likely cached, never what
            /// is the same. block_size: 16 to 256, a multiple of 16. Statuses: TOO_LARGE (salt).
            /// Since 0.1.
            fn pkv_prefix_hash_blocks(salt: *const c_void, salt_size: usize, block_size: u32, n:
                usize, tokens: *const i32, hashes: *mut u64) -> pkv_status;
            /// Fills \*stream with zeros and struct_size. Statuses: INVALID_ARGUMENT. Since 0.1.
            fn pkv_stream_init(stream: *mut pkv_stream, struct_size: usize) -> pkv_status;
            /// Fills \*config with defaults. Statuses: INVALID_ARGUMENT. Since 0.1.
            fn pkv_file_config_init(config: *mut pkv_file_config, struct_size: usize) -> pkv_status;
            /// Saves n sequences of a cache, and (config-\>prefix_index) its prefix index: tokens,
            /// keys and values as they are stored, what a window has left, priorities, retentions,
            /// salts, tokens remembered by a suspension. n may be 0; config may be NULL. \*bytes
            /// (may be NULL) is the size of the file, written on PKV_OK and, for a buffer, on
            /// BUFFER_TOO_SMALL; data may be NULL if size is 0. Storage NONE saves tokens and
            /// tables only. Sequences stay in use until the call returns. The prefix index does
            /// not: steps evict from it as ever, and a text of which they take blocks before these
            /// were written is shorter in the file. Statuses: BUFFER_TOO_SMALL, WRONG_CACHE, BUSY
            /// (a step is in flight), IO, UNSUPPORTED (a key, in a build without libsodium or
            /// libcrypto), TOO_LARGE (fingerprint, key), REF_LIMIT. Since 0.1.
            fn pkv_file_save(cache: pkv_cache, n: usize, items: *const pkv_file_item, config: *const
                pkv_file_config, to: *const pkv_stream, bytes: *mut u64) -> pkv_status;
            /// Opens every sequence of a file as a session of the cache, in the order of
            /// pkv_file_save; labels may be NULL. \*count is how many there are, written on PKV_OK
            /// and on BUFFER_TOO_SMALL. Layers, KV heads, dims, windows and sinks must be those of
            /// the cache. Blocks may have any size, except that what a window group holds must fill
            /// whole blocks (it does if the new size divides the old one). Of the prefix index,
            /// entries that the cache has already are not loaded twice; pins, quotas and what it
            /// has learned of reuse are not saved. A path or a buffer must end where the file ends.
            /// Blocks are taken as by pkv_batch_begin, cached ones nobody uses included: those are
            /// evicted only after all of the file was checked, or, where a stream cannot be read
            /// twice (a pipe, callbacks), as soon as its tables were. Entries of the prefix index
            /// for which there is no memory are left out, and those used longest ago of a file
            /// whose entries would fill the cache more than 64 times. Statuses: BUFFER_TOO_SMALL,
            /// CORRUPT (also a wrong key), VERSION, MISMATCH (another model, fingerprint, dtype or
            /// storage; a key where there is none in the file, or none given where there is; salts
            /// without a key, see trust_salts), IO, OUT_OF_BLOCKS, TOO_LARGE, UNSUPPORTED (as
            /// above), REF_LIMIT. Since 0.1.
            fn pkv_file_load(cache: pkv_cache, config: *const pkv_file_config, from: *const
                pkv_stream, capacity: usize, sessions: *mut pkv_session, labels: *mut u64, count:
                *mut usize) -> pkv_status;
            /// Reads the tables of a file, not its keys and values, and tells what it holds; needs
            /// no cache. Of config (may be NULL) the key is used, and a fingerprint compared.
            /// Statuses: CORRUPT, VERSION, MISMATCH (key, fingerprint), IO, UNSUPPORTED, TOO_LARGE.
            /// Since 0.1.
            fn pkv_file_inspect(config: *const pkv_file_config, from: *const pkv_stream, out: *mut
                pkv_file_info) -> pkv_status;
            /// Fills \*config with defaults. Statuses: INVALID_ARGUMENT. Since 0.1.
            fn pkv_store_config_init(config: *mut pkv_store_config, struct_size: usize) ->
                pkv_status;
            /// Begins to read what the store has of a text into the prefix index, beyond what is in
            /// memory, and returns: for a request that waits for its turn. A later
            /// pkv_session_match_prefix finds it. Only blocks that are free or evictable are taken.
            /// 64 texts wait at most; then the oldest is given up. Statuses: UNSUPPORTED (the cache
            /// has no store), TOO_LARGE (salt). Since 0.1.
            fn pkv_store_prefetch(cache: pkv_cache, salt: *const c_void, salt_size: usize, n: usize,
                tokens: *const i32) -> pkv_status;
            /// The same for what a suspended session is going to compute again. One that is not
            /// suspended has nothing to be read. Statuses: as above, BUSY. Since 0.1.
            fn pkv_store_prefetch_session(session: pkv_session) -> pkv_status;
            /// Waits until no prefetch of the text, or of one with which it agrees as far as both
            /// go, is under way that was not given up, at most timeout_ms. \*cached: its tokens
            /// that are in memory now, in whole blocks. Statuses: UNSUPPORTED, TOO_LARGE (salt).
            /// Since 0.1.
            fn pkv_store_wait(cache: pkv_cache, salt: *const c_void, salt_size: usize, n: usize,
                tokens: *const i32, timeout_ms: u32, cached: *mut u64) -> pkv_status;
            /// Gives up the prefetches that pkv_store_wait would wait for. Statuses: as above.
            /// Since 0.1.
            fn pkv_store_cancel(cache: pkv_cache, salt: *const c_void, salt_size: usize, n: usize,
                tokens: *const i32) -> pkv_status;
            /// Waits until what ended before is written, at most timeout_ms; \*queued: block
            /// positions that still wait. pkv_cache_destroy does the same without a limit, for as
            /// long as the store takes what it is given. Statuses: UNSUPPORTED. Since 0.1.
            fn pkv_store_flush(cache: pkv_cache, timeout_ms: u32, queued: *mut u64) -> pkv_status;
            /// What the tier has done so far. Statuses: UNSUPPORTED. Since 0.1.
            fn pkv_store_get_stats(cache: pkv_cache, out: *mut pkv_store_stats) -> pkv_status;
            /// Fills \*config with defaults. Statuses: INVALID_ARGUMENT. Since 0.1.
            fn pkv_directory_config_init(config: *mut pkv_directory_config, struct_size: usize) ->
                pkv_status;
            /// Opens a directory as a store; out-\>close closes it. Deletes what killed processes
            /// left unfinished in it. Statuses: IO (the errno in its sentence is EPERM where the
            /// directory is somebody else's or others may write to it, ELOOP for a symbolic link).
            /// Since 0.1.
            fn pkv_store_open_directory(config: *const pkv_directory_config, out: *mut pkv_store) ->
                pkv_status;
        }
    };
}
pub(crate) use for_each_function;
