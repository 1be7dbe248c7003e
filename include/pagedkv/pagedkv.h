/* pagedkv: the KV cache and the attention of an inference engine, as one C library.
 *
 * WORDS
 *
 * A session is one sequence of tokens with its K and V. Layers of the same shape and window form a
 * layer group; a plain model has one. A block holds K and V of block_size consecutive tokens (16 by
 * default) in all layers of a group, and a session's block table lists its blocks. A slot is the
 * place of one token: block id * block_size + offset. A step is one forward pass; each new token of
 * a step is one row of the step's tensors. guide/glossary.md has more words, and what vLLM, SGLang
 * and llama.cpp call them. (The guide is installed in share/doc/pagedkv.)
 *
 * GUIDED TOUR
 *
 * 1. Simple use. Describe the model in a pkv_cache_config, ask pkv_cache_compute_plan how much
 *    memory it takes, and create the cache with pkv_cache_create. Open a pkv_session per sequence.
 *    Each step is a pkv_batch: begin it, write K and V and attend in each layer, then commit. Close
 *    the session when its sequence is complete. (cache.h, session.h, batch.h)
 *
 * 2. Sharing. pkv_session_fork makes a second session that continues the same sequence.
 *    pkv_snapshot_take freezes a sequence, and pkv_snapshot_fork makes new sessions from it. They
 *    share blocks until one of them writes. pkv_session_trim removes the last tokens, and
 *    pkv_batch_accept keeps only the accepted ones of a step's speculative tokens. (session.h,
 *    snapshot.h, batch.h)
 *
 * 3. Prefix reuse. A cache with a pkv_prefix_config keeps the full blocks of sessions, even after
 *    they end, and pkv_session_admit gives them to sessions that begin with the same tokens.
 *    Hints say which to keep, to evict first, to fetch or to drop. (prefix.h, hint.h)
 *
 * 4. Sessions that survive. pkv_file_save writes sessions and the prefix index to a file, a buffer
 *    or a stream of yours; pkv_file_load opens them again in another process. A store keeps blocks
 *    on disk or on another machine. (file.h, store.h)
 *
 * 5. An engine with its own kernels. A cache with storage NONE, or just a pkv_pool, manages only
 *    block ids. Block tables, slot mappings and KV indices say where each token is. With storage
 *    PAGED, pkv_cache_get_kv_view returns typed addresses. (pool.h, batch.h, kv.h)
 *
 * 6. An engine with its own memory. pkv_kv_write stores rows in blocks that the engine describes,
 *    and pkv_kv_attend attends over them, on the threads of a pkv_compute. (kv.h, attention.h,
 *    compute.h)
 *
 * A store in Redis is a library of its own, whose header is not included here. (redis.h)
 *
 * THREADS
 *
 * Any function may be called from any thread. This is what may run at the same time on one object:
 *
 *   pkv_pool      everything except destroy; alloc, retain and release are lock-free
 *   pkv_cache     everything except destroy and validate
 *   pkv_session   one writer or several readers
 *   pkv_batch     one writer or several getters
 *   pkv_snapshot  everything except close
 *   pkv_compute   everything except destroy
 *
 * A call that conflicts with a running one returns PKV_BUSY and changes nothing; so does closing an
 * object while another thread is inside a call on it. But a call that changes or closes a session
 * or batch waits for a getter (with "get" in its name) that is running on it. Steps of different
 * sessions share no lock, except that of a prefix index (prefix.h).
 *
 * After fork() the child may close inherited handles; any other use of them returns PKV_FORKED. The
 * child may create new objects and call functions that take no handle, even if other threads of the
 * parent were inside calls at the fork. pthread_cancel() of a thread inside a call takes effect
 * after the call.
 *
 * HANDLES are an index and a generation, never an address: using a stale, forged or foreign handle
 * is an error (PKV_STALE_HANDLE, PKV_WRONG_CACHE), not a crash. Closing NULL is always OK.
 *
 * OWNERSHIP. The caller owns what parameters point to, and the library does not keep those pointers
 * after the call. It copies what a config points to, except where the config says "must outlive".
 * The caller closes the handles it gets; pkv_cache_destroy closes all handles that its cache
 * returned.
 *
 * PARAMETERS. [in] is read, [out] is written and [in,out] is both. A pointer may be NULL only where
 * its text says so. Outputs are written only if the function returns PKV_OK, unless their text says
 * otherwise. If an array has a `capacity` and that is too low, the call returns
 * PKV_BUFFER_TOO_SMALL and sets the count to the number that is needed; with capacity 0 the array
 * may be NULL. Shapes such as [rows][heads][dim] are row-major (the last index runs fastest),
 * unless strides of a pkv_tensor say otherwise.
 *
 * STATUSES. Besides the statuses in its documentation, any function that takes a handle may return
 * STALE_HANDLE, BUSY, REENTRANT and FORKED. Any function may return INVALID_ARGUMENT (NULL where it
 * is not allowed, a wrong struct_size), OVERFLOW (a count whose elements no memory can hold),
 * INTERNAL and OUT_OF_MEMORY. But functions that close an object, pkv_batch_commit, pkv_batch_abort
 * and pkv_session_suspend never run out of memory.
 */
#ifndef PAGEDKV_H
#define PAGEDKV_H

/* In the order of the tour. */
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
