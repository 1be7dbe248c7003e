// Steps of one session that the caller drives layer by layer, without a batch. The first layer that
// it gives begins the step, the last one that was missing commits it.
#pragma once

#include "engine/session/session.h"

namespace pkv {

// Replaces all that the session holds by n tokens. Throws before anything is lost.
void prefill(Session& session, uint32_t layer, size_t n, const pkv_tensor* k, const pkv_tensor* v);

// Appends one token.
void push(Session& session, uint32_t layer, const pkv_tensor* k, const pkv_tensor* v);

}  // namespace pkv
