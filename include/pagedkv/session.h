/* pagedkv: pkv_session, one sequence: its tokens and its block tables (one per layer group).
 *
 * Threads: one thread at a time may change a session, or several may read it. While a call changes
 * it, others return PKV_BUSY. A call that changes it waits for running getters (pagedkv.h), and
 * returns PKV_BUSY while other calls read it (to copy, fork or save it). While a session is in a
 * batch, only getters and pkv_session_read work on it, and calls that change the batch count as
 * calls that change it.
 */
#ifndef PAGEDKV_SESSION_H
#define PAGEDKV_SESSION_H

#include <pagedkv/cache.h>
#include <pagedkv/pool.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A sequence: its block tables, length and tokens. */
typedef struct pkv_session_t* pkv_session;

/** What a session does with the prefix index of its cache, if there is one. */
typedef enum pkv_prefix_use PKV_ENUM {
  PKV_PREFIX_SHARE = 0, /**< Takes cached blocks, and adds its own to the index (default). */
  PKV_PREFIX_MATCH = 1, /**< Takes cached blocks, and adds none. */
  PKV_PREFIX_OFF = 2    /**< Neither. */
} pkv_prefix_use;

/**
 * How long the prefix index keeps blocks: evictable blocks of lower retention are evicted before
 * those of higher retention (in groups with a window or states not all: prefix.h). Hints set it:
 * see hint.h. A shared block has the highest of all its sessions.
 */
typedef enum pkv_retention PKV_ENUM {
  PKV_RETENTION_LOW = -1,   /**< Prompts that hardly ever return: batch jobs, evaluations. */
  PKV_RETENTION_NORMAL = 0, /**< Any other prompt (default). */
  PKV_RETENTION_HIGH = 1    /**< Prompts that must stay fast, even if they are rare. */
} pkv_retention;

/** Options for pkv_session_open. */
typedef struct pkv_session_config {
  uint32_t struct_size;      /**< Must be sizeof(pkv_session_config). */
  int32_t priority;          /**< pkv_batch_choose_victims chooses higher ones last. Default 0. */
  pkv_prefix_use prefix_use; /**< Default SHARE. */
  uint32_t reserved;         /**< Must be 0. */
  /**
   * salt_size bytes, copied. Only sessions with the same salt share prefixes. NULL (default): none.
   */
  const void* salt;
  uint64_t salt_size; /**< Up to 256. */
} pkv_session_config;

/**
 * Opens an empty session.
 *
 * @param      cache   The cache.
 * @param[in]  config  The config. NULL: defaults.
 * @param[out] out     The session, to be closed by pkv_session_close.
 *
 * Statuses: OUT_OF_MEMORY, LIMIT_REACHED. Since 1.0.
 */
PKV_API pkv_status pkv_session_open(pkv_cache cache, const pkv_session_config* config,
                                    pkv_session* out);

/**
 * Closes a session and frees the blocks that nothing else holds.
 *
 * @param session  The session. NULL is OK.
 *
 * Statuses: STALE_HANDLE, BUSY (in a batch). Since 1.0.
 */
PKV_API pkv_status pkv_session_close(pkv_session session);

/**
 * Returns how many tokens are committed; 0 while the session is suspended.
 *
 * @param      session  The session.
 * @param[out] tokens   The length in tokens.
 *
 * Statuses: none of its own. Since 1.0.
 */
PKV_API pkv_status pkv_session_get_length(pkv_session session, uint64_t* tokens);

/**
 * A token whose id the library does not know. Every other id is allowed, including negative ones.
 * Matches compare ids: if an engine makes up ids (for images, say), equal ids must mean equal
 * input.
 */
#define PKV_UNKNOWN_TOKEN (-1)

/**
 * Copies the token ids of positions [first, first + n). These are committed tokens, or those that
 * pkv_session_suspend remembers.
 *
 * @param      session  The session.
 * @param      first    The first position.
 * @param      n        How many.
 * @param[out] tokens   [n]: the ids; PKV_UNKNOWN_TOKEN where an id is unknown.
 *
 * Statuses: OUT_OF_RANGE. Since 1.0.
 */
PKV_API pkv_status pkv_session_get_tokens(pkv_session session, uint64_t first, size_t n,
                                          int32_t* tokens);

