// The C functions of hints (pkv_hint_).
#include "engine/session/hint.h"

#include <pagedkv/hint.h>

#include "api/boundary.h"
#include "base/enums.h"
#include "base/status.h"

namespace pkv::api {
namespace {

// The fields that an action uses.
struct Uses {
  bool first, end, retention, duration_ms;
};
Uses uses_of(pkv_hint_action action) {
  switch (action) {
    case PKV_HINT_SET_RETENTION:
      return {true, true, true, true};
    case PKV_HINT_EXPECT_RETURN:
      return {false, false, false, true};
    case PKV_HINT_PIN:
      return {false, true, false, true};
    case PKV_HINT_PREFETCH:
      return {false, true, true, true};
    case PKV_HINT_UNPIN:
    case PKV_HINT_STORE:
      return {false, true, false, false};
    case PKV_HINT_DEMOTE:
    case PKV_HINT_DROP:
      return {true, true, false, false};
  }
  fail(PKV_INTERNAL, "the fields of action %s", enum_name(action));
}

void check_unused(bool used, const char* field, uint64_t value, pkv_hint_action action) {
  if (!used && value != 0)
    fail(PKV_INVALID_ARGUMENT, "%s is %llu; %s does not use it, so it must be 0", field, llu(value),
         enum_name(action));
}

Hint read_hint(const pkv_hint* from) {
  const pkv_hint known = read_struct(from, "hint");
  check_enum(known.action, "action");
  check_enum(known.retention, "retention");
  if (known.reserved != 0) fail(PKV_INVALID_ARGUMENT, "reserved is %u, not 0", known.reserved);
  const Uses uses = uses_of(known.action);
  check_unused(uses.first, "first", known.first, known.action);
  check_unused(uses.end, "end", known.end, known.action);
  check_unused(uses.duration_ms, "duration_ms", known.duration_ms, known.action);
  if (!uses.retention && known.retention != PKV_RETENTION_NORMAL)
    fail(PKV_INVALID_ARGUMENT, "retention is %s; %s does not use it, so it must be NORMAL",
         enum_name(known.retention), enum_name(known.action));
  if (uses.end && known.end == 0)
    fail(PKV_INVALID_ARGUMENT,
         "end is 0, so the range has no tokens; PKV_TO_END is the text's end");
  if (known.first > known.end)
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
    const uint64_t up_to = known.end == PKV_TO_END ? known.first : known.end;
    if (up_to > tokens.size())
      fail(PKV_OUT_OF_RANGE, "a range up to token %llu; the prompt has %zu", llu(up_to),
           tokens.size());
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
    if (known.action == PKV_HINT_DROP && known.end != PKV_TO_END && !session->suspended())
      fail(PKV_INVALID_ARGUMENT,
           "end is %llu; a session that is not suspended drops all from first on, so end must be "
           "PKV_TO_END",
           llu(known.end));
    const pkv_hint_result done = apply_hint(*session, known);
    if (result != nullptr) fill_struct(result, done, "result");
  });
}
