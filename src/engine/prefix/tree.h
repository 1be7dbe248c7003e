// A radix tree over tokens, in whole blocks: it maps cached prefixes to blocks. It is not
// thread-safe; the lock of the index protects it. A text is a sequence of token ids. A use (uses.h)
// keeps the path of a text from being evicted, for a session, a snapshot or a pin for example.
//
// A node is a run of blocks that were always used together and that have the same history from
// before they were cached. If a text leaves a node in its middle, the node is split, so that a use
// always ends where a node ends, and a node is either used as a whole or not at all:
//   users(node) = uses that end at it or below it
// Children begin with different first blocks and are ordered by them, so that the child with the
// longest common beginning is a neighbour of the place where a text would stand.
#pragma once

#include <pagedkv/session.h>

#include <algorithm>
#include <cstdint>
#include <memory_resource>
#include <set>
#include <span>
#include <vector>

#include "engine/memory/block_state.h"
#include "engine/prefix/hash.h"

namespace pkv::prefix {

struct Node;
struct Space;

using Tokens = std::span<const int32_t>;

// Returns how many tokens come before the first PKV_UNKNOWN_TOKEN. Usually that is all of them, so
// the function counts unknown ones first: the compiler vectorises a count, but not a search.
inline size_t known_prefix_length(Tokens tokens) {
  if (std::count(tokens.begin(), tokens.end(), PKV_UNKNOWN_TOKEN) == 0) return tokens.size();
  return static_cast<size_t>(std::find(tokens.begin(), tokens.end(), PKV_UNKNOWN_TOKEN) -
                             tokens.begin());
}

// Orders nodes by the tokens of their first blocks.
struct ByFirstBlock {
  using is_transparent = void;
  uint32_t block_size;
  bool operator()(const Node* a, const Node* b) const;
  bool operator()(const Node* a, Tokens b) const;
  bool operator()(Tokens a, const Node* b) const;
};

// How often a block was used, and in which turn of its conversation it was new, as far as is known.
struct History {
  uint8_t uses = 0, turn = 0;
  bool operator==(const History&) const = default;
};

struct Node {
  Node(Node* above, uint32_t first, uint32_t block_size, uint32_t layer_groups,
       std::pmr::memory_resource* memory)
      : groups(layer_groups),
        parent(above),
        start(first),
        tokens(memory),
        blocks(memory),
        hashes(memory),
        announced(memory),
        children(ByFirstBlock{block_size}, memory) {}

  const uint32_t groups;
  Node* parent;                      // nullptr: a root, which has no blocks
  uint32_t start;                    // blocks before this node
  uint32_t size = 0;                 // blocks
  std::pmr::vector<int32_t> tokens;  // size * block_size
  // size * groups of them, by position; no_block where a window group has let a block go.
  std::pmr::vector<memory::Block> blocks;
  std::pmr::vector<BlockHash> hashes;  // size
  // size; by position, 1 where the last event said that a match can end after the block.
  std::pmr::vector<uint8_t> announced;
  std::pmr::set<Node*, ByFirstBlock> children;
  uint32_t users = 0;
  uint32_t pinned = 0;     // how many of its users are pins that end here or below
  uint32_t shared = 0;     // positions with shared blocks, if unused: see cached_blocks.h
  Space* space = nullptr;  // the same for all nodes below a root

  // For the eviction policy: the history of its blocks.
  uint64_t last_use = 0;  // the time, in blocks that sessions had released (see return_time.h)
  uint32_t matches = 0;
  uint32_t place = no_place;      // among the candidates
  uint32_t own_place = no_place;  // among those of its salt, where that has a quota
  // Nodes of a lower retention are evicted first. It is `base`, the highest of its users so far
  // unless a hint set it, or more until a time: see IndexData::retain_until().
  uint8_t retention = 0, base = 0;
  History history;
  uint8_t kind = 0;  // see return_time.h
  // Times of hints: when retention sinks to base (0 if they are equal), and when the pin ends that
  // ends here (0 if there is none).
  uint64_t retained_until = 0, pinned_until = 0;
  // The length in blocks of the longest text that callers asked to pin and whose pin ends here.
  uint32_t pin_asked = 0;

