// How blocks come into the index and how they leave it.
#include <algorithm>
#include <utility>

#include "engine/prefix/index.h"

namespace pkv {

// ---- Publishing -----------------------------------------------------------------------------------------------------

void PrefixIndex::publish(Hold& hold, Tokens text, std::span<Sequence> sequences, bool wait) noexcept {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (wait)
    lock.lock();
  else if (!lock.try_lock())
    return;
  try {
    policy_.reserve(nodes_ + 2);
    const size_t whole = text.size() / tree_.block_size();
    while (hold.depth_ < whole) {
      const Tokens rest = text.subspan(size_t{hold.depth_} * tree_.block_size(), (whole - hold.depth_) * tree_.block_size());
      const Tree::Match found = tree_.find(*hold.node_, rest);
      if (found.whole > 0)
        take_over(hold, split(*found.node, found.inside), sequences);
      else
        store(hold, rest, sequences);
    }
  } catch (const std::bad_alloc&) {
    // What is missing is tried again when more is published.
  }
}

// Another session has cached the same text: one copy is enough, and the older one stays.
void PrefixIndex::take_over(Hold& hold, Node& end, std::span<Sequence> sequences) noexcept {
  const uint32_t from = hold.depth_;
  move(hold, end);
  for (Node* node = &end; node->end() > from; node = node->parent) {
    for (uint32_t i = 0; i < node->size; i++) {
      const std::span<Block> cached = tree_.blocks_at(*node, i);
      for (size_t g = 0; g < cached.size(); g++) {
        const Block own = sequences[g].blocks()[node->start + i];
        if (own == cached[g] || own == no_block) continue;
        if (cached[g] == no_block) {
          if (groups_[g]->pool.retain(own) == PKV_OK) cached[g] = own;  // a window that the index had let go
        } else if (groups_[g]->pool.retain(cached[g]) == PKV_OK) {
          sequences[g].replace(node->start + i, cached[g]);
        }
      }
    }
  }
  let_windows_go(end);
}

void PrefixIndex::store(Hold& hold, Tokens text, std::span<Sequence> sequences) {
  const uint32_t count = static_cast<uint32_t>(text.size() / tree_.block_size()), from = hold.depth_;
  std::vector<Block> blocks(size_t{count} * groups_.size());
  for (size_t i = 0; i < blocks.size(); i++) blocks[i] = sequences[i % groups_.size()].blocks()[from + i / groups_.size()];
  for (size_t i = 0; i < blocks.size(); i++)
    if (blocks[i] != no_block && groups_[i % groups_.size()]->pool.retain(blocks[i]) != PKV_OK) blocks[i] = no_block;
  Node& node = *hold.node_;
  try {
    // A node of our own that nobody else ever used grows; others get a child.
    if (node.parent != nullptr && node.children.empty() && node.users == 1 && node.uses == 0) {
      tree_.extend(node, text, blocks);
      hold.depth_ = node.end();
    } else {
      Node& child = tree_.add_child(node, text, blocks);
      nodes_++;
      child.users = 1;  // the hold moves down to it: the path above stays in use
      hold.node_ = &child;
      hold.depth_ = child.end();
    }
  } catch (...) {
    for (size_t i = 0; i < blocks.size(); i++)
      if (blocks[i] != no_block) groups_[i % groups_.size()]->pool.release(blocks[i]);
    throw;
  }
  PrefixFigures& figures = hold.space_->figures;
  figures.published += count;
  figures.cached += count;
  let_windows_go(*hold.node_);
}

// Of a window group only the last window before a node's end, and the sinks, can be of use.
void PrefixIndex::let_windows_go(Node& node) noexcept {
  for (size_t g = 0; g < groups_.size(); g++) {
    const Shape& shape = groups_[g]->shape;
    if (shape.window == 0) continue;
    const uint64_t window = groups_[g]->blocks_for(shape.window), sinks = groups_[g]->blocks_for(shape.sinks);
    for (uint64_t i = node.end() - std::min<uint64_t>(node.end(), window); i > std::max<uint64_t>(node.start, sinks); i--) {
      Block& block = node.blocks[(i - 1 - node.start) * groups_.size() + g];
      if (block == no_block) break;
      groups_[g]->pool.release(std::exchange(block, no_block));
    }
  }
}

// ---- Eviction -------------------------------------------------------------------------------------------------------

bool PrefixIndex::make_free(size_t group, uint64_t blocks) noexcept {
  const std::lock_guard lock(mutex_);
  const Pool& pool = groups_[group]->pool;
  if (pool.free_count() + evictable_[group] < blocks) return false;
  while (pool.free_count() < blocks) {
    Node* const victim = policy_.victim();
    if (victim == nullptr) return false;
    evict_last(*victim);
  }
  return true;
}

void PrefixIndex::evict_last(Node& node) noexcept {
  const std::span<Block> blocks = tree_.blocks_at(node, node.size - 1);
  for (size_t g = 0; g < blocks.size(); g++) {
    if (blocks[g] == no_block) continue;
    evictable_[g]--;
    groups_[g]->pool.release(blocks[g]);
  }
  Space& space = space_of(node);
  space.figures.evicted++;
  space.figures.cached--;
  space.figures.evictable--;
  if (node.size == 1) policy_.remove(node), nodes_--;
  Node& left = tree_.drop_last(node);
  if (&left == &node) return;
  if (left.is_candidate()) policy_.add(left);
  if (left.parent == nullptr) drop_if_empty(space);
}

uint64_t PrefixIndex::evictable(size_t group) const {
  const std::lock_guard lock(mutex_);
  return evictable_[group];
}

std::vector<std::vector<bool>> PrefixIndex::held_with(const Hold& hold, std::span<const Sequence> sequences) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::vector<bool>> held;
  for (size_t g = 0; g < groups_.size(); g++) {
    const std::vector<Block> cached = hold.index_ != nullptr ? path(*hold.node_, g) : std::vector<Block>{};
    held.emplace_back(sequences[g].blocks().size());
    for (size_t i = 0; i < cached.size() && i < held[g].size(); i++) held[g][i] = cached[i] == sequences[g].blocks()[i];
  }
  return held;
}

void PrefixIndex::clear(const std::string_view* salt) noexcept {
  const std::lock_guard lock(mutex_);
  if (salt == nullptr) {
    while (Node* const victim = policy_.victim()) evict_last(*victim);
    return;
  }
  const auto found = spaces_.find(*salt);
  if (found == spaces_.end()) return;
  const void* const owner = &found->second;
  for (;;) {
    const auto candidates = policy_.candidates();
    const auto own = std::find_if(candidates.begin(), candidates.end(), [&](const Node* node) { return node->owner == owner; });
    if (own == candidates.end()) return;
    evict_last(**own);
  }
}

}  // namespace pkv
