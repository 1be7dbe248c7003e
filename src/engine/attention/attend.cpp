#include "engine/attention/attend.h"

#include <algorithm>
#include <vector>

#include "base/checked.h"
#include "engine/attention/rows.h"
#include "engine/attention/work_split.h"

namespace pkv::attention {

namespace {

size_t rounded_up(size_t floats) { return round_up(floats, 16); }  // cache lines

class Runner {
 public:
  Runner(const kernels::Table& kernels, const AttendCall& call, const WorkSplit& split)
      : kernels_(kernels), call_(call), split_(split) {
    for (const Pass& pass : split.passes()) {
      query_floats_ = std::max(query_floats_, rounded_up(split.query_floats(pass)));
      if (pass.alone)
        result_floats_ = std::max(result_floats_, rounded_up(split.result_floats(pass)));
      work_bytes_ = std::max(work_bytes_, kernels.attend_scratch_bytes(task_of(pass)));
    }
    // Once tasks run, rows are written: nothing may be refused from then on.
    size_t parts = 0;
    for (const QueryChunk& chunk : split.chunks()) {
      first_part_.push_back(parts);
      parts += chunk.passes.size();
    }
    parts_.resize(parts);
  }

  size_t worker_floats() const {
    return query_floats_ + result_floats_ + rounded_up(work_bytes_ / sizeof(float) + 1);
  }

  // shared: results that are merged later; own: worker_floats() per worker.
  void use(float* shared, float* own) {
    shared_ = shared;
    own_ = own;
  }

  void run(const Pass& pass, unsigned worker) {
    float* const own = own_ + worker * worker_floats();
    prepare(pass, own);
    kernels::AttendTask task = task_of(pass);
    task.q = own;
    task.out = pass.alone ? own + query_floats_ : shared_ + pass.result;
    task.max = task.out + split_.rows(pass) * split_.heads(pass) * call_.shape.value_dim;
    task.sum = task.max + split_.rows(pass) * split_.heads(pass);
    task.scratch = reinterpret_cast<unsigned char*>(own + query_floats_ + result_floats_);
    kernels_.attend(task);
    if (pass.alone) finish(pass.chunks[0], task.out);
  }

  // Merges the results of a chunk's passes, in order, into the caller's rows. alone: the result of
  // its only pass, or NULL.
  void finish(size_t number, float* alone) {
    const QueryChunk& chunk = split_.chunks()[number];
    const uint32_t value_dim = call_.shape.value_dim;
    const std::span<kernels::Partial> parts =
        std::span(parts_).subspan(first_part_[number], chunk.passes.size());
    for (size_t i = 0; i < parts.size(); i++) {
      const Pass& pass = split_.passes()[chunk.passes[i]];
      float* const out = alone != nullptr ? alone : shared_ + pass.result;
      const uint64_t rows = split_.rows(pass) * split_.heads(pass), before = chunk.rows_before[i];
      parts[i] = {out + before * value_dim, out + rows * value_dim + before,
                  out + rows * (value_dim + 1) + before, split_.rows(pass)};
    }
    const uint64_t row = chunk.sequence->row + chunk.first;
    kernels::FinishTask task{};
    task.head_begin = chunk.head_begin;
    task.head_end = chunk.head_end;
    task.gqa_group = group();
    task.queries = chunk.queries;
    task.value_dim = value_dim;
    task.parts = static_cast<uint32_t>(parts.size());
    task.part = parts.data();
    task.sink_logits = call_.params.sink_logits;
    task.rows = rows_from(call_.out, row);
    task.lse =
        call_.params.lse != nullptr ? call_.params.lse + row * call_.shape.query_heads : nullptr;
    task.lse_stride = call_.shape.query_heads;
    kernels_.finish(task);
  }

 private:
  uint32_t group() const { return call_.shape.query_heads / call_.shape.kv_heads; }

  // All but the places of rows and results.
  kernels::AttendTask task_of(const Pass& pass) const {
    const QueryChunk& chunk = split_.chunks()[pass.chunks[0]];
    kernels::AttendTask task{};
    task.kv = chunk.sequence->kv;
    task.head_begin = chunk.head_begin;
    task.head_end = chunk.head_end;
    task.gqa_group = group();
    task.queries = pass.queries;
    task.query = split_.views(pass.view);
    task.begin = pass.begin;
    task.end = pass.end;
    task.sinks = call_.params.sinks;
    task.scale = call_.params.scale;
    task.bf16_weights = call_.out.dtype == PKV_BF16;
    task.transform = call_.params.transform;
    return task;
  }

  void prepare(const Pass& pass, float* q) const {
    uint64_t rows = 0;
    for (const uint32_t i : pass.chunks) {
      const QueryChunk& chunk = split_.chunks()[i];
      kernels::QueryTask task{};
      task.head_begin = chunk.head_begin;
      task.head_end = chunk.head_end;
      task.gqa_group = group();
      task.queries = chunk.queries;
      task.key_dim = call_.shape.key_dim;
      task.scale = call_.params.scale;
      task.rows = rows_from(call_.q, chunk.sequence->row + chunk.first);
      task.q = q + rows * task.key_dim;
      task.head_rows = split_.rows(pass);
      kernels_.prepare(task);
      rows += uint64_t{chunk.queries} * group();
    }
  }

  const kernels::Table& kernels_;
  const AttendCall& call_;
  const WorkSplit& split_;
  std::vector<kernels::Partial> parts_;  // of all chunks
  std::vector<size_t> first_part_;       // of each chunk
  size_t query_floats_ = 0, result_floats_ = 0, work_bytes_ = 0;
  float* shared_ = nullptr;
  float* own_ = nullptr;
};

}  // namespace

void attend(Workers& workers, ScratchPool& pool, const kernels::Table& kernels,
            const AttendCall& call) {
  check_call(call);
  const WorkSplit split(call);
  if (split.passes().empty()) return;
  Runner runner(kernels, call, split);
  const size_t shared = rounded_up(split.shared_floats());
  ScratchPool::Lease scratch(pool, shared + 16 + workers.threads() * runner.worker_floats());
  const size_t skipped =
      (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64 / sizeof(float);
  runner.use(scratch.data() + skipped, scratch.data() + skipped + shared);

  workers.for_each(split.passes().size(),
                   [&](size_t i, unsigned worker) { runner.run(split.passes()[i], worker); });
  if (split.shared_floats() == 0) return;
  workers.for_each(split.chunks().size(), [&](size_t i, unsigned) {
    const QueryChunk& chunk = split.chunks()[i];
    if (!split.passes()[chunk.passes[0]].alone) runner.finish(i, nullptr);
  });
}

}  // namespace pkv::attention
