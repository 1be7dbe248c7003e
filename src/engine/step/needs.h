// Counts the blocks that a step takes from the pools, for Batch and for choose_victims().
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "engine/session/session.h"

namespace pkv {

class Needs {
 public:
  // `who` is the name of the call, for sentences. Throws bad_alloc.
  Needs(const Cache& cache, size_t sessions, const char* who);
  // Adds what `new_tokens` further tokens of a session need, with a copy of its tail if that is
  // shared. Throws TOO_LARGE, bad_alloc.
  void add(const Session& session, uint32_t new_tokens);
  // Throws BATCH_TOO_LARGE if a pool is too small for the blocks of all steps together, though each
  // session by itself would fit.
  void check_fits_together() const;
  // Call this after the last add(). Where every holder of a shared tail also writes to it, one of
  // them needs no copy: it is the only holder once the others have copied. The longest session is
  // chosen, so that an abort finds all rows of the others unchanged.
  void skip_last_copies();
  // Lists the tails that every writer copies because somebody else also holds them. Without that
  // holder, the longest writer would need no copy. Left out: tails with several writers whose
  // longest has a spare block, because it keeps that block in case of an abort, so nothing becomes
  // free. Also sets own.watermark_needs.
  void list_tails(prefix::OwnBlocks& own) const;

  // By group.
  std::span<const uint64_t> blocks() const { return blocks_; }
  // How many blocks must stay free: 0 unless a session that has not run yet takes some.
  uint32_t watermark() const { return watermark_needs_ > 0 ? cache_.config().watermark : 0; }
  // What the session of the i-th add() needs, by group. A tail is among it only if it is shared.
  std::span<const memory::StepNeed> of(size_t i) const {
    return std::span(steps_).subspan(i * blocks_.size(), blocks_.size());
  }
  // How many shared tails are copied.
  size_t copies() const;

 private:
  // A session that writes to a shared tail. Of two with the same length, the one that was added
  // last is the greater one.
  struct Writer {
    uint64_t length;
    size_t step;     // the place of its step in steps_
    uint32_t spare;  // the spare block that would take its copy
    bool operator<(const Writer& other) const {
      return std::pair(length, step) < std::pair(other.length, other.step);
    }
  };
  // All that write to one shared tail.
  struct Writers {
    uint32_t count = 0;
    Writer longest = {};
  };

  using Tail = std::pair<size_t, uint32_t>;  // group and block id

  uint32_t references(const Tail& tail) const;
  void check_pages(const Session& session, uint64_t end, std::span<const uint64_t> required) const;

  const Cache& cache_;
  const char* const who_;
  std::vector<uint64_t> blocks_;
  std::vector<memory::StepNeed> steps_;  // by session and group
  std::map<Tail, Writers> writers_;
  // How many of steps_ keep the watermark: they take blocks for a session that has not run yet.
  uint64_t watermark_needs_ = 0;
};

}  // namespace pkv
