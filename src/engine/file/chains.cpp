// Builds the tree of nodes, one text after another, and cuts it into chains.
#include "engine/file/chains.h"

#include <algorithm>

#include "base/checked.h"

namespace pkv::file {

ChainBuilder::ChainBuilder(const Cache& cache)
    : groups_(cache.groups()), block_size_(cache.config().block_size) {
  for (const auto& group : groups_) nodes_by_block_.emplace_back(group->pool.blocks(), root);
}

uint32_t ChainBuilder::add(uint32_t after, prefix::Tokens text,
                           std::span<const memory::Block> blocks) {
  for (size_t first = 0; first < text.size();
       first += block_size_, blocks = blocks.subspan(groups_.size()))
    after = add_node(after, text.subspan(first, block_size_), blocks.first(groups_.size()));
  return after;
}

uint32_t ChainBuilder::add(const Content& content) {
  std::vector<uint32_t> path;  // the nodes that the text may share, from the last one on
  for (uint32_t node = find_shared(content); node != root; node = nodes_[node].parent)
    path.push_back(node);
  uint32_t at = root;
  for (; !path.empty() && try_join(path.back(), content); path.pop_back()) at = path.back();
  std::vector<memory::Block> blocks(groups_.size());
  const prefix::Tokens text = content.tokens();
  for (size_t i = at == root ? 0 : nodes_[at].position + 1; i * block_size_ < text.size(); i++) {
    for (size_t g = 0; g < groups_.size(); g++) blocks[g] = block_at(content, g, i);
    at = add_node(at, tokens_at(text, i), blocks);
  }
  return at;
}

// Returns the block of a text at a position; no_block also if it was dropped.
memory::Block ChainBuilder::block_at(const Content& content, size_t group, size_t position) {
  const memory::Block block = content.table(group).blocks()[position];
  return memory::is_block(block) ? block : memory::no_block;
}

// Returns the tokens of a block, of which the last one of a text may have fewer.
prefix::Tokens ChainBuilder::tokens_at(prefix::Tokens text, size_t position) const {
  const size_t first = position * block_size_;
  return text.subspan(first, std::min<size_t>(block_size_, text.size() - first));
}

// Returns a node with the last block that a text shares with texts that were added; `root` if there
// is none.
uint32_t ChainBuilder::find_shared(const Content& content) const {
  for (size_t i = ceil_div(content.length(), block_size_); i-- > 0;)
    for (size_t g = 0; g < groups_.size(); g++) {
      const memory::Block block = block_at(content, g, i);
      const uint32_t node =
          block == memory::no_block ? root : nodes_by_block_[g][memory::block_id(block)];
      if (node != root && nodes_[node].position == i) return node;
    }
  return root;
}

// Lets a text go through a node that has its history, and gives the node blocks that only the text
// has. Returns false if they differ: ids that became known later may, and so may one of two blocks
// with the same content.
bool ChainBuilder::try_join(uint32_t node, const Content& content) {
  const size_t position = nodes_[node].position;
  const prefix::Tokens own = tokens_at(content.tokens(), position), tokens = nodes_[node].tokens;
  if (!std::equal(own.begin(), own.end(), tokens.begin(), tokens.end())) return false;
  const std::span<memory::Block> blocks = blocks_of(node);
  for (size_t g = 0; g < groups_.size(); g++)
    if (const memory::Block block = block_at(content, g, position);
        block != blocks[g] && block != memory::no_block && blocks[g] != memory::no_block)
      return false;
  for (size_t g = 0; g < groups_.size(); g++)
    if (blocks[g] == memory::no_block) put(node, g, block_at(content, g, position));
  return true;
}

uint32_t ChainBuilder::add_node(uint32_t after, prefix::Tokens tokens,
                                std::span<const memory::Block> blocks) {
  const uint32_t node = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({after, after == root ? 0 : nodes_[after].position + 1, 0, none, tokens});
  blocks_.resize(blocks_.size() + groups_.size());
  if (after != root) nodes_[after].children++;
  for (size_t g = 0; g < groups_.size(); g++) put(node, g, blocks[g]);
  return node;
}

void ChainBuilder::put(uint32_t node, size_t group, memory::Block block) {
  blocks_of(node)[group] = block;
  if (block == memory::no_block) return;
  uint32_t& first = nodes_by_block_[group][memory::block_id(block)];
  if (first == root) first = node;
}

// Returns whether a node belongs to the chain of its parent: it is the only child, and in each
// group both have a block, or neither has one.
bool ChainBuilder::extends_parent_chain(uint32_t node) const {
  const uint32_t parent = nodes_[node].parent;
  if (parent == root || nodes_[parent].children > 1) return false;
  for (size_t g = 0; g < groups_.size(); g++)
    if ((blocks_of(parent)[g] == memory::no_block) != (blocks_of(node)[g] == memory::no_block))
      return false;
  return true;
}

// Nodes come after their parents, so chains come after theirs.
void ChainBuilder::finish() {
  for (uint32_t i = 0; i < nodes_.size(); i++) {
    Position& node = nodes_[i];
    if (extends_parent_chain(i)) {
      node.chain = nodes_[node.parent].chain;
    } else {
      node.chain = static_cast<uint32_t>(chains_.size());
      Chain& made = chains_.emplace_back();
      if (node.parent != root) {
        made.parent = nodes_[node.parent].chain;
        made.start = chains_[made.parent].end();
      }
      for (const memory::Block block : blocks_of(i)) {
        made.has_kv.push_back(block != memory::no_block);
        ids_.emplace_back();
      }
    }
    Chain& chain = chains_[node.chain];
    chain.tokens.insert(chain.tokens.end(), node.tokens.begin(), node.tokens.end());
    for (size_t g = 0; g < groups_.size(); g++)
      ids_[node.chain * groups_.size() + g].push_back(memory::block_id(blocks_of(i)[g]));
  }
}

Run ChainBuilder::run(uint32_t chain, size_t group) const {
  return {groups_[group].get(), ids_[chain * groups_.size() + group]};
}

}  // namespace pkv::file
