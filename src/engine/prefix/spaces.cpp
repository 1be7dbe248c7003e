#include "engine/prefix/spaces.h"

#include <utility>

namespace pkv::prefix {

BlockHash hash_before(const Node& node) noexcept {
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
    NodeHeap candidates(&Node::own_place, memory_);
    const auto entry =
        by_salt_
            .emplace(std::pmr::string(salt, &memory_),
                     Space{root, {}, hasher_.salt(salt), std::move(candidates), default_quota_})
            .first;
    Space& made = entry->second;
    made.salt = entry->first;
    root.space = &made;
    return made;
  } catch (...) {
    tree_.drop_root(root);
    throw;
  }
}

void Spaces::drop_if_empty(Space& space) noexcept {
  if (space.root.users > 0 || !space.root.children.empty() || space.has_own_quota) return;
  tree_.drop_root(space.root);
  by_salt_.erase(by_salt_.find(space.salt));
}

void Spaces::count(Space& space, Count Figures::* figure, uint64_t more) noexcept {
  for (Figures* const figures : {&space.figures, &total_}) figures->*figure += more;
}

}  // namespace pkv::prefix
