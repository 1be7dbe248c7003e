// What a sequence holds, in all groups: its tokens and their K and V. A session changes it, a snapshot keeps it.
#pragma once

#include <span>

#include "engine/cache.h"
#include "engine/memory/sequence.h"

namespace pkv {

class Content {
 public:
  explicit Content(Cache& cache);
  Content(Content&&) noexcept = default;

  Cache& cache() const { return *cache_; }
  uint64_t length() const { return tokens_.size(); }
  const std::pmr::vector<int32_t>& tokens() const { return tokens_; }
  std::pmr::vector<int32_t>& tokens() { return tokens_; }
  std::span<Sequence> sequences() { return sequences_; }
  std::span<const Sequence> sequences() const { return sequences_; }

  // The same tokens again: shared blocks, or copies where storage is contiguous.
  Content fork() const;

 private:
  Cache* cache_;
  std::pmr::vector<int32_t> tokens_;
  std::pmr::vector<Sequence> sequences_;  // one per group
};

// Throws INTERNAL with the equation that does not hold: every pool is sound, and its references are just those of the
// contents given (all there are).
void validate(const Cache& cache, std::span<const Content* const> contents);

}  // namespace pkv
