/* pagedkv: pkv_batch, one forward pass over many sessions.
 *
 * Each session brings any number of new tokens, so one pass can mix prefill chunks and decode
 * steps. Each new token is one row of the tensors: all rows of the first session, then those of the
 * second, and so on. [rows] is their total number. A full step:
 *
 *   pkv_batch batch;
 *   pkv_status s = pkv_batch_begin(cache, n, sessions, new_tokens, &batch);
 *   if (s == PKV_OUT_OF_BLOCKS) {
 *     ... suspend the sessions that pkv_batch_choose_victims names; try again with the others ...
 *   }
 *   for (layer = 0; layer < layers; layer++) {
 *     ... q, k, v = projections of the rows at this layer ...
 *     pkv_batch_write(batch, layer, &k, &v);
 *     pkv_batch_attend(batch, layer, NULL, &q, &out, NULL);
 *     ... rest of the layer ...
 *   }
 *   pkv_batch_commit(batch, rows, tokens);
 *
 * Until the commit no other session sees the new tokens. pkv_batch_abort removes them again.
 *
 * Blocks, slots and addresses of a session are its own until a commit, abort, trim, suspend or
 * close frees them, or a step frees what left a window. They may be given to another session at
 * once: order that session's writes after the kernels of the first one that still run.
 *
 * Threads: one thread at a time may change a batch (write and attend do), or several may call its
 * getters. A call returns PKV_BUSY while another one changes the batch; one that changes it waits
 * for running getters, but returns PKV_BUSY while pkv_session_read reads one of its sessions.
 * Batches over different sessions may run at the same time.
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
 * none. If free and evictable blocks do not suffice, it also frees blocks that left a window (see
 * pkv_layer_group), but only if the step can then begin; they stay free even if the batch is
 * aborted. If there are enough blocks, but other threads are moving some, it waits for these, up to
 * about a second; so do pkv_session_reserve and pkv_session_resume.
 *
 * @param      cache       The cache of the sessions.
 * @param      n           The number of sessions.
 * @param[in]  sessions    [n]: the sessions, each once.
 * @param[in]  new_tokens  [n]: the number of new tokens of each session; 0 is OK.
 * @param[out] out         The batch, to be ended by pkv_batch_commit or pkv_batch_abort.
 *
 * Statuses: OUT_OF_BLOCKS (suspend the sessions that pkv_batch_choose_victims names), TOO_LARGE
 * (one of the sessions can never get its blocks), BATCH_TOO_LARGE (each can, but never all at once:
 * begin fewer sessions; also: n is above 2^22), OVERFLOW, OUT_OF_MEMORY, WRONG_CACHE,
 * INVALID_ARGUMENT (also: a session is twice in the list), BUSY (a session is already in a batch,
 * or another thread forks, reads or saves it), SUSPENDED, STALE_HANDLE.
 * If one session is the reason, pkv_last_error_details has its index. Since 1.0.
 */
PKV_API pkv_status pkv_batch_begin(pkv_cache cache, size_t n, const pkv_session* sessions,
                                   const uint32_t* new_tokens, pkv_batch* out);

/**
 * Chooses victims: sessions to suspend (or close). Then pkv_batch_begin succeeds with the sessions
 * of the list that are not victims.
 *
 * Victims are the sessions of the cache with the lowest priority, and among equals those opened
 * last, in the list or not. One session of the cache is never a victim: of those with the highest
 * priority, the one opened first. If it is not in the list, all sessions of the list may be
 * victims. A session outside of the list is no victim if it holds no block, or if another call or
 * batch is using it. A shared block counts as freed only if all its holders are victims. The result
 * is valid until something else takes or frees blocks.
 *
 * While it looks at the sessions, calls on those of the list return BUSY, and calls that would
 * change another session wait.
 *
 * @param      cache         The cache of the sessions.
 * @param      n             The number of sessions in the list.
 * @param[in]  sessions      [n]: the sessions of the step, each once.
 * @param[in]  new_tokens    [n]: the number of new tokens of each session.
 * @param      capacity      Entries that victims has room for.
 * @param[out] victims       [capacity]: the sessions to suspend.
 * @param[out] victim_count  The number of victims; 0 if begin needs none.
 *
 * Statuses: OUT_OF_BLOCKS (all possible victims would not free enough), TOO_LARGE and OVERFLOW (as
 * pkv_batch_begin), BATCH_TOO_LARGE (n is above 2^22), BUFFER_TOO_SMALL, WRONG_CACHE,
 * INVALID_ARGUMENT (also: a session is twice in the list), OUT_OF_MEMORY, BUSY (a session of the
 * list), SUSPENDED. The index is as in pkv_batch_begin. Since 1.0.
 */
