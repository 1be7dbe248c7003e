/* pagedkv: pkv_pool, a lock-free allocator of reference-counted block ids.
 *
 * A pool holds only ids, so an engine that keeps the bytes elsewhere, for example on a GPU, can use
 * a pool without a cache. A pkv_cache has a pool of its own for each layer group.
 *
 * A block is free or has references. pkv_pool_alloc gives it the first one, and when the last one
 * is released it is free again. Only the engine knows what a block contains, how many tokens it
 * holds and who may write to it.
 *
 * Threads: any number of threads may call any function on the same pool at once, except
 * pkv_pool_destroy and pkv_pool_validate. alloc, retain and release are lock-free (a release of a
 * long list that does not ascend calls the allocator). If other threads alloc or release at the
 * same time, an alloc may return PKV_OUT_OF_BLOCKS although enough blocks are free. In a pool of
 * more than 4032 blocks, threads that contend allocate from separate ranges of ids, until these
 * have no free ids left. Destroying a pool while calls on it are in progress returns PKV_BUSY; a
 * call that begins at that moment may also return PKV_BUSY.
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
 * allocated again. It does not name its pool: pass it only to that pool.
 */
typedef uint64_t pkv_block_ref;

/** The block id of a pkv_block_ref, as in block tables and slots. */
#define PKV_BLOCK_ID(block) ((uint32_t)(block))

/**
 * In a block table: no block, for example because it left the window. In a list of chosen blocks:
 * an unused entry.
 */
#define PKV_NO_BLOCK_ID ((uint32_t)0xFFFFFFFFu)

/** Options for pkv_pool_create. */
typedef struct pkv_pool_config {
  uint32_t struct_size; /**< Must be sizeof(pkv_pool_config). */
  uint32_t blocks;      /**< The number of blocks, 1 to 2^31 - 1; must be set. */
  /** The struct is copied; the hooks must outlive the pool. NULL (default): the system's. */
  const pkv_allocator* allocator;
} pkv_pool_config;

/**
 * Creates a pool whose blocks are all free.
 *
 * @param[in]  config  The number of blocks.
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
 * Allocates n blocks, all or none, each with one reference.
 *
 * @param      pool    The pool.
 * @param      n       The number of blocks; 0 is OK.
 * @param[out] blocks  [n]: the blocks.
 *
 * Statuses: OUT_OF_BLOCKS (nothing is allocated), TOO_LARGE (n exceeds the pool). Since 1.0.
 */
PKV_API pkv_status pkv_pool_alloc(pkv_pool pool, size_t n, pkv_block_ref* blocks);

/**
 * Adds one reference to each of n blocks, to all or to none.
 *
 * @param     pool    The pool.
 * @param     n       The number of entries in the list.
 * @param[in] blocks  [n]: the blocks. The same block may be in the list more than once.
 *
 * Statuses: OUT_OF_RANGE (no such id), NOT_HELD (no references), LIMIT_REACHED. Since 1.0.
 */
PKV_API pkv_status pkv_pool_retain(pkv_pool pool, size_t n, const pkv_block_ref* blocks);

/**
 * Releases one reference to each of n blocks, or to none. A block without references is free.
 *
 * @param     pool    The pool.
 * @param     n       The number of entries in the list.
 * @param[in] blocks  [n]: the blocks, each once, unlike in pkv_pool_retain.
 *
 * Statuses: OUT_OF_RANGE, NOT_HELD (free, freed and allocated again, or twice in the list),
 * OUT_OF_MEMORY (the working memory that a list of more than 64 blocks needs, unless their ids
 * ascend). Since 1.0.
 */
PKV_API pkv_status pkv_pool_release(pkv_pool pool, size_t n, const pkv_block_ref* blocks);

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
 * Checks every invariant of a pool (free bits, counter, references). Call it when no other call is
 * in progress.
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
