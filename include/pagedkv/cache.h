/* pagedkv: pkv_cache, the KV cache of a model: its layer groups, their blocks, and the threads and
 * kernels that attend over them.
 *
 * Threads: every function may be called from any thread, and different threads may use different
 * sessions of a cache at once. pkv_cache_destroy returns PKV_BUSY while another thread is inside a
 * call on the cache or on anything that belongs to it; calls that begin while it runs also
 * return PKV_BUSY.
 */
#ifndef PAGEDKV_CACHE_H
#define PAGEDKV_CACHE_H

#include <pagedkv/common.h>
#include <pagedkv/stats.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The K and V of all sequences of a model. */
typedef struct pkv_cache_t* pkv_cache;

/** Where keys and values are stored. */
typedef enum pkv_storage PKV_ENUM {
  PKV_STORAGE_INTERNAL = 0, /**< In the library's blocks (default). */
  /**
   * In the engine's memory; the cache has only block ids. Write, attend and read are UNSUPPORTED.
   * The library can still copy the blocks if all groups are opaque (PKV_LAYERS_OPAQUE_KV,
   * PKV_LAYERS_OPAQUE_STATES).
   */
  PKV_STORAGE_EXTERNAL = 1
} pkv_storage;

/** The layout of the bytes of blocks with storage INTERNAL. */
typedef enum pkv_layout PKV_ENUM {
  /**
   * For this library's kernels (default): tiles of 16 tokens of one KV head. The order of the bytes
   * is private and may change in any version; only the functions of this library read and write
   * them.
   */
  PKV_LAYOUT_PACKED = 0,
  /**
   * Layer-major, for engines with their own kernels: per layer one K tensor [block][block_size][kv
   * head][key_dim] and one V tensor [block][block_size][kv head][value_dim]. Each can also be
   * indexed by slot, as [slot][kv head][dim]. With INT8 and INT4, the elements of each token and
   * head are followed by their scales (kv.h).
   */
  PKV_LAYOUT_PLAIN = 1
} pkv_layout;

/**
 * Instruction sets. On x86 each one includes those before it in this order: SSE2, AVX2, AVX512,
 * AVX512_VNNI, AVX512_BF16, AMX; AVX_VNNI includes AVX2, and CPUs with AVX512 may lack it. On Arm
 * the order is NEON, NEON_DOT, NEON_BF16.
 */
typedef enum pkv_isa PKV_ENUM {
  PKV_ISA_AUTO = 0,        /**< The fastest that this CPU has. */
  PKV_ISA_SCALAR = 1,      /**< Plain C++. */
  PKV_ISA_SSE2 = 2,        /**< Every x86-64 CPU has it. */
  PKV_ISA_AVX2 = 3,        /**< With FMA and F16C. */
  PKV_ISA_AVX512 = 4,      /**< F, CD, DQ, BW, VL. */
  PKV_ISA_AVX512_VNNI = 5, /**< AVX512 with VNNI. */
  PKV_ISA_AVX512_BF16 = 6, /**< AVX512 with BF16, VBMI and VNNI. */
  /**
   * AVX512_BF16 with AMX-TILE and AMX-BF16, if the system permits them. With AMX and AUTO the
   * library asks for this permission, which raises the minimum size of signal stacks
   * (guide/threads.md).
   */
  PKV_ISA_AMX = 7,
  PKV_ISA_NEON = 8,       /**< Every Arm64 CPU has it. */
  PKV_ISA_NEON_DOT = 9,   /**< NEON with DotProd. */
  PKV_ISA_NEON_BF16 = 10, /**< NEON with DotProd, BF16 and I8MM. */
  PKV_ISA_AVX_VNNI = 11   /**< AVX2 with AVX-VNNI, which is VNNI without AVX-512. */
} pkv_isa;

