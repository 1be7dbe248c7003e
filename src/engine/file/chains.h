// Turns the texts that are saved, which share blocks, into chains, in which each block occurs once.
// The chains are what a file contains.
#pragma once

#include "engine/file/format.h"
#include "engine/file/tiles.h"
#include "engine/session/content.h"

namespace pkv::file {

// Builds a tree with a node for each block of the texts that are added, and then cuts it into
// chains. Texts that are added must outlive the builder.
//
// Two texts share nodes up to the last block that both have, and no others. A block has one
// history: before it, all its holders have the same tokens, keys and values, though one that took
// over cached blocks (Publisher::take_over) may have them in other blocks. Equal tokens do not
// prove a shared history: texts of two salts, or texts with different dropped blocks, may have the
// same tokens but different keys, values and states.
class ChainBuilder {
 public:
  explicit ChainBuilder(const Cache& cache);

  static constexpr uint32_t root = UINT32_MAX;  // the node before the first block of every text

  // Adds whole blocks of the prefix index after a node. The blocks are given by position, then
  // group. No two parts of the index have the same text, so each block gets a node. Returns the
  // last node, for chain() and for parts that continue there.
  uint32_t add(uint32_t after, prefix::Tokens text, std::span<const memory::Block> blocks);
  // Adds the text of a session or snapshot. Returns its last node, for chain().
  uint32_t add(const Content& content);

  // Makes the chains when all texts were added. A chain comes after its parent.
  void finish();
  std::vector<Chain>& chains() { return chains_; }
  // Returns the chain that a node is in.
  uint32_t chain(uint32_t node) const { return node == root ? none : nodes_[node].chain; }
  // Returns where K and V of a chain are in the cache.
  Run run(uint32_t chain, size_t group) const;

 private:
  // One block position of one or more texts with the same tokens and the same history.
  struct Position {
    uint32_t parent;
    uint32_t position;  // how many nodes come before it
    uint32_t children = 0;
    uint32_t chain = none;
    prefix::Tokens tokens;
  };
  static memory::Block block_at(const Content& content, size_t group, size_t position);
  prefix::Tokens tokens_at(prefix::Tokens text, size_t position) const;
  uint32_t find_shared(const Content& content) const;
  bool try_join(uint32_t node, const Content& content);
  uint32_t add_node(uint32_t after, prefix::Tokens tokens, std::span<const memory::Block> blocks);
  void put(uint32_t node, size_t group, memory::Block block);
  bool extends_parent_chain(uint32_t node) const;
  std::span<memory::Block> blocks_of(uint32_t node) {
    return std::span(blocks_).subspan(size_t{node} * groups_.size(), groups_.size());
  }
  std::span<const memory::Block> blocks_of(uint32_t node) const {
    return std::span(blocks_).subspan(size_t{node} * groups_.size(), groups_.size());
  }

  const std::span<const std::unique_ptr<memory::Group>> groups_;
  const uint32_t block_size_;
  std::vector<Position> nodes_;
  std::vector<memory::Block> blocks_;  // by node, then group
  // By group and block id, the first node that has the block; `root` if none has it.
  std::vector<std::vector<uint32_t>> nodes_by_block_;
  std::vector<Chain> chains_;
  std::vector<std::vector<uint32_t>> ids_;  // block ids, by chain, then group
};

}  // namespace pkv::file
