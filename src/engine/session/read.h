// Copies what a session has of one layer to the caller's memory.
#pragma once

#include "engine/session/session.h"

namespace pkv {

// Copies K and V of positions [first, first + n) to the caller's rows; k or v may be NULL. Throws
// OUT_OF_RANGE, UNSUPPORTED, INVALID_ARGUMENT, OVERFLOW.
void read_rows(const Session& session, uint32_t layer, uint64_t first, size_t n,
               const pkv_tensor* k, const pkv_tensor* v);

// Copies the state after `tokens` tokens. Throws OUT_OF_RANGE if it is not held, UNSUPPORTED,
// INVALID_ARGUMENT if it has another size.
void read_state(const Session& session, uint32_t layer, uint64_t tokens,
                std::span<unsigned char> out);

}  // namespace pkv
