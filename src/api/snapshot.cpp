// The C functions of snapshots (pkv_snapshot_).
#include "engine/session/snapshot.h"

#include <pagedkv/snapshot.h>

#include "api/boundary.h"
#include "base/status.h"
#include "engine/session/session.h"

using namespace pkv;
using namespace pkv::api;

pkv_status pkv_snapshot_take(pkv_session handle, pkv_snapshot* out) {
  return guarded([&] {
    SessionLease session(handle);
    // This lease keeps the cache from being destroyed before it can find its new child.
    const CacheLease cache(handle_from<pkv_cache>(session.parent()));
    check_pointer(out, "out");
    session->check_ready("take");
    session.become_reader();
    *out = SnapshotLease::make(
        std::make_unique<Snapshot>(session->content().fork(), session->attributes()),
        session.parent());
  });
}

pkv_status pkv_snapshot_fork(pkv_snapshot handle, pkv_session* out) {
  return guarded([&] {
    SnapshotLease snapshot(handle);
    // This lease keeps the cache from being destroyed before it can find its new child.
    const CacheLease cache(handle_from<pkv_cache>(snapshot.parent()));
    check_pointer(out, "out");
    snapshot.become_reader();
    *out = SessionLease::make(
        std::make_unique<Session>(snapshot->content().fork(), snapshot->attributes()),
        snapshot.parent());
  });
}

pkv_status pkv_snapshot_close(pkv_snapshot handle) {
  return guarded([&] { SnapshotLease::close(handle); });
}
