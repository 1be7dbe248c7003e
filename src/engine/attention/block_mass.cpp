// Cuts block tables into ranges. One task adds up the weights of a range for all queries of its
// sequence, so that no two tasks add to the same number.
#include "engine/attention/block_mass.h"

#include <algorithm>

#include "base/checked.h"
#include "engine/rows/rows.h"

namespace pkv::attention {

namespace {

// Tokens of a range. They are enough to make the preparation of the queries cheap in comparison.
constexpr uint64_t tokens_per_part = 1024;

}  // namespace

BlockMass::BlockMass(Workers& workers, ScratchPool& pool, const kernels::Table& kernels,
                     const AttendCall& call, std::span<const Reading> readings,
                     const WorkSplit& work, const float* lse)
    : workers_(workers), kernels_(kernels), call_(call), readings_(readings), lse_(lse) {
  list_queries(work);
  size_t kernel_bytes = 0;
  for (const Range& range : ranges_)
    for (size_t i = range.first_queries; i < range.queries_end; i++) {
      const size_t rows = size_t{queries_[i].count} * heads_per_kv_head();
      query_floats_ = std::max(query_floats_, whole_lines(rows * call.shape.key_floats()));
      kernel_bytes =
          std::max(kernel_bytes, kernels.weigh_scratch_bytes(task_of(range, queries_[i])));
    }
  worker_floats_ = query_floats_ + whole_lines(kernel_bytes / sizeof(float) + 1);
  scratch_.emplace(pool, workers.threads() * worker_floats_);
}

// The chunks of a reading follow each other, and those of its first KV head have all its queries.
void BlockMass::list_queries(const WorkSplit& work) {
  const uint32_t wanted = call_.outputs.mass_queries != 0 ? call_.outputs.mass_queries : UINT32_MAX;
  const auto chunks = work.chunks();
  for (size_t i = 0; i < chunks.size();) {
    const Reading& reading = *chunks[i].reading;
    const size_t first_queries = queries_.size();
    const uint32_t left_out = reading.queries - std::min(wanted, reading.queries);
    for (; i < chunks.size() && chunks[i].reading == &reading; i++) {
      const QueryChunk& chunk = chunks[i];
      const uint32_t end = chunk.first + chunk.queries, first = std::max(chunk.first, left_out);
      if (chunk.head_begin == reading.head_begin && first < end)
        queries_.push_back({first, end - first});
    }
    add_ranges(reading, first_queries);
  }
}

void BlockMass::add_ranges(const Reading& reading, size_t first_queries) {
  const uint64_t tokens = round_up(tokens_per_part, reading.kv.block_size);
  for (uint64_t begin = 0; begin < reading.length; begin += tokens)
    for (uint32_t head = reading.head_begin; head < reading.head_end; head++)
      ranges_.push_back({&reading, first_queries, queries_.size(), head, begin,
                         std::min(begin + tokens, reading.length)});
}

float* BlockMass::mass_of(const Reading& reading, uint32_t head) const {
  return call_.outputs.masses +
         (reading.index * call_.shape.query_heads + uint64_t{head} * heads_per_kv_head()) *
             call_.outputs.mass_blocks;
}

kernels::WeighTask BlockMass::task_of(const Range& range, const Queries& queries) const {
  kernels::WeighTask task{};
  task.attend = attend_task(call_, range.chunk(queries), range.begin, range.end);
  task.lse = lse_ + (range.reading->first_query + queries.first) * call_.shape.query_heads +
             uint64_t{range.head} * heads_per_kv_head();
  task.lse_stride = call_.shape.query_heads;
  task.weights = mass_of(*range.reading, range.head);
  task.weights_stride = call_.outputs.mass_blocks;
  return task;
}

void BlockMass::weigh(const Range& range, const Queries& queries, float* scratch) const {
  kernels_.prepare(query_task(call_, range.chunk(queries), scratch,
                              uint64_t{queries.count} * heads_per_kv_head()));
  kernels::WeighTask task = task_of(range, queries);
  task.attend.q = scratch;
  task.attend.scratch = reinterpret_cast<unsigned char*>(scratch + query_floats_);
  kernels_.weigh_blocks(task);
}

void BlockMass::write() {
  for (const Reading& reading : readings_)
    for (uint32_t head = reading.head_begin * heads_per_kv_head();
         head < reading.head_end * heads_per_kv_head(); head++)
      std::fill_n(mass_of(reading, 0) + head * call_.outputs.mass_blocks,
                  ceil_div(reading.length, reading.kv.block_size), 0.0f);
  workers_.for_each(ranges_.size(), [&](size_t i, unsigned worker) {
    const Range& range = ranges_[i];
    for (size_t q = range.first_queries; q < range.queries_end; q++)
      weigh(range, queries_[q], scratch_->data() + worker * worker_floats_);
  });
}

}  // namespace pkv::attention
