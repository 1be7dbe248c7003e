// Runs the KV splits of a call on the workers, each in scratch memory of its own, and then merges
// the results of those that share a query chunk.
#include "engine/attention/attend.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/checked.h"
#include "base/status.h"
#include "engine/attention/block_mass.h"
#include "engine/attention/reading.h"
#include "engine/attention/work_split.h"
#include "engine/memory/layout.h"
#include "engine/rows/kv_view.h"
#include "engine/rows/rows.h"
#include "engine/rows/sequences.h"

namespace pkv::attention {

namespace {

// Runs the kernels for one call. The constructor allocates everything but the scratch memory,
// because nothing may fail after the first output is written.
class SplitRunner {
 public:
  // The log-sum-exp of all queries is written to `lse`, unless it is NULL.
  SplitRunner(const kernels::Table& kernels, const AttendCall& call, const WorkSplit& work,
              float* lse)
      : kernels_(kernels), call_(call), work_(work), lse_(lse) {
    for (const KvSplit& split : work.splits()) {
      query_floats_ = std::max(query_floats_, whole_lines(work.query_floats(split)));
      if (!split.needs_merge)
        result_floats_ = std::max(result_floats_, whole_lines(work.result_floats(split)));
      kernel_bytes_ = std::max(kernel_bytes_, kernels.attend_scratch_bytes(task_of(split)));
    }
    size_t parts = 0;
    for (const SplitChunk& chunk : work.chunks()) {
      first_part_.push_back(parts);
      parts += chunk.splits.size();
    }
    parts_.resize(parts);
  }

  // The scratch memory of one worker: prepared queries, a result, and the memory that the kernel
  // needs.
  size_t worker_floats() const {
    return query_floats_ + result_floats_ + whole_lines(kernel_bytes_ / sizeof(float) + 1);
  }

  // Sets the scratch memory: `merge_buffer` has room for the results that need a merge, `workers`
  // has worker_floats() for each worker.
  void set_scratch(float* merge_buffer, float* workers) {
    merge_buffer_ = merge_buffer;
    workers_ = workers;
  }

  // Attends over one split. If its result needs no merge, it also writes the outputs.
  void run(const KvSplit& split, unsigned worker) {
    float* const scratch = workers_ + worker * worker_floats();
    prepare_queries(split, scratch);
    kernels::AttendTask task = task_of(split);
    task.q = scratch;
    task.out = split.needs_merge ? merge_buffer_ + split.result_offset : scratch + query_floats_;
    task.max = task.out + work_.rows(split) * work_.heads(split) * call_.shape.value_floats();
    task.sum = task.max + work_.rows(split) * work_.heads(split);
    task.scratch = reinterpret_cast<unsigned char*>(scratch + query_floats_ + result_floats_);
    kernels_.attend(task);
    if (!split.needs_merge) finish(split.chunks[0], task.out);
  }

  // Merges the results of all splits of a chunk, in order, and writes the chunk's outputs. If the
  // chunk has one split that needs no merge, `result` is that split's result; otherwise it is NULL.
  void finish(size_t chunk_index, float* result) {
    const SplitChunk& chunk = work_.chunks()[chunk_index];
    const uint32_t floats = call_.shape.value_floats();
    const std::span<kernels::Partial> parts =
        std::span(parts_).subspan(first_part_[chunk_index], chunk.splits.size());
    for (size_t i = 0; i < parts.size(); i++) {
      const KvSplit& split = work_.splits()[chunk.splits[i]];
      float* const out = result != nullptr ? result : merge_buffer_ + split.result_offset;
      const uint64_t rows = work_.rows(split) * work_.heads(split), first = chunk.first_rows[i];
      parts[i] = {out + first * floats, out + rows * floats + first,
                  out + rows * (floats + 1) + first, work_.rows(split)};
    }
    const uint64_t query = chunk.reading->first_query + chunk.first;
    kernels::FinishTask task{};
    task.head_begin = chunk.head_begin;
    task.head_end = chunk.head_end;
    task.heads_per_kv_head = call_.shape.heads_per_kv_head();
    task.queries = chunk.queries;
    task.value_dim = call_.shape.value_dim;
    task.rotation = chunk.reading->kv.v.rotation;
    task.parts = static_cast<uint32_t>(parts.size());
    task.part = parts.data();
    task.sink_logits = call_.params.sink_logits;
    task.rows = rows::rows_from(chunk.reading->out, chunk.first);
    task.lse = lse_ != nullptr ? lse_ + query * call_.shape.query_heads : nullptr;
    task.lse_stride = call_.shape.query_heads;
    kernels_.finish(task);
  }

 private:
  // The kernel's task for a split, without the pointers to queries, results and scratch memory.
  kernels::AttendTask task_of(const KvSplit& split) const {
    kernels::AttendTask task =
        attend_task(call_, work_.chunks()[split.chunks[0]], split.begin, split.end);
    task.queries = split.queries;
    task.query = split.views;
    return task;
  }

  // Writes the queries of all chunks of a split to q, converted to fp32 and scaled.
  void prepare_queries(const KvSplit& split, float* q) const {
    uint64_t rows = 0;
    for (const uint32_t i : split.chunks) {
      const QueryChunk& chunk = work_.chunks()[i];
      kernels_.prepare(
          query_task(call_, chunk, q + rows * call_.shape.key_floats(), work_.rows(split)));
      rows += uint64_t{chunk.queries} * call_.shape.heads_per_kv_head();
    }
  }

