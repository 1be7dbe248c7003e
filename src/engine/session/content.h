// What a sequence holds, in all groups: its tokens and their K and V. A session changes it, a
// snapshot keeps it.
#pragma once

#include <span>

#include "engine/cache/cache.h"
#include "engine/memory/sequence.h"

namespace pkv {

class Content {
 public:
  explicit Content(Cache& cache);
  Content(Content&&) noexcept = default;
  void swap(Content& other) noexcept;  // of the same cache

  Cache& cache() const { return *cache_; }
  uint64_t length() const { return tokens_.size(); }
  const std::pmr::vector<int32_t>& tokens() const { return tokens_; }
  std::pmr::vector<int32_t>& tokens() { return tokens_; }
  std::span<memory::Sequence> sequences() { return sequences_; }
  std::span<const memory::Sequence> sequences() const { return sequences_; }

  // The claim on what the prefix index has of it; empty where the session does not use one.
  prefix::Index::Hold& hold() { return hold_; }
  const prefix::Index::Hold& hold() const { return hold_; }

  // visit(group, id, references) for every block held; the prefix index's reference is left out,
  // since it gives its blocks up when asked.
  template <class Visit>
  void each_block(const Visit& visit) const {
    const std::vector<std::vector<bool>> cached = cached_blocks();
    for (size_t g = 0; g < sequences_.size(); g++)
      for (size_t i = 0; i < sequences_[g].ids().size(); i++)
        if (const uint32_t id = sequences_[g].ids()[i]; id != PKV_NO_BLOCK)
          visit(g, id,
                sequences_[g].group().pool.references(id) -
                    (cached.empty() || !cached[g][i] ? 0 : 1));
  }

  // The same tokens again: shared blocks, or copies where storage is contiguous.
  Content fork() const;

 private:
  std::vector<std::vector<bool>> cached_blocks() const {
    return hold_ ? cache_->prefix()->held_with(hold_, sequences_)
                 : std::vector<std::vector<bool>>{};
  }

  Cache* cache_;
  // Declared before the blocks, so that it ends after them: then they are the index's alone.
  prefix::Index::Hold hold_;
  std::pmr::vector<int32_t> tokens_;
  std::pmr::vector<memory::Sequence> sequences_;  // one per group
};

// Throws INTERNAL with the equation that does not hold: every pool is sound, and its references are
// just those of the contents given (all there are).
void validate(const Cache& cache, std::span<const Content* const> contents);

}  // namespace pkv
