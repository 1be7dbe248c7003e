// Checks all that a caller describes, then attends with the kernels for this processor.
#include "engine/attention/stateless.h"

#include <vector>

#include "base/checked.h"
#include "base/status.h"
#include "engine/attention/attend.h"
#include "engine/rows/kv_view.h"
#include "engine/rows/rows.h"
#include "engine/rows/sequences.h"

namespace pkv::attention {

namespace {

constexpr uint32_t max_heads = 65536;  // the same limit as that of a cache

}  // namespace

void attend_stateless(Compute& compute, const pkv_kv_view& kv, const pkv_attention_sequences& given,
                      const pkv_attention_params* params, const pkv_tensor* q,
                      const pkv_tensor* out) {
  const kernels::KvView view = rows::check_view(kv);
  if (given.query_heads > max_heads)
    fail(PKV_INVALID_ARGUMENT, "%u query heads; at most %u are possible", given.query_heads,
         max_heads);
  if (given.query_heads == 0 || given.query_heads % kv.kv_heads != 0)
    fail(PKV_INVALID_ARGUMENT, "%u query heads are no multiple of %u KV heads", given.query_heads,
         kv.kv_heads);
  AttendCall call{};
  call.params = check_params(params, kv.kv_heads, kv.key_dim, {});
  if (call.params.top_blocks != 0)
    fail(PKV_UNSUPPORTED, "top_blocks is %u, but only a cache has bounds of keys; use block_lists",
         call.params.top_blocks);
  const rows::Sequences checked(kv, given, call.params.window.window, call.params.window.sinks);
  call.shape = {given.query_heads, kv.kv_heads,  kv.key_dim,
                kv.value_dim,      view.k.dtype, view.v.dtype};
  const rows::BatchTensor queries =
      rows::check_rows(q, checked.rows(), given.query_heads, kv.key_dim, "q");
  const rows::BatchTensor outputs =
      rows::check_rows(out, checked.rows(), given.query_heads, kv.value_dim, "out");
  std::vector<AttendSequence> sequences;
  sequences.reserve(checked.list().size());
  for (const rows::Sequence& one : checked.list()) {
    kernels::KvView table = view;
    table.blocks = one.table;
    sequences.push_back({table, one.length, one.queries, one.first_query,
                         queries.first(checked.rows(), one.index, one.first_query),
                         outputs.first(checked.rows(), one.index, one.first_query), one.index,
                         checked.rows().first(one.index, 0, true), one.positions});
  }
  call.sequences = sequences;
  call.q = queries.view;
  call.out = outputs.view;
  attend(compute.workers(), compute.scratch(), compute.kernels(), call);
}

void merge_states(const Compute& compute, size_t count, const pkv_tensor* outs,
                  const float* const* lse, uint64_t rows, uint32_t heads, uint32_t dim,
                  const pkv_tensor* merged, float* merged_lse) {
  if (count == 0 || count > UINT32_MAX)
    fail(PKV_INVALID_ARGUMENT, "%zu results to merge; 1 to 2^32 - 1 are possible", count);
  if (outs == nullptr || lse == nullptr)
    fail(PKV_INVALID_ARGUMENT, "%s is NULL", outs == nullptr ? "outs" : "lse");
  if (heads == 0 || heads > max_heads)
    fail(PKV_INVALID_ARGUMENT, "%u heads; 1 to %u are possible", heads, max_heads);
  rows::check_dim(dim, "dim");
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
