// Gives a session the longest cached beginning of its text.
#pragma once

#include <vector>

#include "engine/memory/sequence.h"
#include "engine/prefix/uses.h"

namespace pkv::prefix {

// The block after a match, if it begins like the rest of the text. The caller copies the equal rows
// and releases it.
struct Tail {
  std::vector<memory::Block> blocks;  // by group, each with a reference; empty: there is no tail
  uint32_t tokens = 0;                // how many of its tokens are equal
  Node* node = nullptr;               // used, so that the block is not evicted for its own copy
};

// The part of a text that is cached and that a session can use.
struct Match {
  Tree::Found match;
  uint64_t removals;  // of the tree when it was searched
  uint32_t depth;     // blocks that every group can use
  // By group, the blocks of these positions; no_block where the next token sees none.
  std::pmr::vector<std::pmr::vector<memory::Block>> paths;
};

class Matcher {
 public:
  Matcher(IndexData& data, Uses& uses, std::pmr::memory_resource& memory)
      : data_(data), uses_(uses), memory_(memory) {}

  // A match takes three steps, so that little of it needs the exclusive lock.
  // 1. Finds what is cached of a text. Changes nothing. Throws bad_alloc.
  Match find(const Space& space, Tokens text) const;
  // 2. Moves a use from the beginning of the text to the end of what was found, and retains the
  //    blocks of window groups, which a use does not keep. Nothing may have been removed since
  //    the text was found. tail: nullptr if the caller does not copy. Throws bad_alloc and
  //    REF_LIMIT; nothing has changed then.
  void take(const Match& found, Use& use, Tail* tail);
  // 3. Retains the other blocks, which the use keeps. Needs no lock. Throws REF_LIMIT; it has
  //    then released the blocks of window groups as well.
  void retain(const Match& found) const;
  void release(Tail& tail) noexcept;

  // Returns how many of the found blocks a session can use.
  uint32_t usable(const Tree::Found& found) const;

 private:
  using Path = std::pmr::vector<memory::Block>;  // of one group, by position
  using Paths = std::pmr::vector<Path>;          // by group

  void read_path(const Node& end, size_t group, Path& path) const;
  Paths window_paths(const Node& end) const;
  uint32_t usable_beginning(const Paths& paths, uint32_t depth) const;
  void hide_before_window(Path& path, size_t group) const;
  void retain_paths(const Match& found, bool of_windows) const;
  void release_paths(const Match& found, bool of_windows, size_t groups) const noexcept;
  void find_tail(const Tree::Found& found, Tail& tail) const;
  void retain(Tail& tail) noexcept;

  IndexData& data_;
  Uses& uses_;
  std::pmr::memory_resource& memory_;
};

}  // namespace pkv::prefix
