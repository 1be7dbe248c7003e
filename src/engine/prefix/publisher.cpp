#include "engine/prefix/publisher.h"

#include <algorithm>
#include <utility>

namespace pkv::prefix {

void Publisher::publish(Claim& claim, Tokens text, std::span<memory::Sequence> sequences) {
  claims_.reserve_node(*claim.space);
  const uint32_t block_size = contents_.block_size();
  const size_t whole = text.size() / block_size;
  while (claim.depth < whole) {
    const Tokens rest =
        text.subspan(size_t{claim.depth} * block_size, (whole - claim.depth) * block_size);
    const Tree::Match found = contents_.tree.find(*claim.node, rest);
    if (found.whole > 0) {
      take_over(claim, claims_.split(*found.node, found.inside), sequences);
    } else {
      const uint64_t room = eviction_.make_room_in_quota(*claim.space, whole - claim.depth);
      if (room == 0) return;
      store(claim, rest.first(room * block_size), sequences);
    }
  }
}

// Another session has cached the same text. One copy is enough, and the older one stays.
void Publisher::take_over(Claim& claim, Node& end, std::span<memory::Sequence> sequences) noexcept {
  const uint32_t from = claim.depth;
  claims_.move(claim, end);
  for (Node* node = &end; node->end() > from; node = node->parent) {
    for (uint32_t i = 0; i < node->size; i++) {
      const std::span<memory::Block> cached = node->blocks_at(node->start + i);
      bool filled = false;
      for (size_t g = 0; g < cached.size(); g++) {
        memory::Pool& pool = contents_.groups[g]->pool;
        const memory::Block own = sequences[g].blocks()[node->start + i];
        if (own == cached[g] || own == memory::no_block) continue;
        if (cached[g] == memory::no_block) {  // a window group had let it go
          if (!retain(g, own)) continue;
          cached[g] = own;
          contents_.blocks.add(g, own, *node, node->start + i, false);
          filled = true;
        } else if (pool.retain(cached[g]) == PKV_OK) {
          contents_.blocks.share(g, cached[g]);
          sequences[g].replace(node->start + i, cached[g]);
        }
      }
      if (filled) contents_.record_changes(*node, i, i, PKV_PREFIX_EVICTED);
    }
  }
}

// Stores new blocks in runs of the same history.
void Publisher::store(Claim& claim, Tokens text, std::span<memory::Sequence> sequences) {
  const uint32_t block_size = contents_.block_size();
  const size_t count = text.size() / block_size;
  hashes_.resize(count);
  histories_.assign(count, {});
  const Node& end = *claim.node;
  contents_.hasher.blocks(text, end.parent != nullptr ? end.hashes.back() : claim.space->hash,
                          hashes_);
  contents_.policy->inserted(hashes_, histories_);
  const std::span<const History> histories = histories_;
  for (size_t first = 0, last = 0; first < count; first = last) {
    const auto differs = [&](const History& history) { return history != histories[first]; };
    last = static_cast<size_t>(std::find_if(histories.begin() + static_cast<std::ptrdiff_t>(first),
                                            histories.end(), differs) -
                               histories.begin());
    claims_.reserve_node(*claim.space);
    store_run(claim,
              {text.subspan(first * block_size, (last - first) * block_size),
               {},
               std::span(hashes_).subspan(first, last - first),
               histories[first]},
              sequences);
  }
}

void Publisher::store_run(Claim& claim, Tree::Run run, std::span<memory::Sequence> sequences) {
  const size_t groups = contents_.groups.size();
  const uint32_t from = claim.depth;
  blocks_.assign(run.hashes.size() * groups, memory::no_block);
  run.blocks = blocks_;
  Node& node = *claim.node;
  try {
    retain_run(claim, sequences);
    // A node that nobody else ever used grows; another gets a child.
    if (node.parent != nullptr && node.children.empty() && node.users == 1 && node.matches == 0 &&
        node.history == run.history) {
      contents_.tree.extend(node, run);
      claim.depth = node.end();
    } else {
      Node& child = contents_.tree.add_child(node, run);
      contents_.count_node(*claim.space);
      child.users = 1;  // the claim moves down to it: the path above stays in use
      claim.node = &child;
      claim.depth = child.end();
    }
  } catch (...) {
    for (size_t i = 0; i < blocks_.size(); i++)
      if (blocks_[i] != memory::no_block) contents_.groups[i % groups]->pool.release(blocks_[i]);
    throw;
  }
  contents_.spaces.count(*claim.space, &Figures::published, run.hashes.size());
  contents_.spaces.count(*claim.space, &Figures::cached, run.hashes.size());
  Node& stored = *claim.node;
  for (uint32_t position = from; position < stored.end(); position++)
    for (size_t g = 0; g < groups; g++)
      if (const memory::Block block = stored.blocks_at(position)[g]; block != memory::no_block)
        contents_.blocks.add(g, block, stored, position, run.hashes.size() == 1);
  contents_.blocks.extended(stored, from);
  contents_.record_changes(stored, from - stored.start, stored.size - 1, PKV_PREFIX_EVICTED);
}

// Fills blocks_ with the blocks of the sequences beyond the claim, with a reference each. Throws
// bad_alloc, too, for a block that cannot be stored now. blocks_ then has those that were retained.
void Publisher::retain_run(Claim& claim, std::span<memory::Sequence> sequences) {
  uint32_t position = claim.depth;
  for (auto to = blocks_.begin(); to != blocks_.end(); position++)
    for (size_t g = 0; g < sequences.size(); g++, to++) {
      const memory::Block block = sequences[g].blocks()[position];
      if (block == memory::no_block) continue;
      if (!retain(g, block)) throw std::bad_alloc();
      *to = block;
    }
}

// Takes a reference to a block that the index does not have yet. It may have it under another text:
// sessions can share blocks whose token ids are unknown, and then set different ids. Returns false
// in that case, and if the block has too many references.
bool Publisher::retain(size_t group, memory::Block block) noexcept {
  return !contents_.blocks.has(group, block) &&
         contents_.groups[group]->pool.retain(block) == PKV_OK;
}

}  // namespace pkv::prefix