  const kernels::Table& kernels_;
  const AttendCall& call_;
  const WorkSplit& work_;
  float* const lse_;
  std::vector<kernels::Partial> parts_;  // of all chunks, one for each split that a chunk reads
  std::vector<size_t> first_part_;       // by chunk: its first element of parts_
  // The largest sizes that any split needs.
  size_t query_floats_ = 0, result_floats_ = 0, kernel_bytes_ = 0;
  float* merge_buffer_ = nullptr;
  float* workers_ = nullptr;
};

}  // namespace

void attend(Workers& workers, ScratchPool& pool, const kernels::Table& kernels,
            const AttendCall& call, const ChoosingLayer& layer) {
  check_call(call);
  const Readings whole(workers, call);
  std::optional<const ChosenBlocks> chosen;
  if (call.params.chooses()) chosen.emplace(workers, kernels, call, whole, layer);
  const std::span<const Reading> readings = chosen ? chosen->readings() : whole.all();
  const WorkSplit work(call, readings, workers.threads());
  if (work.splits().empty()) return;
  const bool weighs = call.outputs.masses != nullptr;
  std::vector<float> own_lse;
  if (weighs && call.outputs.lse == nullptr)
    own_lse.resize(call.rows.rows() * call.shape.query_heads);
  float* const lse = own_lse.empty() ? call.outputs.lse : own_lse.data();
  std::optional<BlockMass> mass;
  if (weighs) mass.emplace(workers, pool, kernels, call, readings, work, lse);
  SplitRunner runner(kernels, call, work, lse);
  const size_t merge_floats = whole_lines(work.merge_floats());
  ScratchPool::Buffer scratch(pool, merge_floats + workers.threads() * runner.worker_floats());
  runner.set_scratch(scratch.data(), scratch.data() + merge_floats);

  workers.for_each(work.splits().size(),
                   [&](size_t i, unsigned worker) { runner.run(work.splits()[i], worker); });
  // The results that need a merge.
  const size_t merged = work.merge_floats() == 0 ? 0 : work.chunks().size();
  workers.for_each(merged, [&](size_t i, unsigned) {
    const SplitChunk& chunk = work.chunks()[i];
    if (work.splits()[chunk.splits[0]].needs_merge) runner.finish(i, nullptr);
  });
  if (mass) mass->write();
}

void attend_stateless(Compute& compute, const pkv_kv_view& kv, const pkv_kv_sequences& given,
                      const pkv_attention_params* params, const pkv_tensor* q,
                      const pkv_tensor* out, const pkv_attention_outputs* outputs) {
  const kernels::KvView view = rows::check_view(kv);
  if (given.query_heads > memory::max_heads)
    fail(PKV_INVALID_ARGUMENT, "query_heads is %u; it must be at most %u", given.query_heads,
         memory::max_heads);
  if (given.query_heads == 0 || given.query_heads % kv.kv_heads != 0)
    fail(PKV_INVALID_ARGUMENT, "%u query heads are not a multiple of %u KV heads",
         given.query_heads, kv.kv_heads);
  AttendCall call{};
  call.params = check_params(params, kv.kv_heads, kv.key_dim, {});
  call.outputs = check_outputs(outputs, call.params);
  if (call.params.top_blocks != 0)
    fail(PKV_UNSUPPORTED,
         "chosen_blocks: top_blocks is %u, but only a cache has bounds of keys; give lists instead",
         call.params.top_blocks);
  const rows::Sequences checked(kv, view, given, call.params.window.window,
                                call.params.window.sinks, call.params.masks_new_tokens());
  call.shape = {given.query_heads, kv.kv_heads, kv.key_dim,
                kv.value_dim,      kv.dtype,    kv.value_dtype != 0 ? kv.value_dtype : kv.dtype};
  call.sequences = checked.list();
  call.rows = checked.rows();
  call.q = rows::check_rows(q, call.rows, given.query_heads, kv.key_dim, "q");
  call.out = rows::check_rows(out, call.rows, given.query_heads, kv.value_dim, "out");
  attend(compute.workers(), compute.scratch(), compute.kernels(), call);
}

void merge_results(const Compute& compute, size_t count, const pkv_tensor* outs,
                   const float* const* lse, uint64_t rows, uint32_t heads, uint32_t dim,
                   const pkv_tensor* merged, float* merged_lse) {
  if (count == 0 || count > UINT32_MAX)
    fail(PKV_INVALID_ARGUMENT, "n is %zu; it must be 1 to 2^32 - 1", count);
  if (outs == nullptr || lse == nullptr)
    fail(PKV_INVALID_ARGUMENT, "%s is NULL", outs == nullptr ? "outs" : "lse");
  if (heads == 0 || heads > memory::max_heads)
    fail(PKV_INVALID_ARGUMENT, "heads is %u; it must be 1 to %u", heads, memory::max_heads);
  if (dim == 0 || dim > kernels::max_dim)
    fail(PKV_INVALID_ARGUMENT, "dim is %u; it must be 1 to %u", dim, kernels::max_dim);
  checked_bytes(checked_mul(rows, heads, "lse"), sizeof(float), "lse");
  std::vector<kernels::RowsView> views;
  for (size_t i = 0; i < count; i++) {
    views.push_back(rows::check_rows(outs + i, rows, heads, dim, "outs"));
    if (rows > 0 && lse[i] == nullptr) fail(PKV_INVALID_ARGUMENT, "lse[%zu] is NULL", i);
  }
  kernels::MergeTask task{};
  task.rows = rows;
  task.heads = heads;
  task.dim = dim;
  task.count = static_cast<uint32_t>(count);
  task.out = views.data();
  task.lse = lse;
  task.merged = rows::check_rows(merged, rows, heads, dim, "merged");
  task.merged_lse = merged_lse;
  if (rows > 0) compute.kernels().merge(task);
}

}  // namespace pkv::attention
