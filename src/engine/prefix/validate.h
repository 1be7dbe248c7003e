// The equations that hold in every prefix index between calls.
#pragma once

#include <vector>

#include "engine/prefix/contents.h"

namespace pkv::prefix {

// Checks the equations, and adds the references that the index holds by group and block id. Throws
// INTERNAL with the first that does not hold.
void validate(const Contents& contents, uint64_t pinned_blocks,
              std::span<std::vector<uint64_t>> references);

}  // namespace pkv::prefix
