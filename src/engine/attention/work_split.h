// How an attention call is cut into work: query chunks, whose results are merged and finished, and
// passes, each a read of some K and V for one or more query chunks. The cuts depend on shapes and
// block tables only, never on the number of threads.
#pragma once

#include <span>
#include <vector>

#include "engine/attention/call.h"

namespace pkv::attention {

// Some queries of one sequence, for some KV heads.
struct QueryChunk {
  const AttendSequence* sequence;
  uint32_t first, queries;  // of the sequence's queries
  uint32_t head_begin, head_end;
  size_t view;  // first of its queries in WorkSplit::views()
  std::vector<uint32_t> passes;
  std::vector<uint32_t> rows_before;  // in the stacked rows of each pass
};

// Positions [begin, end) of one sequence, or of those that several sequences share.
struct Pass {
  std::vector<uint32_t> chunks;  // their rows are stacked
  uint32_t queries;              // of all of them
  uint64_t begin, end;
  size_t view;    // first of its queries in WorkSplit::views()
  bool alone;     // the only pass of its only chunk: finished at once
  size_t result;  // else: floats from the start of the shared memory
};

class WorkSplit {
 public:
  explicit WorkSplit(const AttendCall& call);

  std::span<const QueryChunk> chunks() const { return chunks_; }
  std::span<const Pass> passes() const { return passes_; }
  const kernels::QueryView* views(size_t first) const { return views_.data() + first; }
  uint32_t heads(const Pass& pass) const {
    return chunks_[pass.chunks[0]].head_end - chunks_[pass.chunks[0]].head_begin;
  }
  uint64_t rows(const Pass& pass) const {
    return uint64_t{pass.queries} * group_;
  }  // of one KV head
  // Floats of a pass: prepared queries, and the partial result.
  size_t query_floats(const Pass& pass) const {
    return rows(pass) * heads(pass) * call_.shape.key_dim;
  }
  size_t result_floats(const Pass& pass) const {
    return rows(pass) * heads(pass) * (call_.shape.value_dim + 2);
  }
  size_t shared_floats() const { return shared_floats_; }

 private:
  void add_chunks(const AttendSequence& sequence);
  void add_chunk(const AttendSequence& sequence, uint32_t first, uint32_t queries,
                 uint32_t head_begin, uint32_t head_end);
  void add_views(const AttendSequence& sequence, uint32_t first, uint32_t queries);
  void share(std::span<uint32_t> chunks, uint64_t compared, uint64_t passed);
  void add_shared_passes(std::span<const uint32_t> chunks, uint64_t begin, uint64_t end);
  void add_own_passes(uint32_t chunk, uint64_t passed);
  void add_passes(std::span<const uint32_t> chunks, uint64_t begin, uint64_t end);
  uint64_t part_tokens(uint64_t rows_of_a_head, uint32_t heads) const;
  void give_places();

  const AttendCall& call_;
  const uint32_t group_;
  std::vector<QueryChunk> chunks_;
  std::vector<Pass> passes_;
  std::vector<kernels::QueryView> views_;
  size_t shared_floats_ = 0;
};

}  // namespace pkv::attention
