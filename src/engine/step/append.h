// Steps of one session without a batch object: the caller gives one layer per call. The first call
// begins the step, and the call that completes the layers commits it.
#pragma once

#include "engine/session/session.h"

namespace pkv {

// Writes one layer of a step that appends n tokens. n = 0 only checks the arguments. Throws
// INVALID_ARGUMENT, OUT_OF_RANGE, OVERFLOW, UNSUPPORTED, TOO_LARGE, OUT_OF_BLOCKS, BUSY, SUSPENDED,
// bad_alloc; if the first layer throws, no step has begun.
void append(Session& session, uint32_t layer, size_t n, const pkv_tensor* k, const pkv_tensor* v);

}  // namespace pkv
