// What a step takes from the pools.
#pragma once

#include <vector>

#include "engine/session/session.h"

namespace pkv {

struct Needs {
  explicit Needs(size_t groups) : blocks(groups) {}
  void add(const Session& session, uint32_t new_tokens);  // throws TOO_LARGE
  void add(const Session& session, size_t group, uint64_t end, uint64_t lacking);

  std::vector<uint64_t> blocks;  // by group
  uint32_t keep = 0;             // how many must stay free, because a session begins
};

}  // namespace pkv