/**
 * Sets the ids of tokens that were committed without ids. If forks that share a block set different
 * ids for it, the prefix index has the block only under the ids that it gets first.
 *
 * @param     session  The session.
 * @param     first    The first position.
 * @param     n        How many.
 * @param[in] tokens   [n]: the ids.
 *
 * Statuses: OUT_OF_RANGE, INVALID_ARGUMENT (a position already has another id;
 * pkv_last_error_details has its index in tokens). Since 1.0.
 */
PKV_API pkv_status pkv_session_set_tokens(pkv_session session, uint64_t first, size_t n,
                                          const int32_t* tokens);

/**
 * Reserves blocks for total_tokens tokens, in all groups or in none. Later steps up to that length
 * cannot run out of blocks, however large they are and whatever other sessions take. Never shrinks.
 *
 * The reservation lasts until the session is that long, or until pkv_session_trim,
 * pkv_session_suspend or pkv_session_close frees it. It does not include blocks for copies on write
 * of blocks that become shared later: call it again after pkv_session_fork, pkv_snapshot_take or
 * pkv_file_save.
 *
 * In groups with states, steps within the reservation overwrite the blocks of older states. So
 * until it ends, the last full block is published only if its state is a checkpoint.
 *
 * @param session       The session.
 * @param total_tokens  The length to reserve, including the tokens that the session has.
 *
 * Statuses: OUT_OF_BLOCKS, TOO_LARGE, OUT_OF_MEMORY, BUSY, SUSPENDED. Since 1.0.
 */
PKV_API pkv_status pkv_session_reserve(pkv_session session, uint64_t total_tokens);

/**
 * Removes the last tokens of a session and frees their blocks, including reserved ones.
 *
 * @param session  The session.
 * @param length   How many tokens to keep.
 *
 * Statuses: OUT_OF_RANGE (the length is above the session's; a group with a window has freed blocks
 * that the next token would see; or a group with states has no state there: see
 * pkv_session_get_trim_point), BUSY. Since 1.0.
 */
PKV_API pkv_status pkv_session_trim(pkv_session session, uint64_t length);

/**
 * Returns the longest length, up to a limit, to which pkv_session_trim can trim a session. With
 * windows or states, not every length is possible.
 *
 * @param      session  The session.
 * @param      limit    The longest length wanted.
 * @param[out] length   That length. 0 is always possible.
 *
 * Statuses: none of its own. Since 1.0.
 */
PKV_API pkv_status pkv_session_get_trim_point(pkv_session session, uint64_t limit,
                                              uint64_t* length);

/**
 * Opens a session with the same tokens. They share all blocks, even the last one if it is not full;
 * the first session to write to that block copies it.
 *
 * The new session inherits priority, use of the prefix index, salt and hints. It does not inherit
 * reserved blocks, nor remembered tokens that a resumed session has not computed again yet.
 *
 * @param      session  The session; it does not change.
 * @param[out] out      The new session.
 *
 * Statuses: OUT_OF_MEMORY, LIMIT_REACHED, BUSY, SUSPENDED. Since 1.0.
 */
PKV_API pkv_status pkv_session_fork(pkv_session session, pkv_session* out);

/**
 * Preempts a session: frees the blocks that nothing else holds, and remembers the token ids.
 *
 * The session's length is then 0. Until it is resumed or trimmed, admit, reserve, fork, snapshots
 * and steps return PKV_SUSPENDED. Needs no memory. Suspending twice is OK.
 *
 * @param session  The session.
 *
 * Statuses: BUSY. Since 1.0.
 */
PKV_API pkv_status pkv_session_suspend(pkv_session session);

/**
 * Ends a suspension. Takes the remembered tokens that the prefix index still has, and reserves the
 * blocks of all others; if there are too few, nothing changes. The caller must compute K and V of
 * positions [*length, *total) again.
 *
 * pkv_session_get_tokens returns the ids of these positions. Prefill them in batches of any size,
 * which may go beyond total. A commit without ids uses the remembered ones; a commit with other ids
 * is refused. A trim drops the remembered ids. Groups with a window reserve one window. Groups with
 * states reserve enough for batches of any size or, if the pool is too small for that, for one
 * batch with all the tokens.
 *
 * If the session is not suspended, only its length and total are returned.
 *
 * @param      session  The session.
 * @param[out] length   Tokens that have K and V.
 * @param[out] total    Tokens, including the remembered ones.
 *
 * Statuses: OUT_OF_BLOCKS, TOO_LARGE, LIMIT_REACHED, OUT_OF_MEMORY, BUSY; the session is then still
 * suspended. Since 1.0.
 */
