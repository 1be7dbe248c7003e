/* pagedkv: pkv_pool, a lock-free allocator of reference-counted block ids.
 *
 * A pool holds ids only: an engine that keeps the bytes elsewhere (on a GPU, say) uses it alone. A
 * pkv_cache has one pool of its own per layer group, with the same rules.
 *
 * A block's life: free -> owned (one reference, filling) -> sealed (full or finished; read only) ->
 * shared (more than one reference) -> free when the last reference is released.
 *
 * Threads: every function here may be called from any thread at any time on the same pool, except
 * pkv_pool_destroy. alloc, retain and release are lock-free. If other threads release or alloc
 * during an alloc, it may report PKV_OUT_OF_BLOCKS although blocks are about to be free, or become
 * free where it does not look at that moment; never when no other call is under way. In a pool of
 * 4096 blocks or more, threads that meet part ways: each continues in a range of ids of its own,
 * and takes from the others when its range is empty. Destroying a pool while calls on it are under
 * way returns PKV_BUSY; so may, at that moment, a call that begins.
 */
#ifndef PAGEDKV_POOL_H
#define PAGEDKV_POOL_H

#include <pagedkv/common.h>
#include <pagedkv/stats.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Block ids that are given out and taken back. */
typedef struct pkv_pool_t* pkv_pool;

/**
 * A reference to one block: the id in the low 32 bits, the generation of that id in the high 32.
 *
 * A fresh pool gives one thread 0, 1, 2, ... When a block is freed its generation rises, so that a
 * stale reference is told from the block's next life.
 */
typedef uint64_t pkv_block;

/** The block id of a pkv_block: what block tables and slots are made of. */
#define PKV_BLOCK_ID(block) ((uint32_t)(block))

/** Stands in a block table for a block that was given back (it left a sliding window). */
#define PKV_NO_BLOCK ((uint32_t)0xFFFFFFFFu)

/** What pkv_pool_create makes. */
typedef struct pkv_pool_config {
  uint32_t struct_size; /**< sizeof(pkv_pool_config): the caller sets it. */
  uint32_t blocks;      /**< How many blocks; 1 to 2^31 - 1. No default. */
  uint32_t block_size;  /**< Slots (tokens) per block; 1 to 256; 0 (default): 16. */
  uint32_t reserved;    /**< 0. */
  /** Copied; what it points to must outlive the pool. NULL (default): the system's. */
  const pkv_allocator* allocator;
} pkv_pool_config;

/**
 * Makes a pool with every block free.
 *
 * @param[in]  config  How many blocks, and of what size.
 * @param[out] out     The pool, to be destroyed by pkv_pool_destroy.
 *
 * Statuses: INVALID_ARGUMENT, TOO_LARGE, NO_MEMORY. Since 0.1.
 */
PKV_API pkv_status pkv_pool_create(const pkv_pool_config* config, pkv_pool* out);

/**
 * Frees a pool; its blocks become stale.
 *
 * @param pool  The pool. NULL is OK.
 *
 * Statuses: STALE_HANDLE, BUSY (a call is under way). Since 0.1.
 */
PKV_API pkv_status pkv_pool_destroy(pkv_pool pool);

/**
 * Takes n blocks, all or none, each with one reference, no slot filled, not sealed. The lowest free
 * ids near the caller's last one come first.
 *
 * @param      pool    The pool.
 * @param      n       How many blocks; 0 is OK.
 * @param[out] blocks  [n]: the blocks.
 *
 * Statuses: OUT_OF_BLOCKS (nothing is taken), TOO_LARGE (n exceeds the pool). Since 0.1.
 */
PKV_API pkv_status pkv_pool_alloc(pkv_pool pool, size_t n, pkv_block* blocks);

/**
 * Adds one reference to each of n blocks, to all or to none.
 *
 * @param     pool    The pool.
 * @param     n       How many entries the list has.
 * @param[in] blocks  [n]: the blocks. One may stand in the list more than once.
 *
 * Statuses: OUT_OF_RANGE (no such id), STALE_HANDLE (freed since), REF_LIMIT. Since 0.1.
 */
PKV_API pkv_status pkv_pool_retain(pkv_pool pool, size_t n, const pkv_block* blocks);

/**
 * Drops one reference of each of n blocks. A block whose last reference goes is free, its slots
 * empty.
 *
 * @param     pool    The pool.
 * @param     n       How many entries the list has.
 * @param[in] blocks  [n]: the blocks, each once. All are checked before anything is released.
 *
 * Statuses: OUT_OF_RANGE, DOUBLE_FREE (already free, freed and given out again, or twice in the
 * list), NO_MEMORY (lists of more than 64 blocks need scratch). Since 0.1.
 */
PKV_API pkv_status pkv_pool_release(pkv_pool pool, size_t n, const pkv_block* blocks);

/**
 * Claims the next n free slots of a block for writing. Only the owner of a block that nobody shares
 * writes to it.
 *
 * @param      pool    The pool.
 * @param      block   The block.
 * @param      n       How many slots.
 * @param[out] offset  The offset in the block of the first slot.
 *
 * Statuses: OUT_OF_RANGE, STALE_HANDLE, BLOCK_SEALED, BLOCK_FULL (fewer than n slots are left),
 * BUSY (shared). Since 0.1.
 */
PKV_API pkv_status pkv_pool_claim(pkv_pool pool, pkv_block block, uint32_t n, uint32_t* offset);

/**
 * Makes a block read-only until it is freed or reset. Sealing twice is OK.
 *
 * @param pool   The pool.
 * @param block  The block.
 *
 * Statuses: OUT_OF_RANGE, STALE_HANDLE. Since 0.1.
 */
PKV_API pkv_status pkv_pool_seal(pkv_pool pool, pkv_block block);

/**
 * Empties and unseals a block that only the caller holds.
 *
 * @param pool   The pool.
 * @param block  The block.
 *
 * Statuses: OUT_OF_RANGE, STALE_HANDLE, BUSY (shared). Since 0.1.
 */
PKV_API pkv_status pkv_pool_reset(pkv_pool pool, pkv_block block);

/** The state of one block. */
typedef struct pkv_block_state {
  uint32_t struct_size; /**< sizeof(pkv_block_state): the caller sets it. */
  uint32_t id;          /**< The block id. */
  uint32_t generation;  /**< How often this id has been freed. */
  uint32_t references;  /**< 0: free. */
  uint32_t filled;      /**< Slots claimed, 0 to block_size. */
  uint32_t sealed;      /**< 1: read only. */
} pkv_block_state;

/**
 * Tells the state of a block now, free or not.
 *
 * @param      pool  The pool.
 * @param      id    The block id.
 * @param[out] out   The state.
 *
 * Statuses: OUT_OF_RANGE. Since 0.1.
 */
PKV_API pkv_status pkv_pool_get_block_state(pkv_pool pool, uint32_t id, pkv_block_state* out);

/**
 * Tells the counts of a pool; exact while no other call is under way.
 *
 * @param      pool  The pool.
 * @param[out] out   The counts.
 *
 * Statuses: none of its own. Since 0.1.
 */
PKV_API pkv_status pkv_pool_get_stats(pkv_pool pool, pkv_pool_stats* out);

/**
 * Checks every invariant of a pool (free bits, counter, references, fill). Call it while no other
 * call is under way.
 *
 * @param pool  The pool.
 *
 * Statuses: INTERNAL (the sentence has the equation that does not hold). Since 0.1.
 */
PKV_API pkv_status pkv_pool_validate(pkv_pool pool);

#ifdef __cplusplus
}
#endif
#endif
