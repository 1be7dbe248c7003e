// The prefix index of a cache: it knows which texts are cached in which blocks, and chooses what to
// evict. Other directories of the engine use only this header. The class takes the lock that
// protects the whole index, and leaves the work to one class per role:
//
//   Matcher    what a session takes over      Uses       what is in use, and what is evictable
//   Publisher  what a session adds            Hints      what stays cached, or longer than others
//   Eviction   what is removed                IndexData  the tree and all counts
//
// The index holds one reference to each of its blocks. Each block of a pool is free, pinned, in use
// (referenced by a session, a snapshot, a step or the queue of a store), or evictable:
//   all = free + pinned or in use + evictable
// So a step can take every block that is neither pinned nor in use.
#pragma once

#include <pagedkv/prefix.h>

#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string_view>

#include "base/read_write_lock.h"
#include "engine/memory/block_table.h"
#include "engine/prefix/eviction.h"
#include "engine/prefix/forecast.h"
#include "engine/prefix/hints.h"
#include "engine/prefix/hold.h"
#include "engine/prefix/image.h"
#include "engine/prefix/index_data.h"
#include "engine/prefix/matcher.h"
#include "engine/prefix/publisher.h"
#include "engine/prefix/uses.h"

namespace pkv::prefix {

// What a call does while another thread has the lock of the index.
enum class IfLocked { wait, skip };

class Index {
 public:
  Index(const IndexOptions& options, std::span<const std::unique_ptr<memory::Group>> groups,
        HookMemory& memory);

  // Fills the empty tables (one per group) with the blocks of the longest cached beginning of a
  // text, plus the next block if its first tokens also match. Returns how many tokens the tables
  // have then. Throws bad_alloc and LIMIT_REACHED; nothing has changed then.
  uint64_t match(Hold& hold, Tokens text, memory::Tables tables);
  // Does the same in whole blocks, and returns how many.
  uint32_t match_blocks(Hold& hold, Tokens text, memory::Tables tables);
  // Returns how many blocks a match would find. Changes nothing.
  uint32_t cached(std::string_view salt, Tokens text) const;

  // Caches the blocks of a text beyond the hold, up to the first token whose id is unknown. If
  // another session has cached the same text, the tables take over its blocks. What cannot be
  // stored now is stored by a later call; a call that can store nothing costs little, however long
  // the text is.
  void publish(Hold& hold, Tokens text, memory::Tables tables, IfLocked if_locked) noexcept;

  // Evicts until each group has `wanted` free blocks. Returns false, and evicts nothing, if one has
  // not enough evictable ones.
  bool evict_until_free(std::span<const uint64_t> wanted) noexcept;
  // Does the same until pages have `wanted` blocks of each group.
  bool evict_for_pages(memory::Pages& pages, std::span<const uint64_t> wanted) noexcept;
  uint64_t evictable(size_t group);
  // Evicts a block so that its remaining users can write into it without a copy. In a full group
  // this also evicts all cached texts that continue after it, in a sparse group only this block.
  // Does nothing if the block is pinned or, in a full group, another session uses it by now.
  void let_go(size_t group, uint32_t id) noexcept;
  // Returns true if the index has a block and no pin keeps it. So let_go() evicts it once only its
  // writers use it.
  bool has_unpinned(size_t group, uint32_t id) const;
  // Returns, by group and position, true where the index also has the block of the tables and no
  // pin keeps it: it becomes evictable when only the index references it.
  std::vector<std::vector<bool>> has_unpinned(memory::Tables tables) const;

