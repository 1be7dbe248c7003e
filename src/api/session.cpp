// The C functions of sessions (pkv_session_).
#include "engine/session/session.h"

#include <pagedkv/experimental.h>
#include <pagedkv/session.h>

#include "api/boundary.h"
#include "base/enums.h"
#include "base/status.h"
#include "engine/session/read.h"

namespace pkv::api {
namespace {

// The hold that lets a session match and publish prefixes; empty for a session that does neither.
prefix::Hold open_hold(const Cache& cache, const pkv_session_config& config) {
  check_enum(config.prefix_use, "prefix_use");
  if (config.reserved != 0) fail(PKV_INVALID_ARGUMENT, "reserved is %u, not 0", config.reserved);
  const std::string_view salt = check_salt(config.salt, config.salt_size);
  if (cache.prefix() == nullptr || config.prefix_use == PKV_PREFIX_OFF) return {};
  return prefix::Hold(*cache.prefix(), salt, prefix::normal_retention);
}

}  // namespace
}  // namespace pkv::api

using namespace pkv;
using namespace pkv::api;

pkv_status pkv_session_open(pkv_cache handle, const pkv_session_config* config, pkv_session* out) {
  return guarded([&] {
    const CacheLease cache(handle);
    check_pointer(out, "out");
    const pkv_session_config known = read_optional(config, "config");
    Content content(*cache);
    content.hold() = open_hold(*cache, known);
    const Attributes attributes{known.priority, known.prefix_use == PKV_PREFIX_SHARE};
    *out =
        SessionLease::make(std::make_unique<Session>(std::move(content), attributes), bits(handle));
  });
}

pkv_status pkv_session_close(pkv_session handle) {
  return guarded([&] { SessionLease::close(handle); });
}

pkv_status pkv_session_get_length(pkv_session handle, uint64_t* tokens) {
  return guarded([&] {
    const SessionLease session(handle, Access::get);
    check_pointer(tokens, "tokens");
    *tokens = session->length();
  });
}

pkv_status pkv_session_get_tokens(pkv_session handle, uint64_t first, size_t n, int32_t* tokens) {
  return guarded([&] {
    const SessionLease session(handle, Access::get);
    check_list(tokens, n, "tokens");
    session->tokens(first, n, tokens);
  });
}

pkv_status pkv_session_set_tokens(pkv_session handle, uint64_t first, size_t n,
                                  const int32_t* tokens) {
  return guarded([&] {
    const SessionLease session(handle, Access::write);
    check_list(tokens, n, "tokens");
    session->set_tokens(first, n, tokens);
  });
}

pkv_status pkv_session_reserve(pkv_session handle, uint64_t total_tokens) {
  return guarded([&] { SessionLease(handle, Access::write)->reserve(total_tokens); });
}

pkv_status pkv_session_admit(pkv_session handle, size_t n, const int32_t* tokens,
                             uint64_t total_tokens, uint64_t* matched) {
  return guarded([&] {
    const SessionLease session(handle, Access::write);
    check_list(tokens, n, "tokens");
    check_pointer(matched, "matched");
    *matched = session->admit(prefix::Tokens(tokens, n), total_tokens);
  });
}

pkv_status pkv_session_trim(pkv_session handle, uint64_t length) {
  return guarded([&] { SessionLease(handle, Access::write)->trim(length); });
}

pkv_status pkv_session_drop_blocks(pkv_session handle, uint32_t group, size_t n,
                                   const uint32_t* indices) {
  return guarded([&] {
    const SessionLease session(handle, Access::write);
    check_list(indices, n, "indices");
    session->drop_blocks(group, std::span(indices, n));
  });
}

pkv_status pkv_session_get_trim_point(pkv_session handle, uint64_t limit, uint64_t* length) {
  return guarded([&] {
    const SessionLease session(handle, Access::get);
    check_pointer(length, "length");
    *length = session->trim_point(limit);
  });
}

pkv_status pkv_session_fork(pkv_session handle, pkv_session* out) {
  return guarded([&] {
    SessionLease session(handle);
    // This lease keeps the cache from being destroyed before it can find its new child.
    const CacheLease cache(handle_from<pkv_cache>(session.parent()));
    check_pointer(out, "out");
    session->check_ready("fork");
    session.become_reader();
    *out = SessionLease::make(
        std::make_unique<Session>(session->content().fork(), session->attributes()),
        session.parent());
  });
}

pkv_status pkv_session_suspend(pkv_session handle) {
  return guarded([&] { SessionLease(handle, Access::write)->suspend(); });
}

pkv_status pkv_session_resume(pkv_session handle, uint64_t* length, uint64_t* total) {
  return guarded([&] {
    const SessionLease session(handle, Access::write);
    check_pointer(length, "length");
    check_pointer(total, "total");
    session->resume();
    *length = session->length();
    *total = session->total();
  });
}

pkv_status pkv_session_set_priority(pkv_session handle, int32_t priority) {
  return guarded([&] { SessionLease(handle, Access::write)->set_priority(priority); });
}

pkv_status pkv_session_get_info(pkv_session handle, pkv_session_info* out) {
  return guarded([&] { fill_struct(out, SessionLease(handle, Access::get)->info(), "out"); });
}

pkv_status pkv_session_get_block_table(pkv_session handle, uint32_t group, size_t capacity,
                                       uint32_t* ids, size_t* count) {
  return guarded([&] {
    const SessionLease session(handle, Access::get);
    check_list(ids, capacity, "ids");
    check_pointer(count, "count");
    const std::span<const uint32_t> table = session->table(group).ids();
    check_capacity(capacity, table.size(), count, "block table");
    std::copy(table.begin(), table.end(), ids);
  });
}

pkv_status pkv_session_read(pkv_session handle, uint32_t layer, uint64_t first, size_t n,
                            const pkv_tensor* k, const pkv_tensor* v) {
  return guarded([&] {
    SessionLease session(handle);
    const kernels::CopyTask task = check_read(*session, layer, first, n, k, v);
    session.become_reader();
    read_rows(*session, layer, task);
  });
}

pkv_status pkv_session_get_state(pkv_session handle, uint32_t layer, uint64_t tokens, size_t size,
                                 void* state) {
  return guarded([&] {
    const SessionLease session(handle);
    auto* const bytes = static_cast<unsigned char*>(state);
    check_list(bytes, size, "state");
    read_state(*session, layer, tokens, std::span(bytes, size));
  });
}
