// The C functions of hints (pkv_hint_).
#include "engine/session/hint.h"

#include <pagedkv/hint.h>

#include "api/boundary.h"
#include "base/enums.h"
#include "base/status.h"

namespace pkv::api {
namespace {

Hint read_hint(const pkv_hint* from) {
  const pkv_hint known = read_struct(from, "hint");
  check_enum(known.action, "action");
  check_enum(known.retention, "retention");
  if (known.reserved != 0) fail(PKV_INVALID_ARGUMENT, "reserved is %u, not 0", known.reserved);
  if (known.end != 0 && known.first > known.end)
    fail(PKV_INVALID_ARGUMENT, "the range begins at token %llu, after its end at %llu",
         llu(known.first), llu(known.end));
  return {known.action, known.first, known.end,
          static_cast<uint8_t>(known.retention - PKV_RETENTION_LOW), known.duration_ms};
}

// Checked before anything is done. The caller may not want the result.
void check_result(const pkv_hint_result* result) {
  if (result != nullptr) check_struct_size<pkv_hint_result>(result->struct_size, "result");
}

}  // namespace
}  // namespace pkv::api

using namespace pkv;
using namespace pkv::api;

pkv_status pkv_hint_prompt(pkv_cache handle, const pkv_prompt* prompt, const pkv_hint* hint,
                           pkv_hint_result* result) {
  return guarded([&] {
    const CacheLease cache(handle);
    index_of(*cache);
    const auto [salt, tokens] = check_text(prompt, "prompt");
    const Hint known = read_hint(hint);
    check_result(result);
    if (known.action == PKV_HINT_EXPECT_RETURN)
      fail(PKV_INVALID_ARGUMENT, "EXPECT_RETURN is a hint about a session, not about a prompt");
    if (std::max(known.first, known.end) > tokens.size())
      fail(PKV_OUT_OF_RANGE, "a range up to token %llu; the prompt has %zu",
           llu(std::max(known.first, known.end)), tokens.size());
    const pkv_hint_result done = apply_hint(*cache, salt, tokens, known);
    if (result != nullptr) fill_struct(result, done, "result");
  });
}

pkv_status pkv_hint_session(pkv_session handle, const pkv_hint* hint, pkv_hint_result* result) {
  return guarded([&] {
    const SessionLease session(handle, Access::get);
    index_of(session->cache());
    const Hint known = read_hint(hint);
    check_result(result);
    const pkv_hint_result done = apply_hint(*session, known);
    if (result != nullptr) fill_struct(result, done, "result");
  });
}
