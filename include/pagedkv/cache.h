/* pagedkv: pkv_cache, the KV memory of a model: layers in groups, blocks, and the kernels that read them.
 *
 * Threads: create, plan and the getters may be called from any thread. Different sessions of a cache
 * may be used from different threads at once. pkv_cache_destroy closes everything the cache handed
 * out; it returns PKV_BUSY while a call on any of it is under way in another thread, and calls that
 * come while it tries return PKV_BUSY, too.
 */
#ifndef PAGEDKV_CACHE_H
#define PAGEDKV_CACHE_H

#include <pagedkv/common.h>
#include <pagedkv/stats.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pkv_cache_t* pkv_cache;

/** Where keys and values live. All kinds give the same results; comparing the first two shows what paging buys. */
typedef enum pkv_storage PKV_ENUM {
  PKV_STORAGE_PAGED = 1,      /**< Fixed-size blocks of one slab, shared between sessions, copied on write. */
  PKV_STORAGE_CONTIGUOUS = 2, /**< One growing tensor per session and layer; a fork or a snapshot copies. */
  PKV_STORAGE_NONE = 3        /**< Block ids only: the engine keeps the bytes; write, attend and materialize are UNSUPPORTED. */
} pkv_storage;

/** How the bytes of a paged cache are arranged. */
typedef enum pkv_layout PKV_ENUM {
  /**
   * Block-major, made for this library's kernels (default). A block holds [layer][tile][kv head][K tile | V tile]; a tile is
   * 16 tokens. With p = 2 for BF16, 4 for INT8, 8 for INT4 and 1 otherwise, element (token t, dim d) of a tile is
   *   K: ((d / p) * 16 + t) * p + d % p
   *   V: ((t / p) * value_dim + d) * p + (t % p) / 2 + (t % 2) * (p / 2)     (p = 1: t * value_dim + d)
   * in units of an element (INT4: nibble i is in byte i / 2, the even one lower). After the elements come the scales, INT8 [16 tokens],
   * INT4 [ceil(dim / 32)][16 tokens]; a tile is padded to a multiple of 64 bytes.
   */
  PKV_LAYOUT_PACKED = 1,
  /**
   * Layer-major, made for engines with kernels of their own: per layer one K tensor [block][block_size][kv head][key_dim] and one V
   * tensor [block][block_size][kv head][value_dim]. Read as block tensors, or token-flat as [slot][kv head][dim]. A row of INT8 or
   * INT4 is its elements followed by its scales.
   */
  PKV_LAYOUT_PLAIN = 2
} pkv_layout;

/** Instruction sets. Each of x86 has what those before it in this order have: SSE2, AVX2, AVX512, AVX512_VNNI, AVX512_BF16. */
typedef enum pkv_isa PKV_ENUM {
  PKV_ISA_AUTO = 0,
  PKV_ISA_SCALAR = 1,
  PKV_ISA_SSE2 = 2,
  PKV_ISA_AVX2 = 3,        /**< With FMA and F16C. */
  PKV_ISA_AVX512 = 4,      /**< F, CD, DQ, BW, VL. */
  PKV_ISA_AVX512_BF16 = 5, /**< AVX512 with BF16 and VNNI. */
  PKV_ISA_NEON = 6,
  PKV_ISA_AVX512_VNNI = 7
} pkv_isa;

/** What to ask of the operating system for the slab. */
typedef enum pkv_huge_pages PKV_ENUM {
  PKV_HUGE_PAGES_ADVISE = 0,  /**< Transparent huge pages where the system offers them (default). */
  PKV_HUGE_PAGES_OFF = 1,
  PKV_HUGE_PAGES_REQUIRE = 2  /**< Reserved 2 MiB pages (hugetlbfs) or PKV_NO_MEMORY. */
} pkv_huge_pages;

/**
 * Layers with the same shape. A plain model is one group and needs none of this: it fills the fields of
 * pkv_cache_config. Hybrid models list their groups, for example one of full and one of sliding-window layers.
 */