  // The clock of durations.
  bool is_over(uint64_t time) const;
  uint64_t time_in(uint64_t duration_ms) const;  // for 0, a time that never comes
  // Keeps the cached part of a text even if it is unused, for a time or (0) without an end. A pin
  // that ends there already is prolonged. Throws bad_alloc.
  PinResult pin(std::string_view salt, Tokens text, uint64_t duration_ms);
  // Ends the pin of this text, which has whole blocks. Returns where it ended, in blocks; that is
  // before the end of the text if it was clipped. Returns 0 if there is none.
  uint32_t unpin(std::string_view salt, Tokens text) noexcept;
  bool has_pins() const;
  // Returns how many blocks pins keep now, by group. Throws bad_alloc.
  std::vector<uint64_t> pinned_blocks() const;
  // Returns what must be given up so that a call can have blocks which are neither free nor
  // evictable. pages: NULL unless the groups share memory. Throws bad_alloc.
  Price price(const memory::Pages* pages, const Lack& lack,
              std::span<const Releasable> releasables);
  // Does the same and ends the pins among it, for a call that would fail otherwise.
  Price price_and_end_pins(const memory::Pages* pages, const Lack& lack,
                           std::span<const Releasable> releasables);
  // Sets the retention of the cached blocks of a text that are in a range: to more or less than
  // they have or, for a duration, to more. Returns where the cached part of the range ends; at or
  // before its beginning, nothing of it is cached. Throws bad_alloc.
  uint32_t set_retention(std::string_view salt, Tokens text, const Range& range);
  // Removes the blocks of a text, which has whole ones, from its end back to block `first`, as far
  // as they are unused and no other text continues after them. Returns where what is cached of the
  // text ended before, and where it ends now.
  std::pair<uint32_t, uint32_t> drop(std::string_view salt, Tokens text, uint32_t first);
  // Caches at most `blocks` blocks of a salt from now on. 0: no limit; nullopt: the limit of all
  // salts. Throws bad_alloc.
  void set_quota(std::string_view salt, std::optional<uint64_t> blocks);
  // Returns how many blocks of a salt may be cached; UINT64_MAX: any number.
  uint64_t quota(std::string_view salt) const;
  // Evicts unused blocks of the salt of a hold, so that its quota has room for the blocks of a text
  // from the end of the hold up to block `end`. Returns the end of those that it has room for.
  uint64_t make_room_in_quota(Hold& hold, uint64_t end) noexcept;

  bool has_events() const { return data_.events.kept(); }
  size_t read_events(uint64_t& next, std::span<pkv_prefix_event> out, uint64_t& lost) const;

  Figures figures(std::string_view salt);
  Figures figures();
  // Drops all unused blocks of one salt or (nullptr) of all.
  void clear(const std::string_view* salt) noexcept;

  // Returns an empty image of all that is cached, to be filled by calls of copy_more() until one
  // returns false. While it lives, blocks that are evicted are marked in it as gone. Throws
  // bad_alloc.
  std::unique_ptr<Image> begin_image();
  bool copy_more(Image& image, uint32_t most = Image::blocks_per_piece) const;

  // References to cached blocks of one group. While they last, the blocks are not evicted, and a
  // step that would write into one copies it first.
  class Loan {
   public:
    Loan(memory::Group& group, size_t n) : group_(&group), available_(n) { blocks_.reserve(n); }
    Loan(Loan&&) noexcept = default;
    ~Loan() { group_->pool.release_held(blocks_); }
    // Returns whether the i-th block still has the bytes that it was lent for.
    bool available(size_t i) const { return available_[i]; }

   private:
    friend class Index;
    memory::Group* group_;
    std::vector<bool> available_;
    std::vector<memory::Block> blocks_;
  };
  // Lends those blocks of an image that are not gone. Throws bad_alloc.
  Loan lend(Image& image, size_t group, std::span<const uint32_t> ids);

  // Checks the equations of the index, and adds the references that it holds by group and id.
  // Throws INTERNAL.
  void validate(std::span<std::vector<uint64_t>> references);

 private:
  friend class Hold;
  std::unique_lock<ReadWriteLock> lock_now() noexcept;
  Price price_now(const memory::Pages* pages, const Lack& lack,
                  std::span<const Releasable> releasables);

  mutable ReadWriteLock mutex_;
  IndexData data_;
  Uses uses_;
  Matcher matcher_;
  Eviction eviction_;
  Publisher publisher_;
  Hints hints_;
};

}  // namespace pkv::prefix
