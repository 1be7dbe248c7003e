// Runs the KV splits of a call on the workers, each in scratch memory of its own, and then merges
// the results of those that share a query chunk.
#include "engine/attention/attend.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/checked.h"
#include "engine/attention/block_mass.h"
#include "engine/attention/masks.h"
#include "engine/attention/work_split.h"
#include "engine/rows/rows.h"

namespace pkv::attention {

namespace {

// Runs the kernels for one call. The constructor allocates everything it needs but the scratch
// memory: once the first output is written, nothing may fail any more.
class SplitRunner {
 public:
  SplitRunner(const kernels::Table& kernels, const AttendCall& call, const WorkSplit& work)
      : kernels_(kernels), call_(call), work_(work) {
    for (const KvSplit& split : work.splits()) {
      query_floats_ = std::max(query_floats_, whole_lines(work.query_floats(split)));
      if (!split.needs_merge)
        result_floats_ = std::max(result_floats_, whole_lines(work.result_floats(split)));
      kernel_bytes_ = std::max(kernel_bytes_, kernels.attend_scratch_bytes(task_of(split)));
    }
    size_t parts = 0;
    for (const QueryChunk& chunk : work.chunks()) {
      first_part_.push_back(parts);
      parts += chunk.splits.size();
    }
    parts_.resize(parts);
  }

  // The scratch memory of one worker: prepared queries, a result, and what the kernel asks for.
  size_t worker_floats() const {
    return query_floats_ + result_floats_ + whole_lines(kernel_bytes_ / sizeof(float) + 1);
  }

  // Sets the scratch memory, aligned to 64 bytes: `shared` has room for the results that need a
  // merge, `workers` has worker_floats() for each worker.
  void set_scratch(float* shared, float* workers) {
    shared_ = shared;
    workers_ = workers;
  }

  // Attends over one split. If its result needs no merge, writes the outputs as well.
  void run(const KvSplit& split, unsigned worker) {
    float* const scratch = workers_ + worker * worker_floats();
    prepare_queries(split, scratch);
    kernels::AttendTask task = task_of(split);
    task.q = scratch;
    task.out = split.needs_merge ? shared_ + split.result_offset : scratch + query_floats_;
    task.max = task.out + work_.rows(split) * work_.heads(split) * call_.shape.value_dim;
    task.sum = task.max + work_.rows(split) * work_.heads(split);
    task.scratch = reinterpret_cast<unsigned char*>(scratch + query_floats_ + result_floats_);
    kernels_.attend(task);
    if (!split.needs_merge) finish(split.chunks[0], task.out);
  }

  // Merges the results of all splits of a chunk, in order, and writes the chunk's outputs. If the
  // chunk has one split that needs no merge, `result` is that split's result; otherwise it is NULL.
  void finish(size_t chunk_index, float* result) {
    const QueryChunk& chunk = work_.chunks()[chunk_index];
    const uint32_t value_dim = call_.shape.value_dim;
    const std::span<kernels::Partial> parts =
        std::span(parts_).subspan(first_part_[chunk_index], chunk.splits.size());
    for (size_t i = 0; i < parts.size(); i++) {
      const KvSplit& split = work_.splits()[chunk.splits[i]];
      float* const out = result != nullptr ? result : shared_ + split.result_offset;
      const uint64_t rows = work_.rows(split) * work_.heads(split), first = chunk.first_rows[i];
      parts[i] = {out + first * value_dim, out + rows * value_dim + first,
                  out + rows * (value_dim + 1) + first, work_.rows(split)};
    }
    const uint64_t query = chunk.sequence->first_query + chunk.first;
    kernels::FinishTask task{};
    task.head_begin = chunk.head_begin;
    task.head_end = chunk.head_end;
    task.heads_per_kv_head = heads_per_kv_head();
    task.queries = chunk.queries;
    task.value_dim = value_dim;
    task.rotation = chunk.sequence->kv.v.rotation;
    task.parts = static_cast<uint32_t>(parts.size());
    task.part = parts.data();
    task.sink_logits = call_.params.sink_logits;
    task.rows = rows::rows_from(call_.out, chunk.sequence->out_row + chunk.first);
    task.lse =
        call_.params.lse != nullptr ? call_.params.lse + query * call_.shape.query_heads : nullptr;
    task.lse_stride = call_.shape.query_heads;
    kernels_.finish(task);
  }

 private:
  uint32_t heads_per_kv_head() const { return call_.shape.query_heads / call_.shape.kv_heads; }

  // The kernel's task for a split, without the pointers to queries, results and scratch memory.
  kernels::AttendTask task_of(const KvSplit& split) const {
    const QueryChunk& chunk = work_.chunks()[split.chunks[0]];
    kernels::AttendTask task{};
    task.kv = chunk.sequence->kv;
    task.head_begin = chunk.head_begin;
    task.head_end = chunk.head_end;
    task.heads_per_kv_head = heads_per_kv_head();
    task.queries = split.queries;
    task.query = work_.views(split.view);
    task.begin = split.begin;
    task.end = split.end;
    task.sinks = chunk.sequence->sinks;
    task.scale = call_.params.scale;
    task.results = call_.out.dtype;
    task.transform = call_.params.transform;
    return task;
  }

