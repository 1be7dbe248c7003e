// The most that any policy could find.
#pragma once

#include "blocks.h"

namespace pkv::serve {

Saved find_bound(const Blocks& blocks, uint64_t capacity);

}  // namespace pkv::serve
