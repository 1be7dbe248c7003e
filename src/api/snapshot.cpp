// The C functions of snapshots (pkv_snapshot_).
#include "engine/session/snapshot.h"

#include <pagedkv/snapshot.h>

#include "api/boundary.h"
#include "base/status.h"
#include "engine/session/session.h"

using namespace pkv;
using namespace pkv::api;

pkv_status pkv_snapshot_take(pkv_session session, pkv_snapshot* out) {
  return guarded([&] {
    const Lease lease(bits(session), Kind::session, Access::read);
    // This lease keeps the cache from being destroyed before it can find its new child.
    const Lease cache(lease.parent(), Kind::cache, Access::read);
    check_pointer(out, "out");
    const Session& taken = lease.object<Session>();
    auto snapshot = std::make_unique<Snapshot>(taken.fork(), taken.attributes());
    *out =
        handle_from<pkv_snapshot>(make_handle(Kind::snapshot, std::move(snapshot), lease.parent()));
  });
}

pkv_status pkv_snapshot_open(pkv_cache cache, pkv_snapshot snapshot, pkv_session* out) {
  return guarded([&] {
    const Lease cache_lease(bits(cache), Kind::cache, Access::read);
    const Lease lease(bits(snapshot), Kind::snapshot, Access::read);
    check_pointer(out, "out");
    if (lease.parent() != bits(cache))
      fail(PKV_WRONG_CACHE, "the snapshot was taken in another cache");
    const Snapshot& frozen = lease.object<Snapshot>();
    auto session = std::make_unique<Session>(frozen.content().fork(), frozen.attributes());
    *out = handle_from<pkv_session>(make_handle(Kind::session, std::move(session), bits(cache)));
  });
}

pkv_status pkv_snapshot_close(pkv_snapshot snapshot) {
  return guarded([&] {
    if (snapshot == nullptr) return;
    Lease lease(bits(snapshot), Kind::snapshot, Access::close);
    if (!lease.inherited()) delete &lease.object<Snapshot>();
    lease.retire();
  });
}
