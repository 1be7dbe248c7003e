// Finds the longest cached beginning of a text, and lets a session take it over.
#pragma once

#include <vector>

#include "engine/memory/block_table.h"
#include "engine/prefix/uses.h"

namespace pkv::prefix {

// The part of a text that is cached and that a session can use.
struct Match {
  Tree::Found found;
  uint64_t removals;   // of the tree when it was searched
  uint32_t depth = 0;  // blocks that every group can use
  // By group, the blocks of these positions; no_block where the next token sees none.
  std::pmr::vector<std::pmr::vector<memory::Block>> paths;
  // By group, the next block (the tail), if it begins like the rest of the text; else empty.
  std::pmr::vector<memory::Block> tail;
};

class Matcher {
 public:
  Matcher(IndexData& data, Uses& uses, std::pmr::memory_resource& memory)
      : data_(data), uses_(uses), memory_(memory) {}

  // Finds what is cached of a text. Changes nothing. Throws bad_alloc.
  Match find(const Space& space, Tokens text) const;
  // Moves a use from the beginning of the text to the end of a match with its tail, and gives the
  // tables the blocks of sparse groups, which a use does not keep. Nothing may have been removed
  // since the match was found. Returns the tail, with a reference to each of its blocks, which are
  // the caller's; or nothing if there is none, or if one of them has too many references. Throws
  // bad_alloc and LIMIT_REACHED; then the use may have a tail already, and the tables of some
  // groups their blocks.
  std::span<const memory::Block> take(const Match& match, Use& use, memory::Tables tables);
  // Gives the tables, which have room, a reference to each block of sparse groups or of all
  // others. Those that the use keeps need no lock. Throws as take() does.
  void retain(const Match& match, bool sparse, memory::Tables tables) const;

  // Returns how many of the found blocks a session can use.
  uint32_t usable(const Tree::Found& found) const;

 private:
  using Path = std::pmr::vector<memory::Block>;
  using Paths = std::pmr::vector<Path>;  // by group

  void read_path(const Node& end, size_t group, Path& path) const;
  Paths sparse_paths(const Node& end) const;
  uint32_t usable_beginning(const Paths& paths, uint32_t depth) const;
  void hide_before_window(Path& path, size_t group) const;
  Path find_tail(const Tree::Found& found) const;
  bool share_tail(const Match& match) const noexcept;

  IndexData& data_;
  Uses& uses_;
  std::pmr::memory_resource& memory_;
};

}  // namespace pkv::prefix
