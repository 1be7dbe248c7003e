// Blocks that a step, or a session, takes from the pools of a cache: all or none. Nobody owns them
// yet: what is not handed on is given back.
#pragma once

#include <span>
#include <vector>

#include "engine/cache/cache.h"

namespace pkv {

class Reservation {
 public:
  // counts[g] blocks of group g; where some are needed, keep more stay free. Throws OUT_OF_BLOCKS
  // (and then sets *short_by, unless NULL), TOO_LARGE, bad_alloc.
  Reservation(Cache& cache, std::span<const uint64_t> counts, uint32_t keep, uint64_t* short_by,
              const char* who);
  ~Reservation() { give_back(); }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  // The next n blocks of a group; pass() says that they have an owner now.
  std::span<const memory::Block> next(size_t group, uint64_t n) const {
    return std::span(blocks_[group]).subspan(passed_[group], n);
  }
  bool spent(size_t group) const { return passed_[group] == blocks_[group].size(); }
  void pass(size_t group, uint64_t n) { passed_[group] += n; }

 private:
  void give_back() noexcept;

  Cache& cache_;
  std::vector<std::vector<memory::Block>> blocks_;
  std::vector<size_t> passed_;
};

}  // namespace pkv
