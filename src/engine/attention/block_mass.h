// The attention mass of blocks: the weight that the queries of a call give to each block. It is
// computed after the attention, when the log-sum-exp of every query is known.
#pragma once

#include <optional>
#include <vector>

#include "base/parallel.h"
#include "engine/attention/call.h"
#include "engine/attention/scratch_pool.h"
#include "engine/attention/work_split.h"
#include "kernels/kernels.h"

namespace pkv::attention {

class BlockMass {
 public:
  // Plans the work and allocates all its memory. The log-sum-exp of all queries will be in `lse`.
  // The object refers to its arguments as long as it lives. Throws bad_alloc.
  BlockMass(Workers& workers, ScratchPool& pool, const kernels::Table& kernels,
            const AttendCall& call, std::span<const Reading> readings, const WorkSplit& work,
            const float* lse);

  // Writes AttendOutputs::masses. Call it once the lse of all queries is computed.
  void write();

 private:
  // Queries of one reading. All its KV heads have the same queries.
  struct Queries {
    uint32_t first, count;
  };
  // Some blocks of a reading and one of its KV heads. One task adds up their weights for all
  // queries.
  struct Range {
    const Reading* reading;
    size_t first_queries, queries_end;  // in queries_
    uint32_t head;
    uint64_t begin, end;  // positions; both at the beginning of blocks, or the end at the last one

    QueryChunk chunk(const Queries& queries) const {
      return {reading, queries.first, queries.count, head, head + 1};
    }
  };

  void list_queries(const WorkSplit& work);
  void add_ranges(const Reading& reading, size_t first_queries);
  void weigh(const Range& range, const Queries& queries, float* scratch) const;
  kernels::WeighTask task_of(const Range& range, const Queries& queries) const;
  float* mass_of(const Reading& reading, uint32_t head) const;
  uint32_t heads_per_kv_head() const { return call_.shape.heads_per_kv_head(); }

  Workers& workers_;
  const kernels::Table& kernels_;
  const AttendCall& call_;
  const std::span<const Reading> readings_;
  const float* const lse_;
  std::vector<Queries> queries_;
  std::vector<Range> ranges_;
  size_t query_floats_ = 0, worker_floats_ = 0;
  std::optional<ScratchPool::Buffer> scratch_;
};

}  // namespace pkv::attention
