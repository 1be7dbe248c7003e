/* pagedkv: pkv_pool, a lock-free allocator of reference-counted block ids.
 *
 * A pool holds only ids, so an engine that keeps the bytes elsewhere, for example on a GPU, can use
 * a pool without a cache. A pkv_cache has a pool of its own for each layer group.
 *
 * A block's life: free -> owned (one reference, filling) -> sealed (full or finished; read-only) ->
 * free when the last reference is released. A block with more than one reference is shared, sealed
 * or not; nobody may write to it.
 *
 * Threads: any number of threads may call any function on the same pool at once, except
 * pkv_pool_destroy. alloc, retain and release are lock-free. If other threads alloc or release at
 * the same time, an alloc may return PKV_OUT_OF_BLOCKS although enough blocks are free; otherwise
 * it never does. In a pool of 4096 blocks or more, threads that contend allocate from separate
 * ranges of ids, until these have no free ids left. Destroying a pool while calls on it are in
 * progress returns PKV_BUSY; a call that begins at that moment may return PKV_BUSY, too.
 */
#ifndef PAGEDKV_POOL_H
#define PAGEDKV_POOL_H

#include <pagedkv/common.h>
#include <pagedkv/stats.h>

#ifdef __cplusplus
extern "C" {
#endif

/** An allocator of block ids. */
typedef struct pkv_pool_t* pkv_pool;

/**
 * A reference to one block: its id in the low 32 bits, the generation of that id in the high 32.
 *
 * Freeing a block raises its generation, so that a stale reference is recognised after the id is
 * allocated again.
 */
typedef uint64_t pkv_block;

/** The block id of a pkv_block, as in block tables and slots. */
#define PKV_BLOCK_ID(block) ((uint32_t)(block))

/** In a block table: a block that left the window or was dropped. In a list: an unused entry. */
#define PKV_NO_BLOCK ((uint32_t)0xFFFFFFFFu)

/** Options for pkv_pool_create. */
typedef struct pkv_pool_config {
  uint32_t struct_size; /**< Must be sizeof(pkv_pool_config). */
  uint32_t blocks;      /**< The number of blocks, 1 to 2^31 - 1; must be set. */
  uint32_t block_size;  /**< Slots (tokens) per block, 1 to 256. 0 (default): 16. */
  uint32_t reserved;    /**< Must be 0. */
  /** The struct is copied; the hooks must outlive the pool. NULL (default): the system's. */
  const pkv_allocator* allocator;
} pkv_pool_config;

/**
 * Creates a pool whose blocks are all free.
 *
 * @param[in]  config  The number of blocks and their size.
 * @param[out] out     The pool. Destroy it with pkv_pool_destroy.
 *
 * Statuses: INVALID_ARGUMENT, TOO_LARGE, OUT_OF_MEMORY. Since 1.0.
 */
PKV_API pkv_status pkv_pool_create(const pkv_pool_config* config, pkv_pool* out);

/**
 * Destroys a pool; its blocks become stale.
 *
 * @param pool  The pool. NULL is OK.
 *
 * Statuses: STALE_HANDLE, BUSY (a call is in progress). Since 1.0.
 */
PKV_API pkv_status pkv_pool_destroy(pkv_pool pool);

/**
 * Allocates n blocks, all or none, each with one reference, empty and not sealed.
 *
 * @param      pool    The pool.
 * @param      n       The number of blocks; 0 is OK.
 * @param[out] blocks  [n]: the blocks.
 *
 * Statuses: OUT_OF_BLOCKS (nothing is allocated), TOO_LARGE (n exceeds the pool). Since 1.0.
 */
PKV_API pkv_status pkv_pool_alloc(pkv_pool pool, size_t n, pkv_block* blocks);

/**
 * Adds one reference to each of n blocks, to all or to none.
 *
 * @param     pool    The pool.
 * @param     n       The number of entries in the list.
 * @param[in] blocks  [n]: the blocks. The same block may be in the list more than once.
 *
 * Statuses: OUT_OF_RANGE (no such id), STALE_HANDLE (freed since), LIMIT_REACHED. Since 1.0.
 */
PKV_API pkv_status pkv_pool_retain(pkv_pool pool, size_t n, const pkv_block* blocks);

/**
 * Releases one reference to each of n blocks, or to none. A block without references is free, and
 * its slots are empty.
 *
 * @param     pool    The pool.
 * @param     n       The number of entries in the list.
 * @param[in] blocks  [n]: the blocks, each once.
 *
 * Statuses: OUT_OF_RANGE, NOT_HELD (free, freed and allocated again, or twice in the list),
 * OUT_OF_MEMORY (a list of more than 64 blocks needs working memory). Since 1.0.
 */
PKV_API pkv_status pkv_pool_release(pkv_pool pool, size_t n, const pkv_block* blocks);

/**
 * Claims the next n free slots of a block for writing. The block must not be shared: only its one
 * owner may write to it.
 *
 * @param      pool    The pool.
 * @param      block   The block.
 * @param      n       The number of slots.
 * @param[out] offset  The offset of the first slot in the block.
 *
 * Statuses: OUT_OF_RANGE, STALE_HANDLE, BLOCK_SEALED, BLOCK_SHARED, BLOCK_FULL (fewer than n slots
 * are free). Since 1.0.
 */
PKV_API pkv_status pkv_pool_claim(pkv_pool pool, pkv_block block, uint32_t n, uint32_t* offset);

/**
 * Makes a block read-only until it is freed or reset. Sealing twice is OK.
 *
 * @param pool   The pool.
 * @param block  The block.
 *
 * Statuses: OUT_OF_RANGE, STALE_HANDLE. Since 1.0.
 */
PKV_API pkv_status pkv_pool_seal(pkv_pool pool, pkv_block block);

/**
 * Empties and unseals a block that is not shared.
 *
 * @param pool   The pool.
 * @param block  The block.
 *
 * Statuses: OUT_OF_RANGE, STALE_HANDLE, BLOCK_SHARED. Since 1.0.
 */
PKV_API pkv_status pkv_pool_reset(pkv_pool pool, pkv_block block);

/** Properties of one block. */
typedef struct pkv_block_info {
  uint32_t struct_size;  /**< Must be sizeof(pkv_block_info). */
  uint32_t id;           /**< The block id. */
  uint32_t generation;   /**< The number of times that this id was freed. */
  uint32_t references;   /**< 0: free. */
  uint32_t filled_slots; /**< Slots claimed, 0 to block_size. */
  uint32_t sealed;       /**< 1: read-only. */
} pkv_block_info;

/**
 * Returns the properties of a block, free or not.
 *
 * @param      pool  The pool.
 * @param      id    The block id.
 * @param[out] out   The properties.
 *
 * Statuses: OUT_OF_RANGE. Since 1.0.
 */
PKV_API pkv_status pkv_pool_get_block_info(pkv_pool pool, uint32_t id, pkv_block_info* out);

/**
 * Returns the statistics of a pool, exact if no other call is in progress.
 *
 * @param      pool  The pool.
 * @param[out] out   The statistics.
 *
 * Statuses: none of its own. Since 1.0.
 */
PKV_API pkv_status pkv_pool_get_stats(pkv_pool pool, pkv_pool_stats* out);

/**
 * Checks every invariant of a pool (free bits, counter, references, fill). Call it when no other
 * call is in progress.
 *
 * @param pool  The pool.
 *
 * Statuses: INTERNAL (the error message has the equation that does not hold). Since 1.0.
 */
PKV_API pkv_status pkv_pool_validate(pkv_pool pool);

#ifdef __cplusplus
}
#endif
#endif
