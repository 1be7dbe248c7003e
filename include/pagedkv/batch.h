/* pagedkv: pkv_batch, one forward pass over many sessions.
 *
 * The pass is ragged: each session brings as many new tokens as it likes, prefill chunks and decode steps mixed. Rows are stacked in
 * the order of the sessions, new tokens of a session in order. A full step:
 *
 *   pkv_batch batch;
 *   uint64_t short_by;
 *   pkv_status s = pkv_batch_begin(cache, n, sessions, new_tokens, &short_by, &batch);
 *   if (s == PKV_OUT_OF_BLOCKS) { suspend what pkv_batch_choose_victims names, and try again with the others }
 *   for (layer = 0; layer < layers; layer++) {
 *     ... q, k, v = projections of the rows at this layer ...
 *     pkv_batch_write(batch, layer, &k, &v);
 *     pkv_batch_attend(batch, layer, NULL, &q, &out);
 *     ... rest of the layer ...
 *   }
 *   pkv_batch_commit(batch, tokens);
 *
 * Until the commit the new tokens are visible to this batch only; pkv_batch_abort leaves every session as it was before begin.
 *
 * Threads: a batch is driven by one thread at a time (another gets PKV_BUSY); batches over different sessions run
 * at once and share no lock.
 */
#ifndef PAGEDKV_BATCH_H
#define PAGEDKV_BATCH_H

#include <pagedkv/attention.h>
#include <pagedkv/session.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pkv_batch_t* pkv_batch;

/**
 * Begins a step: reserves the blocks of all new tokens in all groups, for every session or for none. new_tokens[i] may be 0.
 * blocks_short (may be NULL) is written on OUT_OF_BLOCKS: how many blocks must be freed before the same call can work.
 * Statuses: OUT_OF_BLOCKS, TOO_LARGE (also: more sessions than can be open, 2^22), OVERFLOW,
 * NO_MEMORY, WRONG_CACHE, BUSY (a session is in a batch already, or twice in the list), SUSPENDED, STALE_HANDLE. Since 0.1.
 */
PKV_API pkv_status pkv_batch_begin(pkv_cache cache, size_t count, const pkv_session* sessions, const uint32_t* new_tokens,
                                   uint64_t* blocks_short, pkv_batch* out);

/**
 * Sessions to suspend (or close) so that pkv_batch_begin with the rest of this list gets its blocks: those of the lowest priority first, and of
 * those the one opened last. Sessions of the list may be among them; the first in rank never is. Left out are sessions in use by another call or
 * batch, and those that hold no block. What victims share counts as freed once all holders are victims. *count is how many there are, 0: begin
 * needs none; as in pkv_session_block_table. The answer holds until something else takes or gives blocks. For the thread that schedules: it looks
 * at every session, and calls that would change one meanwhile return BUSY.
 * Statuses: OUT_OF_BLOCKS (even with all others suspended), TOO_LARGE and OVERFLOW as above,
 * BUFFER_TOO_SMALL, WRONG_CACHE, NO_MEMORY, BUSY (a session of the list), SUSPENDED. Since 0.1.
 */
PKV_API pkv_status pkv_batch_choose_victims(pkv_cache cache, size_t count, const pkv_session* sessions, const uint32_t* new_tokens,
                                            size_t capacity, pkv_session* victims, size_t* victim_count);

/** Rows of this batch: the sum of new_tokens. Statuses: none of its own. Since 0.1. */
PKV_API pkv_status pkv_batch_rows(pkv_batch batch, size_t* rows);

/**
 * Stores keys (in, [rows][kv_heads][key_dim]) and values (in, [rows][kv_heads][value_dim]) of one layer. A layer may
 * be written again before the commit. Statuses: OUT_OF_RANGE (layer), UNSUPPORTED (NONE). Since 0.1.
 */
PKV_API pkv_status pkv_batch_write(pkv_batch batch, uint32_t layer, const pkv_tensor* k, const pkv_tensor* v);

