// The tokens of one sequence and their K and V in all layer groups. This is a class of its own
// because a session changes it, a snapshot keeps it and a store writes it.
#pragma once

#include <span>

#include "base/vectors.h"
#include "engine/cache/cache.h"
#include "engine/memory/kv_table.h"
#include "engine/memory/state_table.h"

namespace pkv {

class Content {
 public:
  // Empty, without a hold on the prefix index. Throws bad_alloc.
  explicit Content(Cache& cache);
  Content(Content&&) noexcept = default;
  // Both must belong to the same cache.
  void swap(Content& other) noexcept;

  Cache& cache() const { return *cache_; }
  uint64_t length() const { return tokens_.size(); }
  const NumberVector<int32_t>& tokens() const { return tokens_; }
  NumberVector<int32_t>& tokens() { return tokens_; }
  size_t groups() const { return tables_.size(); }
  // The block tables, one per layer group.
  memory::Tables tables() { return tables_; }
  const memory::BlockTable& table(size_t group) const { return *tables_[group]; }
  // The same, of a group of keys and values, and of a group of states.
  const memory::KvTable& kv_table(size_t group) const {
    return static_cast<const memory::KvTable&>(*tables_[group]);
  }
  const memory::StateTable& state_table(size_t group) const {
    return static_cast<const memory::StateTable&>(*tables_[group]);
  }

  // The hold on the path of the prefix index that has these tokens. It is empty for a session that
  // does not use the index.
  prefix::Hold& hold() { return hold_; }
  const prefix::Hold& hold() const { return hold_; }

  // What a forecast needs to know of the blocks that the content references.
  prefix::ReleasableContent releasable() const { return {hold_.end(), hold_.tail(), tables_}; }

  // The first position that was dropped while the session had it; UINT64_MAX: none. Other texts
  // cannot share what comes after it: its tokens were computed without the dropped ones.
  uint64_t forgotten_from() const { return forgotten_from_; }
  void set_forgotten_from(uint64_t position) { forgotten_from_ = position; }

  // Calls visit(group, entry, references) for every block held, by its place in the block table. A
  // reference of the prefix index is not counted unless a pin keeps it, since the index releases
  // its other blocks when they are needed. Spare blocks are in no table, and not visited.
  template <class Visit>
  void for_each_block(const Visit& visit) const {
    const std::vector<std::vector<bool>> cached = cached_blocks();
    for (size_t g = 0; g < tables_.size(); g++)
      for (size_t i = 0; i < table(g).ids().size(); i++)
        if (const uint32_t id = table(g).ids()[i]; id != PKV_NO_BLOCK_ID)
          visit(g, i,
                table(g).group().pool.references(id) - (cached.empty() || !cached[g][i] ? 0 : 1));
  }

  // Returns a second content with the same tokens and blocks. Throws LIMIT_REACHED, bad_alloc.
  Content fork() const;

 private:
  // Returns, by group and position, true where the prefix index also has a reference and releases
  // it when the block is needed. Empty without a hold.
  std::vector<std::vector<bool>> cached_blocks() const {
    return hold_ ? cache_->prefix()->has_unpinned(tables_) : std::vector<std::vector<bool>>{};
  }

  Cache* cache_;
  // This member comes before the tables, so that it is destroyed after they have released their
  // blocks: the index then has the only references and can count the blocks as evictable.
  prefix::Hold hold_;
  NumberVector<int32_t> tokens_;
  uint64_t forgotten_from_ = UINT64_MAX;
  std::pmr::vector<std::unique_ptr<memory::BlockTable>> tables_;
};

// What a session has besides its content. Forks, snapshots and files carry all of it on, so that no
// copy does what its original must not do.
struct Attributes {
  int32_t priority = 0;
  bool publishes = true;  // full blocks go into the prefix index if the content has a hold on it
};

// Checks every pool, and that `contents` and the prefix index hold all of its references; so
// `contents` must be all contents of the cache. Throws INTERNAL with the first equation that does
// not hold.
void validate(const Cache& cache, std::span<const Content* const> contents);

}  // namespace pkv