  // Writes the queries of all chunks of a split to q, converted to fp32 and scaled.
  void prepare_queries(const KvSplit& split, float* q) const {
    uint64_t rows = 0;
    for (const uint32_t i : split.chunks) {
      const QueryChunk& chunk = work_.chunks()[i];
      kernels::QueryTask task{};
      task.head_begin = chunk.head_begin;
      task.head_end = chunk.head_end;
      task.heads_per_kv_head = heads_per_kv_head();
      task.queries = chunk.queries;
      task.key_dim = call_.shape.key_dim;
      task.rotation = chunk.sequence->kv.k.rotation;
      task.scale = call_.params.scale;
      task.rows = rows::rows_from(call_.q, chunk.sequence->q_row + chunk.first);
      task.q = q + rows * task.key_dim;
      task.head_rows = work_.rows(split);
      kernels_.prepare(task);
      rows += uint64_t{chunk.queries} * heads_per_kv_head();
    }
  }

  const kernels::Table& kernels_;
  const AttendCall& call_;
  const WorkSplit& work_;
  std::vector<kernels::Partial> parts_;  // of all chunks, one for each split that a chunk reads
  std::vector<size_t> first_part_;       // by chunk: its first element of parts_
  // The largest sizes that any split needs.
  size_t query_floats_ = 0, result_floats_ = 0, kernel_bytes_ = 0;
  float* shared_ = nullptr;
  float* workers_ = nullptr;
};

// Makes a sequence for each run of KV heads that have the same window, of those that all KV heads
// read.
std::vector<AttendSequence> split_by_window(const AttendCall& call) {
  const std::vector<Window>& windows = call.params.head_windows;
  std::vector<AttendSequence> result;
  for (const AttendSequence& sequence : call.sequences) {
    if (sequence.head_end <= call.shape.kv_heads) {
      result.push_back(sequence);
      continue;
    }
    for (uint32_t head = 0, end; head < call.shape.kv_heads; head = end) {
      end = head + 1;
      while (end < call.shape.kv_heads && windows[end] == windows[head]) end++;
      AttendSequence& one = result.emplace_back(sequence);
      one.window = windows[head].window, one.sinks = windows[head].sinks;
      one.head_begin = head, one.head_end = end;
    }
  }
  return result;
}

}  // namespace

void attend(Workers& workers, ScratchPool& pool, const kernels::Table& kernels,
            const AttendCall& given, const ChoosingLayer& layer) {
  check_call(given);
  AttendCall call = given;
  std::vector<AttendSequence> sequences(given.sequences.begin(), given.sequences.end());
  for (AttendSequence& sequence : sequences)
    sequence.window = call.params.window.window, sequence.sinks = call.params.window.sinks;
  const Masks masks(workers, given, sequences);
  call.sequences = sequences;
  std::optional<ChosenBlocks> chosen;
  if (call.params.chooses()) {
    chosen.emplace(workers, kernels, call, layer);
    call.sequences = chosen->sequences();
  }
  std::vector<AttendSequence> by_window;
  if (!call.params.head_windows.empty()) call.sequences = by_window = split_by_window(call);
  std::vector<float> own_lse;
  if (call.params.block_mass != nullptr && call.params.lse == nullptr) {
    for (const AttendSequence& sequence : call.sequences)
      own_lse.resize((sequence.first_query + sequence.queries) * call.shape.query_heads);
    call.params.lse = own_lse.data();
  }
  const WorkSplit work(call);
  if (work.splits().empty()) return;
  std::optional<BlockMass> mass;
  if (call.params.block_mass != nullptr) mass.emplace(workers, pool, kernels, call, work);
  SplitRunner runner(kernels, call, work);
  const size_t shared = whole_lines(work.shared_floats());
  // 16 floats more than needed, so that the memory can be aligned to a cache line.
  ScratchPool::Buffer scratch(pool, shared + 16 + workers.threads() * runner.worker_floats());
  const size_t skipped =
      (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64 / sizeof(float);
  runner.set_scratch(scratch.data() + skipped, scratch.data() + skipped + shared);

  workers.for_each(work.splits().size(),
                   [&](size_t i, unsigned worker) { runner.run(work.splits()[i], worker); });
  // The results that need a merge.
  const size_t merged = work.shared_floats() == 0 ? 0 : work.chunks().size();
  workers.for_each(merged, [&](size_t i, unsigned) {
    const QueryChunk& chunk = work.chunks()[i];
    if (work.splits()[chunk.splits[0]].needs_merge) runner.finish(i, nullptr);
  });
  if (mass) mass->write();
}

}  // namespace pkv::attention
