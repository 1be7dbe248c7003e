#include "engine/prefix/matcher.h"

#include <algorithm>

#include "engine/memory/coverage.h"

namespace pkv::prefix {

Match Matcher::find(const Space& space, Tokens text) const {
  const Tree::Found found = data_.tree.find(space.root, text);
  Match match{found, data_.removals, 0, sparse_paths(*found.node), Path(&memory_)};
  match.depth = usable_beginning(match.paths, found.whole);
  for (size_t g = 0; g < match.paths.size(); g++) {
    if (!data_.blocks.sparse(g)) read_path(*found.node, g, match.paths[g]);
    match.paths[g].resize(match.depth);
    hide_before_window(match.paths[g], g);
  }
  if (match.depth == found.whole) match.tail = find_tail(found);
  return match;
}

std::span<const memory::Block> Matcher::take(const Match& match, Use& use, memory::Tables tables) {
  Node& end = uses_.end_after(match.found, match.depth);
  if (!match.tail.empty()) uses_.attach_tail(use, *match.found.next, 0);
  retain(match, true, tables);
  uses_.move(use, end);
  for (Node* node = &end; node->parent != nullptr; node = node->parent)
    node->matches += node->matches < UINT32_MAX;
  if (share_tail(match)) return match.tail;
  uses_.detach_tail(use);
  return {};
}

void Matcher::retain(const Match& match, bool sparse, memory::Tables tables) const {
  for (size_t g = 0; g < tables.size(); g++) {
    if (data_.blocks.sparse(g) != sparse) continue;
    const Path& path = match.paths[g];
    memory::retain_table(*data_.groups[g], path);
    tables[g]->append(path);
    if (!sparse) continue;  // a used node of a full group counts nothing block by block
    for (const memory::Block block : path)
      if (block != memory::no_block) data_.blocks.share(g, block);
  }
}

uint32_t Matcher::usable(const Tree::Found& found) const {
  return usable_beginning(sparse_paths(*found.node), found.whole);
}

// The paths of sparse groups; those of other groups are empty.
Matcher::Paths Matcher::sparse_paths(const Node& end) const {
  Paths paths(data_.groups.size(), &memory_);
  for (size_t g = 0; g < paths.size(); g++)
    if (data_.blocks.sparse(g)) read_path(end, g, paths[g]);
  return paths;
}

uint32_t Matcher::usable_beginning(const Paths& paths, uint32_t depth) const {
  return static_cast<uint32_t>(memory::longest_usable(
      data_.groups, depth,
      [&](uint64_t position, size_t group) { return paths[group][position] != memory::no_block; }));
}

void Matcher::read_path(const Node& end, size_t group, Path& path) const {
  path.resize(end.end());
  for (const Node* node = &end; node->parent != nullptr; node = node->parent)
    for (uint32_t i = node->start; i < node->end(); i++) path[i] = node->blocks_at(i)[group];
}

// A session that begins in the middle of a text gets of a window group what its next token sees.
void Matcher::hide_before_window(Path& path, size_t group) const {
  const memory::Coverage coverage(*data_.groups[group]);
  for (size_t i = coverage.sinks; i < path.size() && !coverage.needs(i, path.size()); i++)
    path[i] = memory::no_block;
}

// Returns the block after what was found, by group, if a session can share it for the tokens with
// which it begins.
Matcher::Path Matcher::find_tail(const Tree::Found& found) const {
  Path tail(&memory_);
  const auto has_states = [](const auto& group) { return group->has_states(); };
  if (found.common == 0 || std::any_of(data_.groups.begin(), data_.groups.end(), has_states))
    return tail;
  const uint32_t inside = found.next == found.node ? found.inside : 0;
  const std::span<const memory::Block> blocks = found.next->blocks_at(found.next->start + inside);
  if (std::find(blocks.begin(), blocks.end(), memory::no_block) == blocks.end())
    tail.assign(blocks.begin(), blocks.end());
  return tail;
}

// Takes a reference to each block of a tail; returns false if there is none, or if a block has too
// many.
bool Matcher::share_tail(const Match& match) const noexcept {
  for (size_t g = 0; g < match.tail.size(); g++) {
    if (data_.groups[g]->pool.retain(match.tail[g]) == PKV_OK) continue;
    while (g-- > 0) data_.groups[g]->pool.release(match.tail[g]);
    return false;
  }
  if (match.tail.empty()) return false;
  for (size_t g = 0; g < match.tail.size(); g++) data_.blocks.share(g, match.tail[g]);
  return true;
}

}  // namespace pkv::prefix
