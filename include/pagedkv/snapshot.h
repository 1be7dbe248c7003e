/* pagedkv: pkv_snapshot, a frozen session: references to its blocks, not copies.
 *
 * Threads: a snapshot never changes; any number of threads may fork it at once.
 */
#ifndef PAGEDKV_SNAPSHOT_H
#define PAGEDKV_SNAPSHOT_H

#include <pagedkv/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The tokens, blocks and attributes of a session at one moment. */
typedef struct pkv_snapshot_t* pkv_snapshot;

/**
 * Takes a snapshot of a session. It outlives the session, and shares its blocks. Sessions forked
 * from it inherit the same things as a session opened by pkv_session_fork.
 *
 * @param      session  The session; it does not change.
 * @param[out] out      The snapshot. Close it with pkv_snapshot_close.
 *
 * Statuses: OUT_OF_MEMORY, LIMIT_REACHED, BUSY (in a step), SUSPENDED. Since 1.0.
 */
PKV_API pkv_status pkv_snapshot_take(pkv_session session, pkv_snapshot* out);

/**
 * Opens a new session of the same cache with the content of a snapshot.
 *
 * @param      snapshot  The snapshot. Any number of sessions can be forked from it.
 * @param[out] out       The session.
 *
 * Statuses: OUT_OF_MEMORY, LIMIT_REACHED. Since 1.0.
 */
PKV_API pkv_status pkv_snapshot_fork(pkv_snapshot snapshot, pkv_session* out);

/**
 * Closes a snapshot and drops its references. Sessions forked from it keep theirs.
 *
 * @param snapshot  The snapshot. NULL is OK.
 *
 * Statuses: STALE_HANDLE, BUSY. Since 1.0.
 */
PKV_API pkv_status pkv_snapshot_close(pkv_snapshot snapshot);

#ifdef __cplusplus
}
#endif
#endif