typedef struct pkv_layer_group {
  uint32_t struct_size;
  uint32_t layers;               /**< How many layers. */
  const uint32_t* layer_indices; /**< Which layers of the model, `layers` of them; NULL: those after the previous group's last. */
  uint32_t query_heads;          /**< A multiple of kv_heads. */
  uint32_t kv_heads;
  uint32_t key_dim;              /**< Head dim of queries and keys; a multiple of 16, 16 to 576. */
  uint32_t value_dim;            /**< Head dim of values and outputs; 0: key_dim. */
  pkv_dtype dtype;               /**< Of stored keys and values; 0: PKV_F32. */
  /**
   * A token sees itself and window - 1 before it; 0: all. Blocks that leave the window are given
   * back, one step late: what a trim to the length before the last step needs is there still. Where
   * all blocks of the group are too few for that and the next step, pkv_batch_begin and
   * pkv_session_reserve give them back at once; an abort does not bring them again.
   */
  uint32_t window;
  uint64_t blocks;               /**< Blocks of this group; 0: those of the config. */
  pkv_dtype value_dtype;         /**< Of stored values; 0: dtype. */
  uint32_t sinks;                /**< With a window: the first tokens that stay visible, and in memory, for ever (Xiao et al. 2023). */
  uint32_t latent;               /**< 1: V is the first value_dim dims of K and is stored once, with it (the absorbed form of MLA). */
  uint32_t reserved;             /**< 0. */
} pkv_layer_group;

/** Which cached blocks that nobody uses go first when memory is needed, tails of texts before their beginnings. */
typedef enum pkv_eviction PKV_ENUM {
  PKV_EVICTION_DEFAULT = 0, /**< Those that earn the fewest hits for their room, by what was learned of when blocks like them return. */
  PKV_EVICTION_LRU = 1,     /**< Those not used for longest. */
  PKV_EVICTION_LFU = 2      /**< Those matched least often since they were stored; of these, as LRU. */
} pkv_eviction;

/** The prefix index of a cache: see prefix.h. */
typedef struct pkv_prefix_config {
  uint32_t struct_size;
  pkv_eviction eviction;
  uint64_t pinned_blocks; /**< At most so many block positions are pinned at once (pkv_prefix_pin); 0: a quarter of the blocks of the largest group. */
  uint64_t salt_blocks;   /**< At most so many are cached of one salt, where pkv_prefix_set_quota says nothing else; 0: no limit. */
  uint32_t events;        /**< How many events are kept for pkv_prefix_read_events, 40 bytes each, at most 2^24. Default 0: none. */
  uint32_t reserved;      /**< 0. */
} pkv_prefix_config;

/** What pkv_cache_create makes: the model, its memory, and who does the work. */
typedef struct pkv_cache_config {
  uint32_t struct_size;
  pkv_storage storage;   /**< Default PAGED. */
  pkv_layout layout;     /**< Default PACKED. Only PAGED storage has it. */
  uint32_t block_size;   /**< Tokens per block: a multiple of 16, 16 to 256. Default 16. */

  uint32_t layers;       /**< The model: see pkv_layer_group for these seven and the three at the end. All 0 when groups are given. */
  uint32_t query_heads;
  uint32_t kv_heads;
  uint32_t key_dim;
  uint32_t value_dim;
  pkv_dtype dtype;
  uint32_t window;

  uint32_t group_count;           /**< 0: one group, described by the fields above. */
  const pkv_layer_group* groups;  /**< group_count of them, each of groups[0].struct_size bytes; copied. */

  uint64_t blocks;       /**< Capacity in blocks per group. Give this or memory_bytes. */
  uint64_t memory_bytes; /**< Capacity as a budget for K and V: every group gets the same number of blocks, as many as fit. */

  uint32_t threads;            /**< Threads that compute attention, the caller's included, at most one per processor; 0: that many. */
  pkv_isa isa;                 /**< AUTO (default): the best this processor has. Another: that one or UNSUPPORTED. */
  pkv_huge_pages huge_pages;
  uint32_t prefault;           /**< 1: touch all memory in create, in parallel, so that no later call meets a page fault. */
  const pkv_allocator* allocator; /**< For keys and values, pools, tokens and block tables; copied; NULL: the system's. Must outlive the cache. */
  const pkv_logger* logger;       /**< Copied; NULL: silence. Must outlive the cache. */

  pkv_dtype value_dtype;      /**< These three belong to the description of the model, too. */
  uint32_t sinks;
  uint32_t latent;
  /**
   * Blocks of each group that only sessions which have tokens already may take: what begins (a first step, a resume, room that is reserved for an empty
   * session) leaves so many free, so that those that run can finish. Exact while one thread begins. Default 0.
   */
  uint32_t watermark;
  const pkv_runner* runner;   /**< Threads of the caller's, copied; threads must be 0 then. NULL: oneTBB. Must outlive the cache. */
  const pkv_prefix_config* prefix; /**< Keeps what ended sessions computed, for new ones that begin alike: copied; NULL: off. Not with storage CONTIGUOUS. */
  const struct pkv_store_config* store; /**< Where blocks go when memory is short: store.h; copied; NULL: nowhere. Needs storage PAGED and a prefix index. */
} pkv_cache_config;

/** Fills *config with defaults. Statuses: INVALID_ARGUMENT. Since 0.1. */
PKV_API pkv_status pkv_cache_config_init(pkv_cache_config* config, size_t struct_size);

