/* pagedkv: pkv_cache, the KV memory of a model: layers in groups, blocks, and the kernels that read
 * them.
 *
 * Threads: create, plan and the getters may be called from any thread. Different sessions of a
 * cache may be used from different threads at once. pkv_cache_destroy closes everything that the
 * cache handed out; it returns PKV_BUSY while a call on any of it is under way in another thread,
 * and calls that come while it tries return PKV_BUSY, too.
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

/**
 * Where keys and values live. All kinds give the same results; comparing the first two shows what
 * paging buys.
 */
typedef enum pkv_storage PKV_ENUM {
  /** Fixed-size blocks of one slab, shared between sessions, copied on write (default). */
  PKV_STORAGE_PAGED = 0,
  /** One growing tensor per session and layer; a fork or a snapshot copies. */
  PKV_STORAGE_CONTIGUOUS = 1,
  /** Block ids only: the engine keeps the bytes; write, attend and read are UNSUPPORTED. */
  PKV_STORAGE_NONE = 2
} pkv_storage;

/** How the bytes of a paged cache are arranged. */
typedef enum pkv_layout PKV_ENUM {
  /**
   * Block-major, made for this library's kernels (default). A block holds [layer][tile][kv head][K
   * tile | V tile], with memory_directory [layer][kv head][tile][K tile | V tile]; a tile is 16
   * tokens. With p = 2 for BF16, 4 for INT8, 8 for INT4 and 1
   * otherwise, element (token t, dim d) of a tile is at
   *
   *   K: ((d / p) * 16 + t) * p + d % p
   *   V: ((t / p) * value_dim + d) * p + (t % p) / 2 + (t % 2) * (p / 2)
   *      (p = 1: t * value_dim + d)
   *
   * in units of an element (INT4: nibble i is in byte i / 2, the even one lower). After the
   * elements come the scales, INT8 [16 tokens], INT4 [ceil(dim / 32)][16 tokens]. A tile is padded
   * to a multiple of 64 bytes.
   */
  PKV_LAYOUT_PACKED = 0,
  /**
   * Layer-major, made for engines with kernels of their own: per layer one K tensor
   * [block][block_size][kv head][key_dim] and one V tensor [block][block_size][kv head][value_dim].
   * Read them as block tensors, or token-flat as [slot][kv head][dim]. A row of INT8 or INT4 is its
   * elements followed by its scales.
   */
  PKV_LAYOUT_PLAIN = 1
} pkv_layout;

/**
 * Instruction sets. On x86 each one includes those before it in this order: SSE2, AVX2, AVX512,
 * AVX512_VNNI, AVX512_BF16, AMX. On Arm the order is NEON, NEON_DOT, NEON_BF16.
 */
typedef enum pkv_isa PKV_ENUM {
  PKV_ISA_AUTO = 0,        /**< The fastest that this processor has. */
  PKV_ISA_SCALAR = 1,      /**< Plain C++. */
  PKV_ISA_SSE2 = 2,        /**< Every x86-64 processor has it. */
  PKV_ISA_AVX2 = 3,        /**< With FMA and F16C. */
  PKV_ISA_AVX512 = 4,      /**< F, CD, DQ, BW, VL. */
  PKV_ISA_AVX512_VNNI = 5, /**< AVX512 with VNNI. */
  PKV_ISA_AVX512_BF16 = 6, /**< AVX512 with BF16 and VNNI. */
  /**
   * AVX512_BF16 with AMX-TILE and AMX-BF16, where the system permits them. The permission, for
   * which AUTO asks, too, makes the least size of signal stacks larger (guide/threads.md).
   */
  PKV_ISA_AMX = 7,
  PKV_ISA_NEON = 8,      /**< Every Arm64 processor has it. */
  PKV_ISA_NEON_DOT = 9,  /**< NEON with DotProd. */
  PKV_ISA_NEON_BF16 = 10 /**< NEON with DotProd, BF16 and I8MM. */
} pkv_isa;

