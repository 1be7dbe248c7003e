// What hints do: it decides what each action means for a text or a session, and what came of it.
#pragma once

#include <pagedkv/hint.h>

#include "engine/session/session.h"

namespace pkv {

struct Hint {
  pkv_hint_action action;
  uint64_t first, end;  // tokens; the end may be PKV_TO_END
  uint8_t retention;    // see Use::retention
  uint64_t duration_ms;
};

// The cache has a prefix index. Both throw LIMIT_REACHED and bad_alloc.
pkv_hint_result apply_hint(Cache& cache, std::string_view salt, prefix::Tokens text,
                           const Hint& hint);
pkv_hint_result apply_hint(Session& session, const Hint& hint);

}  // namespace pkv
