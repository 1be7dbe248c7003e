/* pagedkv: the KV cache and the attention of an inference engine, as one C library.
 *
 * The interface is a ladder. Each rung is enough for some programs, and can be used without reading
 * further. The rules for all functions follow.
 *
 * 1. FIRST STEP
 *
 * A cache holds the keys (K) and values (V) of a model. Layers of the same shape form a layer
 * group; a plain model has one group. A session is one sequence of tokens. A batch is one step, the
 * forward pass of the model over sessions: begin it; in each layer, write K and V of the new tokens
 * and attend with their queries; then commit it, or abort it to undo it. K, V and queries are
 * tensors with one row for each new token. These functions are enough for an engine (version.h,
 * common.h, cache.h, session.h, batch.h):
 *
 *   pkv_cache_create, pkv_cache_destroy, pkv_session_open, pkv_session_close,
 *   pkv_batch_begin, pkv_batch_write, pkv_batch_attend, pkv_batch_commit, pkv_batch_abort,
 *   pkv_status_name, pkv_last_error, pkv_version
 *
 * Here all keys are alike, so attention gives the mean of the values so far:
 *
 *   #include <pagedkv/pagedkv.h>
 *   #include <stdio.h>
 *   #include <stdlib.h>
 *
 *   static void check(pkv_status status) {
 *     if (status == PKV_OK) return;
 *     fprintf(stderr, "%s: %s\n", pkv_status_name(status), pkv_last_error());
 *     exit(EXIT_FAILURE);
 *   }
 *
 *   int main(void) {
 *     static float k[20][2][32], v[20][2][32], q[20][4][32], out[20][4][32];
 *     for (int t = 0; t < 20; t++) v[t][0][0] = (float)t;
 *     pkv_tensor keys = {.data = k, .dtype = PKV_F32}, values = {.data = v, .dtype = PKV_F32};
 *     pkv_tensor queries = {.data = q, .dtype = PKV_F32};
 *     pkv_tensor result = {.data = out, .dtype = PKV_F32};
 *     pkv_layer_group model = {.struct_size = sizeof model};
 *     model.layers = 2, model.query_heads = 4, model.kv_heads = 2, model.key_dim = 32;
 *     model.blocks = 64;
 *     pkv_cache_config config = {.struct_size = sizeof config, .groups = &model};
 *     pkv_cache cache;
 *     check(pkv_cache_create(&config, &cache));
 *     pkv_session session;
 *     check(pkv_session_open(cache, NULL, &session));
 *     pkv_batch batch;
 *     const uint32_t new_tokens = 20;
 *     check(pkv_batch_begin(cache, 1, &session, &new_tokens, &batch));
 *     for (uint32_t layer = 0; layer < 2; layer++) {
 *       check(pkv_batch_write(batch, layer, &keys, &values));
 *       check(pkv_batch_attend(batch, layer, NULL, &queries, &result, NULL));
 *     }
 *     check(pkv_batch_commit(batch, 0, NULL));
 *     printf("token 19 attends to 20 tokens: %.2f (expected 9.50)\n", out[19][0][0]);
 *     check(pkv_session_close(session));
 *     check(pkv_cache_destroy(cache));
 *   }
 *
 * 2. SHARING AND PREFIXES
 *
 * A session keeps its tokens in blocks of block_size tokens (16 unless you set it). Sessions can
 * share blocks; the first to write to a shared block gets a copy. pkv_session_fork opens a second
 * session that continues the same sequence, pkv_snapshot_take freezes it for later forks.
 * pkv_session_trim and pkv_batch_accept remove tokens that were not accepted. With a
 * pkv_prefix_config, pkv_session_admit gives a session the blocks that others, running or ended,
 * computed for the same first tokens, and hints say which to keep. When blocks run out,
 * pkv_batch_choose_victims says which sessions to suspend and resume later. (session.h, snapshot.h,
 * batch.h, prefix.h, hint.h)
 *
 * 3. FILES AND STORES
 *
 * pkv_file_save writes sessions and the prefix index to a file, a buffer or a stream, and
 * pkv_file_load opens them again in another process. A store keeps blocks on disk or on another
 * machine: pkv_store_open_directory, functions of your own, or pkv_redis_open, which has a library
 * and a header of its own. (file.h, store.h, redis.h)
 *
 * 4. OWN MEMORY AND KERNELS
 *
 * pkv_cache_compute_sizes says how much memory a config takes. With storage EXTERNAL the cache has
 * only block ids, and your engine asks where tokens are: pkv_batch_get_slot_mapping,
 * pkv_batch_get_kv_indices, pkv_session_get_block_table. With storage INTERNAL,
 * pkv_cache_get_kv_view gives them addresses. Without a cache, pkv_kv_write and pkv_kv_attend work
 * on memory that you describe, on the threads of a pkv_compute, and a pkv_pool counts references to
 * blocks whose tables are yours. (kv.h, attention.h, compute.h, pool.h)
 *
 * 5. EXPERIMENTAL
 *
 * Attention over chosen blocks, the attention mass of blocks, dropped blocks, rotations by your
 * matrices. A minor version may change or remove these; the rest of the interface only grows. Their
 * header is not included here. (experimental.h)
 *
 * guide/glossary.md has more words, and what vLLM, SGLang and llama.cpp call them. The guide is
 * installed in share/doc/pagedkv.
 *
 * THREADS
 *
 * Any function may be called from any thread. This is what may run at the same time on one object:
 *
 *   pkv_pool      everything except destroy and validate
 *   pkv_cache     everything except destroy and validate
 *   pkv_session   one writer or several readers
 *   pkv_batch     one writer or several getters; write and attend are writers
 *   pkv_snapshot  everything except close
 *   pkv_compute   everything except destroy
 *   pkv_store     pkv_store_close: nothing else; never once a cache has taken it. Its functions
 *                 may be called from several threads (store.h)
 *
 * Getters are the functions with "get" in their names, and pkv_hint_session. Those of sessions and
 * batches are short, and a call that changes or closes one waits for those that run. Statistics and
 * pkv_session_get_info look at every block and lock the prefix index: do not call them in each
 * step. Readers take longer (pkv_session_read, fork, snapshot, save). Any other call that conflicts
 * with a running one returns PKV_BUSY and changes nothing: a change while a reader or another
 * change runs, and any call while a change runs. The exceptions are the two validate functions:
 * they do not detect the conflict and may report errors that do not exist, so the caller must make
 * sure that nothing else runs.
 *
 * Steps of different sessions share only short locks: those of a prefix index (prefix.h), of memory
 * that groups share, of a store and of the library's threads. While pkv_batch_choose_victims runs,
 * calls on the sessions of its list return PKV_BUSY, and calls that change others wait.
 *
 * After fork() the child may close inherited handles (and abort batches); any other use of them
 * returns PKV_WRONG_PROCESS. It may create new objects, and call functions without a handle, even
 * if other threads of the parent were inside calls at the fork. pthread_cancel() of a thread inside
 * a call takes effect after the call.
 *
 * HANDLES are an index and a generation, never an address: using a stale, forged or foreign handle
 * is an error (PKV_STALE_HANDLE, PKV_WRONG_CACHE), not a crash. Closing NULL is always OK.
 *
 * OWNERSHIP. The caller owns what parameters point to, and the library does not keep those pointers
 * after the call. It copies what a config points to, except where the config says "must outlive",
 * and the pkv_store, of which the cache takes ownership. The caller closes each handle that it
 * gets, or destroys the cache, which closes all that belong to it.
 *
 * PARAMETERS. [in] is read, [out] is written and [in,out] is both. A pointer may be NULL only where
 * its text says so. Outputs are written only if the function returns PKV_OK, unless their text says
 * otherwise. If an array has a `capacity` and that is too low, the call returns
 * PKV_BUFFER_TOO_SMALL and sets the count to the number that is needed; with capacity 0 the array
 * may be NULL. For an input array of n entries, n may be 0 unless the text says otherwise; the
 * array may then be NULL. Shapes such as [rows][heads][dim] are row-major (the last index runs
 * fastest), unless strides of a pkv_tensor say otherwise. Paths are UTF-8 on Windows; elsewhere
 * their bytes go to the system as they are.
 *
 * STATUSES. Besides the statuses in its documentation, any function may return INVALID_ARGUMENT
 * (NULL where it is not allowed, a wrong struct_size), OVERFLOW (a count so large that its size in
 * bytes overflows), REENTRANT, INTERNAL and OUT_OF_MEMORY, and any function that takes a handle
 * STALE_HANDLE, BUSY and WRONG_PROCESS. Any function that creates an object may return
 * LIMIT_REACHED (4,194,304 objects are open in the process, or somewhat fewer with many caches).
 * But pkv_batch_commit, pkv_batch_abort, pkv_session_suspend and functions that close an object,
 * except pkv_cache_destroy, never run out of memory.
 */
#ifndef PAGEDKV_H
#define PAGEDKV_H

/* In the order of the ladder. */
/* clang-format off */
#include <pagedkv/version.h>
#include <pagedkv/common.h>
#include <pagedkv/cache.h>
#include <pagedkv/session.h>
#include <pagedkv/batch.h>
#include <pagedkv/snapshot.h>
#include <pagedkv/prefix.h>
#include <pagedkv/hint.h>
#include <pagedkv/file.h>
#include <pagedkv/store.h>
#include <pagedkv/pool.h>
#include <pagedkv/stats.h>
#include <pagedkv/kv.h>
#include <pagedkv/attention.h>
#include <pagedkv/compute.h>
/* clang-format on */

#endif