/**
 * How rows of K and V are rotated before they are stored. Queries are rotated as K, and outputs
 * back from V, so that callers see no rotation: scores stay the same, and a few large dims are
 * spread over all others, which is what types of few bits need (guide/quality.md).
 *
 * The rotation is computed in fp32 and fused into write, attend and read. What is stored is
 * rotated: blocks, files and items of stores. Reading rows back undoes it up to the rounding of
 * fp32, also for types that otherwise return what was written. A NaN or an infinity spreads to all
 * dims that are rotated together.
 */
typedef enum pkv_rotation PKV_ENUM {
  PKV_ROTATION_NONE = 0, /**< Rows are stored as they are (default). */
  /**
   * Each run of n dims, the largest power of two that divides the head dim, is multiplied by
   * 1 / sqrt(n), by the signs of its dims, and by the n x n matrix of Hadamard (Sylvester's). The
   * sign of dim d is minus where bit d of the fraction of pi is 1: the bits are those of 0x243F6A88
   * 0x85A308D3 ..., the highest first. Of latent groups, V is rotated with the runs of K, and
   * value_dim is a multiple of n.
   */
  PKV_ROTATION_HADAMARD = 1,
  /** A row becomes row times matrix; the caller gives an orthogonal one for K, for V, or both. */
  PKV_ROTATION_MATRIX = 2
} pkv_rotation;

/** What to ask of the operating system for the slab. */
typedef enum pkv_huge_pages PKV_ENUM {
  PKV_HUGE_PAGES_ADVISE = 0, /**< Transparent huge pages where the system offers them (default). */
  PKV_HUGE_PAGES_OFF = 1,    /**< Pages of the normal size. */
  PKV_HUGE_PAGES_REQUIRE = 2 /**< Reserved 2 MiB pages (hugetlbfs) or PKV_NO_MEMORY. */
} pkv_huge_pages;

/**
 * A group of layers with the same shape.
 *
 * A plain model is one group. Hybrid models have several, for example one of full and one of
 * sliding-window layers.
 */
typedef struct pkv_layer_group {
  uint32_t struct_size; /**< sizeof(pkv_layer_group): the caller sets it. */
  uint32_t layers;      /**< How many layers. */
  /**
   * [layers]: which layers of the model. NULL (default): those after the last of the previous
   * group.
   */
  const uint32_t* layer_indices;
  uint32_t query_heads;  /**< A multiple of kv_heads. */
  uint32_t kv_heads;     /**< KV heads of each layer, 1 or more. */
  uint32_t key_dim;      /**< Head dim of queries and keys; a multiple of 16, 16 to 576. */
  uint32_t value_dim;    /**< Head dim of values and outputs; 0 (default): key_dim. */
  pkv_dtype dtype;       /**< Type of stored keys, and of values; 0 (default): PKV_F32. */
  pkv_dtype value_dtype; /**< Type of stored values, if another one; 0 (default): dtype. */
  /**
   * A token sees itself and window - 1 tokens before it; 0 (default): all of them.
   *
   * Blocks that leave the window are given back one step late, so that what a trim to the length
   * before the last step needs is still there. Where blocks are short, pkv_batch_begin and
   * pkv_session_reserve give them back at once, so that a session needs no more than its window
   * and its new tokens; neither an abort nor OUT_OF_BLOCKS restores them.
   */
  uint32_t window;
  /** With a window: this many first tokens stay visible and in memory for ever (Xiao et al. 2023).
   */
  uint32_t sinks;
  /**
   * 1: V is the first value_dim dims of K and is stored once, with it (the absorbed form of MLA).
   */
  uint32_t latent;
  pkv_rotation rotation; /**< How rows are rotated before they are stored. Default NONE. */
  /**
   * Rotation MATRIX: [key_dim][key_dim], the matrix of K and of queries. Its rows have length 1 and
   * are orthogonal to each other, to within 1e-4. NULL: K is not rotated. Other rotations: NULL.
   */
  const float* key_rotation;
  /**
   * Rotation MATRIX: [value_dim][value_dim], the matrix of V and of outputs. NULL: V is not
   * rotated, nor may it be in a latent group.
   */
  const float* value_rotation;
  /**
   * The layers keep a state of this many bytes each, in place of K and V (linear attention, state
   * spaces, short convolutions); 0 (default): they keep K and V. With it heads, dims, dtypes,
   * window, sinks and latent stay 0. A block holds one state of all layers. Not with storage
   * CONTIGUOUS. See pkv_batch_get_states.
   */
  uint64_t state_bytes;
  /**
   * With states: a step that reaches past a multiple of this many tokens keeps the state there, for
   * as long as the session has that token. A multiple of block_size; 0 (default): no such
   * checkpoints.
   */
  uint32_t checkpoint_tokens;
  /**
   * With states: a step of at most this many new tokens of a session keeps the state after each of
   * them until its commit, so that pkv_batch_accept can end at any; up to 256. Default 0.
   */
  uint32_t draft_tokens;
  uint64_t blocks; /**< Blocks of this group; 0 (default): those of the config. */
} pkv_layer_group;

