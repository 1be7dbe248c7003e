// The kinds of objects that handles lead to. They have their own file because both the table of
// entries and the leases need them.
#pragma once

#include <cstdint>

namespace pkv::api {

enum class Kind : uint8_t { pool = 1, cache, session, batch, snapshot, compute };

// The objects that a cache creates, and closes when it is destroyed. Batches come first, because a
// session in a batch is reached through the batch's lease.
inline constexpr Kind children_of_cache[] = {Kind::batch, Kind::snapshot, Kind::session};

inline const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::pool:
      return "pool";
    case Kind::cache:
      return "cache";
    case Kind::session:
      return "session";
    case Kind::batch:
      return "batch";
    case Kind::snapshot:
      return "snapshot";
    case Kind::compute:
      return "compute";
  }
  return "object";
}

}  // namespace pkv::api
