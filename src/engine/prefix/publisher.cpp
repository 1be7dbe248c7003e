#include "engine/prefix/publisher.h"

#include <algorithm>
#include <new>

namespace pkv::prefix {

namespace {

// A text is stored in pieces of at most this many blocks, so that a quota that has room for less
// does not cost a look at all of it.
constexpr size_t blocks_per_piece = 256;

}  // namespace

void Publisher::publish(Use& use, Tokens text, memory::Tables tables) {
  const uint32_t block_size = data_.block_size();
  const size_t whole = text.size() / block_size;
  if (whole <= use.depth) return;
  const bool generated = whole == use.depth + size_t{1};
  uses_.review_some(whole - use.depth);
  while (use.depth < whole) {
    const Tokens rest =
        text.subspan(size_t{use.depth} * block_size, (whole - use.depth) * block_size);
    const Tree::Found found = data_.tree.find(*use.node, rest);
    if (found.whole > 0)
      take_over(use, uses_.split(*found.node, found.inside), tables);
    else if (!store(use, rest, generated, tables))
      return;
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

// Stores some new blocks from the end of the use on. Returns false if none can be stored.
// generated: the block came alone, as while a text is generated.
bool Publisher::store(Use& use, Tokens text, bool generated, memory::Tables tables) {
  const size_t groups = data_.groups.size();
  if (!eviction_.may_have_room_in_quota(*use.space)) return false;
  blocks_.reserve(std::min(text.size() / data_.block_size(), blocks_per_piece) * groups);
  retain_first(use, text, tables);
  const size_t retained = blocks_.size() / groups;
  if (retained == 0) return false;
  // The quota makes room only for what can be stored.
  const uint64_t room = eviction_.make_room_in_quota(*use.space, retained);
  release_from(room);
  if (room == 0) return false;
  store_retained(use, text.first(room * data_.block_size()), generated);
  return true;
}

// Stores the blocks of blocks_ in runs of the same history. Throws bad_alloc; then it has released
// what is not stored.
void Publisher::store_retained(Use& use, Tokens text, bool generated) {
  const uint32_t block_size = data_.block_size();
  const size_t groups = data_.groups.size(), count = text.size() / block_size;
  size_t first = 0;
  try {
    hashes_.resize(count);
    histories_.assign(count, {});
    const Node& end = *use.node;
    data_.hasher.blocks(text, end.parent != nullptr ? end.hashes.back() : use.space->hash, hashes_);
    data_.policy->inserted(hashes_, histories_);
    for (size_t last = 0; first < count; first = last) {
      while (last < count && histories_[last] == histories_[first]) last++;
      uses_.reserve_node(*use.space);
      store_run(use,
                {text.subspan(first * block_size, (last - first) * block_size),
                 std::span(blocks_).subspan(first * groups, (last - first) * groups),
                 std::span(hashes_).subspan(first, last - first), histories_[first]},
                generated);
    }
  } catch (...) {
    release_from(first);
    throw;
  }
}

void Publisher::store_run(Use& use, const Tree::NewBlocks& run, bool generated) {
  const uint32_t from = use.depth;
  Node& node = *use.node;
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
  data_.spaces.count(*use.space, &Figures::published, run.hashes.size());
  data_.spaces.count(*use.space, &Figures::cached, run.hashes.size());
  Node& stored = *use.node;
  for (uint32_t position = from; position < stored.end(); position++)
    for (size_t g = 0; g < data_.groups.size(); g++)
      if (const memory::Block block = stored.blocks_at(position)[g]; block != memory::no_block)
        data_.blocks.add(g, block, stored, position, generated);
  data_.blocks.extended(stored, from);
  data_.record_changes(stored, from - stored.start, stored.size - 1, PKV_PREFIX_EVENT_EVICTED);
}

// Fills blocks_ with the blocks of the tables beyond the use, and retains each, up to the first
// that cannot be stored now, because its ids are unknown or the index cannot have its blocks.
void Publisher::retain_first(const Use& use, Tokens text, memory::Tables tables) noexcept {
  const uint32_t block_size = data_.block_size();
  const size_t groups = data_.groups.size(),
               most = std::min(text.size() / block_size, blocks_per_piece);
  blocks_.clear();
  for (size_t i = 0; i < most; i++) {
    const Tokens tokens = text.subspan(i * block_size, block_size);
    if (known_prefix_length(tokens) < block_size) return;
    blocks_.resize((i + 1) * groups, memory::no_block);
    for (size_t g = 0; g < groups; g++) {
      const memory::Block block = tables[g]->blocks()[use.depth + i];
      if (block == memory::no_block) continue;
      if (!retain(g, block)) return release_from(i);
      blocks_[i * groups + g] = block;
    }
  }
}

// Releases what blocks_ has from a position of it on.
void Publisher::release_from(size_t position) noexcept {
  const size_t groups = data_.groups.size();
  for (size_t i = position * groups; i < blocks_.size(); i++)
    if (blocks_[i] != memory::no_block) data_.groups[i % groups]->pool.release(blocks_[i]);
  blocks_.resize(position * groups);
}

// Takes a reference to a block that the index does not have yet. It may have it under another text:
// sessions can share blocks whose token ids are unknown, and then set different ids. Returns false
// in that case, and if the block has too many references.
bool Publisher::retain(size_t group, memory::Block block) noexcept {
  return !data_.blocks.has(group, block) && data_.groups[group]->pool.retain(block) == PKV_OK;
}

}  // namespace pkv::prefix
