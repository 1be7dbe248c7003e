/* pagedkv: pkv_snapshot, a frozen sequence: references to its blocks, not copies.
 *
 * Threads: a snapshot never changes; any number of threads may open sessions from it at once.
 */
#ifndef PAGEDKV_SNAPSHOT_H
#define PAGEDKV_SNAPSHOT_H

#include <pagedkv/session.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pkv_snapshot_t* pkv_snapshot;

/** Freezes what the session holds now. It outlives the session. Storage CONTIGUOUS copies. Statuses: NO_MEMORY, REF_LIMIT,
 * OUT_OF_BLOCKS (CONTIGUOUS), BUSY (a step is in flight). Since 0.1. */
PKV_API pkv_status pkv_snapshot_take(pkv_session session, pkv_snapshot* out);

/** Opens a new session with the frozen content. Statuses: WRONG_CACHE, NO_MEMORY, REF_LIMIT, OUT_OF_BLOCKS (CONTIGUOUS). Since 0.1. */
PKV_API pkv_status pkv_snapshot_open(pkv_cache cache, pkv_snapshot snapshot, pkv_session* out);

/** Tokens it holds. Statuses: none of its own. Since 0.1. */
PKV_API pkv_status pkv_snapshot_length(pkv_snapshot snapshot, uint64_t* tokens);

/** Drops the references. NULL is OK. Statuses: STALE_HANDLE, BUSY. Since 0.1. */
PKV_API pkv_status pkv_snapshot_close(pkv_snapshot snapshot);

#ifdef __cplusplus
}
#endif
#endif