PKV_API pkv_status pkv_batch_choose_victims(pkv_cache cache, size_t n, const pkv_session* sessions,
                                            const uint32_t* new_tokens, size_t capacity,
                                            pkv_session* victims, size_t* victim_count);

/**
 * Sets where the rows of each session begin in the tensors of pkv_batch_write and pkv_batch_attend,
 * for batches that are padded on the left or have gaps.
 *
 * @param     batch       The batch.
 * @param     n           The number of sessions of the batch; 0 with first_rows NULL.
 * @param[in] first_rows  [n]: as first_rows of pkv_kv_sequences. NULL: the default, where rows
 *                        follow each other or are padded on the right.
 *
 * Statuses: INVALID_ARGUMENT (n). Since 1.0.
 */
PKV_API pkv_status pkv_batch_set_first_rows(pkv_batch batch, size_t n, const uint32_t* first_rows);

/**
 * Stores K and V of one layer. A layer may be written again before the commit. If the runner makes
 * a write fail, the layer counts as not written: write it again.
 *
 * @param     batch  The batch.
 * @param     layer  The layer of the model.
 * @param[in] k      Keys, [rows][kv_heads][key_dim].
 * @param[in] v      Values, [rows][kv_heads][value_dim]. NULL in a latent group.
 *
 * Statuses: OUT_OF_RANGE (layer), OVERFLOW, UNSUPPORTED (storage EXTERNAL; a group that is opaque
 * or has states), INVALID_ARGUMENT (also: tokens were accepted already). Since 1.0.
 */
PKV_API pkv_status pkv_batch_write(pkv_batch batch, uint32_t layer, const pkv_tensor* k,
                                   const pkv_tensor* v);

/**
 * Computes attention of all rows over their sessions, including the new tokens.
 *
 * A NaN or an infinity in q affects only the result of that row and head, which is NaN if K is INT8
 * or INT4. A NaN or an infinity in V affects only the results that see its token. If V is INT4,
 * those results are NaN at least in the 32 dims that share its scale.
 *
 * @param      batch    The batch.
 * @param      layer    The layer of the model, already written in this step.
 * @param[in]  params   The kind of attention. NULL: defaults.
 * @param[in]  q        Queries, [rows][query_heads][key_dim].
 * @param[out] out      Results, [rows][query_heads][value_dim]. May overlap q.
 * @param[in]  outputs  Where other results go. NULL: none are wanted.
 *
 * Statuses: INCOMPLETE (the layer was not written), OUT_OF_RANGE (layer; more window or sink tokens
 * than the group has), UNSUPPORTED (as pkv_batch_write; params that do not work together, such as
 * bidirectional with ALiBi), INVALID_ARGUMENT (also: outputs that params exclude; tokens were
 * accepted already), OVERFLOW, OUT_OF_MEMORY. Since 1.0.
 */
PKV_API pkv_status pkv_batch_attend(pkv_batch batch, uint32_t layer,
                                    const pkv_attention_params* params, const pkv_tensor* q,
                                    const pkv_tensor* out, const pkv_attention_outputs* outputs);

/**
 * Ends a step: adds the new tokens to every session and closes the batch. If it fails, the batch
 * stays open. It needs neither memory nor blocks to succeed.
 *
 * @param     batch   The batch.
 * @param     n       The number of rows; 0 with tokens NULL.
 * @param[in] tokens  [n]: the ids of the tokens whose K and V the step wrote: its inputs, not those
 *                    sampled from its outputs. The prefix index needs them. NULL: the ids that
 *                    pkv_session_suspend remembered, or else PKV_UNKNOWN_TOKEN.
 *
 * Statuses: INCOMPLETE (a layer whose K and V the library keeps was not written), INVALID_ARGUMENT
 * (n; an id differs from the remembered one: pkv_last_error_details has its index). Since 1.0.
 */