/**
 * Attention of all rows over their sessions, the new tokens included: q (in) [rows][query_heads][key_dim], out
 * [rows][query_heads][value_dim]. params may be NULL. out may not overlap q. A head's row of q that is not finite gives what IEEE 754 says, or
 * NaN where K is INT8 or INT4; it does not touch the results of other rows. Where
 * V is INT4, an element of it that is not finite makes NaN of the results that see it, of its 32 dims or of all.
 * Statuses: INCOMPLETE (the layer was not written), OUT_OF_RANGE (layer, or a window larger than the group's), UNSUPPORTED (NONE), NO_MEMORY. Since 0.1.
 */
PKV_API pkv_status pkv_batch_attend(pkv_batch batch, uint32_t layer, const pkv_attention_params* params, const pkv_tensor* q,
                                    const pkv_tensor* out);

/**
 * Ends the step: every session is longer by its new tokens, full blocks are sealed, and the batch handle is closed. tokens ([rows], in)
 * are the ids of the new tokens; NULL: they stay PKV_NO_TOKEN, or what pkv_session_suspend remembered. Statuses: INCOMPLETE (a layer was not written; not for NONE),
 * INVALID_ARGUMENT (another id than the remembered one), NO_MEMORY: the batch is still open then. Since 0.1.
 */
PKV_API pkv_status pkv_batch_commit(pkv_batch batch, const int32_t* tokens);

/**
 * Keeps only some of the new tokens of the batch's session number i (in the order of begin): kept ([count], rising) are indices among its new
 * tokens, 0 the first. Their keys and values move together, bit by bit, to where a commit of just these tokens has them: the accepted path
 * of a tree of speculative tokens. Every layer must be written; then only commit and abort are left. The tokens of commit stay [rows]. May be
 * called once per session. Statuses: OUT_OF_RANGE, INVALID_ARGUMENT (not rising, or a second time), INCOMPLETE, UNSUPPORTED (NONE), NO_MEMORY. Since 0.1.
 */
PKV_API pkv_status pkv_batch_accept(pkv_batch batch, size_t i, size_t count, const uint32_t* kept);

/** Ends the step as if it had never begun; the handle is closed. NULL is OK. Statuses: none of its own. Since 0.1. */
PKV_API pkv_status pkv_batch_abort(pkv_batch batch);

/** Slots of all new tokens in one group, [rows]: where an engine with bytes of its own writes them. Statuses: OUT_OF_RANGE,
 * BUFFER_TOO_SMALL, UNSUPPORTED (CONTIGUOUS). *count as in pkv_session_block_table. Since 0.1. */
PKV_API pkv_status pkv_batch_slot_mapping(pkv_batch batch, uint32_t group, size_t capacity, int64_t* slots, size_t* count);

/**
 * Blocks that begin replaced in one group because they were shared and part-filled: the step writes into to[i] in the place of from[i].
 * Storage PAGED has copied the bytes already; with storage NONE the engine copies them before it writes. *count as in
 * pkv_session_block_table. Statuses: as pkv_batch_slot_mapping. Since 0.1.
 */
PKV_API pkv_status pkv_batch_block_copies(pkv_batch batch, uint32_t group, size_t capacity, uint32_t* from, uint32_t* to,
                                          size_t* count);

/** What an index list of pkv_batch_kv_indices counts. */
typedef enum pkv_index_unit PKV_ENUM { PKV_INDEX_BLOCKS = 1, PKV_INDEX_SLOTS = 2 } pkv_index_unit;

/**
 * Forward metadata in compressed rows: session i reads indices[indptr[i] .. indptr[i + 1]) (block ids or slots, the new tokens included, in token
 * order, what left the window left out). indptr has count + 1 entries. last_block_length ([count], may be NULL) tells how many tokens the
 * last block holds. *count is the number of indices, as in pkv_session_block_table. Statuses: as pkv_batch_slot_mapping. Since 0.1.
 */
PKV_API pkv_status pkv_batch_kv_indices(pkv_batch batch, uint32_t group, pkv_index_unit unit, int64_t* indptr, size_t capacity,
                                        int64_t* indices, size_t* count, uint32_t* last_block_length);

#ifdef __cplusplus
}
#endif
#endif
