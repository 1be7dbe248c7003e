#include "engine/prefix/spaces.h"

#include <algorithm>
#include <utility>

#include "engine/prefix/hash.h"
#include "engine/prefix/ordered_policy.h"

namespace pkv::prefix {

void Figures::add(const Figures& other) {
  matches += other.matches;
  asked_tokens += other.asked_tokens;
  matched_tokens += other.matched_tokens;
  matched_blocks += other.matched_blocks;
  published += other.published;
  evicted += other.evicted;
  expelled += other.expelled;
  cleared += other.cleared;
  cached += other.cached;
  evictable += other.evictable;
  pinned += other.pinned;
}

uint64_t hash_before(const Node& node) noexcept {
  return node.parent->parent != nullptr ? node.parent->hashes.back() : space_of(node).hash;
}

Space* Spaces::find(std::string_view salt) noexcept {
  const auto found = by_salt_.find(salt);
  return found != by_salt_.end() ? &found->second : nullptr;
}

const Space* Spaces::find(std::string_view salt) const noexcept {
  const auto found = by_salt_.find(salt);
  return found != by_salt_.end() ? &found->second : nullptr;
}

Space& Spaces::at(std::string_view salt) {
  if (Space* const known = find(salt)) return *known;
  Node& root = tree_.new_root();
  try {
    NodeHeap own(used_longer_ago, &Node::own_place, memory_);
    Space& made = by_salt_
                      .emplace(std::pmr::string(salt, &memory_),
                               Space{root, hash_salt(salt), std::move(own), default_quota_})
                      .first->second;
    root.owner = &made;
    return made;
  } catch (...) {
    tree_.drop_root(root);
    throw;
  }
}

Spaces::Map::const_iterator Spaces::entry_of(const Space& space) const noexcept {
  return std::find_if(by_salt_.begin(), by_salt_.end(),
                      [&](const auto& each) { return &each.second == &space; });
}

std::string_view Spaces::salt_of(const Space& space) const noexcept {
  return entry_of(space)->first;
}

void Spaces::drop_if_empty(Space& space) noexcept {
  if (space.root.users > 0 || !space.root.children.empty() || space.own_quota) return;
  dropped_.add(space.figures);
  tree_.drop_root(space.root);
  by_salt_.erase(entry_of(space));
}

Figures Spaces::total() const noexcept {
  Figures sum = dropped_;
  for (const auto& [salt, space] : by_salt_) sum.add(space.figures);
  return sum;
}

}  // namespace pkv::prefix
