/* pagedkv: pkv_batch, one forward pass over many sessions.
 *
 * Each session brings any number of new tokens, so one pass can mix prefill chunks and decode
 * steps. Rows are in the order of the sessions, and within a session in the order of its tokens. A
 * full step:
 *
 *   pkv_batch batch;
 *   uint64_t short_by;
 *   pkv_status s = pkv_batch_begin(cache, n, sessions, new_tokens, &short_by, &batch);
 *   if (s == PKV_OUT_OF_BLOCKS) {
 *     ... suspend the sessions that pkv_batch_choose_victims names; try again with the others ...
 *   }
 *   for (layer = 0; layer < layers; layer++) {
 *     ... q, k, v = projections of the rows at this layer ...
 *     pkv_batch_write(batch, layer, &k, &v);
 *     pkv_batch_attend(batch, layer, NULL, &q, &out);
 *     ... rest of the layer ...
 *   }
 *   pkv_batch_commit(batch, tokens);
 *
 * Until the commit only this batch sees the new tokens. pkv_batch_abort leaves every session as it
 * was before begin.
 *
 * Threads: one thread at a time may use a batch; others get PKV_BUSY. Batches over different
 * sessions may run at once and share no lock.
 */
#ifndef PAGEDKV_BATCH_H
#define PAGEDKV_BATCH_H

#include <pagedkv/attention.h>
#include <pagedkv/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A step in progress, from begin to commit or abort. */
typedef struct pkv_batch_t* pkv_batch;

/**
 * Begins a step: reserves the blocks for all new tokens in all groups, for every session or for
 * none.
 *
 * @param      cache         The cache of the sessions.
 * @param      count         How many sessions.
 * @param[in]  sessions      [count]: the sessions, each once.
 * @param[in]  new_tokens    [count]: how many new tokens each session brings; 0 is OK.
 * @param[out] blocks_short  How many blocks must be freed before the same call can succeed; written
 *                           only on OUT_OF_BLOCKS. May be NULL.
 * @param[out] out           The batch, to be ended by pkv_batch_commit or pkv_batch_abort.
 *
 * Statuses: OUT_OF_BLOCKS (suspend the sessions that pkv_batch_choose_victims names), TOO_LARGE
 * (one of the sessions can never get its blocks), BATCH_TOO_LARGE (each can, but not all at once;
 * also: more sessions than can be open, 2^22), OVERFLOW, NO_MEMORY, WRONG_CACHE, BUSY (a session is
 * already in a batch, or twice in the list), SUSPENDED, STALE_HANDLE. Since 0.1.
 */
PKV_API pkv_status pkv_batch_begin(pkv_cache cache, size_t count, const pkv_session* sessions,
                                   const uint32_t* new_tokens, uint64_t* blocks_short,
                                   pkv_batch* out);

/**
 * Chooses sessions to suspend (or close) so that pkv_batch_begin gets its blocks for the other
 * sessions of the list.
 *
 * Victims are the sessions of lowest priority, and among equals those opened last. Sessions of the
 * list may be victims, except the one that would be chosen last. Sessions that another call or
 * batch uses, or that hold no block, are never victims. A shared block counts as freed once all its
 * holders are victims. The result is valid until something else takes or frees blocks.
 *
 * Call it from the thread that schedules: it looks at every session, and calls that would change a
 * session meanwhile return BUSY.
 *
 * @param      cache         The cache of the sessions.
 * @param      count         How many sessions are in the list.
 * @param[in]  sessions      [count]: the sessions of the step, each once.
 * @param[in]  new_tokens    [count]: how many new tokens each session brings.
 * @param      capacity      Entries that victims has room for.
 * @param[out] victims       [capacity]: the sessions to suspend. May be NULL if capacity is 0.
 * @param[out] victim_count  The number of victims; 0: begin needs none. Written on PKV_OK and on
 *                           BUFFER_TOO_SMALL.
 *
 * Statuses: OUT_OF_BLOCKS (even if all others are suspended), TOO_LARGE, BATCH_TOO_LARGE (only:
 * more sessions than can be open) and OVERFLOW (as pkv_batch_begin), BUFFER_TOO_SMALL, WRONG_CACHE,
 * NO_MEMORY, BUSY (a session of the list), SUSPENDED. Since 0.1.
 */
