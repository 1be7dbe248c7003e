#include "engine/attend.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/checked.h"
#include "base/structs.h"
#include "engine/plan.h"
#include "engine/rows.h"

namespace pkv {

namespace {

size_t rounded_up(size_t floats) { return (floats + 15) / 16 * 16; }  // cache lines

class Runner {
 public:
  Runner(const Kernels& kernels, const AttendCall& call, const Plan& plan)
      : kernels_(kernels), call_(call), plan_(plan) {
    for (const Pass& pass : plan.passes()) {
      query_floats_ = std::max(query_floats_, rounded_up(plan.query_floats(pass)));
      if (pass.alone)
        result_floats_ = std::max(result_floats_, rounded_up(plan.result_floats(pass)));
      work_bytes_ = std::max(work_bytes_, kernels.attend_work_bytes(task_of(pass)));
    }
    // Once tasks run, rows are written: nothing may be refused from then on.
    size_t parts = 0;
    for (const QueryBlock& block : plan.blocks()) {
      first_part_.push_back(parts);
      parts += block.passes.size();
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
    AttendTask task = task_of(pass);
    task.q = own;
    task.out = pass.alone ? own + query_floats_ : shared_ + pass.result;
    task.max = task.out + plan_.rows(pass) * plan_.heads(pass) * call_.shape.value_dim;
    task.sum = task.max + plan_.rows(pass) * plan_.heads(pass);
    task.work = reinterpret_cast<unsigned char*>(own + query_floats_ + result_floats_);
    kernels_.attend(task);
    if (pass.alone) finish(pass.blocks[0], task.out);
  }

  // Merges the results of a block's passes, in order, into the caller's rows. alone: the result of
  // its only pass, or NULL.
  void finish(size_t number, float* alone) {
    const QueryBlock& block = plan_.blocks()[number];
    const uint32_t value_dim = call_.shape.value_dim;
    const std::span<Partial> parts =
        std::span(parts_).subspan(first_part_[number], block.passes.size());
    for (size_t i = 0; i < parts.size(); i++) {
      const Pass& pass = plan_.passes()[block.passes[i]];
      float* const out = alone != nullptr ? alone : shared_ + pass.result;
      const uint64_t rows = plan_.rows(pass) * plan_.heads(pass), before = block.rows_before[i];
      parts[i] = {out + before * value_dim, out + rows * value_dim + before,
                  out + rows * (value_dim + 1) + before, plan_.rows(pass)};
    }
    const uint64_t row = block.sequence->row + block.first;
    FinishTask task{};
    task.head_begin = block.head_begin;
    task.head_end = block.head_end;
    task.group = group();
    task.queries = block.queries;
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
  AttendTask task_of(const Pass& pass) const {
    const QueryBlock& block = plan_.blocks()[pass.blocks[0]];
    AttendTask task{};
    task.kv = block.sequence->kv;
    task.head_begin = block.head_begin;
    task.head_end = block.head_end;
    task.group = group();
    task.queries = pass.queries;
    task.query = plan_.views(pass.view);
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
    for (const uint32_t i : pass.blocks) {
      const QueryBlock& block = plan_.blocks()[i];
      QueryTask task{};
      task.head_begin = block.head_begin;
      task.head_end = block.head_end;
      task.group = group();
      task.queries = block.queries;
      task.key_dim = call_.shape.key_dim;
      task.scale = call_.params.scale;
      task.rows = rows_from(call_.q, block.sequence->row + block.first);
      task.q = q + rows * task.key_dim;
      task.head_rows = plan_.rows(pass);
      kernels_.prepare(task);
      rows += uint64_t{block.queries} * group();
    }
  }

  const Kernels& kernels_;
  const AttendCall& call_;
  const Plan& plan_;
  std::vector<Partial> parts_;      // of all blocks
  std::vector<size_t> first_part_;  // of each block
  size_t query_floats_ = 0, result_floats_ = 0, work_bytes_ = 0;
  float* shared_ = nullptr;
  float* own_ = nullptr;
};

// So many words that 64 * words reach any number of new tokens: more are of no use.
constexpr uint64_t most_mask_words = uint64_t{1} << 26;

// Memory of the caller that has a row for each query: its size must fit, like that of the rows.
void check_by_row(const AttendCall& call, uint64_t rows) {
  const uint64_t heads = call.shape.query_heads, words = call.params.mask_words;
  if (call.params.lse != nullptr)
    checked_bytes(checked_mul(rows, heads, "lse"), sizeof(float), "lse");
  if (call.params.mask == nullptr) return;
  if (words > most_mask_words)
    fail(PKV_OUT_OF_RANGE, "mask_words is %llu; at most 2^26 are of use",
         (unsigned long long)words);
  checked_bytes(checked_mul(rows, words, "mask"), sizeof(uint64_t), "mask");
}

void check_mask(const AttendCall& call) {
  uint64_t rows = 0;
  for (const AttendSequence& sequence : call.sequences)
    rows = std::max(rows, sequence.row + sequence.queries);
  check_by_row(call, rows);
  if (call.params.mask == nullptr) return;
  for (size_t i = 0; i < call.sequences.size(); i++)
    if (ceil_div(call.sequences[i].queries, 64) > call.params.mask_words)
      fail(PKV_INVALID_ARGUMENT, "mask_words is %llu; %u new tokens need %llu",
           (unsigned long long)call.params.mask_words, call.sequences[i].queries,
           (unsigned long long)ceil_div(call.sequences[i].queries, 64));
}

}  // namespace

pkv_attention_params default_params() {
  pkv_attention_params params{};
  params.struct_size = sizeof params;
  params.causal = 1;
  params.window = PKV_WINDOW_OF_LAYER;
  params.sinks = PKV_SINKS_OF_LAYER;
  return params;
}

AttendParams check_params(const pkv_attention_params* given, uint32_t key_dim,
                          uint32_t window_of_layer, uint32_t sinks_of_layer) {
  const pkv_attention_params params =
      given == nullptr ? default_params() : read_struct(given, default_params(), "params");
  if (!std::isfinite(params.scale))
    fail(PKV_INVALID_ARGUMENT, "scale is %g, not finite", static_cast<double>(params.scale));
  if (params.causal > 1)
    fail(PKV_INVALID_ARGUMENT, "causal is %u; 0 and 1 are known", params.causal);
  if (!std::isfinite(params.softcap) || params.softcap < 0)
    fail(PKV_INVALID_ARGUMENT, "softcap is %g; a finite number, 0 for none, is needed",
         static_cast<double>(params.softcap));
  if (params.reserved != 0)
    fail(PKV_INVALID_ARGUMENT, "params: reserved is %u, not 0", params.reserved);
  AttendParams result{};
  result.scale = params.scale != 0 ? params.scale : 1 / std::sqrt(static_cast<float>(key_dim));
  result.causal = params.causal != 0;
  result.window = params.window == PKV_WINDOW_OF_LAYER ? window_of_layer : params.window;
  result.sinks = params.sinks == PKV_SINKS_OF_LAYER ? sinks_of_layer : params.sinks;
  result.transform = {params.softcap, params.alibi_slopes};
  result.sink_logits = params.sink_logits;
  result.mask = params.mask;
  result.mask_words = params.mask_words;
  result.lse = params.lse;
  // What left the layer's window is gone: no call can look further back.
  if (window_of_layer != 0 && (result.window == 0 || result.window > window_of_layer))
    fail(PKV_OUT_OF_RANGE, "window is %u (0: none), but this layer keeps only %u tokens",
         result.window, window_of_layer);
  if (window_of_layer != 0 && result.sinks > sinks_of_layer)
    fail(PKV_OUT_OF_RANGE, "sinks is %u, but this layer keeps only the first %u tokens",
         result.sinks, sinks_of_layer);
  if (result.window == 0) result.sinks = 0;  // everything is seen
  return result;
}

void attend(Workers& workers, ScratchPool& pool, const Kernels& kernels, const AttendCall& call) {
  check_mask(call);
  const Plan plan(call);
  if (plan.passes().empty()) return;
  Runner runner(kernels, call, plan);
  const size_t shared = rounded_up(plan.shared_floats());
  ScratchPool::Lease scratch(pool, shared + 16 + workers.threads() * runner.worker_floats());
  const size_t skipped =
      (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64 / sizeof(float);
  runner.use(scratch.data() + skipped, scratch.data() + skipped + shared);

  workers.for_each(plan.passes().size(),
                   [&](size_t i, unsigned worker) { runner.run(plan.passes()[i], worker); });
  if (plan.shared_floats() == 0) return;
  workers.for_each(plan.blocks().size(), [&](size_t i, unsigned) {
    const QueryBlock& block = plan.blocks()[i];
    if (!plan.passes()[block.passes[0]].alone) runner.finish(i, nullptr);
  });
}

}  // namespace pkv
