/* pagedkv: pkv_batch, one forward pass over many sessions.
 *
 * The pass is ragged: each session brings as many new tokens as it likes, prefill chunks and decode
 * steps mixed. Rows are stacked in the order of the sessions, new tokens of a session in order. A
 * full step:
 *
 *   pkv_batch batch;
 *   uint64_t short_by;
 *   pkv_status s = pkv_batch_begin(cache, n, sessions, new_tokens, &short_by, &batch);
 *   if (s == PKV_OUT_OF_BLOCKS) {
 *     suspend what pkv_batch_choose_victims names, and try again with the others
 *   }
 *   for (layer = 0; layer < layers; layer++) {
 *     ... q, k, v = projections of the rows at this layer ...
 *     pkv_batch_write(batch, layer, &k, &v);
 *     pkv_batch_attend(batch, layer, NULL, &q, &out);
 *     ... rest of the layer ...
 *   }
 *   pkv_batch_commit(batch, tokens);
 *
 * Until the commit only this batch sees the new tokens; pkv_batch_abort leaves every session as it
 * was before begin.
 *
 * Threads: a batch is driven by one thread at a time (another gets PKV_BUSY); batches over
 * different sessions run at once and share no lock.
 */
#ifndef PAGEDKV_BATCH_H
#define PAGEDKV_BATCH_H

#include <pagedkv/attention.h>
#include <pagedkv/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A step that is begun and not yet committed. */
typedef struct pkv_batch_t* pkv_batch;

/**
 * Begins a step: reserves the blocks of all new tokens in all groups, for every session or for
 * none.
 *
 * @param      cache         The cache of the sessions.
 * @param      count         How many sessions.
 * @param[in]  sessions      [count]: the sessions, each once.
 * @param[in]  new_tokens    [count]: how many new tokens each session brings; 0 is OK.
 * @param[out] blocks_short  How many blocks must be freed before the same call can work; written on
 *                           OUT_OF_BLOCKS only. May be NULL.
 * @param[out] out           The batch, to be ended by pkv_batch_commit or pkv_batch_abort.
 *
 * Statuses: OUT_OF_BLOCKS (suspend what pkv_batch_choose_victims names), TOO_LARGE (one of the
 * sessions can never get its blocks), BATCH_TOO_LARGE (each can, but not all at once; also: more
 * sessions than can be open, 2^22), OVERFLOW, NO_MEMORY, WRONG_CACHE, BUSY (a session is in a batch
 * already, or twice in the list), SUSPENDED, STALE_HANDLE. Since 0.1.
 */
PKV_API pkv_status pkv_batch_begin(pkv_cache cache, size_t count, const pkv_session* sessions,
                                   const uint32_t* new_tokens, uint64_t* blocks_short,
                                   pkv_batch* out);

/**
 * Names sessions to suspend (or close) so that pkv_batch_begin with the rest of this list gets its
 * blocks.
 *
 * Victims are those of the lowest priority, and among these the ones that were opened last.
 * Sessions of the list may be among them, but never the first in rank. Sessions that another call
 * or batch uses, and those that hold no block, are left out. What victims share counts as freed
 * once all its holders are victims. The answer holds until something else takes or gives back
 * blocks.
 *
 * This is for the thread that schedules: it looks at every session, and calls that would change one
 * meanwhile return BUSY.
 *
 * @param      cache         The cache of the sessions.
 * @param      count         How many sessions the list has.
 * @param[in]  sessions      [count]: the sessions of the step, each once.
 * @param[in]  new_tokens    [count]: how many new tokens each session brings.
 * @param      capacity      Entries that victims has room for.
 * @param[out] victims       [capacity]: the sessions to suspend. May be NULL if capacity is 0.
 * @param[out] victim_count  How many victims there are; 0: begin needs none. Written on PKV_OK and
 *                           on BUFFER_TOO_SMALL.
 *
 * Statuses: OUT_OF_BLOCKS (even with all others suspended), TOO_LARGE, BATCH_TOO_LARGE (only: more
 * sessions than can be open) and OVERFLOW (as pkv_batch_begin), BUFFER_TOO_SMALL, WRONG_CACHE,
 * NO_MEMORY, BUSY (a session of the list), SUSPENDED. Since 0.1.
 */
PKV_API pkv_status pkv_batch_choose_victims(pkv_cache cache, size_t count,
                                            const pkv_session* sessions, const uint32_t* new_tokens,
                                            size_t capacity, pkv_session* victims,
                                            size_t* victim_count);

/**
 * Tells where the rows of each session begin in the tensors of pkv_batch_write and
 * pkv_batch_attend, for batches that are padded on the left or have gaps.
 *
 * @param     batch       The batch.
 * @param[in] first_rows  [sessions]: as first_rows of pkv_attention_sequences. NULL: as without
 *                        this call, rows follow each other, or begin with the entries of a padded
 *                        batch.
 *
 * Statuses: none of its own. Since 0.1.
 */
PKV_API pkv_status pkv_batch_set_first_rows(pkv_batch batch, const uint32_t* first_rows);

