// Texts that share blocks, as chains in which each block is once: what is written into a file.
#pragma once

#include <unordered_map>

#include "engine/file/format.h"
#include "engine/file/tiles.h"
#include "engine/session/content.h"

namespace pkv::file {

class ChainBuilder {
 public:
  explicit ChainBuilder(const Cache& cache);

  static constexpr uint32_t beginning = UINT32_MAX;  // of every text

  // Both return where the text ends, for the next one and for chain(). What they are given is there
  // until the chains were written.
  uint32_t add(const Content& content);
  // Whole blocks after an end, cached under a salt (its number): by position, then group. Salts
  // share no chain.
  uint32_t add(uint32_t after, prefix::Tokens text, std::span<const memory::Block> blocks,
               uint32_t salt);

  // After all texts. Chains come after those they follow.
  void finish();
  std::vector<Chain>& chains() { return chains_; }
  uint32_t chain(uint32_t end) const { return end == beginning ? none : nodes_[end].chain; }
  Run run(uint32_t chain, size_t group) const;

 private:
  // One block, in all groups. Texts with the same tokens there share it, unless they have different
  // blocks in a group that both have.
  struct Node {
    uint32_t parent;
    uint32_t children = 0;
    uint32_t chain = none;
    uint64_t salt = any_salt;  // under which it is cached
    prefix::Tokens tokens;
  };
  struct Place {
    memory::Block block;
    const memory::Sequence* sequence;  // whose tensors have it; nullptr: the block has
  };

  static constexpr uint64_t any_salt = ~uint64_t{0};  // of nodes that sessions have, not the index

  uint32_t step(uint32_t after, prefix::Tokens tokens, std::span<const Place> places,
                uint64_t salt);
  uint32_t make(uint32_t after, prefix::Tokens tokens, std::span<const Place> places, uint64_t salt,
                uint64_t hash);
  bool continues(uint32_t node) const;
  std::span<Place> places_of(uint32_t node) {
    return std::span(places_).subspan(size_t{node} * groups_.size(), groups_.size());
  }
  std::span<const Place> places_of(uint32_t node) const {
    return std::span(places_).subspan(size_t{node} * groups_.size(), groups_.size());
  }

  const std::span<const std::unique_ptr<memory::Group>> groups_;
  const uint32_t block_size_;
  const bool tensors_;
  std::vector<Node> nodes_;
  std::vector<Place> places_;  // by node, then group
  std::unordered_multimap<uint64_t, uint32_t> by_tokens_;
  std::vector<Chain> chains_;
  std::vector<std::vector<uint32_t>> ids_;          // by chain, then group: block ids
  std::vector<const memory::Sequence*> sequences_;  // by chain, then group
};

}  // namespace pkv::file
