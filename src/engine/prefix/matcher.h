// How a session takes over the longest cached beginning of its text.
#pragma once

#include <vector>

#include "engine/memory/sequence.h"
#include "engine/prefix/claims.h"

namespace pkv::prefix {

// The block after a match, if it begins like the rest of the text. The caller copies the rows that
// are the same and gives it back.
struct Tail {
  std::vector<memory::Block> blocks;  // by group, each with a reference; empty: there is no tail
  uint32_t tokens = 0;                // how many of its tokens are the same
  Node* node = nullptr;               // claimed, so that the block is not evicted for its own copy
};

class Matcher {
 public:
  Matcher(Contents& contents, Claims& claims, std::pmr::memory_resource& memory);

  // Moves a claim from the beginning of a text to the end of what is cached of it, and appends the
  // blocks to the sequences, one by group, which are empty. Returns how many blocks. tail: nullptr
  // if the caller does not copy. Throws bad_alloc and REF_LIMIT; nothing has changed then.
  uint32_t match(Claim& claim, Tokens text, std::span<memory::Sequence> sequences, Tail* tail);
  void release(Tail& tail) noexcept;

  // How many blocks of what was found a session can use. Leaves them in paths_, for match().
  uint32_t usable(const Tree::Match& found);
  // By group and position, true where a block of the sequences is the index's as well.
  std::vector<std::vector<bool>> shared_blocks(const Node* end,
                                               std::span<const memory::Sequence> sequences) const;

 private:
  using Path = std::pmr::vector<memory::Block>;  // of one group, by position

  void read_path(const Node& end, size_t group, Path& path) const;
  uint32_t usable_beginning(uint32_t depth) const;
  uint32_t usable_in_group(size_t group, uint32_t depth) const;
  void hide_before_window(size_t group, uint32_t depth);
  void retain_paths(uint32_t depth) const;
  void release_paths(size_t groups, uint32_t depth) const noexcept;
  void find_tail(const Tree::Match& found, Tail& tail) const;
  void retain(Tail& tail) noexcept;

  Contents& contents_;
  Claims& claims_;
  std::pmr::memory_resource& memory_;
  std::pmr::vector<Path> paths_;  // by group, of the last match; kept for their room
};

}  // namespace pkv::prefix
