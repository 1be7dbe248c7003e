// Which sessions a scheduler should suspend so that a step gets its blocks.
#pragma once

#include <span>
#include <vector>

#include "engine/session/session.h"

namespace pkv {

// Indices of sessions to suspend so that begin() with what is left of the list works; the first
// new_tokens.size() sessions are that list, the others are candidates only. Lowest priority first,
// of those the one opened last; the first in rank stays. Throws OUT_OF_BLOCKS, TOO_LARGE,
// SUSPENDED, BUSY.
std::vector<size_t> choose_victims(Cache& cache, std::span<Session* const> sessions,
                                   std::span<const uint32_t> new_tokens);

}  // namespace pkv
