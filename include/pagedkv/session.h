/* pagedkv: pkv_session, one sequence: its tokens and its block tables (one per layer group).
 *
 * Threads: a session is used by one thread at a time; several threads may read it at once. A second thread that
 * changes it, or reads it while it is changed, gets PKV_BUSY. While a batch holds a session, calls
 * that change it return PKV_BUSY; the getters work from the thread that drives the batch and see the step in flight.
 */
#ifndef PAGEDKV_SESSION_H
#define PAGEDKV_SESSION_H

#include <pagedkv/cache.h>
#include <pagedkv/pool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pkv_session_t* pkv_session;

/** What a session does with the prefix index of its cache, if there is one. */
typedef enum pkv_prefix_use PKV_ENUM {
  PKV_PREFIX_SHARE = 0, /**< Matches, and publishes what it computes (default). */
  PKV_PREFIX_MATCH = 1, /**< Matches only. */
  PKV_PREFIX_OFF = 2
} pkv_prefix_use;

/** How long the prefix index keeps what a session leaves behind: blocks of a lower retention are evicted before all of a higher. */
typedef enum pkv_retention PKV_ENUM {
  PKV_RETENTION_NORMAL = 0,
  PKV_RETENTION_LOW = 1, /**< A text that will hardly come again: a batch job, an evaluation. */
  PKV_RETENTION_HIGH = 2 /**< One that must stay fast, even if it comes seldom. */
} pkv_retention;

/** What a session has from its beginning. */
typedef struct pkv_session_config {
  uint32_t struct_size;
  int32_t priority;        /**< Higher ones are the last to be chosen by pkv_batch_choose_victims. Default 0. */
  uint64_t reserve_tokens; /**< As pkv_session_reserve at once. Default 0. */
  pkv_prefix_use prefix;
  pkv_retention retention; /**< Of what this session uses and stores; a block has the highest of its users. */
  const void* salt;        /**< Sessions share prefixes with those of the same salt only; salt_size bytes, up to 256, copied. NULL: none. */
  uint64_t salt_size;
} pkv_session_config;

/** Fills *config with defaults. Statuses: INVALID_ARGUMENT. Since 0.1. */
PKV_API pkv_status pkv_session_config_init(pkv_session_config* config, size_t struct_size);

/** Opens an empty session. config may be NULL. Statuses: OUT_OF_BLOCKS, TOO_LARGE, NO_MEMORY. Since 0.1. */
PKV_API pkv_status pkv_session_open(pkv_cache cache, const pkv_session_config* config, pkv_session* out);

/** Gives every block back that nobody else holds. NULL is OK. Statuses: STALE_HANDLE, BUSY (in a batch). Since 0.1. */
PKV_API pkv_status pkv_session_close(pkv_session session);

/** Committed tokens; 0 while the session is suspended. Statuses: none of its own. Since 0.1. */
PKV_API pkv_status pkv_session_length(pkv_session session, uint64_t* tokens);

/** Tokens whose K and V this layer holds: more than the length while a step is in flight and the layer was written. Statuses: OUT_OF_RANGE. Since 0.1. */
PKV_API pkv_status pkv_session_layer_length(pkv_session session, uint32_t layer, uint64_t* tokens);

/** Stands for a token whose id was never told. */
#define PKV_NO_TOKEN (-1)

/** Copies token ids of positions [first, first + n): committed ones, and those remembered by pkv_session_suspend. Statuses: OUT_OF_RANGE. Since 0.1. */
PKV_API pkv_status pkv_session_tokens(pkv_session session, uint64_t first, size_t n, int32_t* tokens);

/** Tells the ids of committed positions that were committed without (pkv_session_prefill, pkv_session_push).
 * Statuses: OUT_OF_RANGE, INVALID_ARGUMENT (a position that has another id already). Since 0.1. */
PKV_API pkv_status pkv_session_set_tokens(pkv_session session, uint64_t first, size_t n, const int32_t* tokens);

/**
 * Makes room for total_tokens tokens in all, all groups or none; a later step up to there cannot run out of blocks. Never
 * shrinks. Statuses: OUT_OF_BLOCKS, TOO_LARGE, NO_MEMORY, BUSY. Since 0.1.
 */
PKV_API pkv_status pkv_session_reserve(pkv_session session, uint64_t total_tokens);

/**
 * Replaces what the session holds, one layer per call, without a batch: n rows of keys (in, [n][kv_heads][key_dim]) and
 * values (in, [n][kv_heads][value_dim]). The first call begins the step; when every layer was given once the
 * step is committed and the length is n. Every call of a step has the same n. The old content is gone
 * from the first call on. pkv_session_trim (to any length up to pkv_session_length) ends an unfinished step.
 * Statuses: OUT_OF_BLOCKS, TOO_LARGE, NO_MEMORY, OUT_OF_RANGE (layer), INVALID_ARGUMENT (another n than the step's),
 * UNSUPPORTED (storage NONE), BUSY. Since 0.1.
 */
PKV_API pkv_status pkv_session_prefill(pkv_session session, uint32_t layer, size_t n, const pkv_tensor* k, const pkv_tensor* v);

