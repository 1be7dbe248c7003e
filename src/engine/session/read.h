// Copies what a session has of one layer to the caller's memory.
#pragma once

#include "engine/session/session.h"

namespace pkv {

// Returns the task that copies K and V of positions [first, first + n) to the caller's rows; k or v
// may be NULL. It is valid until the session changes. Throws OUT_OF_RANGE, UNSUPPORTED,
// INVALID_ARGUMENT, OVERFLOW.
kernels::CopyTask check_read(const Session& session, uint32_t layer, uint64_t first, size_t n,
                             const pkv_tensor* k, const pkv_tensor* v);
// Runs a task of this layer.
void read_rows(const Session& session, uint32_t layer, const kernels::CopyTask& task);

// Copies the state after `tokens` tokens. Throws OUT_OF_RANGE if it is not held, UNSUPPORTED,
// INVALID_ARGUMENT if it has another size.
void read_state(const Session& session, uint32_t layer, uint64_t tokens,
                std::span<unsigned char> out);

}  // namespace pkv
