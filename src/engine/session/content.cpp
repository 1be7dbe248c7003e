// Forks contents, and checks all of them against the pools.
#include "engine/session/content.h"

#include <vector>

#include "base/status.h"

namespace pkv {

Content::Content(Cache& cache)
    : cache_(&cache), tokens_(&cache.memory()), tables_(&cache.memory()) {
  tables_.reserve(cache.groups().size());
  for (const auto& group : cache.groups())
    if (group->has_states())
      tables_.push_back(std::make_unique<memory::StateTable>(*group, cache.memory()));
    else
      tables_.push_back(std::make_unique<memory::KvTable>(*group, cache.memory()));
}

void Content::swap(Content& other) noexcept {
  std::swap(hold_, other.hold_);
  tokens_.swap(other.tokens_);
  std::swap(forgotten_from_, other.forgotten_from_);
  tables_.swap(other.tables_);
}

Content Content::fork() const {
  Content child(*cache_);
  append(child.tokens_, std::span<const int32_t>(tokens_));
  child.forgotten_from_ = forgotten_from_;
  for (size_t g = 0; g < tables_.size(); g++) child.tables_[g]->fork_from(table(g), length());
  child.hold_ = hold_.copy();
  return child;
}

void validate(const Cache& cache, std::span<const Content* const> contents) {
  std::vector<std::vector<uint64_t>> references;
  for (const auto& group : cache.groups()) references.emplace_back(group->pool.blocks());
  if (cache.prefix() != nullptr) cache.prefix()->validate(references);
  if (cache.pages() != nullptr) {
    cache.pages()->count_references(references);
    cache.pages()->validate();
  }
  for (size_t g = 0; g < cache.groups().size(); g++) {
    const memory::Pool& pool = cache.groups()[g]->pool;
    pool.validate();
    for (const Content* content : contents)
      content->table(g).validate(content->length(), content->forgotten_from(), references[g]);
    for (uint32_t id = 0; id < pool.blocks(); id++)
      if (references[g][id] != pool.references(id))
        fail(PKV_INTERNAL, "group %zu, block %u: the pool counts %u references, %llu are held", g,
             id, pool.references(id), llu(references[g][id]));
  }
}

}  // namespace pkv
