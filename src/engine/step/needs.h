// Counts the blocks that a step takes from the pools, for Batch and for choose_victims().
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "engine/session/session.h"

namespace pkv {

using GoneReferences = std::vector<memory::GoneCounts>;  // by group

class Needs {
 public:
  // `who` is the name of the call, for sentences. `gone` must outlive the object; NULL: every
  // reference counts. Throws bad_alloc.
  Needs(const Cache& cache, size_t sessions, const char* who, const GoneReferences* gone = nullptr);
  // Adds what `new_tokens` further tokens of a session need, with a copy of its tail if that is
  // shared. Throws TOO_LARGE, bad_alloc.
  void add(const Session& session, uint32_t new_tokens);
  // Subtracts what the i-th add() added. Do not use it for a session that writes to a shared block:
  // that also changes what the block's other holders need, so all must be added again.
  void remove(size_t i);
  // Throws BATCH_TOO_LARGE if a pool is too small for the blocks of all steps together, though each
  // session by itself would fit.
  void check_fits_together() const;
  // Call this after the last add(). Where every holder of a shared tail also writes to it, one of
  // them needs no copy: it is the only holder once the others have copied. The longest session is
  // chosen, so that an abort finds all rows of the others unchanged.
  void skip_last_copies();
  // Lists the other tails, of which one more copy can be skipped once nobody but the writers holds
  // them.
  std::vector<prefix::OwnBlocks::Tail> tails() const;

  // Returns whether a session that was added writes to this block, which others share.
  bool writes_to_shared(size_t group, uint32_t id) const { return writers_.contains({group, id}); }

  // By group.
  std::span<const uint64_t> blocks() const { return blocks_; }
  // How many blocks must stay free: 0 unless a session begins.
  uint32_t watermark() const { return beginning_ > 0 ? cache_.config().watermark : 0; }
  // What the session of the i-th add() needs, by group.
  std::span<const memory::StepNeed> of(size_t i) const {
    return std::span(steps_).subspan(i * blocks_.size(), blocks_.size());
  }
  // How many shared tails are copied.
  size_t copies() const;

 private:
  // The sessions that write to one shared tail.
  struct Writers {
    uint32_t count = 0;
    // The length of the longest one, and the place of its step in steps_.
    uint64_t length = 0;
    size_t step = 0;
    uint32_t spare = PKV_NO_BLOCK;  // the spare block that would take its copy
  };

  uint32_t references(size_t group, uint32_t id) const;
  void check_pages(const Session& session, uint64_t end, std::span<const uint64_t> beside) const;

  const Cache& cache_;
  const char* const who_;
  const GoneReferences* const gone_;
  std::vector<uint64_t> blocks_;
  std::vector<memory::StepNeed> steps_;                     // by session and group
  std::map<std::pair<size_t, uint32_t>, Writers> writers_;  // by group and block id
  uint64_t beginning_ = 0;  // how often a session takes its first blocks of a group
};

}  // namespace pkv
