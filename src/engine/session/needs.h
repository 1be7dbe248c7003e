// The blocks that a step takes from the pools. Batch and choose_victims() add them up in the same
// way.
#pragma once

#include <vector>

#include "engine/session/session.h"

namespace pkv {

struct Needs {
  explicit Needs(size_t groups) : blocks(groups) {}
  // Adds what `new_tokens` further tokens of a session need. Throws TOO_LARGE.
  void add(const Session& session, uint32_t new_tokens);
  // Adds `lacking` blocks of one group, with which the session can grow to `end` tokens. Throws
  // TOO_LARGE.
  void add(const Session& session, size_t group, uint64_t end, uint64_t lacking);

  std::vector<uint64_t> blocks;  // by group
  uint32_t watermark = 0;        // blocks to leave free; 0 unless a session begins
};

}  // namespace pkv