PKV_API pkv_status pkv_session_resume(pkv_session session, uint64_t* length, uint64_t* total);

/**
 * Changes the priority of a session.
 *
 * @param session   The session.
 * @param priority  pkv_batch_choose_victims chooses higher ones last.
 *
 * Statuses: BUSY. Since 1.0.
 */
PKV_API pkv_status pkv_session_set_priority(pkv_session session, int32_t priority);

/** The properties of a session. */
typedef struct pkv_session_info {
  uint32_t struct_size; /**< Must be sizeof(pkv_session_info). */
  int32_t priority;     /**< From the session's config, or set later. */
  uint32_t suspended;   /**< 1: suspended, and neither resumed nor trimmed since. */
  uint32_t reserved;    /**< 0. */
  uint64_t length;      /**< Committed tokens. */
  uint64_t total;       /**< Committed tokens, plus those to be computed again. */
  uint64_t blocks;      /**< Blocks held, over all groups, including reserved ones. */
  /**
   * Blocks that only this session holds, apart from the prefix index, and no pin keeps. Suspend and
   * close free them or make them evictable; with a store, only after they were written.
   */
  uint64_t exclusive_blocks;
} pkv_session_info;

/**
 * Returns the properties of a session. It looks at all of its blocks and locks the prefix index;
 * pkv_session_get_length does not.
 *
 * @param      session  The session.
 * @param[out] out      The properties.
 *
 * Statuses: none of its own. Since 1.0.
 */
PKV_API pkv_status pkv_session_get_info(pkv_session session, pkv_session_info* out);

/**
 * Returns the block table of one group: ids[i] is the block of positions [i * block_size, (i + 1) *
 * block_size). It includes reserved blocks, and during a batch those of the step: new ones and
 * copies. In a group with states, ids[i] is the block of the last state within these positions, or
 * PKV_NO_BLOCK_ID, as most entries are. Reserved blocks and those of a step are then not included.
 *
 * @param      session   The session.
 * @param      group     The index of the group.
 * @param      capacity  Entries that ids has room for.
 * @param[out] ids       [capacity]: block ids; PKV_NO_BLOCK_ID if the block left the window (one
 * step late: see pkv_layer_group).
 * @param[out] count     How many entries there are.
 *
 * Statuses: OUT_OF_RANGE, BUFFER_TOO_SMALL. Since 1.0.
 */
PKV_API pkv_status pkv_session_get_block_table(pkv_session session, uint32_t group, size_t capacity,
                                               uint32_t* ids, size_t* count);

/**
 * Copies K and V of positions [first, first + n) of one layer into rows; also those of a step
 * in progress, once the layer is written.
 *
 * @param      session  The session.
 * @param      layer    The layer of the model.
 * @param      first    The first position.
 * @param      n        How many.
 * @param[out] k        Keys, [n][kv_heads][key_dim]. NULL: not wanted.
 * @param[out] v        Values, [n][kv_heads][value_dim]. NULL: not wanted.
 *
 * Statuses: OUT_OF_RANGE (also: left the window), OVERFLOW, UNSUPPORTED (storage EXTERNAL; a group
 * that is opaque or has states). Since 1.0.
 */
PKV_API pkv_status pkv_session_read(pkv_session session, uint32_t layer, uint64_t first, size_t n,
                                    const pkv_tensor* k, const pkv_tensor* v);

/**
 * Copies a state of one layer of a group with states. A session holds the state after its last
 * token and at checkpoints. Unless blocks were short, it also holds the state after its last full
 * block if a step ended there, if checkpoint_interval is set, or if the step that filled the block
 * had at most max_verify_tokens tokens.
 *
 * @param      session  The session.
 * @param      layer    The layer of the model.
 * @param      tokens   The number of tokens that the state has seen.
 * @param      size     Must be layer_bytes of the group.
 * @param[out] state    [size]: the state.
 *
 * Statuses: OUT_OF_RANGE (layer; the session does not hold this state), INVALID_ARGUMENT (size),
 * UNSUPPORTED (the layer keeps K and V; storage EXTERNAL; an opaque group). Since 1.0.
 */
PKV_API pkv_status pkv_session_get_state(pkv_session session, uint32_t layer, uint64_t tokens,
                                         size_t size, void* state);

#ifdef __cplusplus
}
#endif
#endif
