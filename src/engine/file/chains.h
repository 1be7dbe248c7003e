// Turns the texts that are saved, which share blocks, into chains, in which each block occurs once.
// The chains are what a file contains.
#pragma once

#include <unordered_map>

#include "engine/file/format.h"
#include "engine/file/tiles.h"
#include "engine/session/content.h"

namespace pkv::file {

// Builds a tree with a node for each block of the texts that are added, and then cuts it into
// chains. Texts that are added must outlive the builder.
class ChainBuilder {
 public:
  explicit ChainBuilder(const Cache& cache);

  static constexpr uint32_t root = UINT32_MAX;  // the node before the first block of every text

  // Adds the text of a session or snapshot. Returns its last node, for chain().
  uint32_t add(const Content& content);
  // Adds whole blocks of the prefix index after a node. The blocks are given by position, then
  // group, and are cached under a salt (its number). Texts under different salts share no node.
  // Returns the last node, for chain() and for texts that go on from there.
  uint32_t add(uint32_t after, prefix::Tokens text, std::span<const memory::Block> blocks,
               uint32_t salt);

  // Makes the chains when all texts were added. A chain comes after its parent.
  void finish();
  std::vector<Chain>& chains() { return chains_; }
  // Returns the chain that a node is in.
  uint32_t chain(uint32_t node) const { return node == root ? none : nodes_[node].chain; }
  // Returns where K and V of a chain are in the cache.
  Run run(uint32_t chain, size_t group) const;

 private:
  // One block position of one or more texts. Texts with the same tokens there share the node unless
  // they have different blocks in a group in which both have one.
  struct Node {
    uint32_t parent;
    uint32_t children = 0;
    uint32_t chain = none;
    uint64_t salt = any_salt;  // the number of the salt under which it is cached
    prefix::Tokens tokens;
  };
  // Where K and V of a node are, in one group.
  struct BlockSource {
    memory::Block block;
    const memory::Sequence* sequence;  // if storage is contiguous, the one whose tensors have them
  };

  static constexpr uint64_t any_salt = ~uint64_t{0};  // of nodes that are not in the index
  // Of nodes that must not get into the index: their tokens did not see all that came before.
  static constexpr uint64_t no_salt = any_salt - 1;

  uint32_t find_or_add(uint32_t after, prefix::Tokens tokens, std::span<const BlockSource> sources,
                       uint64_t salt);
  uint32_t add_node(uint32_t after, prefix::Tokens tokens, std::span<const BlockSource> sources,
                    uint64_t salt, uint64_t hash);
  bool extends_parent_chain(uint32_t node) const;
  std::span<BlockSource> sources_of(uint32_t node) {
    return std::span(sources_).subspan(size_t{node} * groups_.size(), groups_.size());
  }
  std::span<const BlockSource> sources_of(uint32_t node) const {
    return std::span(sources_).subspan(size_t{node} * groups_.size(), groups_.size());
  }

  const std::span<const std::unique_ptr<memory::Group>> groups_;
  const uint32_t block_size_;
  const bool contiguous_;
  std::vector<Node> nodes_;
  std::vector<BlockSource> sources_;  // by node, then group
  std::unordered_multimap<uint64_t, uint32_t> nodes_by_hash_;
  std::vector<Chain> chains_;
  std::vector<std::vector<uint32_t>> ids_;          // block ids, by chain, then group
  std::vector<const memory::Sequence*> sequences_;  // by chain, then group
};

}  // namespace pkv::file