PKV_API pkv_status pkv_batch_choose_victims(pkv_cache cache, size_t count,
                                            const pkv_session* sessions, const uint32_t* new_tokens,
                                            size_t capacity, pkv_session* victims,
                                            size_t* victim_count);

/**
 * Sets where the rows of each session begin in the tensors of pkv_batch_write and pkv_batch_attend,
 * for batches that are padded on the left or have gaps.
 *
 * @param     batch       The batch.
 * @param[in] first_rows  [sessions]: as first_rows of pkv_attention_sequences. NULL: as without
 *                        this call, rows follow each other, or are padded on the right.
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
 * Computes attention of all rows over their sessions, including the new tokens.
 *
 * If a row of q of a head is not finite, its result is what IEEE 754 says, or NaN if K is INT8 or
 * INT4; results of other rows are not affected. If V is INT4, an element that is not finite makes
 * the results that see it NaN, in its 32 dims or in all.
 *
 * @param      batch   The batch.
 * @param      layer   The layer of the model; it must be written.
 * @param[in]  params  The kind of attention. NULL: defaults.
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
 * Ends a step: adds the new tokens to every session, seals full blocks and closes the batch. If the
 * call fails, the batch is still open.
 *
 * @param     batch   The batch.
 * @param[in] tokens  [rows]: the ids of the new tokens. NULL: they stay PKV_NO_TOKEN, or what
 *                    pkv_session_suspend remembered.
 *
 * Statuses: INCOMPLETE (a layer was not written; not with storage NONE), INVALID_ARGUMENT (an id is
 * not the remembered one), NO_MEMORY. Since 0.1.
 */
PKV_API pkv_status pkv_batch_commit(pkv_batch batch, const int32_t* tokens);

/**
 * Keeps only some of the new tokens of one session: the accepted path of a tree of speculative
 * tokens. May be called once per session, after every layer was written. After it, no layer of the
 * batch can be written or attended.
 *
 * The keys and values of these tokens are moved, bit by bit, to where they would be if the step had
 * only these tokens. The tokens of pkv_batch_commit are still [rows].
 *
 * @param     batch  The batch.
 * @param     i      The index of the session in the list of begin.
 * @param     count  How many tokens to keep.
 * @param[in] kept   [count]: indices among the session's new tokens, from 0, ascending.
 *
 * Statuses: OUT_OF_RANGE, INVALID_ARGUMENT (not ascending, or the second call), INCOMPLETE,
 * UNSUPPORTED (NONE), NO_MEMORY. Since 0.1.
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
 * Returns the slots of all new tokens in one group, where an engine with its own memory writes
 * them.
 *
 * @param      batch     The batch.
 * @param      group     The index of the group.
 * @param      capacity  Entries that slots has room for.
 * @param[out] slots     [capacity]: one slot per row. May be NULL if capacity is 0.
 * @param[out] count     The number of slots; written on PKV_OK and on BUFFER_TOO_SMALL.
 *
 * Statuses: OUT_OF_RANGE, BUFFER_TOO_SMALL, UNSUPPORTED (CONTIGUOUS). Since 0.1.
 */
PKV_API pkv_status pkv_batch_get_slot_mapping(pkv_batch batch, uint32_t group, size_t capacity,
                                              int64_t* slots, size_t* count);

/**
 * Returns the blocks of one group that begin replaced because they were shared and not full: the
 * step writes to block to[i] instead of from[i].
 *
 * If all sessions that hold such a block are in the batch and write to it, one of them keeps it: n
 * sessions take n - 1 new blocks. With storage PAGED the bytes are already copied; with storage
 * NONE the engine makes all copies of the batch before it writes the first row.
 *
 * @param      batch     The batch.
 * @param      group     The index of the group.
 * @param      capacity  Entries that from and to have room for.
 * @param[out] from      [capacity]: the shared blocks. May be NULL if capacity is 0.
 * @param[out] to        [capacity]: the blocks that replace them. May be NULL if capacity is 0.
 * @param[out] count     The number of pairs; written on PKV_OK and on BUFFER_TOO_SMALL.
 *
 * Statuses: as pkv_batch_get_slot_mapping. Since 0.1.
 */
