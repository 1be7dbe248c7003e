// The prefix index of a cache: which texts are cached, in which blocks, and what goes when room is
// needed. This is the part that the other rooms see; it takes the lock that guards all of it, and
// hands the work to one class per role:
//
//   Matcher    what a session takes over          Claims    who uses what, and what is evictable
//   Publisher  what a session adds                Pins      what is kept though nobody uses it
//   Eviction   what is given up                   Contents  the tree and all that is counted
//
// The index holds one reference to each of its blocks. Each block of a pool is free, pinned,
// referred to by somebody besides the index (a session, a snapshot, a step, the queue of a tier),
// or evictable:
//   all = free + pinned or referred to + evictable
// So a step can have all blocks that nobody refers to and no pin keeps.
#pragma once

#include <pagedkv/prefix.h>

#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>

#include "base/read_write_lock.h"
#include "engine/memory/sequence.h"
#include "engine/prefix/claims.h"
#include "engine/prefix/contents.h"
#include "engine/prefix/eviction.h"
#include "engine/prefix/image.h"
#include "engine/prefix/matcher.h"
#include "engine/prefix/pins.h"
#include "engine/prefix/publisher.h"

namespace pkv::prefix {

class Index {
 public:
  Index(const pkv_prefix_config& config, uint32_t block_size,
        std::span<const std::unique_ptr<memory::Group>> groups, HookMemory& memory);

  // A claim on a path of the index that ends with the object. It is moved, copied (as another
  // claim) and dropped under the index's lock. An empty one claims nothing.
  class Hold {
   public:
    Hold() = default;
    // Claims the beginning of every text of a salt. retention: of the blocks it leaves behind.
    // Throws bad_alloc.
    Hold(Index& index, std::string_view salt, uint8_t retention);
    Hold(Hold&& other) noexcept { swap(other); }
    Hold& operator=(Hold&& other) noexcept { return swap(other), *this; }
    ~Hold();
    Hold copy() const;

    explicit operator bool() const { return index_ != nullptr; }
    uint32_t depth() const { return claim_.depth; }  // blocks of the path
    std::string salt() const;
    uint8_t retention() const { return claim_.retention; }
    // Of when the text goes on after this claim: see hint_of.
    uint8_t hint() const { return claim_.hint; }
    void set_hint(uint8_t hint) { claim_.hint = hint; }
    // Releases the path beyond `blocks` blocks; without the memory to split a node, somewhat more.
    void retreat(uint32_t blocks) noexcept;
    // Does the same and takes from the index what nobody else uses of the path beyond.
    void withdraw(uint32_t blocks) noexcept;

   private:
    friend class Index;
    void swap(Hold& other) noexcept;

    Index* index_ = nullptr;
    Claim claim_;
  };
  using Tail = prefix::Tail;

  // The sequences, one by group and empty, take over the blocks of the longest cached beginning of
  // a text. Returns how many blocks. tail: gets the block after them, if it begins like the rest of
  // the text, for the caller to copy and release; nullptr if the caller does not copy. Throws
  // bad_alloc and REF_LIMIT; nothing has changed then.
  uint32_t match(Hold& hold, Tokens text, std::span<memory::Sequence> sequences, Tail* tail);
  void release(Tail& tail) noexcept;
  // How many blocks a match would find. Changes nothing.
  uint32_t cached(std::string_view salt, Tokens text) const;
  // Adds a match to the figures of a salt.
  void count_matched(const Hold& hold, uint64_t asked_tokens, uint64_t matched_tokens) noexcept;

  // Caches the blocks of a text beyond the hold. If another session has cached the same text, the
  // sequences take over its blocks. wait: false gives up if another thread has the lock. What
  // cannot be stored for want of memory is stored by a later call.
  void publish(Hold& hold, Tokens text, std::span<memory::Sequence> sequences, bool wait) noexcept;

  // Evicts until a group has `blocks` free blocks. Returns false, and evicts nothing, if there are
  // not enough evictable ones.
  bool make_free(size_t group, uint64_t blocks) noexcept;
  // Evicts until pages have `wanted` blocks of each group. Returns false, and evicts nothing, if
  // there are not enough evictable ones.
  bool make_room(memory::Pages& pages, std::span<const uint64_t> wanted) noexcept;
  // Marks all evictable blocks as free. Throws bad_alloc.
  void free_evictable(memory::PageForecast& forecast);
  uint64_t evictable(size_t group);
  // By group and position, true where a block of the sequences is the index's as well, which no pin
  // keeps: it becomes evictable when nobody else refers to it.
  std::vector<std::vector<bool>> gives_up(std::span<const memory::Sequence> sequences) const;

  // Keeps what is cached of a text, though nobody uses it; returns how many blocks. Throws
  // OUT_OF_BLOCKS beyond the quota of pins, REF_LIMIT and bad_alloc.
  uint32_t pin(std::string_view salt, Tokens text);
  // Takes back the longest pin of a beginning of the text; returns how many blocks it had. Throws
  // DOUBLE_FREE if there is none.
  uint32_t unpin(std::string_view salt, Tokens text);
  // Caches at most `blocks` blocks of a salt from now on. 0: no limit; nothing: the limit of all
  // salts. Throws bad_alloc.
  void set_quota(std::string_view salt, std::optional<uint64_t> blocks);

  bool has_events() const { return contents_.events.kept(); }
  size_t read_events(uint64_t& next, std::span<pkv_prefix_event> out,
                     uint64_t& lost) const noexcept;

  Figures figures(std::string_view salt);
  Figures figures();
  // Drops what nobody uses, of one salt or (nullptr) of all.
  void clear(const std::string_view* salt) noexcept;

  // An image of all that is cached, which is told what goes for as long as it lives. Throws
  // bad_alloc.
  std::unique_ptr<Image> freeze();

  // Checks the equations of the index, and adds the references that it holds by group and id.
  // Throws INTERNAL.
  void validate(std::span<std::vector<uint64_t>> references);

 private:
  mutable ReadWriteLock mutex_;
  Contents contents_;
  Claims claims_;
  Matcher matcher_;
  Eviction eviction_;
  Publisher publisher_;
  Pins pins_;
};

}  // namespace pkv::prefix
