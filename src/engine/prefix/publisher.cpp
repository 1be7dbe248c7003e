#include "engine/prefix/publisher.h"

#include <new>

namespace pkv::prefix {

void Publisher::publish(Use& use, Tokens text, memory::Tables tables) {
  const uint32_t block_size = data_.block_size();
  const size_t whole = text.size() / block_size;
  uses_.review_some(whole - use.depth);
  while (use.depth < whole) {
    const Tokens rest =
        text.subspan(size_t{use.depth} * block_size, (whole - use.depth) * block_size);
    const Tree::Found found = data_.tree.find(*use.node, rest);
    if (found.whole > 0) {
      take_over(use, uses_.split(*found.node, found.inside), tables);
    } else {
      const uint64_t room = eviction_.make_room_in_quota(*use.space, whole - use.depth);
      if (room == 0) return;
      store(use, rest.first(room * block_size), tables);
    }
  }
}

// Another session has cached the same text. One copy is enough, and the older one stays.
void Publisher::take_over(Use& use, Node& end, memory::Tables tables) noexcept {
  const uint32_t from = use.depth;
  uses_.move(use, end);
  for (Node* node = &end; node->end() > from; node = node->parent) {
    for (uint32_t i = 0; i < node->size; i++) {
      const std::span<memory::Block> cached = node->blocks_at(node->start + i);
      bool filled = false;
      for (size_t g = 0; g < cached.size(); g++) {
        memory::Pool& pool = data_.groups[g]->pool;
        const memory::Block own = tables[g]->blocks()[node->start + i];
        if (own == cached[g] || own == memory::no_block) continue;
        if (cached[g] == memory::no_block) {  // a window group had let it go
          if (!retain(g, own)) continue;
          cached[g] = own;
          data_.blocks.add(g, own, *node, node->start + i, false);
          filled = true;
        } else if (pool.retain(cached[g]) == PKV_OK) {
          data_.blocks.share(g, cached[g]);
          tables[g]->replace(node->start + i, cached[g]);
        }
      }
      if (filled) data_.record_changes(*node, i, i, PKV_PREFIX_EVENT_EVICTED);
    }
  }
}

// Stores new blocks in runs of the same history.
void Publisher::store(Use& use, Tokens text, memory::Tables tables) {
  const uint32_t block_size = data_.block_size();
  const size_t count = text.size() / block_size;
  hashes_.resize(count);
  histories_.assign(count, {});
  const Node& end = *use.node;
  data_.hasher.blocks(text, end.parent != nullptr ? end.hashes.back() : use.space->hash, hashes_);
  data_.policy->inserted(hashes_, histories_);
  for (size_t first = 0, last = 0; first < count; first = last) {
    while (last < count && histories_[last] == histories_[first]) last++;
    uses_.reserve_node(*use.space);
    store_run(use,
              {text.subspan(first * block_size, (last - first) * block_size),
               {},
               std::span(hashes_).subspan(first, last - first),
               histories_[first]},
              tables);
  }
}

void Publisher::store_run(Use& use, Tree::NewBlocks run, memory::Tables tables) {
  const size_t groups = data_.groups.size();
  const uint32_t from = use.depth;
  blocks_.assign(run.hashes.size() * groups, memory::no_block);
  run.blocks = blocks_;
  Node& node = *use.node;
  try {
    retain_run(use, tables);
    // A node that only this use ever had is extended; any other node gets a child. So does one of a
    // higher retention, which a hint gave to the blocks that were there.
    if (node.parent != nullptr && node.children.empty() && node.users == 1 && node.matches == 0 &&
        node.retention == 0 && node.history == run.history) {
      data_.tree.extend(node, run);
      use.depth = node.end();
    } else {
      Node& child = data_.tree.add_child(node, run);
      data_.count_node(*use.space);
      child.users = 1;  // the use moves down to it: the path above stays in use
      use.node = &child;
      use.depth = child.end();
    }
  } catch (...) {
    for (size_t i = 0; i < blocks_.size(); i++)
      if (blocks_[i] != memory::no_block) data_.groups[i % groups]->pool.release(blocks_[i]);
    throw;
  }
  data_.spaces.count(*use.space, &Figures::published, run.hashes.size());
  data_.spaces.count(*use.space, &Figures::cached, run.hashes.size());
  Node& stored = *use.node;
  for (uint32_t position = from; position < stored.end(); position++)
    for (size_t g = 0; g < groups; g++)
      if (const memory::Block block = stored.blocks_at(position)[g]; block != memory::no_block)
        data_.blocks.add(g, block, stored, position, run.hashes.size() == 1);
  data_.blocks.extended(stored, from);
  data_.record_changes(stored, from - stored.start, stored.size - 1, PKV_PREFIX_EVENT_EVICTED);
}

// Fills blocks_ with the blocks of the tables beyond the use, and retains each. Throws bad_alloc if
// one cannot be stored now; blocks_ then has those that were retained.
void Publisher::retain_run(Use& use, memory::Tables tables) {
  uint32_t position = use.depth;
  for (auto to = blocks_.begin(); to != blocks_.end(); position++)
    for (size_t g = 0; g < tables.size(); g++, to++) {
      const memory::Block block = tables[g]->blocks()[position];
      if (block == memory::no_block) continue;
      if (!retain(g, block)) throw std::bad_alloc();
      *to = block;
    }
}

// Takes a reference to a block that the index does not have yet. It may have it under another text:
// sessions can share blocks whose token ids are unknown, and then set different ids. Returns false
// in that case, and if the block has too many references.
bool Publisher::retain(size_t group, memory::Block block) noexcept {
  return !data_.blocks.has(group, block) && data_.groups[group]->pool.retain(block) == PKV_OK;
}

}  // namespace pkv::prefix
