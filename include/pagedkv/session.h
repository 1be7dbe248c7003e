/* pagedkv: pkv_session, one sequence: its tokens and its block tables (one per layer group).
 *
 * Threads: a session is used by one thread at a time; several threads may read it at once. A second
 * thread that changes it, or reads it while it is changed, gets PKV_BUSY. While a batch holds a
 * session, calls that change it return PKV_BUSY; the getters work from the thread that drives the
 * batch and see the step in flight.
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
  PKV_PREFIX_SHARE = 0, /**< Matches, and publishes what it computes (default). */
  PKV_PREFIX_MATCH = 1, /**< Matches only. */
  PKV_PREFIX_OFF = 2    /**< Neither. */
} pkv_prefix_use;

/**
 * How long the prefix index keeps what a session leaves behind: all blocks of a lower retention are
 * evicted before any of a higher one.
 */
typedef enum pkv_retention PKV_ENUM {
  PKV_RETENTION_LOW = -1,   /**< For a text that will hardly return: a batch job, an evaluation. */
  PKV_RETENTION_NORMAL = 0, /**< For a text like any other (default). */
  PKV_RETENTION_HIGH = 1    /**< For a text that must stay fast, even if it comes seldom. */
} pkv_retention;

/** What a session has from its beginning. */
typedef struct pkv_session_config {
  uint32_t struct_size;  /**< sizeof(pkv_session_config): the caller sets it. */
  int32_t priority;      /**< pkv_batch_choose_victims chooses higher ones last. Default 0. */
  pkv_prefix_use prefix; /**< Default SHARE. */
  /** Of blocks that it uses and stores; the highest of all users counts. */
  pkv_retention retention;
  /**
   * salt_size bytes, copied: only sessions with the same salt share prefixes. NULL (default): none.
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
 * Statuses: OUT_OF_BLOCKS, TOO_LARGE, NO_MEMORY. Since 0.1.
 */
PKV_API pkv_status pkv_session_open(pkv_cache cache, const pkv_session_config* config,
                                    pkv_session* out);

/**
 * Closes a session and gives back every block that nobody else holds.
 *
 * @param session  The session. NULL is OK.
 *
 * Statuses: STALE_HANDLE, BUSY (in a batch). Since 0.1.
 */
PKV_API pkv_status pkv_session_close(pkv_session session);

/**
 * Tells how many tokens are committed; 0 while the session is suspended.
 *
 * @param      session  The session.
 * @param[out] tokens   The length in tokens.
 *
 * Statuses: none of its own. Since 0.1.
 */
PKV_API pkv_status pkv_session_get_length(pkv_session session, uint64_t* tokens);

/**
 * Tells of how many tokens one layer holds K and V: more than the length while a step is in flight
 * and the layer was written.
 *
 * @param      session  The session.
 * @param      layer    The layer of the model.
 * @param[out] tokens   The number of tokens.
 *
 * Statuses: OUT_OF_RANGE. Since 0.1.
 */
PKV_API pkv_status pkv_session_get_layer_length(pkv_session session, uint32_t layer,
                                                uint64_t* tokens);

/** Stands for a token whose id was never told. */
#define PKV_NO_TOKEN (-1)

/**
 * Copies the token ids of positions [first, first + n): committed ones, and those that
 * pkv_session_suspend remembered.
 *
 * @param      session  The session.
 * @param      first    The first position.
 * @param      n        How many.
 * @param[out] tokens   [n]: the ids; PKV_NO_TOKEN where none was told.
 *
 * Statuses: OUT_OF_RANGE. Since 0.1.
 */
PKV_API pkv_status pkv_session_get_tokens(pkv_session session, uint64_t first, size_t n,
                                          int32_t* tokens);

/**
 * Tells the ids of positions that were committed without them (by pkv_session_append). If forks
 * that share a block are told different ids, the prefix index caches it as one of the texts only.
 *
 * @param     session  The session.
 * @param     first    The first position.
 * @param     n        How many.
 * @param[in] tokens   [n]: the ids.
 *
 * Statuses: OUT_OF_RANGE, INVALID_ARGUMENT (a position that has another id already). Since 0.1.
 */
PKV_API pkv_status pkv_session_set_tokens(pkv_session session, uint64_t first, size_t n,
                                          const int32_t* tokens);

/**
 * Makes room in all groups or in none, so that later steps up to there cannot run out of blocks,
 * however they are cut and whatever other sessions take. Never shrinks.
 *
 * The room lasts until the session is that long, or pkv_session_trim, pkv_session_suspend or
 * pkv_session_close gives it back. It has no blocks for copies of what the session shares later:
 * after pkv_session_fork, pkv_snapshot_take or pkv_file_save, call it again. A state that others
 * shared would not come back, so until the room ends the prefix index gets the session's last full
 * block only if the states there are checkpoints.
 *
 * @param session       The session.
 * @param total_tokens  Tokens to have room for, those that it holds included.
 *
 * Statuses: OUT_OF_BLOCKS, TOO_LARGE, NO_MEMORY, BUSY. Since 0.1.
 */
PKV_API pkv_status pkv_session_reserve(pkv_session session, uint64_t total_tokens);

/**
 * Appends n tokens to a session, one layer per call, without a batch.
 *
 * The first call begins a step. When every layer was given once, the step is committed and the
 * session is n tokens longer. pkv_session_trim (to any length up to pkv_session_get_length) ends an
 * unfinished step; trim to 0 first to replace what the session holds.
 *
 *   for (layer = 0; layer < layers; layer++) pkv_session_append(session, layer, n, &k, &v);
 *
 * @param     session  The session.
 * @param     layer    The layer of the model; in any order. Until the step is complete a layer may
 * be given again.
 * @param     n        How many tokens; the same in every call of a step.
 * @param[in] k        Keys, [n][kv_heads][key_dim].
 * @param[in] v        Values, [n][kv_heads][value_dim]. NULL in a latent group.
 *
 * Statuses: OUT_OF_BLOCKS, TOO_LARGE, NO_MEMORY, OUT_OF_RANGE (layer), INVALID_ARGUMENT (another n
 * than the step's), UNSUPPORTED (storage NONE), BUSY, SUSPENDED. Since 0.1.
 */
PKV_API pkv_status pkv_session_append(pkv_session session, uint32_t layer, size_t n,
                                      const pkv_tensor* k, const pkv_tensor* v);

/**
 * Keeps the first tokens of a session and gives back every block beyond them, reserved ones too.
 * Ends an unfinished pkv_session_append.
 *
 * @param session  The session.
 * @param length   How many tokens to keep.
 *
 * Statuses: OUT_OF_RANGE (longer than the session is, a group with a window no longer has what it
 * needs, one with states has none there, or the next token would go into a dropped block; see
 * pkv_session_get_last_trim), BUSY. Since 0.1.
 */
PKV_API pkv_status pkv_session_trim(pkv_session session, uint64_t length);

/**
 * Tells to which length a session can be trimmed: with a window or with states not to every one.
 *
 * @param      session  The session.
 * @param      limit    The longest length that is of use.
 * @param[out] length   The longest one, up to limit and to the length of the session, that
 *                      pkv_session_trim can keep; 0 if there is no other.
 *
 * Statuses: none of its own. Since 0.1.
 */
PKV_API pkv_status pkv_session_get_last_trim(pkv_session session, uint64_t limit, uint64_t* length);

/** after of pkv_session_set_return_hint: nothing is known (default). */
#define PKV_RETURN_UNKNOWN 0u
/** after of pkv_session_set_return_hint: its text will not go on. */
#define PKV_RETURN_NEVER UINT32_MAX

/**
 * Tells about how long after a session its text is expected to go on in another one: a tool is
 * running, say, or the user reads the answer. Set it before the session is closed, suspended or
 * trimmed; it stays until it is set again, and forks and snapshots inherit it.
 *
 * The eviction policy LEARNED learns when texts with such a hint do return, by powers of two of it.
 * So its unit is the caller's, if it is always the same, and a hint that is wrong costs little.
 * Where blocks are shared with other texts, how often they are used counts instead. Other policies,
 * and sessions that do not use the prefix index, take no notice.
 *
 * @param session  The session.
 * @param after    How long, in seconds for example; PKV_RETURN_UNKNOWN or PKV_RETURN_NEVER.
 *
 * Statuses: BUSY. Since 0.1.
 */
PKV_API pkv_status pkv_session_set_return_hint(pkv_session session, uint32_t after);

/**
 * Forgets blocks in the middle of a session: gives them back, in one layer group. What is left
 * keeps its positions; later tokens do not see the tokens of these blocks (as if masked), and
 * neither do slot mappings, KV indices and pkv_session_read. Layers of other groups still see them.
 *
 * From the first block dropped on, the session no longer shares its blocks through the prefix
 * index: what only this session used there is taken from the index, and later tokens are not
 * published. A resume after pkv_session_suspend brings the whole text back, to be computed again.
 * Forks, snapshots and files lack what was dropped.
 *
 * @param     session  The session.
 * @param     group    The index of the group.
 * @param     count    How many blocks.
 * @param[in] blocks   [count]: their indices in the block table, rising; each full of tokens.
 *                     Those that were dropped already, or left the window, may be among them.
 *
 * Statuses: OUT_OF_RANGE (group; a block that is not full of tokens), INVALID_ARGUMENT (not
 * rising), UNSUPPORTED (CONTIGUOUS; a group with states), BUSY, SUSPENDED. Since 0.1.
 */
PKV_API pkv_status pkv_session_drop_blocks(pkv_session session, uint32_t group, size_t count,
                                           const uint32_t* blocks);

/**
 * Opens a session with the same tokens. Blocks are shared, the part-filled last one too; whoever
 * writes to it first copies that one block. Storage CONTIGUOUS copies everything.
 *
 * The new session has the priority, the use of the prefix index, the salt, the retention and the
 * return hint of the old one. Reserved blocks stay with the old one, and so do tokens that it
 * remembers since pkv_session_suspend and has not computed again.
 *
 * @param      session  The session; it goes on unchanged.
 * @param[out] out      The new session.
 *
 * Statuses: NO_MEMORY, REF_LIMIT, OUT_OF_BLOCKS (CONTIGUOUS), BUSY, SUSPENDED. Since 0.1.
 */
PKV_API pkv_status pkv_session_fork(pkv_session session, pkv_session* out);

/**
 * Gives back every block that nobody else holds (preemption) and remembers the token ids.
 *
 * The session is empty then, and its length is 0. Until it is resumed or trimmed,
 * calls that would add to it return PKV_SUSPENDED. Needs no memory. Suspending twice is OK. Ends an
 * unfinished pkv_session_append.
 *
 * @param session  The session.
 *
 * Statuses: BUSY. Since 0.1.
 */
PKV_API pkv_status pkv_session_suspend(pkv_session session);

/**
 * Ends a suspension: reserves the blocks that the remembered tokens need, all or none (in groups
 * with a window: those of one window; with states: those for batches of any size or, where there
 * can never be as many, for one batch), and says which K and V must be computed again: those of
 * positions [*length, *total).
 *
 * pkv_session_get_tokens tells the ids of these positions. Prefill them by batches of any size,
 * which may go beyond total; a commit without ids takes the remembered ones, one with other ids is
 * refused. A trim forgets what is remembered. For a session that is not
 * suspended the call is OK and tells its length and what it remembers.
 *
 * @param      session       The session.
 * @param[out] length        Tokens whose K and V are there.
 * @param[out] total         Tokens with the remembered ones.
 * @param[out] blocks_short  How many blocks must be freed before the same call can work; written on
 *                           OUT_OF_BLOCKS only. May be NULL.
 *
 * Statuses: OUT_OF_BLOCKS, TOO_LARGE, NO_MEMORY (with these three it stays suspended), BUSY.
 * Since 0.1.
 */
PKV_API pkv_status pkv_session_resume(pkv_session session, uint64_t* length, uint64_t* total,
                                      uint64_t* blocks_short);

/**
 * Changes the priority that pkv_session_config gave.
 *
 * @param session   The session.
 * @param priority  pkv_batch_choose_victims chooses higher ones last.
 *
 * Statuses: BUSY. Since 0.1.
 */
PKV_API pkv_status pkv_session_set_priority(pkv_session session, int32_t priority);

/** What a session holds now. */
typedef struct pkv_session_info {
  uint32_t struct_size;      /**< sizeof(pkv_session_info): the caller sets it. */
  int32_t priority;          /**< That of the session's config, or set since. */
  uint32_t suspended;        /**< 1: between pkv_session_suspend and pkv_session_resume. */
  uint32_t reserved;         /**< 0. */
  uint64_t length;           /**< Committed tokens. */
  uint64_t total;            /**< With remembered ones that are to be computed again. */
  uint64_t blocks;           /**< Blocks held, over all groups, reserved ones too. */
  uint64_t exclusive_blocks; /**< Of these, held by nobody else: a suspend or a close frees them. */
} pkv_session_info;

/**
 * Tells what a session holds.
 *
 * @param      session  The session.
 * @param[out] out      The answer.
 *
 * Statuses: none of its own. Since 0.1.
 */
PKV_API pkv_status pkv_session_get_info(pkv_session session, pkv_session_info* out);

/**
 * Tells the block ids of one group: ids[i] is logical block i (tokens i * block_size and on),
 * reserved blocks included.
 *
 * @param      session   The session.
 * @param      group     The index of the group.
 * @param      capacity  Entries that ids has room for.
 * @param[out] ids       [capacity]: block ids; PKV_NO_BLOCK where the block left the window (one
 *                       step late: see pkv_layer_group) or was dropped. May be NULL if capacity
 *                       is 0.
 * @param[out] count     How many entries there are; written on PKV_OK and on BUFFER_TOO_SMALL.
 *
 * Statuses: OUT_OF_RANGE, BUFFER_TOO_SMALL, UNSUPPORTED (CONTIGUOUS). Since 0.1.
 */
PKV_API pkv_status pkv_session_get_block_table(pkv_session session, uint32_t group, size_t capacity,
                                               uint32_t* ids, size_t* count);

/**
 * Reads K and V of positions [first, first + n) of one layer back as rows. Positions of a step in
 * flight are there once the layer was written.
 *
 * @param      session  The session.
 * @param      layer    The layer of the model.
 * @param      first    The first position.
 * @param      n        How many.
 * @param[out] k        Keys, [n][kv_heads][key_dim]. NULL: not wanted.
 * @param[out] v        Values, [n][kv_heads][value_dim]. NULL: not wanted.
 *
 * Statuses: OUT_OF_RANGE (also: gone from the window, or dropped), UNSUPPORTED (NONE). Since 0.1.
 */
PKV_API pkv_status pkv_session_read(pkv_session session, uint32_t layer, uint64_t first, size_t n,
                                    const pkv_tensor* k, const pkv_tensor* v);

/**
 * Copies the state of one layer of a group with states. Held are those after the last token, after
 * the last full block and at checkpoints.
 *
 * @param      session  The session.
 * @param      layer    The layer of the model.
 * @param      tokens   After how many committed tokens.
 * @param      size     Bytes that state has room for: state_bytes of the group.
 * @param[out] state    [size]: the state.
 *
 * Statuses: OUT_OF_RANGE (layer; this state is not held), INVALID_ARGUMENT (size), UNSUPPORTED (the
 * layer keeps K and V; NONE). Since 0.1.
 */
PKV_API pkv_status pkv_session_read_state(pkv_session session, uint32_t layer, uint64_t tokens,
                                          size_t size, void* state);

#ifdef __cplusplus
}
#endif
#endif