  static constexpr uint32_t no_place = ~uint32_t{0};
  uint32_t end() const { return start + size; }
  // Returns the blocks of a position of the text that is in this node, by group.
  std::span<memory::Block> blocks_at(uint64_t position) {
    return {blocks.data() + (position - start) * groups, groups};
  }
  std::span<const memory::Block> blocks_at(uint64_t position) const {
    return {blocks.data() + (position - start) * groups, groups};
  }
  // Calls visit(position, group, block) for all blocks.
  template <class Visit>
  void for_each_block(const Visit& visit) const {
    for (uint32_t position = start; position < end(); position++)
      for (uint32_t g = 0; g < groups; g++) visit(position, g, blocks_at(position)[g]);
  }
  bool is_candidate() const { return parent != nullptr && children.empty() && users == 0; }
};

class Tree {
 public:
  Tree(uint32_t block_size, uint32_t groups, std::pmr::memory_resource& memory);
  ~Tree();
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  uint32_t block_size() const { return block_size_; }
  uint32_t groups() const { return groups_; }
  Node& new_root();                     // throws bad_alloc
  void drop_root(Node& root) noexcept;  // one without children
  const auto& roots() const { return roots_; }

  // How far a text, read on from `from`, is in the tree: `whole` blocks, ending after `inside`
  // blocks of `node`. After them, `common` more tokens match the beginning of a block of `next`
  // (block `inside` if next == node, else its first one).
  struct Found {
    Node* node;
    uint32_t inside;
    uint32_t whole;
    Node* next = nullptr;
    uint32_t common = 0;
  };
  Found find(Node& from, Tokens text) const;

  // Returns the node that ends after `inside` blocks of `node`: itself, or its new upper part.
  // Throws bad_alloc; nothing has changed then.
  Node& split(Node& node, uint32_t inside);
  // New blocks after the end of a node: in a child, or in the node itself, which gets longer. Both
  // throw bad_alloc.
  struct NewBlocks {
    Tokens text;                            // in whole blocks
    std::span<const memory::Block> blocks;  // as Node::blocks
    std::span<const BlockHash> hashes;
    History history;
  };
  Node& add_child(Node& node, const NewBlocks& more);
  void extend(Node& node, const NewBlocks& more);
  // Removes the last blocks of a node without children, and returns the node; if that leaves it
  // empty, deletes it and returns its parent.
  Node& drop_last(Node& node, uint32_t count) noexcept;

  // Calls visit(node) for every node below another one, for children before their parents. visit()
  // may remove the node.
  template <class Visit>
  static void for_each_below(Node& top, const Visit& visit) {
    for (Node* node = &first_below(top); node != &top;) {
      Node* const next = &next_upwards(*node);
      visit(*node);
      node = next;
    }
  }
  // Calls visit(node) for every node but the roots.
  template <class Visit>
  void for_each_node(const Visit& visit) const {
    for (Node* const root : roots_) for_each_below(*root, visit);
  }

 private:
  Tokens block_tokens(const Node& node, uint32_t inside) const {
    return Tokens(node.tokens).subspan(size_t{inside} * block_size_, block_size_);
  }
  // The order of for_each_below(), which needs no memory.
  static Node& first_below(Node& node) noexcept;
  static Node& next_upwards(const Node& node) noexcept;
  template <class Visit>
  void for_each_list(const Visit& visit) const;
  void find_common(Node& node, uint32_t inside, Tokens rest, Found& found) const;
  Node& make(Node* parent, uint32_t start);
  void free(Node* node) noexcept;
  void free_below(Node& node) noexcept;

  const uint32_t block_size_;
  const uint32_t groups_;
  std::pmr::memory_resource& memory_;
  std::pmr::set<Node*> roots_;
};

}  // namespace pkv::prefix