/**
 * Which cached blocks that nobody uses are evicted first, the ends of texts before their
 * beginnings.
 */
typedef enum pkv_eviction PKV_ENUM {
  /**
   * Those that earn the fewest hits for their room, as learned from when blocks like them return.
   */
  PKV_EVICTION_LEARNED = 0,
  PKV_EVICTION_LRU = 1, /**< Those that were not used for longest. */
  /** Those matched least often since they were stored; among these, as LRU. */
  PKV_EVICTION_LFU = 2
} pkv_eviction;

/** The prefix index of a cache: see prefix.h. A block position is one block in each layer group. */
typedef struct pkv_prefix_config {
  uint32_t struct_size;  /**< sizeof(pkv_prefix_config): the caller sets it. */
  pkv_eviction eviction; /**< Which blocks are evicted first. Default LEARNED. */
  /**
   * The most block positions that are pinned at once (pkv_prefix_pin); 0 (default): a quarter of
   * the blocks of the largest group.
   */
  uint64_t pinned_blocks;
  /**
   * The most block positions that are cached of one salt, unless pkv_prefix_set_quota says
   * otherwise; 0 (default): no limit.
   */
  uint64_t salt_blocks;
  /** How many events are kept for pkv_prefix_read_events, 40 bytes each; up to 2^24. Default 0. */
  uint32_t events;
  /**
   * Depth in tokens at which computing a token takes twice as long as at the beginning of a text,
   * since it attends to all before it: about w / (2 l h) for a model of w weights (those used for a
   * token) with l layers of h query heads times head dim. LEARNED then weighs a block by the time
   * that its hit saves. 0 (default): all blocks weigh the same.
   */
  uint32_t doubling_depth;
} pkv_prefix_config;

/**
 * What pkv_cache_create makes: the model, its memory, its threads, what is kept of ended sessions,
 * and the caller's hooks.
 *
 * What pointers lead to is copied; hooks themselves must outlive the cache. A plain model is one
 * group:
 *
 *   pkv_layer_group model = {.struct_size = sizeof model, .layers = 32, .query_heads = 32,
 *                            .kv_heads = 8, .key_dim = 128};
 *   pkv_cache_config config = {.struct_size = sizeof config, .groups = &model, .blocks = 4096};
 */