/**
 * Stores K and V of one layer. A layer may be written again before the commit.
 *
 * @param     batch  The batch.
 * @param     layer  The layer of the model.
 * @param[in] k      Keys, [rows][kv_heads][key_dim].
 * @param[in] v      Values, [rows][kv_heads][value_dim]. NULL in a latent group.
 *
 * Statuses: OUT_OF_RANGE (layer), UNSUPPORTED (NONE). Since 0.1.
 */
PKV_API pkv_status pkv_batch_write(pkv_batch batch, uint32_t layer, const pkv_tensor* k,
                                   const pkv_tensor* v);

/**
 * Computes attention of all rows over their sessions, the new tokens included.
 *
 * Where a row of q of a head is not finite, its result is what IEEE 754 says, or NaN where K is
 * INT8 or INT4; results of other rows are not touched. Where V is INT4, an element of it that is
 * not finite makes NaN of the results that see it, of its 32 dims or of all.
 *
 * @param      batch   The batch.
 * @param      layer   The layer of the model; it must be written.
 * @param[in]  params  Which attention. NULL: defaults.
 * @param[in]  q       Queries, [rows][query_heads][key_dim].
 * @param[out] out     Results, [rows][query_heads][value_dim]. May not overlap q.
 *
 * Statuses: INCOMPLETE (the layer was not written), OUT_OF_RANGE (layer, a window larger than the
 * group's, or a block list), UNSUPPORTED (NONE; chosen blocks with CONTIGUOUS), NO_MEMORY.
 * Since 0.1.
 */
PKV_API pkv_status pkv_batch_attend(pkv_batch batch, uint32_t layer,
                                    const pkv_attention_params* params, const pkv_tensor* q,
                                    const pkv_tensor* out);

/**
 * Ends a step: every session is longer by its new tokens, full blocks are sealed, and the batch is
 * closed. If the call fails, the batch is still open.
 *
 * @param     batch   The batch.
 * @param[in] tokens  [rows]: the ids of the new tokens. NULL: they stay PKV_NO_TOKEN, or what
 *                    pkv_session_suspend remembered.
 *
 * Statuses: INCOMPLETE (a layer was not written; not with storage NONE), INVALID_ARGUMENT (another
 * id than the remembered one), NO_MEMORY. Since 0.1.
 */
PKV_API pkv_status pkv_batch_commit(pkv_batch batch, const int32_t* tokens);

/**
 * Keeps only some of the new tokens of one session: the accepted path of a tree of speculative
 * tokens. May be called once per session, after every layer was written; then only commit and abort
 * are left.
 *
 * The keys and values of these tokens move together, bit by bit, to where a commit of just these
 * tokens has them. The tokens of pkv_batch_commit stay [rows].
 *
 * @param     batch  The batch.
 * @param     i      The index of the session in the list of begin.
 * @param     count  How many tokens to keep.
 * @param[in] kept   [count]: indices among the session's new tokens, 0 the first, rising.
 *
 * Statuses: OUT_OF_RANGE, INVALID_ARGUMENT (not rising, or a second time), INCOMPLETE, UNSUPPORTED
 * (NONE), NO_MEMORY. Since 0.1.
 */
PKV_API pkv_status pkv_batch_accept(pkv_batch batch, size_t i, size_t count, const uint32_t* kept);

/**
 * Ends a step as if it had never begun, and closes the batch.
 *
 * @param batch  The batch. NULL is OK.
 *
 * Statuses: none of its own. Since 0.1.
 */
PKV_API pkv_status pkv_batch_abort(pkv_batch batch);

/**
 * Tells the slots of all new tokens in one group: where an engine with bytes of its own writes
 * them.
 *
 * @param      batch     The batch.
 * @param      group     The index of the group.
 * @param      capacity  Entries that slots has room for.
 * @param[out] slots     [capacity]: one slot per row. May be NULL if capacity is 0.
 * @param[out] count     How many slots there are; written on PKV_OK and on BUFFER_TOO_SMALL.
 *
 * Statuses: OUT_OF_RANGE, BUFFER_TOO_SMALL, UNSUPPORTED (CONTIGUOUS). Since 0.1.
 */
PKV_API pkv_status pkv_batch_get_slot_mapping(pkv_batch batch, uint32_t group, size_t capacity,
                                              int64_t* slots, size_t* count);

/**
 * Tells the blocks that begin replaced in one group because they were shared and part-filled: the
 * step writes to block to[i] in the place of from[i].
 *
 * Where all sessions that hold such a block are in the batch and write to it, one of them keeps it:
 * n of them take n - 1 new blocks. Storage PAGED has copied the bytes already; with storage NONE
 * the engine makes all copies of the batch before it writes the first row.
 *
 * @param      batch     The batch.
 * @param      group     The index of the group.
 * @param      capacity  Entries that from and to have room for.
 * @param[out] from      [capacity]: the shared blocks. May be NULL if capacity is 0.
 * @param[out] to        [capacity]: the blocks in their place. May be NULL if capacity is 0.
 * @param[out] count     How many pairs there are; written on PKV_OK and on BUFFER_TOO_SMALL.
 *
 * Statuses: as pkv_batch_get_slot_mapping. Since 0.1.
 */
