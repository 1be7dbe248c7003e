// Checks all that a caller describes, then attends with the kernels for this processor.
#include "engine/attention/stateless.h"

#include <algorithm>
#include <vector>

#include "base/checked.h"
#include "base/status.h"
#include "engine/attention/attend.h"
#include "engine/attention/rows.h"
#include "kernels/tile_layout.h"

namespace pkv::attention {

namespace {

constexpr uint32_t max_heads = 65536;  // the same limit as that of a cache

void check_dim(uint32_t dim, const char* name) {
  if (dim < 16 || dim > kernels::max_dim || dim % 16 != 0)
    fail(PKV_INVALID_ARGUMENT, "kv: %s is %u; a multiple of 16 from 16 to %u is needed", name, dim,
         kernels::max_dim);
}

// Checks the strides of K or V: none is negative, and the offset of the last byte does not
// overflow.
void check_strides(const pkv_kv_view& kv, int64_t block, int64_t row, int64_t head, pkv_dtype dtype,
                   uint32_t dim, const char* name) {
  if (block < 0 || row < 0 || head < 0)
    fail(PKV_OUT_OF_RANGE, "%s: negative stride (block %lld, row %lld, head %lld)", name,
         (long long)block, (long long)row, (long long)head);
  // Every stride is converted to bytes, even one that is never used because there is only one
  // block, row or head. So each must fit by itself.
  for (const int64_t stride : {block, row, head})
    if (stride > INT64_MAX / kernels::stride_unit(dtype))
      fail(PKV_OVERFLOW, "%s: a stride of %lld elements is beyond 2^63 bytes", name,
           (long long)stride);
  const bool packed = kv.layout == PKV_LAYOUT_PACKED;
  const uint64_t rows = packed ? kv.block_size / kernels::tile_tokens : kv.block_size;
  uint64_t extent = (packed ? kernels::tile_bytes(dtype, dim) : kernels::row_bytes(dtype, dim)) /
                    kernels::stride_unit(dtype);
  extent =
      checked_add(extent, checked_mul(kv.blocks - 1, static_cast<uint64_t>(block), name), name);
  extent = checked_add(extent, checked_mul(rows - 1, static_cast<uint64_t>(row), name), name);
  extent =
      checked_add(extent, checked_mul(kv.kv_heads - 1, static_cast<uint64_t>(head), name), name);
  checked_bytes(extent, kernels::stride_unit(dtype), name);
}

// Checks a caller's view and converts its strides to bytes. The block table is left out.
kernels::KvView check_view(const pkv_kv_view& kv) {
  const pkv_dtype value_dtype = kv.value_dtype == 0 ? kv.dtype : kv.value_dtype;
  for (const pkv_dtype dtype : {kv.dtype, value_dtype})
    if (!kernels::dtype_stored(dtype))
      fail(PKV_INVALID_ARGUMENT, "kv: unknown dtype %d", static_cast<int>(dtype));
  if (kv.layout != PKV_LAYOUT_PACKED && kv.layout != PKV_LAYOUT_PLAIN)
    fail(PKV_INVALID_ARGUMENT, "kv: unknown layout %d", static_cast<int>(kv.layout));
  if (kv.block_size == 0 ||
      (kv.layout == PKV_LAYOUT_PACKED && kv.block_size % kernels::tile_tokens != 0))
    fail(PKV_INVALID_ARGUMENT, "kv: block_size is %u; %s is needed", kv.block_size,
         kv.layout == PKV_LAYOUT_PACKED ? "a multiple of 16" : "1 or more");
  if (kv.kv_heads == 0 || kv.blocks == 0)
    fail(PKV_INVALID_ARGUMENT, "kv: no KV heads, or no blocks");
  if (kv.k == nullptr) fail(PKV_INVALID_ARGUMENT, "kv: k is NULL");
  check_dim(kv.key_dim, "key_dim");
  check_dim(kv.value_dim, "value_dim");
  if (kv.v == nullptr && (kv.value_dim > kv.key_dim || value_dtype != kv.dtype))
    fail(PKV_INVALID_ARGUMENT,
         "kv: v is NULL, so values are the first of %u dims of k and have its type; value_dim is "
         "%u, value_dtype %d",
         kv.key_dim, kv.value_dim, static_cast<int>(value_dtype));
  check_strides(kv, kv.k_block_stride, kv.k_row_stride, kv.k_head_stride, kv.dtype, kv.key_dim,
                "kv.k");
  if (kv.v != nullptr)
    check_strides(kv, kv.v_block_stride, kv.v_row_stride, kv.v_head_stride, value_dtype,
                  kv.value_dim, "kv.v");

  const int64_t key_unit = kernels::stride_unit(kv.dtype),
                value_unit = kernels::stride_unit(value_dtype);
  kernels::KvView view{};
  // The const_cast is safe, since attention reads K and V only.
  view.k = {const_cast<unsigned char*>(static_cast<const unsigned char*>(kv.k)),
            kv.k_block_stride * key_unit,
            kv.k_row_stride * key_unit,
            kv.k_head_stride * key_unit,
            kv.dtype,
            kv.key_dim};
  view.v = {const_cast<unsigned char*>(static_cast<const unsigned char*>(kv.v)),
            kv.v_block_stride * value_unit,
            kv.v_row_stride * value_unit,
            kv.v_head_stride * value_unit,
            value_dtype,
            kv.value_dim};
  view.layout = kv.layout;
  view.block_size = kv.block_size;
  view.kv_heads = kv.kv_heads;
  return view;
}

// Checks that a block table reaches to position `end` and that the ids of the blocks with positions
// [first, end) exist. Others may be anything, since attention does not follow them.
void check_table(const pkv_kv_view& kv, const uint32_t* table, uint64_t stride, uint64_t first,
                 uint64_t end, uint64_t sequence) {
  const uint64_t needed = ceil_div(end, kv.block_size);
  if (needed > stride)
    fail(PKV_OUT_OF_RANGE,
         "sequence %llu has %llu positions in %llu blocks, but block_table_stride is %llu",
         (unsigned long long)sequence, (unsigned long long)end, (unsigned long long)needed,
         (unsigned long long)stride);
  for (uint64_t i = first / kv.block_size; i < needed; i++)
    if (table[i] >= kv.blocks)
      fail(PKV_OUT_OF_RANGE,
           "sequence %llu, entry %llu of its block table is %u; there are %llu blocks",
           (unsigned long long)sequence, (unsigned long long)i, table[i],
           (unsigned long long)kv.blocks);
}

// Checks the caller's sequences and returns those that have queries. Sets *rows to the number of
// all queries.
std::vector<AttendSequence> check_sequences(const pkv_kv_view& kv, const kernels::KvView& view,
                                            const pkv_attention_sequences& given,
                                            const AttendParams& params, uint64_t* rows) {
  if (given.count > 0 && (given.query_lengths == nullptr || given.kv_lengths == nullptr ||
                          given.block_tables == nullptr))
    fail(PKV_INVALID_ARGUMENT, "sequences: query_lengths, kv_lengths or block_tables is NULL");
  checked_bytes(given.count, sizeof given.kv_lengths[0], "kv_lengths");
  checked_bytes(checked_mul(given.count, given.block_table_stride, "block_tables"),
                sizeof(uint32_t), "block_tables");
  std::vector<AttendSequence> sequences;
  for (uint64_t i = 0; i < given.count; i++) {
    const uint64_t length = given.kv_lengths[i], queries = given.query_lengths[i];
    if (queries > length)
      fail(PKV_OUT_OF_RANGE, "sequence %llu has %llu queries but %llu positions",
           (unsigned long long)i, (unsigned long long)queries, (unsigned long long)length);
    const uint64_t first_row = *rows;
    *rows = checked_add(*rows, queries, "rows");
    if (queries == 0) continue;
    // The first position in the window of the first query, which sees the furthest back.
    const uint64_t visible = length - queries + 1;
    const uint64_t first =
        params.window == 0 || visible < params.window ? 0 : visible - params.window;
    kernels::KvView sequence_view = view;
    sequence_view.blocks = given.block_tables + i * given.block_table_stride;
    check_table(kv, sequence_view.blocks, given.block_table_stride, first, length, i);
    if (first > 0)
      check_table(kv, sequence_view.blocks, given.block_table_stride, 0,
                  std::min<uint64_t>(params.sinks, first), i);
    sequences.push_back({sequence_view, length, static_cast<uint32_t>(queries), first_row});
  }
  return sequences;
}

}  // namespace

void attend_stateless(Compute& compute, const pkv_kv_view& kv, const pkv_attention_sequences& given,
                      const pkv_attention_params* params, const pkv_tensor* q,
                      const pkv_tensor* out) {
  const kernels::KvView view = check_view(kv);
  if (given.query_heads > max_heads)
    fail(PKV_INVALID_ARGUMENT, "%u query heads; at most %u are possible", given.query_heads,
         max_heads);
  if (given.query_heads == 0 || given.query_heads % kv.kv_heads != 0)
    fail(PKV_INVALID_ARGUMENT, "%u query heads are no multiple of %u KV heads", given.query_heads,
         kv.kv_heads);
  AttendCall call{};
  call.params = check_params(params, kv.key_dim, 0, 0);
  uint64_t rows = 0;
  const std::vector<AttendSequence> sequences =
      check_sequences(kv, view, given, call.params, &rows);
  call.shape = {given.query_heads, kv.kv_heads,  kv.key_dim,
                kv.value_dim,      view.k.dtype, view.v.dtype};
  call.sequences = sequences;
  call.q = check_rows(q, rows, given.query_heads, kv.key_dim, "q");
  call.out = check_rows(out, rows, given.query_heads, kv.value_dim, "out");
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
  check_dim(dim, "dim");
  checked_bytes(checked_mul(rows, heads, "lse"), sizeof(float), "lse");
  std::vector<kernels::RowsView> views;
  for (size_t i = 0; i < count; i++) {
    views.push_back(check_rows(outs + i, rows, heads, dim, "outs"));
    if (rows > 0 && lse[i] == nullptr) fail(PKV_INVALID_ARGUMENT, "lse[%zu] is NULL", i);
  }
  kernels::MergeTask task{};
  task.rows = rows;
  task.heads = heads;
  task.dim = dim;
  task.count = static_cast<uint32_t>(count);
  task.out = views.data();
  task.lse = lse;
  task.merged = check_rows(merged, rows, heads, dim, "merged");
  task.merged_lse = merged_lse;
  if (rows > 0) compute.kernels().merge(task);
}

}  // namespace pkv::attention