/** As pkv_session_prefill, but appends one row of keys and values. Statuses: as there. Since 0.1. */
PKV_API pkv_status pkv_session_push(pkv_session session, uint32_t layer, const pkv_tensor* k, const pkv_tensor* v);

/**
 * Keeps the first `length` tokens and gives back every block beyond them (reserved ones too). Ends an unfinished
 * pkv_session_prefill or pkv_session_push.
 * Statuses: OUT_OF_RANGE (longer than it is, or a window group no longer has what it needs), BUSY. Since 0.1.
 */
PKV_API pkv_status pkv_session_trim(pkv_session session, uint64_t length);

/**
 * Opens a session with the same tokens. Blocks are shared, the part-filled last one too; whoever writes to it first copies
 * that one block. Storage CONTIGUOUS copies everything. Statuses: NO_MEMORY, REF_LIMIT, OUT_OF_BLOCKS (CONTIGUOUS), BUSY. Since 0.1.
 */
PKV_API pkv_status pkv_session_fork(pkv_session session, pkv_session* out);

/**
 * Gives back every block that nobody else holds (preemption) and remembers the token ids. The session is empty then, and its length 0. Until
 * it is resumed, trimmed or prefilled anew, calls that would add to it return PKV_SUSPENDED. Needs no memory. Suspending twice is OK.
 * Ends an unfinished pkv_session_prefill or pkv_session_push. Statuses: BUSY. Since 0.1.
 */
PKV_API pkv_status pkv_session_suspend(pkv_session session);

/**
 * Ends the suspension: reserves the blocks that the remembered tokens need, for all or for none (window groups: those of one window), and says from
 * where on their K and V must be computed again: positions [*length, *total), whose ids pkv_session_tokens tells. Prefill them by batches of
 * any size, which may go beyond total; a commit without ids takes the remembered ones, one with others is refused. A trim, or
 * pkv_session_prefill, forgets what is remembered. A session that is not suspended: OK, with its length and what it remembers.
 * blocks_short (may be NULL) as in pkv_batch_begin. Statuses: OUT_OF_BLOCKS, TOO_LARGE, NO_MEMORY (suspended still), BUSY. Since 0.1.
 */
PKV_API pkv_status pkv_session_resume(pkv_session session, uint64_t* length, uint64_t* total, uint64_t* blocks_short);

/** Changes the priority of pkv_session_config. Statuses: BUSY. Since 0.1. */
PKV_API pkv_status pkv_session_set_priority(pkv_session session, int32_t priority);

/** What a session holds now. */
typedef struct pkv_session_info {
  uint32_t struct_size;
  int32_t priority;
  uint32_t suspended;        /**< 1: between pkv_session_suspend and pkv_session_resume. */
  uint32_t reserved;         /**< 0. */
  uint64_t length;           /**< Committed tokens. */
  uint64_t total;            /**< With the remembered ones that are to be computed again; length if there are none. */
  uint64_t blocks;           /**< Blocks held, over all groups, reserved ones too. */
  uint64_t exclusive_blocks; /**< Of those, held by nobody else: what a suspend or a close gives back. */
} pkv_session_info;

/** Tells what the session holds. Statuses: none of its own. Since 0.1. */
PKV_API pkv_status pkv_session_get_info(pkv_session session, pkv_session_info* out);

/**
 * Block ids of one group, logical block i (tokens i * block_size and on) at ids[i]; PKV_NO_BLOCK where the block left the window
 * (one step late: see pkv_layer_group).
 * *count is the number of entries, written on PKV_OK and on BUFFER_TOO_SMALL; reserved blocks are among them. ids may be NULL if
 * capacity is 0. Statuses: OUT_OF_RANGE, BUFFER_TOO_SMALL, UNSUPPORTED (CONTIGUOUS). Since 0.1.
 */
PKV_API pkv_status pkv_session_block_table(pkv_session session, uint32_t group, size_t capacity, uint32_t* ids, size_t* count);

/**
 * Slots of positions [first, first + n) of one group: block id * block_size + offset, -1 where the block left the window. Positions
 * up to the end of the last block held may be asked for. Statuses: OUT_OF_RANGE, UNSUPPORTED (CONTIGUOUS). Since 0.1.
 */
PKV_API pkv_status pkv_session_slot_mapping(pkv_session session, uint32_t group, uint64_t first, size_t n, int64_t* slots);

/**
 * Slots attention reads now in one group, in token order: those of all committed tokens and of the step in flight that
 * the window still holds. *count as in pkv_session_block_table. Statuses: as there. Since 0.1.
 */
PKV_API pkv_status pkv_session_kv_indices(pkv_session session, uint32_t group, size_t capacity, int64_t* slots, size_t* count);

/**
 * Reads keys and values of one layer back as dense rows: k [n][kv_heads][key_dim] and v [n][kv_heads][value_dim] (out; either may
 * be NULL) for positions [first, first + n). Positions of a step in flight are there once the layer was written.
 * Statuses: OUT_OF_RANGE (also: the window no longer holds them), UNSUPPORTED (NONE). Since 0.1.
 */
PKV_API pkv_status pkv_session_materialize(pkv_session session, uint32_t layer, uint64_t first, size_t n, const pkv_tensor* k, const pkv_tensor* v);

#ifdef __cplusplus
}
#endif
#endif
