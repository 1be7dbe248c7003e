// Blocks that were taken from the pools of a cache and have no owner yet. A reservation takes the
// blocks of all layer groups or none, so a step or a session that needs some cannot run out of them
// half way.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/cache/cache.h"

namespace pkv {

// Returns how many blocks must be free in each group before `counts` can be taken: `watermark`
// more than the count, or 0 where the count is 0.
std::vector<uint64_t> with_watermark(std::span<const uint64_t> counts, uint32_t watermark);

// Throws TOO_LARGE if a group could never have `count` blocks and leave `watermark` free.
void check_possible(const Cache& cache, size_t group, uint64_t count, uint32_t watermark,
                    const char* who);
// Does the same for counts by group and the pages that the groups share.
void check_pages_possible(const Cache& cache, std::span<const uint64_t> counts, uint32_t watermark,
                          const char* who);
// Does both.
void check_possible(const Cache& cache, std::span<const uint64_t> counts, uint32_t watermark,
                    const char* who);

// Returns the price of what a call lacks, if these contents can be released. Changes nothing.
// Throws bad_alloc.
prefix::Price price_of(const Cache& cache, const prefix::Lack& lack,
                       std::span<const prefix::Releasable> releasables = {});
// Does the same where the store can release its contents, too, if these are not enough.
prefix::Price price_with_store(const Cache& cache, const prefix::Lack& lack,
                               std::vector<prefix::Releasable> releasables = {});

// Returns whether `counts` blocks and the watermark fit beside the pinned blocks. If so, a call
// that lacks blocks can wait for those of others.
bool fits_beside_pins(const Cache& cache, std::span<const uint64_t> counts, uint32_t watermark);

// How far a call goes before it fails.
enum class Urgency {
  may_fail,      // it asks the store for its blocks; the caller can try again later
  must_succeed,  // it also ends pins, and sleeps a little while other threads move blocks
};

class Reservation {
 public:
  // The blocks that a call takes, by group, and how many more stay free where it takes some.
  struct Demand {
    std::span<const uint64_t> counts;
    uint32_t watermark;
  };
  // What the sessions of a call can do without.
  struct Own {
    std::function<prefix::OwnBlocks()> list;
    // Gives up the expired and spare blocks that list() returned, and those of its tails whose
    // indices are in `tails`. Returns what the call then takes, which may be less.
    std::function<Demand(const prefix::OwnBlocks& listed, std::span<const size_t> tails)> give_up;
  };
  // Takes counts[g] blocks of each group g. In every group where some are needed, `watermark` more
  // blocks stay free (exact while one thread takes blocks). `who` is the name of the call, for the
  // sentence, which ends with `advice`. Free blocks and pages go first, then cached blocks are
  // evicted, then the call's own sessions give up what they do not need, the store what it holds,
  // and last, pins yield to urgent calls. Nobody gives up anything unless all of it suffices; other
  // threads may then take it first. Throws OUT_OF_BLOCKS, TOO_LARGE if a pool could never give as
  // many, bad_alloc; then no block is taken.
  Reservation(Cache& cache, std::span<const uint64_t> counts, uint32_t watermark, const char* who,
              const Own& own = {}, Urgency urgency = Urgency::may_fail, const char* advice = "");
  // Releases the blocks that were not taken.
  ~Reservation() { give_back(); }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  // Returns the blocks of a group that were not taken yet. The reservation keeps them.
  std::span<const memory::Block> blocks(size_t group) const noexcept {
    return std::span(blocks_[group]).subspan(taken_[group]);
  }
  // Passes the next n blocks of a group to the caller, who must release them.
  std::span<const memory::Block> take(size_t group, uint64_t n) noexcept {
    const std::span<const memory::Block> next = blocks(group).first(n);
    taken_[group] += n;
    return next;
  }

 private:
  // The first group that has too few blocks, how many are missing over all groups (0: none), and
  // what the call would have taken after its sessions gave up what they could.
  struct Shortage {
    size_t group;
    uint64_t missing;
    Demand demand;
  };
  // Takes the blocks of all groups or none.
  Shortage reserve(Demand demand, const Own& own, Urgency urgency);
  // Takes only free blocks. Returns the first group that has too few, or the number of groups.
  size_t reserve_free(const Demand& demand);
  void give_back() noexcept;

  Cache& cache_;
  std::vector<std::vector<memory::Block>> blocks_;  // by group
  std::vector<size_t> taken_;                       // by group: how many the caller has taken
};

}  // namespace pkv