PKV_API pkv_status pkv_batch_commit(pkv_batch batch, size_t n, const int32_t* tokens);

/**
 * Keeps only some of the new tokens of one session: the accepted path of a tree of speculative
 * tokens. Call it at most once per session, after every layer was written; a session without a call
 * keeps all its new tokens. From then on, no layer can be written or attended: only accept tokens
 * of other sessions, commit or abort.
 *
 * Moves the K and V of these tokens, bit for bit, to where they would be if the step had only these
 * tokens. With storage EXTERNAL and in opaque groups it cannot move them; if such a group keeps K
 * and V, `kept` must be 0, 1, ..., n - 1. pkv_batch_commit still takes the ids of all [rows].
 *
 * @param     batch  The batch.
 * @param     i      The index of the session in the list of begin.
 * @param     n      The number of tokens to keep.
 * @param[in] kept   [n]: indices among the session's new tokens, from 0, ascending.
 *
 * Statuses: OUT_OF_RANGE (i; an index in kept), INVALID_ARGUMENT (not ascending, or a second call),
 * INCOMPLETE (as pkv_batch_commit), UNSUPPORTED (the engine would have to move K and V; a group
 * keeps no state after the last token of kept), OUT_OF_MEMORY. If an entry of kept is the reason,
 * pkv_last_error_details has its index. Since 1.0.
 */
PKV_API pkv_status pkv_batch_accept(pkv_batch batch, size_t i, size_t n, const uint32_t* kept);

/**
 * Discards the new tokens of a step, and closes the batch.
 *
 * @param batch  The batch. NULL is OK.
 *
 * Statuses: none of its own. Since 1.0.
 */
PKV_API pkv_status pkv_batch_abort(pkv_batch batch);

/**
 * Returns the slots of all new tokens in one group: where an engine with its own memory writes
 * their K and V.
 *
 * @param      batch     The batch.
 * @param      group     The index of the group.
 * @param      capacity  Entries that slots has room for.
 * @param[out] slots     [capacity]: one slot per row.
 * @param[out] count     The number of slots.
 *
 * Statuses: OUT_OF_RANGE, BUFFER_TOO_SMALL, UNSUPPORTED (a group with states).
 * Since 1.0.
 */
PKV_API pkv_status pkv_batch_get_slot_mapping(pkv_batch batch, uint32_t group, size_t capacity,
                                              int64_t* slots, size_t* count);

/**
 * Returns the copies on write of a step in one group. Where new tokens would go into a block that
 * others share, after a fork or a match that ends inside a block, begin gives the session a new
 * block, to[i], for the shared one, from[i]. With storage EXTERNAL and in opaque groups, the engine
 * must copy from[i] to to[i], for all i, before it writes the first row. Elsewhere begin has copied
 * them.
 *
 * If all holders of such a block are in this batch and write to it, one of them keeps it, so n
 * holders need n - 1 new blocks.
 *
 * @param      batch     The batch.
 * @param      group     The index of the group.
 * @param      capacity  Entries that from and to have room for.
 * @param[out] from      [capacity]: the shared blocks.
 * @param[out] to        [capacity]: the blocks that replace them.
 * @param[out] count     The number of pairs.
 *
 * Statuses: as pkv_batch_get_slot_mapping. Since 1.0.
 */
PKV_API pkv_status pkv_batch_get_block_copies(pkv_batch batch, uint32_t group, size_t capacity,
                                              uint32_t* from, uint32_t* to, size_t* count);

