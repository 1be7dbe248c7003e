// What a layer group needs of a text (a sequence of tokens), so that the token after it can be
// computed: every block, or the blocks of the window before that token and of the sinks, or the
// state at the end. Everything that asks this question asks it here: matches and events of the
// prefix index, reads of the store, loads of files, and trims of sessions.
#pragma once

#include <algorithm>
#include <memory>
#include <span>

#include "engine/memory/group.h"

namespace pkv::memory {

// The rule for texts in whole blocks, which the prefix index and stores have. It asks for all
// tokens that the last token of the text sees. So a session with these blocks can also trim its
// last token and compute it once more.
struct Coverage {
  explicit Coverage(const Group& group)
      : sinks(group.blocks_for(group.shape.sinks)),
        window(!group.sparse()      ? UINT64_MAX
               : group.has_states() ? 1
                                    : group.blocks_for(group.shape.window)) {}

  // Returns whether a text of `end` blocks needs the block of a position before its end.
  bool needs(uint64_t position, uint64_t end) const {
    return position < sinks || end - position <= window;
  }

  uint64_t sinks;   // how many blocks a text needs at its beginning
  uint64_t window;  // and at its end; UINT64_MAX: all
};

// Returns the first position that the token after `length` tokens sees, sinks aside.
inline uint64_t first_seen(const Group& group, uint64_t length) {
  const uint64_t window = group.shape.window;
  return window == 0 || length < window ? 0 : length + 1 - window;
}

// The rule for a session of `length` tokens: returns the first position that it needs, sinks aside.
// It needs what its next token sees, and the part-filled block into which that token goes. In a
// group of states it needs the state after exactly these tokens instead.
inline uint64_t first_needed(const Group& group, uint64_t length) {
  const uint64_t seen = first_seen(group, length);
  return group.offset_of(length) != 0 ? std::min(seen, length - 1) : seen;
}

// Returns the longest beginning of a text, up to `limit` blocks, that every sparse group can use;
// other groups must have all blocks up to the limit. present(position, group) returns whether a
// block is there.
template <class Present>
uint64_t longest_usable(std::span<const std::unique_ptr<Group>> groups, uint64_t limit,
                        const Present& present) {
  for (uint64_t end = limit;; limit = end) {
    for (size_t g = 0; g < groups.size(); g++) {
      if (!groups[g]->sparse()) continue;
      const Coverage coverage(*groups[g]);
      for (uint64_t i = 0; i < std::min(end, coverage.sinks); i++)
        if (!present(i, g)) end = i;
      for (uint64_t i = end; i > 0 && coverage.needs(i - 1, end); i--)
        if (!present(i - 1, g)) end = i - 1;
    }
    if (end == limit) return end;  // else a group may lack its window before the new end
  }
}

// Decides for consecutive ends of a text whether a group can use the text up to there. Each takes
// constant time.
class UsableEnds {
 public:
  // Begins with the end after `end` blocks. present(position) returns whether a block is there; it
  // is called for the last window, and then for sinks, each from the back to the front.
  template <class Present>
  UsableEnds(const Coverage& coverage, uint64_t end, const Present& present)
      : coverage_(coverage), end_(end) {
    uint64_t i = end;
    while (i > 0 && end - i < coverage.window && present(i - 1)) i--;
    if (end - i < coverage.window) gap_ = i;
    for (i = std::min(i, coverage.sinks); i > 0; i--) lacks_sinks_ |= !present(i - 1);
  }

  // Continues with the next end, whose last block is present or not. Returns whether the group has
  // all that a text needs that ends there.
  bool next(bool present) {
    end_++;
    if (!present) gap_ = end_, lacks_sinks_ |= end_ <= coverage_.sinks;
    return !lacks_sinks_ && (gap_ == 0 || !coverage_.needs(gap_ - 1, end_));
  }

 private:
  Coverage coverage_;
  uint64_t end_;
  uint64_t gap_ = 0;  // the end of the last missing block; 0: none is missing where it is needed
  bool lacks_sinks_ = false;
};

}  // namespace pkv::memory
