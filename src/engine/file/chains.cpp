// Builds the tree of nodes, one block after another, and cuts it into chains.
#include "engine/file/chains.h"

#include <algorithm>

#include "engine/prefix/hash.h"

namespace pkv::file {

ChainBuilder::ChainBuilder(const Cache& cache)
    : groups_(cache.groups()),
      block_size_(cache.config().block_size),
      contiguous_(cache.config().storage == PKV_STORAGE_CONTIGUOUS) {}

uint32_t ChainBuilder::add(const Content& content) {
  const prefix::Tokens text = content.tokens();
  std::vector<BlockSource> sources(groups_.size());
  uint32_t at = root;
  for (size_t first = 0, i = 0; first < text.size(); first += block_size_, i++) {
    for (size_t g = 0; g < groups_.size(); g++) {
      const memory::Sequence& sequence = content.sequences()[g];
      const memory::Block block = sequence.blocks()[i];
      sources[g] = {memory::is_block(block) ? block : memory::no_block,
                    contiguous_ ? &sequence : nullptr};
    }
    at = find_or_add(at, text.subspan(first, std::min<size_t>(block_size_, text.size() - first)),
                     sources, first < content.forgotten_from() ? any_salt : no_salt);
  }
  return at;
}

uint32_t ChainBuilder::add(uint32_t after, prefix::Tokens text,
                           std::span<const memory::Block> blocks, uint32_t salt) {
  std::vector<BlockSource> sources(groups_.size());
  for (size_t first = 0; first < text.size();
       first += block_size_, blocks = blocks.subspan(groups_.size())) {
    for (size_t g = 0; g < groups_.size(); g++) sources[g] = {blocks[g], nullptr};
    after = find_or_add(after, text.subspan(first, block_size_), sources, salt);
  }
  return after;
}

uint32_t ChainBuilder::find_or_add(uint32_t after, prefix::Tokens tokens,
                                   std::span<const BlockSource> sources, uint64_t salt) {
  uint64_t hash;
  prefix::hash_blocks(tokens, after, std::span(&hash, 1));
  const auto [first, last] = nodes_by_hash_.equal_range(hash);
  for (auto each = first; each != last; ++each) {
    Node& node = nodes_[each->second];
    if (node.parent != after ||
        !std::equal(tokens.begin(), tokens.end(), node.tokens.begin(), node.tokens.end()))
      continue;
    const std::span<BlockSource> existing = sources_of(each->second);
    bool compatible = salt == any_salt || node.salt == any_salt || node.salt == salt;
    for (size_t g = 0; g < groups_.size(); g++)
      compatible = compatible &&
                   (existing[g].block == sources[g].block ||
                    existing[g].block == memory::no_block || sources[g].block == memory::no_block);
    if (!compatible) continue;
    if (salt != any_salt) node.salt = salt;
    for (size_t g = 0; g < groups_.size(); g++)
      if (existing[g].block == memory::no_block) existing[g] = sources[g];
    return each->second;
  }
  return add_node(after, tokens, sources, salt, hash);
}

uint32_t ChainBuilder::add_node(uint32_t after, prefix::Tokens tokens,
                                std::span<const BlockSource> sources, uint64_t salt,
                                uint64_t hash) {
  const uint32_t node = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({after, 0, none, salt, tokens});
  sources_.insert(sources_.end(), sources.begin(), sources.end());
  nodes_by_hash_.emplace(hash, node);
  if (after != root) nodes_[after].children++;
  return node;
}

// Returns whether a node belongs to the chain of its parent: it is the only child, and in each
// group both have K and V in the same place, or neither has any.
bool ChainBuilder::extends_parent_chain(uint32_t node) const {
  const uint32_t parent = nodes_[node].parent;
  if (parent == root || nodes_[parent].children > 1) return false;
  for (size_t g = 0; g < groups_.size(); g++) {
    const BlockSource &before = sources_of(parent)[g], &own = sources_of(node)[g];
    if ((before.block == memory::no_block) != (own.block == memory::no_block)) return false;
    if (own.block != memory::no_block && before.sequence != own.sequence) return false;
  }
  return true;
}

// Nodes come after their parents, so chains come after theirs.
void ChainBuilder::finish() {
  for (uint32_t i = 0; i < nodes_.size(); i++) {
    Node& node = nodes_[i];
    if (extends_parent_chain(i)) {
      node.chain = nodes_[node.parent].chain;
    } else {
      node.chain = static_cast<uint32_t>(chains_.size());
      Chain& made = chains_.emplace_back();
      if (node.parent != root) {
        made.parent = nodes_[node.parent].chain;
        made.start = chains_[made.parent].end();
      }
      for (const BlockSource& source : sources_of(i)) {
        made.has_kv.push_back(source.block != memory::no_block);
        sequences_.push_back(source.sequence);
        ids_.emplace_back();
      }
    }
    Chain& chain = chains_[node.chain];
    chain.tokens.insert(chain.tokens.end(), node.tokens.begin(), node.tokens.end());
    for (size_t g = 0; g < groups_.size(); g++)
      ids_[node.chain * groups_.size() + g].push_back(memory::block_id(sources_of(i)[g].block));
  }
}

Run ChainBuilder::run(uint32_t chain, size_t group) const {
  const size_t at = chain * groups_.size() + group;
  return {groups_[group].get(), ids_[at], sequences_[at]};
}

}  // namespace pkv::file