/**
 * Returns addresses of states of one layer in a group with states: where the engine reads the state
 * before the new tokens of each session (`before`), and where it writes states after new tokens
 * (`after`: all of the first session, then those of the second, and so on, each in the order of
 * tokens).
 *
 * A session has an entry in `after` for its last new token. With checkpoint_interval, there is also
 * one per checkpoint in the step, and one for the last block that the step fills. If it has at most
 * max_verify_tokens new tokens, it has one for each of them; in a tree, that is the state after the
 * token and its ancestors. pkv_batch_get_state_blocks returns which tokens these are.
 *
 * The engine must write all states of `after` before the commit, which cannot check that; until
 * then no other session sees them. It must not write to `before`, whose states do not change during
 * the step.
 *
 * @param      batch     The batch.
 * @param      layer     The layer of the model.
 * @param[out] before    [sessions]: the state of each session, layer_bytes bytes at a multiple of
 *                       64. An entry is NULL if its session has no token yet.
 * @param      capacity  Entries that after has room for.
 * @param[out] after     [capacity]: where to write, layer_bytes each.
 * @param[out] count     The number of entries of after.
 *
 * Statuses: OUT_OF_RANGE (layer), BUFFER_TOO_SMALL, UNSUPPORTED (the layer keeps K and V; storage
 * EXTERNAL; an opaque group). Since 1.0.
 */
PKV_API pkv_status pkv_batch_get_states(pkv_batch batch, uint32_t layer, const void** before,
                                        size_t capacity, void** after, size_t* count);

/**
 * Returns which states a step keeps in a group, and their blocks. For j in [indptr[i], indptr[i +
 * 1]), session i keeps the state after its new token tokens[j], in block after[j]. Before the step
 * its state is in block before[i].
 *
 * It is for engines with their own memory (storage EXTERNAL), and for kernels that take block ids.
 * pkv_batch_get_states returns addresses instead.
 *
 * @param      batch     The batch.
 * @param      group     The index of the group.
 * @param[out] before    [sessions]: the block with the state of each session; PKV_NO_BLOCK_ID: the
 *                       session has no token yet. May be NULL.
 * @param[out] indptr    [sessions + 1]: where the states of each session begin, and the end.
 * @param      capacity  Entries that tokens and after have room for.
 * @param[out] tokens    [capacity]: indices among the session's new tokens, from 0, ascending.
 * @param[out] after     [capacity]: the blocks to write. May be NULL.
 * @param[out] count     The number of states.
 *
 * Statuses: OUT_OF_RANGE, BUFFER_TOO_SMALL, UNSUPPORTED (the group keeps K and V). Since 1.0.
 */
PKV_API pkv_status pkv_batch_get_state_blocks(pkv_batch batch, uint32_t group, uint32_t* before,
                                              uint32_t* indptr, size_t capacity, uint32_t* tokens,
                                              uint32_t* after, size_t* count);

/** The unit of the indices of pkv_batch_get_kv_indices. */
typedef enum pkv_index_unit PKV_ENUM {
  PKV_INDEX_BLOCKS = 1, /**< Block ids. */
  PKV_INDEX_SLOTS = 2   /**< Slots: block id * block size + offset in the block. */
} pkv_index_unit;

/**
 * Returns the blocks or slots of what each session holds, as in a CSR matrix: those of session i
 * are indices[indptr[i]] to indices[indptr[i + 1] - 1], in token order, with its new tokens. In a
 * group with a window, some of these tokens are outside of it, so the caller's kernel must still
 * apply it. Blocks that were freed because they left the window (one step late: see
 * pkv_layer_group) are left out; then the list has the sinks (SLOTS: sink_tokens; BLOCKS: their
 * whole blocks), and everything from the first block still held on.
 *
 * @param      batch              The batch.
 * @param      group              The index of the group.
 * @param      unit               The unit of indices: block ids or slots.
 * @param[out] indptr             [sessions + 1]: where the indices of each session begin, and the
 *                                end of the last.
 * @param      capacity           Entries that indices has room for.
 * @param[out] indices            [capacity]: block ids or slots.
 * @param[out] count              The number of indices.
 * @param[out] last_block_length  [sessions]: how many tokens the last block of each session holds.
 *                                May be NULL.
 *
 * Statuses: as pkv_batch_get_slot_mapping, OVERFLOW (an index or the number of indices is above
 * 2^31 - 1, so that kernels can take the arrays as int32_t). Since 1.0.
 */
PKV_API pkv_status pkv_batch_get_kv_indices(pkv_batch batch, uint32_t group, pkv_index_unit unit,
                                            uint32_t* indptr, size_t capacity, uint32_t* indices,
                                            size_t* count, uint32_t* last_block_length);

#ifdef __cplusplus
}
#endif
#endif
