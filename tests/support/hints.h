// Short ways to give hints.
#pragma once

#include <span>
#include <string_view>

#include "cache.h"

namespace cache_test {

// A hint with those of these fields that its action uses. An end of 0 is that of the text.
inline pkv_hint hint_of(pkv_hint_action action, const pkv_hint& fields = {}) {
  const bool ranged =
      action == PKV_HINT_SET_RETENTION || action == PKV_HINT_DEMOTE || action == PKV_HINT_DROP;
  const bool retains = action == PKV_HINT_SET_RETENTION || action == PKV_HINT_PREFETCH;
  auto hint = made<pkv_hint>({.action = action});
  if (ranged) hint.first = fields.first;
  if (action != PKV_HINT_EXPECT_RETURN) hint.end = fields.end == 0 ? PKV_TO_END : fields.end;
  if (retains) hint.retention = fields.retention;
  if (retains || action == PKV_HINT_PIN || action == PKV_HINT_EXPECT_RETURN)
    hint.duration_ms = fields.duration_ms;
  return hint;
}

inline pkv_hint_result hint(pkv_cache cache, pkv_hint_action action,
                            std::span<const int32_t> tokens, std::string_view salt = {},
                            const pkv_hint& fields = {}) {
  const pkv_hint given = hint_of(action, fields);
  auto result = made<pkv_hint_result>();
  CHECK(pkv_hint_prompt(cache, TextArg(tokens, salt), &given, &result));
  return result;
}

inline pkv_hint_result hint(pkv_session session, pkv_hint_action action,
                            const pkv_hint& fields = {}) {
  pkv_hint given = hint_of(action, fields);
  auto info = made<pkv_session_info>();
  CHECK(pkv_session_get_info(session, &info));
  if (action == PKV_HINT_DROP && info.suspended == 0) given.end = PKV_TO_END;
  auto result = made<pkv_hint_result>();
  CHECK(pkv_hint_session(session, &given, &result));
  return result;
}

inline void prefetch(pkv_cache cache, std::span<const int32_t> tokens, std::string_view salt = {}) {
  hint(cache, PKV_HINT_PREFETCH, tokens, salt);
}

// Waits for the threads of a store, so that the following calls do not depend on their progress.
// The reader may still add blocks for a cancelled prefetch, for which no call can wait. But it
// takes prefetches in turn, so waiting for a new one is waiting for all.
inline void settle(pkv_cache cache) {
  constexpr uint32_t forever = 60000;  // milliseconds
  uint64_t cached = 99;
  const std::vector<int32_t> unknown(16, -7);
  prefetch(cache, unknown);
  CHECK(pkv_prefetch_wait(cache, TextArg(unknown), forever, &cached, nullptr));
  flush_store(cache);
}

}  // namespace cache_test
