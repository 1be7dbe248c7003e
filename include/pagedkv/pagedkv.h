/* pagedkv: the KV cache and the attention of an inference engine, as one C library.
 *
 * GUIDED TOUR
 *
 * 1. Simple use. Describe the model in a pkv_cache_config, ask pkv_cache_compute_plan what it
 *    takes, pkv_cache_create it. Open a pkv_session per sequence. Each forward pass is a pkv_batch
 *    over the sessions that take part: begin, then per layer write K and V and attend, then commit.
 *    Close the session when its text is done. (cache.h, session.h, batch.h)
 *
 * 2. Sharing. pkv_session_fork continues one sequence in two ways; pkv_snapshot_take freezes it and
 *    pkv_snapshot_open begins new ones from it. Blocks are shared until somebody writes.
 *    pkv_session_trim takes tokens back, as after speculative decoding. (session.h, snapshot.h)
 *
 * 3. Prefix reuse. A cache with a pkv_prefix_config keeps what ended sessions computed, and
 *    pkv_session_match_prefix gives it to those that begin alike. (prefix.h)
 *
 * 4. Sessions that survive. pkv_file_save writes sessions and the prefix index to a file (or a
 *    buffer, or wherever), pkv_file_load opens them again in another process. A store keeps blocks
 *    on disk or on another machine. (file.h, store.h)
 *
 * 5. An engine with kernels of its own. Storage NONE, or a pkv_pool alone, keeps ids only;
 *    pkv_session_get_block_table, slot mappings and KV indices tell where everything is;
 *    pkv_cache_get_kv_view gives typed addresses. (pool.h, kv.h)
 *
 * 6. An engine with memory of its own. pkv_kv_write stores rows in blocks that the engine describes
 *    and pkv_attention attends over them, on the threads of a pkv_compute. (kv.h, attention.h,
 *    compute.h)
 *
 * THREADS
 *
 * Any function may be called from any thread. What one object allows at once:
 *
 *   pkv_pool      everything, from any number of threads; alloc, retain and release are lock-free
 *   pkv_cache     everything but destroy; different sessions and batches share no lock in begin,
 *                 write, attend, commit (but that of a prefix index: prefix.h)
 *   pkv_session   one writer or several readers; a call that meets another returns PKV_BUSY and
 *                 changes nothing
 *   pkv_batch     one caller at a time
 *   pkv_snapshot  everything but close
 *   pkv_compute   everything but destroy
 *
 * Closing an object while another thread is inside a call on it returns PKV_BUSY. After fork() the
 * child may close inherited handles, nothing else (PKV_FORKED); it may make objects of its own and
 * call the functions that need none, whatever other threads did at the fork. pthread_cancel() of a
 * thread inside a call takes effect after the call.
 *
 * HANDLES are an index and a generation, never an address: a stale, forged or foreign handle is an
 * error (PKV_STALE_HANDLE, PKV_WRONG_CACHE), not a crash. Closing NULL is OK everywhere.
 *
 * OWNERSHIP. What a parameter points to stays the caller's and is not kept after the call; what a
 * config points to is copied, except where it says "must outlive". A handle is closed by whoever
 * got it, and pkv_cache_destroy closes all that its cache handed out.
 *
 * PARAMETERS. [in] is read, [out] is written and [in,out] is both; none may be NULL unless its text
 * says so. Outputs are untouched unless a function returns PKV_OK, except where their text says
 * otherwise. Shapes are those of dense rows, the last index running fastest.
 *
 * STATUSES. Besides what its documentation lists, any function that takes a handle may return
 * INVALID_ARGUMENT (NULL where it is not allowed), STALE_HANDLE, BUSY, REENTRANT and FORKED; any
 * function may return NO_MEMORY and INTERNAL.
 */
#ifndef PAGEDKV_H
#define PAGEDKV_H

/* clang-format off: in the order of the tour. */
#include <pagedkv/attention.h>
#include <pagedkv/batch.h>
#include <pagedkv/cache.h>
#include <pagedkv/common.h>
#include <pagedkv/compute.h>
#include <pagedkv/file.h>
#include <pagedkv/kv.h>
#include <pagedkv/pool.h>
#include <pagedkv/prefix.h>
#include <pagedkv/session.h>
#include <pagedkv/snapshot.h>
#include <pagedkv/stats.h>
#include <pagedkv/store.h>
#include <pagedkv/version.h>
/* clang-format on */

#endif