typedef struct pkv_cache_config {
  uint32_t struct_size; /**< sizeof(pkv_cache_config): the caller sets it. */

  /* The model. */
  uint32_t group_count; /**< How many groups; 0 (default): 1. */
  /** [group_count]: groups, each of groups[0].struct_size bytes. */
  const pkv_layer_group* groups;

  /* Its memory. */
  pkv_storage storage; /**< Default PAGED. */
  pkv_layout layout;   /**< Default PACKED. Only storage PAGED has a layout. */
  uint32_t block_size; /**< Tokens per block: a multiple of 16, 16 to 256; 0 (default): 16. */
  /**
   * 1: the groups share memory_bytes, so that what one of them does not use another can. It is cut
   * into pages, each of which has blocks of one group at a time (guide/shared_memory.md). Needs
   * layout PACKED, and not storage CONTIGUOUS; no numbers of blocks are given. 0 (default): each
   * group has a pool of its own.
   */
  uint32_t shared_memory;
  uint64_t blocks; /**< Capacity in blocks per group. Give this or memory_bytes. */
  /**
   * Capacity in bytes of K and V: every group gets the same number of blocks, as many as fit; or,
   * with shared_memory, as many as it needs at the time.
   */
  uint64_t memory_bytes;
  /**
   * Blocks of each group that only sessions which hold tokens may take. What begins (a first step,
   * a resume, room reserved for an empty session) leaves this many free, so that running sessions
   * can finish. A session that grew into them and was suspended cannot be resumed, even alone.
   * Exact while one thread begins. Default 0.
   */
  uint32_t watermark;
  pkv_huge_pages huge_pages; /**< Default ADVISE. */
  /**
   * 1: create touches all memory, in parallel, so that no later call meets a page fault. Default 0.
   */
  uint32_t prefault;
  uint32_t reserved; /**< 0. */
  /**
   * K and V, and states, live in a file in this directory, of which the system keeps in memory what
   * it has room for: for texts that are larger than memory and read by chosen blocks
   * (guide/slow_tier.md). Once mapped, the file has no name; it is the owner's alone, is not
   * encrypted and ends with the cache. All of its room is taken at once; its device has to work,
   * since an error later ends the process with SIGBUS or brings older bytes back. Neither children
   * of fork() nor core dumps have this memory. Needs storage PAGED, and not huge_pages REQUIRE;
   * ADVISE has no effect, and the allocator is not asked for it. Copied by the call. NULL: memory.
   */
  const char* memory_directory;

  /* The threads that compute attention, and the kernels they run. */
  /** How many, the caller's included, at most one per CPU; 0 (default): that many. */
  uint32_t threads;
  /** AUTO (default): the best this CPU has. Another: that one or UNSUPPORTED. */
  pkv_isa isa;

  /* What is kept of ended sessions. */
  /**
   * Keeps it for new sessions that begin alike; NULL (default): off. Not with storage CONTIGUOUS.
   */
  const pkv_prefix_config* prefix;
  /**
   * Where blocks go when memory is short (store.h); NULL (default): nowhere. Needs storage PAGED
   * and a prefix index.
   */
  const struct pkv_store_config* store;

  /* Hooks. */
  /** Memory for keys and values, pools, tokens and block tables; NULL (default): the system's. */
  const pkv_allocator* allocator;
  const pkv_runner* runner; /**< The caller's threads; threads must be 0 then. NULL: oneTBB's. */
  /** Hears of what works, but worse than it should (guide/diagnose.md). NULL (default): silence. */
  const pkv_logger* logger;
} pkv_cache_config;

/** Sizes of K and V, of one layer group or of all. */
typedef struct pkv_cache_plan {
  uint32_t struct_size;     /**< sizeof(pkv_cache_plan): the caller sets it. */
  uint32_t groups;          /**< How many groups these sizes are of. */
  uint64_t bytes_per_token; /**< K and V of one token in all layers; states have none. */
  uint64_t bytes_per_block; /**< block_size times that, or a state of every layer. */
  /** Blocks, summed over groups; with shared_memory those that all of it would be, of each. */
  uint64_t blocks;
  /**
   * Tokens that fit: the smallest over groups with neither a window nor states (over all, if there
   * is none).
   */
  uint64_t tokens;
  uint64_t total_bytes;       /**< Bytes of all K and V memory. */
  uint64_t bookkeeping_bytes; /**< What the allocator's own tables take beside it. */
} pkv_cache_plan;

/** group of pkv_cache_compute_plan: all of them. */
#define PKV_ALL_GROUPS ((uint32_t)0xFFFFFFFFu)

/**
 * Tells what a cache of this config would take; allocates nothing.
 *
 * @param[in]  config  The config.
 * @param      group   The index of one group, or PKV_ALL_GROUPS.
 * @param[out] out     The sizes.
 *
 * Statuses: INVALID_ARGUMENT, OUT_OF_RANGE, OVERFLOW, TOO_LARGE, UNSUPPORTED (isa; an index or a
 * store that the storage cannot have). Since 0.1.
 */
PKV_API pkv_status pkv_cache_compute_plan(const pkv_cache_config* config, uint32_t group,
                                          pkv_cache_plan* out);

