// Chooses the sessions that a scheduler should suspend so that a step gets its blocks.
#pragma once

#include <span>
#include <vector>

#include "engine/session/session.h"

namespace pkv {

// Returns indices of sessions to suspend. The first new_tokens.size() sessions are those of the
// step, the others are candidates only; a batch of the step's sessions that are not among the
// victims then gets its blocks. Sessions with the lowest priority go first, among equals the one
// opened last, and the session that would go last always stays. If not even all others suffice, the
// batch also takes what the store and pins hold. Changes nothing. Throws OUT_OF_BLOCKS (not even
// all of that suffices), TOO_LARGE, SUSPENDED, BUSY, bad_alloc.
std::vector<size_t> choose_victims(Cache& cache, std::span<Session* const> sessions,
                                   std::span<const uint32_t> new_tokens);

}  // namespace pkv