/**
 * How rows of K and V are rotated before they are stored (not RoPE). A rotation spreads a few large
 * dims over all others, which makes low-bit types more accurate (guide/quality.md). Queries are
 * rotated like K, and outputs are rotated back, so scores stay the same and callers see no
 * rotation.
 *
 * The rotation is computed in fp32, in write, attend and read. Blocks, files and items of stores
 * hold rotated rows. Rows that are read back have an fp32 rounding error, even with types that
 * otherwise return exactly what was written. A NaN or an infinity spreads to all dims that are
 * rotated together.
 */
typedef enum pkv_rotation PKV_ENUM {
  PKV_ROTATION_NONE = 0, /**< Rows are stored as they are (default). */
  /**
   * Let n be the largest power of two that divides the head dim. Each run of n dims is multiplied
   * by 1 / sqrt(n), by a sign for each dim, and by the n x n Hadamard matrix (Sylvester's). The
   * sign of dim d is minus if bit d of the fraction of pi is 1: the bits of 0x243F6A88 0x85A308D3
   * ..., highest first. In latent groups, n is that of K, and value_dim must be a multiple of it.
   */
  PKV_ROTATION_HADAMARD = 1
} pkv_rotation;

/** Huge pages for the memory of K and V, where that comes from the system. */
typedef enum pkv_huge_pages PKV_ENUM {
  PKV_HUGE_PAGES_ADVISE = 0, /**< Transparent huge pages if the system has them (default). */
  PKV_HUGE_PAGES_OFF = 1,    /**< Normal pages. */
  PKV_HUGE_PAGES_REQUIRE = 2 /**< Reserved 2 MiB pages (hugetlbfs), else PKV_OUT_OF_MEMORY. */
} pkv_huge_pages;

/** What the layers of a group keep. */
typedef enum pkv_layer_kind PKV_ENUM {
  PKV_LAYERS_KV = 0,     /**< Keys and values (default). */
  PKV_LAYERS_LATENT = 1, /**< Keys; V is the first value_dim dims of K (MLA, absorbed). */
  /**
   * A state of layer_bytes bytes (linear attention, state-space models, short convolutions). A
   * block holds one state of each layer. See pkv_batch_get_states.
   */
  PKV_LAYERS_STATES = 2,
  /**
   * Keys and values that only the engine can read and write: they are on a device, say. A block
   * has layer_bytes bytes in each layer, and block_io copies it. Calls that need the values (write,
   * attend, read, kv_view) are UNSUPPORTED; the engine copies blocks as pkv_batch_get_block_copies
   * says. With storage EXTERNAL, all groups are opaque, or none.
   */
  PKV_LAYERS_OPAQUE_KV = 3,
  /** States that only the engine can read and write, with the rules of OPAQUE_KV. */
  PKV_LAYERS_OPAQUE_STATES = 4
} pkv_layer_kind;

/**
 * A group of layers with the same shape and window.
 *
 * A plain model is one group. A hybrid model has several, for example one for its full and one for
 * its sliding-window layers. A `layer` parameter is an index among all layers of the model, a
 * `group` parameter one among the groups of the config.
 *
 * `kind` determines which fields are used; the others must be 0:
 *
 *   all kinds               layers, layer_indices, blocks
 *   KV, LATENT              heads, dims, dtypes, window, sink_tokens, rotation
 *   KV                      rotation_matrices
 *   STATES, OPAQUE_STATES   layer_bytes, checkpoint_interval, max_verify_tokens
 *   OPAQUE_KV               layer_bytes, window, sink_tokens; query_heads and dims, which may be 0,
 *                           only for active_parameters
 */
