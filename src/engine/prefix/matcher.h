// Finds the longest cached beginning of a text, and lets a session take it over.
#pragma once

#include <vector>

#include "engine/memory/block_table.h"
#include "engine/prefix/uses.h"

namespace pkv::prefix {

// The block after a match, if it begins like the rest of the text.
struct Tail {
  std::vector<memory::Block> blocks;  // by group
  uint32_t tokens = 0;                // how many of its tokens are equal
  Node* node = nullptr;               // the node that has it; nullptr: there is no tail
};

// The part of a text that is cached and that a session can use.
struct Match {
  Tree::Found found;
  uint64_t removals;   // of the tree when it was searched
  uint32_t depth = 0;  // blocks that every group can use
  // By group, the blocks of these positions; no_block where the next token sees none.
  std::pmr::vector<std::pmr::vector<memory::Block>> paths;
  Tail tail = {};
};

class Matcher {
 public:
  Matcher(IndexData& data, Uses& uses, std::pmr::memory_resource& memory)
      : data_(data), uses_(uses), memory_(memory) {}

  // Finds what is cached of a text. Changes nothing. Throws bad_alloc.
  Match find(const Space& space, Tokens text, bool with_tail) const;
  // Moves a use from the beginning of the text to the end of a match, and gives the tables the
  // blocks of sparse groups, which a use does not keep. Nothing may have been removed since the
  // match was found. Returns its tail; until release() the index uses and references that, so that
  // it is not evicted for its own copy. Throws bad_alloc and LIMIT_REACHED; the use is where it was
  // then, and the tables of some groups may have their blocks.
  Tail take(Match& match, Use& use, memory::Tables tables);
  // Gives the tables, which have room, a reference to each block of sparse groups or of all
  // others. Those that the use keeps need no lock. Throws as take() does.
  void retain(const Match& match, bool sparse, memory::Tables tables) const;
  void release(const Tail& tail) noexcept;

  // Returns how many of the found blocks a session can use.
  uint32_t usable(const Tree::Found& found) const;

 private:
  using Path = std::pmr::vector<memory::Block>;  // of one group, by position
  using Paths = std::pmr::vector<Path>;          // by group

  void read_path(const Node& end, size_t group, Path& path) const;
  Paths window_paths(const Node& end) const;
  uint32_t usable_beginning(const Paths& paths, uint32_t depth) const;
  void hide_before_window(Path& path, size_t group) const;
  Tail find_tail(const Tree::Found& found) const;
  bool retain(const Tail& tail) noexcept;

  IndexData& data_;
  Uses& uses_;
  std::pmr::memory_resource& memory_;
};

}  // namespace pkv::prefix