/** Fills *group with defaults (a dense value_dim, F32, no window). Statuses: INVALID_ARGUMENT. Since 0.1. */
PKV_API pkv_status pkv_layer_group_init(pkv_layer_group* group, size_t struct_size);

/** Sizes of K and V before anything is allocated. */
typedef struct pkv_cache_plan {
  uint32_t struct_size;
  uint32_t groups;
  uint64_t bytes_per_token;   /**< K and V of one token in all layers (of the group or of all groups). */
  uint64_t bytes_per_block;   /**< block_size times that. */
  uint64_t blocks;            /**< Blocks, summed over groups. */
  uint64_t tokens;            /**< Tokens that fit: the smallest over groups without a window (over all, if each has one). */
  uint64_t total_bytes;       /**< Bytes of all K and V memory. */
  uint64_t bookkeeping_bytes; /**< What the allocator's own tables take beside it. */
} pkv_cache_plan;

/** group of pkv_cache_compute_plan: all of them. */
#define PKV_ALL_GROUPS ((uint32_t)0xFFFFFFFFu)

/**
 * What a cache of this config would take; allocates nothing. group: an index for one group, or
 * PKV_ALL_GROUPS. Statuses: INVALID_ARGUMENT, OUT_OF_RANGE, OVERFLOW, TOO_LARGE, UNSUPPORTED
 * (isa; an index or a store that the storage cannot have). Since 0.1.
 */
PKV_API pkv_status pkv_cache_compute_plan(const pkv_cache_config* config, uint32_t group, pkv_cache_plan* out);

/**
 * Makes a cache. Memory is reserved now; it is touched as blocks are first used, unless prefault is set.
 * Statuses: INVALID_ARGUMENT, OUT_OF_RANGE (layer_indices), OVERFLOW, TOO_LARGE, NO_MEMORY,
 * UNSUPPORTED (as above). Since 0.1.
 */
PKV_API pkv_status pkv_cache_create(const pkv_cache_config* config, pkv_cache* out);

/** Closes the cache, its sessions, batches and snapshots: their handles are stale from now on. NULL is OK. Statuses:
 * STALE_HANDLE, BUSY. Since 0.1. */
PKV_API pkv_status pkv_cache_destroy(pkv_cache cache);

/** What a cache was made with, defaults filled in. */
typedef struct pkv_cache_info {
  uint32_t struct_size;
  pkv_storage storage;
  pkv_layout layout;
  uint32_t block_size;
  uint32_t groups;
  uint32_t layers;  /**< Over all groups. */
  uint32_t threads;
  pkv_isa isa;      /**< The one whose kernels run. */
} pkv_cache_info;

/** Tells what the cache was made with. Statuses: none of its own. Since 0.1. */
PKV_API pkv_status pkv_cache_get_info(pkv_cache cache, pkv_cache_info* out);

/** Counts over all groups. Exact while no other thread uses the cache. Statuses: none of its own. Since 0.1. */
PKV_API pkv_status pkv_cache_get_stats(pkv_cache cache, pkv_cache_stats* out);

/** Counts of the pool of one group. Statuses: OUT_OF_RANGE. Since 0.1. */
PKV_API pkv_status pkv_cache_get_pool_stats(pkv_cache cache, uint32_t group, pkv_pool_stats* out);

/**
 * The figures of the cache as text in the exposition format of Prometheus, ready to be served: gauges of blocks by group and state, memory, open objects;
 * counters of tokens, steps, suspensions, copies and of the prefix index (over all salts). text gets *size bytes with the final
 * NUL; *size is written on BUFFER_TOO_SMALL, too. Counts move while others use the cache: leave some room. Statuses: BUFFER_TOO_SMALL. Since 0.1.
 */
PKV_API pkv_status pkv_cache_format_metrics(pkv_cache cache, size_t capacity, char* text, size_t* size);

/**
 * Checks every invariant: pools, and that the references of all sessions, snapshots and batches are just those the
 * pools count. Call it while no other thread uses the cache. Statuses: INTERNAL with what does not hold. Since 0.1.
 */
PKV_API pkv_status pkv_cache_validate(pkv_cache cache);

/** 1 in *out if this build has kernels for the instruction set and this processor can run them. AUTO is always
 * there. Statuses: INVALID_ARGUMENT. Since 0.1. */
PKV_API pkv_status pkv_isa_supported(pkv_isa isa, int32_t* out);

/** "avx512"; for an unknown value "unknown". Static storage. Since 0.1. */
PKV_API const char* pkv_isa_name(pkv_isa isa);

#ifdef __cplusplus
}
#endif
#endif