typedef struct pkv_layer_group {
  uint32_t struct_size; /**< Must be sizeof(pkv_layer_group). */
  uint32_t layers;      /**< The number of layers. */
  /**
   * [layers]: indices of these layers in the model. NULL (default): the next layers after those of
   * the previous group.
   */
  const uint32_t* layer_indices;
  pkv_layer_kind kind;   /**< What the layers keep. Default KV. */
  uint32_t query_heads;  /**< A multiple of kv_heads, up to 65536. */
  uint32_t kv_heads;     /**< KV heads of each layer, 1 or more. */
  uint32_t key_dim;      /**< Head dim of queries and keys; a multiple of 16, 16 to 576. */
  uint32_t value_dim;    /**< Head dim of values and outputs; 0 (default): key_dim. */
  pkv_dtype dtype;       /**< Type of keys and values, up to FP8_E5M2; 0 (default): PKV_F32. */
  pkv_dtype value_dtype; /**< Type of stored values; 0 (default): dtype. */
  /**
   * A token sees itself and the window - 1 tokens before it; 0 (default): all tokens before it.
   *
   * Blocks that leave the window are freed one step late, so that the session can still be trimmed
   * to its length before the last step. A call that needs blocks uses, in this order: free blocks;
   * evictable blocks (prefix.h); blocks of its own sessions that left the window; blocks that wait
   * to be written to a store; pinned blocks. So a session never needs more than its sinks, its
   * window and its new tokens. Blocks freed early stay free, even if the batch is aborted.
   */
  uint32_t window;
  /** With a window: this many tokens at the start stay visible and in memory (StreamingLLM). */
  uint32_t sink_tokens;
  pkv_rotation rotation; /**< How rows are rotated before they are stored. Default NONE. */
  /** Another rotation, by the caller's matrices (experimental.h). NULL (default): `rotation`. */
  const struct pkv_rotation_matrices* rotation_matrices;
  /**
   * STATES and opaque kinds: the bytes of a layer in a block, 1 or more. That is the layer's state,
   * or what it keeps of block_size tokens. A block of an opaque group has up to 2^40 bytes in all.
   */
  uint64_t layer_bytes;
  /**
   * With states: tokens from one checkpoint to the next, a multiple of block_size. At each, the
   * session keeps its state until the tokens before it are trimmed. 0 (default): no checkpoints.
   */
  uint32_t checkpoint_interval;
  /**
   * With states: in a step with at most this many new tokens of a session, usually its last token
   * and a draft, the state after each of them is kept until the commit, so that pkv_batch_accept
   * can end at any of them; up to 256. Default 0.
   */
  uint32_t max_verify_tokens;
  /** Blocks of this group. Set them in all groups, or memory_bytes of the config instead. */
  uint64_t blocks;
} pkv_layer_group;

/**
 * Which evictable blocks are evicted first. The end of a sequence is evicted before its
 * beginning, except for blocks that left a window (prefix.h).
 */
typedef enum pkv_eviction PKV_ENUM {
  /**
   * The blocks with the fewest expected hits per time in the cache. The cache learns these from how
   * soon similar blocks were used again.
   */
  PKV_EVICTION_LEARNED = 0,
  PKV_EVICTION_LRU = 1 /**< The least recently used blocks. */
} pkv_eviction;

/**
 * The prefix index of a cache: prefix.h explains its words.
 */
typedef struct pkv_prefix_config {
  uint32_t struct_size;  /**< Must be sizeof(pkv_prefix_config). */
  pkv_eviction eviction; /**< Which blocks are evicted first. Default LEARNED. */
  /**
   * The most tokens that can be pinned at once (PKV_HINT_PIN), block_size or more, rounded down to
   * whole blocks. 0 (default): as many as fit into a quarter of the blocks of the largest group.
   */
  uint64_t max_pinned_tokens;
  /**
   * The most tokens that each salt may have cached (its quota), block_size or more, rounded down to
   * whole blocks, unless pkv_prefix_set_quota sets another limit; 0 (default): no limit.
   */
  uint64_t max_tokens_per_salt;
  /**
   * The most events that are kept for pkv_prefix_read_events, 40 bytes each; up to 2^24. Default 0.
   */
  uint32_t max_events;
  uint32_t reserved; /**< Must be 0. */
  /**
   * The number of parameters of the model that are used for each token; in a mixture of experts,
   * only those of the experts that run. LEARNED then weighs each block by the time that a hit
   * saves, which grows with its position: a token at position p takes
   *
   *   active_parameters + the sum over layers of query_heads * (key_dim + value_dim) * n
   *
   * multiplications, where n is p, or window + sink_tokens in a layer with a window; layers with
   * states count as 0. 0 (default): all blocks weigh the same.
   */
  uint64_t active_parameters;
} pkv_prefix_config;

