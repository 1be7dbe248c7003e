/* pagedkv: statistics of pools and caches. */
#ifndef PAGEDKV_STATS_H
#define PAGEDKV_STATS_H

#include <pagedkv/common.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Statistics of a pkv_pool, of one layer group of a cache, or sums over all groups.
 *
 * A block is held while there are references to it: those of an engine with a pkv_pool; in a cache,
 * those of sessions, snapshots, batches, the prefix index, a store that writes them, and saves.
 * Blocks that are neither free nor held are retired: they are never allocated again because their
 * generation reached its limit.
 */
typedef struct pkv_pool_stats {
  uint32_t struct_size; /**< Must be sizeof(pkv_pool_stats). */
  uint32_t reserved;    /**< 0. */
  /** Capacity. With groups_share_memory: blocks in the pages that the group has now. */
  uint64_t blocks;
  /** Blocks neither held nor retired. A cache can also get evictable ones, and those of free pages.
   */
  uint64_t free_blocks;
  uint64_t held_blocks; /**< Blocks with references. */
  /**
   * The most blocks held at once so far; over all groups, the sum of the peaks of each. An
   * estimate if the pool has more than 4032 blocks and several threads took blocks at the same
   * time.
   */
  uint64_t held_blocks_peak;
  /**
   * Blocks with more than one reference. The prefix index has one to each block that it caches,
   * so a cached block of one session is among them.
   */
  uint64_t shared_blocks;
  uint64_t references; /**< References to all blocks. */
} pkv_pool_stats;

/**
 * Statistics of a cache over all layer groups, beside those of their pools. Fields "so far" only
 * rise; the others are current values. Since 1.0.
 */
typedef struct pkv_cache_stats {
  uint32_t struct_size;        /**< Must be sizeof(pkv_cache_stats). */
  uint32_t sessions;           /**< Open sessions. */
  uint32_t snapshots;          /**< Open snapshots. */
  uint32_t batches;            /**< Batches in progress: neither committed nor aborted. */
  uint64_t suspended_sessions; /**< Sessions suspended now. */
  /**
   * Held blocks that are evictable, in all groups: only the prefix index holds them, and no pin
   * keeps them. They are evicted when free blocks run out.
   */
  uint64_t evictable_blocks;
  uint64_t tokens; /**< Committed tokens of all sessions; shared ones count in each session. */
  /** Slots that hold a token, over all groups; a shared block counts once. */
  uint64_t filled_slots;
  /**
   * Bytes that the library has mapped or allocated for blocks: K, V, states, and key bounds of
   * chosen blocks. With storage EXTERNAL only the key bounds.
   */
  uint64_t mapped_bytes;
  uint64_t copied_blocks;    /**< Blocks copied by copy-on-write so far. */
  uint64_t commits;          /**< Batches committed so far. */
  uint64_t committed_tokens; /**< Tokens committed so far. */
  uint64_t suspensions;      /**< Sessions suspended so far. */
  /* With groups_share_memory in the config, else 0: */
  uint64_t pages;      /**< Pages in all. */
  uint64_t free_pages; /**< Pages of no group now. */
  /* With block_io in the config, else 0: */
  uint64_t block_io_blocks;   /**< Blocks that it copies now, which cannot be evicted. */
  uint64_t block_io_failures; /**< Calls of it that failed so far. */
} pkv_cache_stats;

#ifdef __cplusplus
}
#endif
#endif
