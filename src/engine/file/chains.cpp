#include "engine/file/chains.h"

#include <algorithm>

#include "engine/prefix/hash.h"

namespace pkv::file {

ChainBuilder::ChainBuilder(const Cache& cache)
    : groups_(cache.groups()),
      block_size_(cache.config().block_size),
      tensors_(cache.config().storage == PKV_STORAGE_CONTIGUOUS) {}

uint32_t ChainBuilder::add(const Content& content) {
  const prefix::Tokens text = content.tokens();
  std::vector<Place> places(groups_.size());
  uint32_t at = beginning;
  for (size_t first = 0, i = 0; first < text.size(); first += block_size_, i++) {
    for (size_t g = 0; g < groups_.size(); g++) {
      const memory::Sequence& sequence = content.sequences()[g];
      places[g] = {sequence.blocks()[i], tensors_ ? &sequence : nullptr};
    }
    at = step(at, text.subspan(first, std::min<size_t>(block_size_, text.size() - first)), places,
              any_salt);
  }
  return at;
}

uint32_t ChainBuilder::add(uint32_t after, prefix::Tokens text,
                           std::span<const memory::Block> blocks, uint32_t salt) {
  std::vector<Place> places(groups_.size());
  for (size_t first = 0; first < text.size();
       first += block_size_, blocks = blocks.subspan(groups_.size())) {
    for (size_t g = 0; g < groups_.size(); g++) places[g] = {blocks[g], nullptr};
    after = step(after, text.subspan(first, block_size_), places, salt);
  }
  return after;
}

uint32_t ChainBuilder::step(uint32_t after, prefix::Tokens tokens, std::span<const Place> places,
                            uint64_t salt) {
  uint64_t hash;
  prefix::hash_blocks(tokens, after, std::span(&hash, 1));
  const auto [first, last] = by_tokens_.equal_range(hash);
  for (auto each = first; each != last; ++each) {
    Node& node = nodes_[each->second];
    if (node.parent != after ||
        !std::equal(tokens.begin(), tokens.end(), node.tokens.begin(), node.tokens.end()))
      continue;
    const std::span<Place> known = places_of(each->second);
    bool fits = salt == any_salt || node.salt == any_salt || node.salt == salt;
    for (size_t g = 0; g < groups_.size(); g++)
      fits = fits && (known[g].block == places[g].block || known[g].block == memory::no_block ||
                      places[g].block == memory::no_block);
    if (!fits) continue;
    if (salt != any_salt) node.salt = salt;
    for (size_t g = 0; g < groups_.size(); g++)
      if (known[g].block == memory::no_block) known[g] = places[g];
    return each->second;
  }
  return make(after, tokens, places, salt, hash);
}

uint32_t ChainBuilder::make(uint32_t after, prefix::Tokens tokens, std::span<const Place> places,
                            uint64_t salt, uint64_t hash) {
  const uint32_t node = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({after, 0, none, salt, tokens});
  places_.insert(places_.end(), places.begin(), places.end());
  by_tokens_.emplace(hash, node);
  if (after != beginning) nodes_[after].children++;
  return node;
}

// True if a node belongs to the chain of the one before it.
bool ChainBuilder::continues(uint32_t node) const {
  const uint32_t parent = nodes_[node].parent;
  if (parent == beginning || nodes_[parent].children > 1) return false;
  for (size_t g = 0; g < groups_.size(); g++) {
    const Place &before = places_of(parent)[g], &own = places_of(node)[g];
    if ((before.block == memory::no_block) != (own.block == memory::no_block)) return false;
    if (own.block != memory::no_block && before.sequence != own.sequence) return false;
  }
  return true;
}

// Nodes come after their parents, so chains do.
void ChainBuilder::finish() {
  for (uint32_t i = 0; i < nodes_.size(); i++) {
    Node& node = nodes_[i];
    if (continues(i)) {
      node.chain = nodes_[node.parent].chain;
    } else {
      node.chain = static_cast<uint32_t>(chains_.size());
      Chain& made = chains_.emplace_back();
      if (node.parent != beginning) {
        made.parent = nodes_[node.parent].chain;
        made.start = chains_[made.parent].end();
      }
      for (const Place& place : places_of(i)) {
        made.held.push_back(place.block != memory::no_block);
        sequences_.push_back(place.sequence);
        ids_.emplace_back();
      }
    }
    Chain& chain = chains_[node.chain];
    chain.tokens.insert(chain.tokens.end(), node.tokens.begin(), node.tokens.end());
    for (size_t g = 0; g < groups_.size(); g++)
      ids_[node.chain * groups_.size() + g].push_back(memory::block_id(places_of(i)[g].block));
  }
}

Run ChainBuilder::run(uint32_t chain, size_t group) const {
  const size_t at = chain * groups_.size() + group;
  return {groups_[group].get(), ids_[at], sequences_[at]};
}

}  // namespace pkv::file