/**
 * Options for pkv_cache_create: the model, its memory, its threads, what sessions share, and the
 * caller's hooks.
 *
 * The cache copies all that the config points to, except the pkv_store, of which it takes
 * ownership: it sets the caller's struct to zeros, except for struct_size. The functions of hooks,
 * and what their `user` points to, must outlive the cache. A plain model is one group:
 *
 *   pkv_layer_group model = {.struct_size = sizeof model, .layers = 32, .query_heads = 32,
 *                            .kv_heads = 8, .key_dim = 128, .blocks = 4096};
 *   pkv_cache_config config = {.struct_size = sizeof config, .groups = &model};
 */
typedef struct pkv_cache_config {
  uint32_t struct_size; /**< Must be sizeof(pkv_cache_config). */

  /* The model. */
  uint32_t group_count; /**< The number of groups; 0 (default): 1. */
  /** [group_count]: the groups, each of groups[0].struct_size bytes. */
  const pkv_layer_group* groups;

  /* Its memory. */
  pkv_storage storage; /**< Default INTERNAL. */
  pkv_layout layout;   /**< Default PACKED. PLAIN needs storage INTERNAL. */
  uint32_t block_size; /**< Tokens per block: a multiple of 16, 16 to 256; 0 (default): 16. */
  /**
   * 1: the groups share memory_bytes, so that one can use what another does not need. The memory is
   * cut into pages; each holds blocks of one group at a time (guide/group_memory.md). Needs
   * memory_bytes and layout PACKED; with opaque groups, storage EXTERNAL. 0 (default): each group
   * has its own memory.
   */
  uint32_t groups_share_memory;
  /**
   * Bytes of all blocks: K, V and states, including what the engine holds of opaque groups. Each
   * group gets the same number of blocks, as many as fit. If groups have different windows, that
   * wastes memory: set groups_share_memory. 0 (default): each group has its own number of blocks.
   */
  uint64_t memory_bytes;
  /**
   * Blocks of each group that only running sessions may take, so that these can finish. A session
   * is running from its first commit or resume on, until it is trimmed to 0; one that was just
   * admitted, forked or loaded is not. Admit and resume, and begin and reserve for a session that
   * is not running, leave these blocks alone: they return OUT_OF_BLOCKS, or TOO_LARGE if all other
   * blocks would not suffice. (If several threads start sessions at once, they may take a few.)
   * pkv_file_load may take them, so that whatever was saved can be loaded. Default 0.
   */
  uint32_t watermark_blocks;
  /**
   * Default ADVISE. REQUIRE: not with an allocator. REQUIRE, prefault and memory_directory need
   * blocks in the library's memory: storage INTERNAL, and a group that is not opaque.
   */
  pkv_huge_pages huge_pages;
  /**
   * 1: create touches all memory, in parallel, so that later calls cause no page faults. Default 0.
   */
  uint32_t prefault;
  uint32_t reserved; /**< Must be 0. */
  /**
   * Keeps K, V and states in a mapped file in this directory instead of in memory, for sequences
   * larger than memory (guide/slow_tier.md). The file has no name once it is mapped, its mode is
   * 0600, it is not encrypted, and it is gone when the cache is destroyed. pkv_cache_create
   * allocates all of its disk space. The device must be reliable: a later I/O error ends the
   * process with SIGBUS or brings back older bytes. Children of fork() and core dumps do not have
   * this memory. Not with huge_pages REQUIRE; the allocator is not called for it. NULL (default):
   * memory.
   */
  const char* memory_directory;

  /* The threads that compute attention, and the kernels they run. */
  /**
   * The number of threads, including the caller's, up to 4096; at most one per CPU is used. 0
   * (default): one per CPU, on a Mac one per performance core.
   */
  uint32_t threads;
  /** AUTO (default): the fastest that this CPU has. Any other: that one, or UNSUPPORTED. */
  pkv_isa isa;

  /* What sessions share. */
  /**
   * The prefix index, for new sessions that begin like earlier ones; NULL (default): none.
   */
  const pkv_prefix_config* prefix;
  /**
   * A store for blocks outside memory (store.h); NULL (default): none. Needs a prefix index, and
   * storage INTERNAL or opaque groups.
   */
  const struct pkv_store_config* store;

  /* Hooks. */
  /** For K and V, pools, token ids and block tables; NULL (default): the system's allocator. */
  const pkv_allocator* allocator;
  /** The caller's threads; then threads must be 0. NULL (default): the library's. */
  const pkv_runner* runner;
  /** Receives log messages (guide/diagnose.md). NULL (default): no log. */
  const pkv_logger* logger;
  /** Copies blocks of opaque groups, which need it. NULL (default): no group is opaque. */
  const pkv_block_io* block_io;
  /** For durations of hints. NULL (default): the system's monotonic clock. */
  const pkv_clock* clock;
} pkv_cache_config;