PKV_API pkv_status pkv_batch_get_block_copies(pkv_batch batch, uint32_t group, size_t capacity,
                                              uint32_t* from, uint32_t* to, size_t* count);

/**
 * Returns addresses of states of one layer in a group with states: where the engine reads the state
 * before the new tokens of each session, and where it writes the states after them.
 *
 * A session with new tokens always gets a place for the state after the last of them. If it reaches
 * past a checkpoint (checkpoint_tokens), it also gets places for the states at the checkpoint and
 * after its last full block. If it has at most draft_tokens new tokens, it gets a place after each
 * of them; in a tree, the state after a token is that of the token and its ancestors.
 * pkv_batch_get_state_blocks returns which tokens these are.
 *
 * The engine must write all of `after` before the commit; these bytes are undefined until it does.
 * Other sessions do not see them before the commit. What `before` points to does not change during
 * the step.
 *
 * @param      batch     The batch.
 * @param      layer     The layer of the model. It counts as written after this call.
 * @param[out] before    [sessions]: the state of each session, state_bytes bytes at a multiple of
 *                       64; NULL: the session has no token yet.
 * @param      capacity  Entries that after has room for.
 * @param[out] after     [capacity]: where to write. May be NULL if capacity is 0.
 * @param[out] count     The number of entries of after; written on PKV_OK and on BUFFER_TOO_SMALL.
 *
 * Statuses: OUT_OF_RANGE (layer), BUFFER_TOO_SMALL, UNSUPPORTED (the layer keeps K and V; NONE),
 * INVALID_ARGUMENT (after pkv_batch_accept). Since 0.1.
 */
PKV_API pkv_status pkv_batch_get_states(pkv_batch batch, uint32_t layer, const void** before,
                                        size_t capacity, void** after, size_t* count);

/**
 * Returns which states a step keeps in a group, and their blocks. Session i keeps the states after
 * its new tokens tokens[indptr[i]] to tokens[indptr[i + 1] - 1].
 *
 * An engine with its own memory (storage NONE), or with kernels that take block ids, reads the
 * state in block before[i] and writes those in the blocks of after. With storage PAGED,
 * pkv_batch_get_states returns addresses.
 *
 * @param      batch     The batch.
 * @param      group     The index of the group.
 * @param[out] before    [sessions]: the block with the state of each session; PKV_NO_BLOCK: the
 *                       session has no token yet. May be NULL.
 * @param[out] indptr    [sessions + 1]: where the states of each session begin, and the end.
 * @param      capacity  Entries that tokens and after have room for.
 * @param[out] tokens    [capacity]: indices among the session's new tokens, from 0, ascending. May
 *                       be NULL if capacity is 0.
 * @param[out] after     [capacity]: the blocks to write. May be NULL.
 * @param[out] count     The number of states; written on PKV_OK and on BUFFER_TOO_SMALL.
 *
 * Statuses: OUT_OF_RANGE, BUFFER_TOO_SMALL, UNSUPPORTED (the group keeps K and V). Since 0.1.
 */
PKV_API pkv_status pkv_batch_get_state_blocks(pkv_batch batch, uint32_t group, uint32_t* before,
                                              size_t* indptr, size_t capacity, uint32_t* tokens,
                                              uint32_t* after, size_t* count);

/** The unit of the indices of pkv_batch_get_kv_indices. */
typedef enum pkv_index_unit PKV_ENUM {
  PKV_INDEX_BLOCKS = 1, /**< Block ids. */
  PKV_INDEX_SLOTS = 2   /**< Slots: block id * block size + offset in the block. */
} pkv_index_unit;

/**
 * Returns what each session reads, in compressed rows: session i reads indices[indptr[i]] to
 * indices[indptr[i + 1] - 1], in token order, including its new tokens and without blocks that left
 * the window or were dropped.
 *
 * @param      batch              The batch.
 * @param      group              The index of the group.
 * @param      unit               The unit of indices: block ids or slots.
 * @param[out] indptr             [sessions + 1]: where the indices of each session begin, and the
 *                                end of the last.
 * @param      capacity           Entries that indices has room for.
 * @param[out] indices            [capacity]: block ids or slots. May be NULL if capacity is 0.
 * @param[out] count              The number of indices; written on PKV_OK and on BUFFER_TOO_SMALL.
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
