// Cuts an attention call into tasks. Queries are cut into chunks. The positions that chunks see are
// cut into KV splits: one task reads the K and V of a split once, for one or more chunks, and
// computes a partial result for each. The partial results of a chunk are then merged in order.
// Positions and queries are cut by shapes and block tables only, never by the number of threads, so
// results do not depend on it either. Threads only decide how many KV heads a chunk of a decode
// step has, each of which is computed by itself.
#pragma once

#include <span>
#include <vector>

#include "engine/attention/reading.h"

namespace pkv::attention {

// A chunk, and the KV splits that it reads.
struct SplitChunk : QueryChunk {
  std::vector<uint32_t> splits;      // their indices, by position
  std::vector<uint32_t> first_rows;  // by split: where its rows begin among the split's rows
  uint64_t shareable = 0;            // how many first tokens other chunks may read with it
};

// Positions [begin, end) of one sequence, or of several that have the same blocks there.
struct KvSplit {
  std::vector<uint32_t> chunks;  // indices of the chunks that read it, whose rows follow each other
  uint32_t queries;              // of all these chunks
  uint64_t begin, end;
  const kernels::QueryView* views;  // what each of these queries sees
  bool needs_merge;                 // false if it is the only split of its only chunk
  size_t result_offset;  // if needs_merge: where its result is in the merge buffer, in floats
};

class WorkSplit {
 public:
  // The call and the readings must outlive it. Throws bad_alloc.
  WorkSplit(const AttendCall& call, std::span<const Reading> readings, unsigned threads);

  std::span<const SplitChunk> chunks() const { return chunks_; }
  std::span<const KvSplit> splits() const { return splits_; }
  // The number of KV heads of a split.
  uint32_t heads(const KvSplit& split) const {
    return chunks_[split.chunks[0]].head_end - chunks_[split.chunks[0]].head_begin;
  }
  // The rows of a split for one KV head: one for each query and each query head of that KV head.
  uint64_t rows(const KvSplit& split) const {
    return uint64_t{split.queries} * call_.shape.heads_per_kv_head();
  }
  // The size in floats of the prepared queries of a split.
  size_t query_floats(const KvSplit& split) const {
    return rows(split) * heads(split) * call_.shape.key_floats();
  }
  // The size in floats of the partial result of a split: for each row an output, a maximum and a
  // sum.
  size_t result_floats(const KvSplit& split) const {
    return rows(split) * heads(split) * (call_.shape.value_floats() + 2);
  }
  // The size in floats of the merge buffer: of all results that need a merge.
  size_t merge_floats() const { return merge_floats_; }

 private:
  // Chunks whose sequences have the same blocks before position `compared`. Those before `covered`
  // have splits already.
  struct SharingChunks {
    std::span<uint32_t> chunks;
    uint64_t compared, covered;
  };

  std::vector<uint32_t> decode_heads(std::span<const Reading> readings, unsigned threads) const;
  void add_chunks(const Reading& reading, uint32_t decode_heads);
  void split_by_prefix(std::span<uint32_t> chunks);
  void add_groups(const SharingChunks& group, std::vector<SharingChunks>& groups) const;
  uint64_t shareable_tokens(const Reading& reading) const;
  uint64_t common_tokens(std::span<const uint32_t> chunks, uint64_t compared) const;
  void add_shared_splits(std::span<const uint32_t> chunks, uint64_t begin, uint64_t end);
  void add_own_splits(uint32_t chunk, uint64_t covered);
  void add_splits(std::span<const uint32_t> chunks, uint64_t begin, uint64_t end);
  uint64_t bytes_per_head() const;
  uint64_t split_tokens(uint64_t rows_per_head, uint32_t heads, uint64_t all, bool decodes) const;
  void place_results();

  const AttendCall& call_;
  std::vector<SplitChunk> chunks_;
  std::vector<KvSplit> splits_;
  std::vector<std::vector<kernels::QueryView>> shared_views_;  // of splits with several chunks
  size_t merge_floats_ = 0;
};

}  // namespace pkv::attention