/** Sizes of K and V, for one layer group or all of them. */
typedef struct pkv_cache_sizes {
  uint32_t struct_size; /**< Must be sizeof(pkv_cache_sizes). */
  uint32_t group_count; /**< The number of groups that these sizes cover. */
  /**
   * K and V of one token in all layers; states have none. With OPAQUE_KV: its part of a block,
   * rounded up.
   */
  uint64_t bytes_per_token;
  /** K and V of block_size tokens, or one state, in all layers. */
  uint64_t bytes_per_block;
  /** Blocks, summed over groups; with groups_share_memory, each group counts as if it had all
   * memory. */
  uint64_t blocks;
  /**
   * The tokens that fit into the group where the fewest fit; with groups_share_memory, into all
   * groups together. Groups with a window or states do not count, unless there are no others.
   */
  uint64_t tokens;
  /** Bytes of all blocks: K, V and states, of opaque groups those of the engine. */
  uint64_t memory_bytes;
  uint64_t bookkeeping_bytes; /**< Bytes of the pools' own tables. */
} pkv_cache_sizes;

/** A `group` parameter of pkv_cache_compute_sizes and pkv_cache_get_pool_stats: all groups. */
#define PKV_ALL_GROUPS ((uint32_t)0xFFFFFFFFu)

/**
 * Computes the sizes that a cache of this config would have, without creating it.
 *
 * @param[in]  config  The config.
 * @param      group   The index of one group, or PKV_ALL_GROUPS.
 * @param[out] out     The sizes.
 *
 * Statuses: INVALID_ARGUMENT, OUT_OF_RANGE, OVERFLOW, TOO_LARGE, UNSUPPORTED (isa; a type that is
 * only read; an option that does not work with this storage or layout). Since 1.0.
 */
PKV_API pkv_status pkv_cache_compute_sizes(const pkv_cache_config* config, uint32_t group,
                                           pkv_cache_sizes* out);

/**
 * Creates a cache. Reserves its memory, but touches it only when blocks are first used, unless
 * prefault is set.
 *
 * @param[in]  config  The config.
 * @param[out] out     The cache, to be destroyed by pkv_cache_destroy.
 *
 * Statuses: INVALID_ARGUMENT, OUT_OF_RANGE (layer_indices), OVERFLOW, TOO_LARGE, OUT_OF_MEMORY,
 * UNSUPPORTED (as pkv_cache_compute_sizes; a store in a build without libsodium, or with a key in
 * one without libcrypto), IO (memory_directory). Since 1.0.
 */
