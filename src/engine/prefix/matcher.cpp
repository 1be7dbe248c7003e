#include "engine/prefix/matcher.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "engine/memory/coverage.h"

namespace pkv::prefix {

Match Matcher::find(const Space& space, Tokens text) const {
  const Tree::Found match = data_.tree.find(space.root, text);
  Match found{match, data_.removals, 0, window_paths(*match.node)};
  found.depth = usable_beginning(found.paths, match.whole);
  for (size_t g = 0; g < found.paths.size(); g++) {
    if (!data_.blocks.sparse(g)) read_path(*match.node, g, found.paths[g]);
    found.paths[g].resize(found.depth);
    hide_before_window(found.paths[g], g);
  }
  return found;
}

void Matcher::take(const Match& found, Use& use, Tail* tail) {
  Tail part;
  if (tail != nullptr && found.depth == found.match.whole)
    find_tail(found.match, part);  // before a split moves it
  Node& end = uses_.end_after(found.match, found.depth);
  retain_paths(found, true);
  for (size_t g = 0; g < found.paths.size(); g++) {
    if (!data_.blocks.sparse(g)) continue;
    for (const memory::Block block : found.paths[g])
      if (block != memory::no_block) data_.blocks.share(g, block);
  }
  uses_.move(use, end);
  for (Node* node = &end; node->parent != nullptr; node = node->parent)
    node->matches += node->matches < UINT32_MAX;
  retain(part);
  if (tail != nullptr) *tail = std::move(part);
}

void Matcher::retain(const Match& found) const {
  try {
    retain_paths(found, false);
  } catch (...) {
    release_paths(found, true, found.paths.size());
    throw;
  }
}

uint32_t Matcher::usable(const Tree::Found& found) const {
  return usable_beginning(window_paths(*found.node), found.whole);
}

// The paths of window groups; those of other groups are empty.
Matcher::Paths Matcher::window_paths(const Node& end) const {
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

// Retains the blocks of window groups, or of all others.
void Matcher::retain_paths(const Match& found, bool of_windows) const {
  for (size_t g = 0; g < found.paths.size(); g++) {
    if (data_.blocks.sparse(g) != of_windows) continue;
    memory::Pool& pool = data_.groups[g]->pool;
    size_t failed;
    if (pool.retain_table(found.paths[g], &failed) == PKV_OK) continue;
    release_paths(found, of_windows, g);
    const uint32_t id = memory::block_id(found.paths[g][failed]);
    fail(PKV_REF_LIMIT, "block %u has %u references, which is the limit", id, pool.references(id));
  }
}

// Takes back what retain_paths() did in the first `groups` groups.
void Matcher::release_paths(const Match& found, bool of_windows, size_t groups) const noexcept {
  for (size_t g = 0; g < groups; g++)
    if (data_.blocks.sparse(g) == of_windows) data_.groups[g]->pool.release_table(found.paths[g]);
}

void Matcher::find_tail(const Tree::Found& found, Tail& tail) const {
  if (found.common == 0) return;
  const auto has_states = [](const auto& group) { return group->has_states(); };
  if (std::any_of(data_.groups.begin(), data_.groups.end(), has_states)) return;
  const uint32_t inside = found.next == found.node ? found.inside : 0;
  const std::span<const memory::Block> blocks = found.next->blocks_at(found.next->start + inside);
  if (std::find(blocks.begin(), blocks.end(), memory::no_block) != blocks.end()) return;
  tail.blocks.assign(blocks.begin(), blocks.end());
  tail.tokens = found.common;
  tail.node = found.next;
}

// Holds the tail until it is copied. If its node was split since, the node begins with the tail
// now.
void Matcher::retain(Tail& tail) noexcept {
  for (size_t g = 0; g < tail.blocks.size(); g++) {
    if (data_.groups[g]->pool.retain(tail.blocks[g]) == PKV_OK) continue;
    while (g-- > 0) data_.groups[g]->pool.release(tail.blocks[g]);
    tail = {};
    return;
  }
  for (size_t g = 0; g < tail.blocks.size(); g++) data_.blocks.share(g, tail.blocks[g]);
  if (tail.node != nullptr) uses_.attach(*tail.node);
}

void Matcher::release(Tail& tail) noexcept {
  for (size_t g = 0; g < tail.blocks.size(); g++) data_.groups[g]->pool.release(tail.blocks[g]);
  uses_.detach(*tail.node, false);
  tail = {};
}

}  // namespace pkv::prefix
