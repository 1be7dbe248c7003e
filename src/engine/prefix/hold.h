// A reference from a session, a snapshot or the queue of a store to a path in the prefix index. It
// keeps the path in use and carries its hints.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/prefix/uses.h"

namespace pkv::prefix {

class Index;

// Uses a path of the index until the object is destroyed. It is copied (as another use) and
// dropped under the lock of the index. An empty hold uses nothing.
class Hold {
 public:
  Hold() = default;
  // Begins at the root of a salt, before any token. `retention` is that of the blocks that it
  // leaves behind. Throws bad_alloc.
  Hold(Index& index, std::string_view salt, uint8_t retention);
  Hold(Hold&& other) noexcept { swap(other); }
  Hold& operator=(Hold&& other) noexcept { return swap(other), *this; }
  ~Hold();
  Hold copy() const;

  explicit operator bool() const { return index_ != nullptr; }
  uint32_t depth() const { return use_.depth; }  // blocks of the path
  // Returns the ends of the path and of its tail, for a forecast; NULL if there are none.
  const Node* end() const { return use_.node; }
  const Node* tail() const { return use_.tail; }
  // Valid while the hold is.
  std::string_view salt() const { return index_ == nullptr ? "" : use_.space->salt; }
  // Returns an empty hold of the same salt, with what hints told this one. Throws bad_alloc.
  Hold restart() const;

  // Hints, which may come while other threads get something from the session of the hold. They do
  // nothing to an empty hold.

  // Returns what hints set so far.
  Use hints() const noexcept;
  // Sets the retention of the blocks that it leaves behind, in all or in a range. Returns false
  // if there are too many ranges. Throws bad_alloc.
  void set_retention(uint8_t retention) noexcept;
  bool set_retention(const Range& range);
  // Sets when the text is expected to continue after this use: see hint_of.
  void set_hint(uint8_t hint) noexcept;
  // Lets withdraw_dropped() remove what follows the first `blocks` blocks.
  void drop_later(uint32_t blocks) noexcept;
  void withdraw_dropped() noexcept { withdraw(use_.drop_from); }
  // Makes this the hold of a store or a file that copies the blocks. It does not count as a use of
  // the text, so its end changes nothing. demote() lowers the retention of the blocks from
  // `demote_from` on, unless one of them comes before `lost_before`.
  void make_passive(uint32_t demote_from = Use::no_block) noexcept;
  void demote(uint64_t lost_before) noexcept;
  // Cancels drop_later() if a trim to `blocks` blocks left nothing of what it would remove.
  void trimmed(uint32_t blocks) noexcept {
    if (use_.drop_from >= blocks) use_.drop_from = Use::no_block;
  }

  // Adds a match to the statistics of the salt.
  void count_match(uint64_t lookup_tokens, uint64_t matched_tokens) noexcept;
  // Releases the whole path as if it had never been matched.
  void cancel() noexcept;
  // Releases the path beyond the first `tokens` tokens, except the block that they end in: its
  // tail. Without the memory to split a node, releases somewhat more.
  void retreat(uint64_t tokens) noexcept;
  // Releases the tail, because the session has written its copy or does without the block.
  void release_tail() noexcept;
  // Releases the path beyond `blocks` blocks, and removes those from the index that no other hold
  // uses.
  void withdraw(uint32_t blocks) noexcept;

 private:
  friend class Index;
  void swap(Hold& other) noexcept;

  Index* index_ = nullptr;
  Use use_;
};

}  // namespace pkv::prefix