PKV_API pkv_status pkv_cache_create(const pkv_cache_config* config, pkv_cache* out);

/**
 * Destroys a cache with its sessions, batches and snapshots. Their handles are stale from then on.
 * With a store, it first waits, without a time limit, until queued blocks are written or the store
 * refuses them.
 *
 * @param cache  The cache. NULL is OK.
 *
 * Statuses: STALE_HANDLE, BUSY. Since 1.0.
 */
PKV_API pkv_status pkv_cache_destroy(pkv_cache cache);

/** The options of a cache, with defaults filled in. */
typedef struct pkv_cache_info {
  uint32_t struct_size; /**< Must be sizeof(pkv_cache_info). */
  pkv_storage storage;  /**< Where K and V are stored. */
  pkv_layout layout;    /**< The layout of the bytes. */
  uint32_t block_size;  /**< Tokens per block. */
  uint32_t group_count; /**< The number of layer groups. */
  uint32_t layers;      /**< Layers of all groups. */
  uint32_t threads;     /**< Threads that compute attention. */
  pkv_isa isa;          /**< The instruction set of the kernels that run. */
} pkv_cache_info;

/**
 * Returns the options of a cache.
 *
 * @param      cache  The cache.
 * @param[out] out    The options.
 *
 * Statuses: none of its own. Since 1.0.
 */
PKV_API pkv_status pkv_cache_get_info(pkv_cache cache, pkv_cache_info* out);

/**
 * Returns the statistics of a cache over all groups; pkv_cache_get_pool_stats has those of blocks.
 * Exact while no other thread uses the cache.
 *
 * @param      cache  The cache.
 * @param[out] out    The statistics.
 *
 * Statuses: none of its own. Since 1.0.
 */
PKV_API pkv_status pkv_cache_get_stats(pkv_cache cache, pkv_cache_stats* out);

/**
 * Returns the statistics of the pool of one group, or their sums over all groups.
 *
 * @param      cache  The cache.
 * @param      group  The index of the group, or PKV_ALL_GROUPS.
 * @param[out] out    The statistics.
 *
 * Statuses: OUT_OF_RANGE. Since 1.0.
 */
PKV_API pkv_status pkv_cache_get_pool_stats(pkv_cache cache, uint32_t group, pkv_pool_stats* out);

/**
 * Writes the metrics of a cache as text in Prometheus' exposition format, ready to be served:
 * gauges of blocks by group and state, of memory and of open objects; counters of tokens, steps,
 * suspensions, copies and of the prefix index (over all salts).
 *
 * @param      cache     The cache.
 * @param      capacity  Bytes that text has room for. The text grows while the cache is in use:
 *                       leave some room.
 * @param[out] text      [capacity]: the text with a final NUL.
 * @param[out] size      Bytes of the text with its NUL.
 *
 * Statuses: BUFFER_TOO_SMALL. Since 1.0.
 */
PKV_API pkv_status pkv_cache_format_metrics(pkv_cache cache, size_t capacity, char* text,
                                            size_t* size);

/**
 * Checks every invariant, such as that each block's reference count equals the references that
 * sessions, snapshots, batches and the prefix index hold. Call it while no other thread uses the
 * cache.
 *
 * @param cache  The cache.
 *
 * Statuses: INTERNAL (the error message says which invariant is broken). Since 1.0.
 */
PKV_API pkv_status pkv_cache_validate(pkv_cache cache);

/**
 * Returns the name of an instruction set, such as "avx512".
 *
 * @param isa  The instruction set; for an unknown value the name is "unknown".
 *
 * Static storage. Since 1.0.
 */
PKV_API const char* pkv_isa_name(pkv_isa isa);

#ifdef __cplusplus
}
#endif
#endif
