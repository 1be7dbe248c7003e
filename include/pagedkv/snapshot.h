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

/** What a session held at one moment, and how it used the cache. */
typedef struct pkv_snapshot_t* pkv_snapshot;

/**
 * Freezes what a session holds now. The snapshot outlives the session. Storage CONTIGUOUS copies.
 * Besides tokens, the snapshot has what pkv_session_fork passes on, for sessions opened from it.
 *
 * @param      session  The session; it goes on unchanged.
 * @param[out] out      The snapshot, to be closed by pkv_snapshot_close.
 *
 * Statuses: NO_MEMORY, REF_LIMIT, OUT_OF_BLOCKS (CONTIGUOUS), BUSY (a step is in flight),
 * SUSPENDED. Since 0.1.
 */
PKV_API pkv_status pkv_snapshot_take(pkv_session session, pkv_snapshot* out);

/**
 * Opens a new session with the frozen content.
 *
 * @param      cache     The cache of the snapshot.
 * @param      snapshot  The snapshot; it can be opened any number of times.
 * @param[out] out       The session.
 *
 * Statuses: WRONG_CACHE, NO_MEMORY, REF_LIMIT, OUT_OF_BLOCKS (CONTIGUOUS). Since 0.1.
 */
PKV_API pkv_status pkv_snapshot_open(pkv_cache cache, pkv_snapshot snapshot, pkv_session* out);

/**
 * Closes a snapshot and drops its references. Sessions that were opened from it keep theirs.
 *
 * @param snapshot  The snapshot. NULL is OK.
 *
 * Statuses: STALE_HANDLE, BUSY. Since 0.1.
 */
PKV_API pkv_status pkv_snapshot_close(pkv_snapshot snapshot);

#ifdef __cplusplus
}
#endif
#endif