PKV_API pkv_status pkv_batch_get_block_copies(pkv_batch batch, uint32_t group, size_t capacity,
                                              uint32_t* from, uint32_t* to, size_t* count);

/**
 * Gives the states of one layer of a group with state_bytes: where the engine reads the state
 * before its new tokens, and where it writes the one after them.
 *
 * A session with new tokens always gets a place for the state after the last of them. A step that
 * reaches past a checkpoint (checkpoint_tokens) gets places for the states there and after the last
 * full block, too, and a step of at most draft_tokens new tokens a place after each: the state
 * after a token of a draft is that of the token and what precedes it in its branch. Which ones
 * these are, pkv_batch_get_state_blocks tells.
 *
 * The engine writes all of `after` before the commit; their bytes are undefined until then. Nobody
 * else sees them before the commit, and what `before` points to does not change in the step.
 *
 * @param      batch     The batch.
 * @param      layer     The layer of the model. It counts as written from now on.
 * @param[out] before    [sessions]: the state that each session has, state_bytes bytes at a
 * multiple of 64; NULL: it has no token yet.
 * @param      capacity  Entries that after has room for.
 * @param[out] after     [capacity]: where to write. May be NULL if capacity is 0.
 * @param[out] count     How many entries after has; written on PKV_OK and on BUFFER_TOO_SMALL.
 *
 * Statuses: OUT_OF_RANGE (layer), BUFFER_TOO_SMALL, UNSUPPORTED (the layer keeps K and V; NONE),
 * INVALID_ARGUMENT (after pkv_batch_accept). Since 0.1.
 */
PKV_API pkv_status pkv_batch_get_states(pkv_batch batch, uint32_t layer, const void** before,
                                        size_t capacity, void** after, size_t* count);

/**
 * Tells which states a step keeps in a group, and in which blocks they are. The states that session
 * i keeps are those after its new tokens tokens[indptr[i]] to tokens[indptr[i + 1] - 1].
 *
 * An engine with memory of its own (storage NONE), or with kernels that take block ids, reads the
 * state in before[i] and writes those in after; with storage PAGED pkv_batch_get_states gives
 * addresses.
 *
 * @param      batch     The batch.
 * @param      group     The index of the group.
 * @param[out] before    [sessions]: the block with the state that each session has; PKV_NO_BLOCK:
 * it has no token yet. May be NULL.
 * @param[out] indptr    [sessions + 1]: where the states of each session begin, and the end.
 * @param      capacity  Entries that tokens and after have room for.
 * @param[out] tokens    [capacity]: indices among the session's new tokens, 0 the first, rising.
 * May be NULL if capacity is 0.
 * @param[out] after     [capacity]: the blocks to write. May be NULL.
 * @param[out] count     How many states there are; written on PKV_OK and on BUFFER_TOO_SMALL.
 *
 * Statuses: OUT_OF_RANGE, BUFFER_TOO_SMALL, UNSUPPORTED (the group keeps K and V). Since 0.1.
 */
PKV_API pkv_status pkv_batch_get_state_blocks(pkv_batch batch, uint32_t group, uint32_t* before,
                                              size_t* indptr, size_t capacity, uint32_t* tokens,
                                              uint32_t* after, size_t* count);

/** What an index list of pkv_batch_get_kv_indices counts. */
typedef enum pkv_index_unit PKV_ENUM {
  PKV_INDEX_BLOCKS = 1, /**< Ids of blocks. */
  PKV_INDEX_SLOTS = 2   /**< Slots: block id * block size + offset in the block. */
} pkv_index_unit;

/**
 * Gives forward metadata as compressed rows: session i reads indices[indptr[i]] to indices[indptr[i
 * + 1] - 1], in token order, the new tokens included and what left the window left out.
 *
 * @param      batch              The batch.
 * @param      group              The index of the group.
 * @param      unit               What indices are: block ids or slots.
 * @param[out] indptr             [sessions + 1]: where the indices of each session begin, and the
 *                                end of the last.
 * @param      capacity           Entries that indices has room for.
 * @param[out] indices            [capacity]: block ids or slots. May be NULL if capacity is 0.
 * @param[out] count              How many indices there are; written on PKV_OK and on
 *                                BUFFER_TOO_SMALL.
 * @param[out] last_block_length  [sessions]: how many tokens the last block of each session holds.
 *                                May be NULL.
 *
 * Statuses: as pkv_batch_get_slot_mapping. Since 0.1.
 */
PKV_API pkv_status pkv_batch_get_kv_indices(pkv_batch batch, uint32_t group, pkv_index_unit unit,
                                            int64_t* indptr, size_t capacity, int64_t* indices,
                                            size_t* count, uint32_t* last_block_length);

#ifdef __cplusplus
}
#endif
#endif