/**
 * Makes a cache. Memory is reserved now; it is touched as blocks are first used, unless prefault is
 * set.
 *
 * @param[in]  config  The config.
 * @param[out] out     The cache, to be destroyed by pkv_cache_destroy.
 *
 * Statuses: INVALID_ARGUMENT, OUT_OF_RANGE (layer_indices), OVERFLOW, TOO_LARGE, NO_MEMORY,
 * UNSUPPORTED (as pkv_cache_compute_plan), IO (memory_directory). Since 0.1.
 */
PKV_API pkv_status pkv_cache_create(const pkv_cache_config* config, pkv_cache* out);

/**
 * Closes a cache with its sessions, batches and snapshots: their handles are stale from now on.
 *
 * @param cache  The cache. NULL is OK.
 *
 * Statuses: STALE_HANDLE, BUSY. Since 0.1.
 */
PKV_API pkv_status pkv_cache_destroy(pkv_cache cache);

/** What a cache was made with, defaults filled in. */
typedef struct pkv_cache_info {
  uint32_t struct_size; /**< sizeof(pkv_cache_info): the caller sets it. */
  pkv_storage storage;  /**< Where K and V live. */
  pkv_layout layout;    /**< How the bytes of a block are arranged. */
  uint32_t block_size;  /**< Tokens per block. */
  uint32_t groups;      /**< How many layer groups. */
  uint32_t layers;      /**< Over all groups. */
  uint32_t threads;     /**< Threads that compute attention. */
  pkv_isa isa;          /**< The one whose kernels run. */
} pkv_cache_info;

/**
 * Tells what a cache was made with.
 *
 * @param      cache  The cache.
 * @param[out] out    The answer.
 *
 * Statuses: none of its own. Since 0.1.
 */
PKV_API pkv_status pkv_cache_get_info(pkv_cache cache, pkv_cache_info* out);

/**
 * Tells the counts of a cache over all groups. Exact while no other thread uses the cache.
 *
 * @param      cache  The cache.
 * @param[out] out    The counts.
 *
 * Statuses: none of its own. Since 0.1.
 */
PKV_API pkv_status pkv_cache_get_stats(pkv_cache cache, pkv_cache_stats* out);

/**
 * Tells the counts of the pool of one group.
 *
 * @param      cache  The cache.
 * @param      group  The index of the group.
 * @param[out] out    The counts.
 *
 * Statuses: OUT_OF_RANGE. Since 0.1.
 */
PKV_API pkv_status pkv_cache_get_pool_stats(pkv_cache cache, uint32_t group, pkv_pool_stats* out);

/**
 * Writes the figures of a cache as text in the exposition format of Prometheus, ready to be served:
 * gauges of blocks by group and state, of memory and of open objects; counters of tokens, steps,
 * suspensions, copies and of the prefix index (over all salts).
 *
 * @param      cache     The cache.
 * @param      capacity  Bytes that text has room for. The text grows while others use the cache:
 *                       leave some room.
 * @param[out] text      [capacity]: the text with a final NUL. May be NULL if capacity is 0.
 * @param[out] size      Bytes of the text with its NUL; written on PKV_OK and on BUFFER_TOO_SMALL.
 *
 * Statuses: BUFFER_TOO_SMALL. Since 0.1.
 */
PKV_API pkv_status pkv_cache_format_metrics(pkv_cache cache, size_t capacity, char* text,
                                            size_t* size);

/**
 * Checks every invariant: those of the pools, and that the references of all sessions, snapshots
 * and batches are just those that the pools count. Call it while no other thread uses the cache.
 *
 * @param cache  The cache.
 *
 * Statuses: INTERNAL (the sentence has what does not hold). Since 0.1.
 */
PKV_API pkv_status pkv_cache_validate(pkv_cache cache);

/**
 * Tells whether this build has kernels for an instruction set and this processor can run them.
 *
 * @param      isa  The instruction set. AUTO is always there.
 * @param[out] out  1 if so, else 0.
 *
 * Statuses: INVALID_ARGUMENT. Since 0.1.
 */
PKV_API pkv_status pkv_isa_supported(pkv_isa isa, int32_t* out);

/**
 * Gives the name of an instruction set, "avx512".
 *
 * @param isa  The instruction set; for an unknown value the name is "unknown".
 *
 * Static storage. Since 0.1.
 */
PKV_API const char* pkv_isa_name(pkv_isa isa);

#ifdef __cplusplus
}
#endif
#endif
