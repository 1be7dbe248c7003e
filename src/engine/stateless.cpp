#include "engine/stateless.h"

#include <vector>

#include "base/checked.h"
#include "engine/attend.h"
#include "engine/rows.h"
#include "kernels/kernels.h"

namespace pkv {

namespace {

constexpr uint32_t max_heads = 65536;  // as of a cache

void check_dim(uint32_t dim, const char* name) {
  if (dim < 16 || dim > 576 || dim % 16 != 0)
    fail(PKV_INVALID_ARGUMENT, "kv: %s is %u; a multiple of 16 from 16 to 576 is needed", name, dim);
}

// The last element of the memory the strides describe must be addressable.
void check_strides(const pkv_kv_view& kv, int64_t block, int64_t row, int64_t head, uint32_t dim, const char* name) {
  if (block < 0 || row < 0 || head < 0)
    fail(PKV_OUT_OF_RANGE, "%s: negative stride (block %lld, row %lld, head %lld)", name, (long long)block, (long long)row,
         (long long)head);
  const bool packed = kv.layout == PKV_LAYOUT_PACKED;
  const uint64_t rows = packed ? kv.block_size / tile_tokens : kv.block_size;
  uint64_t extent = packed ? uint64_t{dim} * tile_tokens : dim;
  extent = checked_add(extent, checked_mul(kv.blocks - 1, static_cast<uint64_t>(block), name), name);
  extent = checked_add(extent, checked_mul(rows - 1, static_cast<uint64_t>(row), name), name);
  extent = checked_add(extent, checked_mul(kv.kv_heads - 1, static_cast<uint64_t>(head), name), name);
  if (checked_mul(extent, dtype_bytes(kv.dtype), name) > INT64_MAX) fail(PKV_OVERFLOW, "%s: strides reach beyond 2^63 bytes", name);
}

KvView check_view(const pkv_kv_view& kv) {
  if (!dtype_known(kv.dtype)) fail(PKV_INVALID_ARGUMENT, "kv: unknown dtype %d", static_cast<int>(kv.dtype));
  if (kv.layout != PKV_LAYOUT_PACKED && kv.layout != PKV_LAYOUT_PLAIN)
    fail(PKV_INVALID_ARGUMENT, "kv: unknown layout %d", static_cast<int>(kv.layout));
  if (kv.reserved != 0) fail(PKV_INVALID_ARGUMENT, "kv: reserved is %u, not 0", kv.reserved);
  if (kv.block_size == 0 || (kv.layout == PKV_LAYOUT_PACKED && kv.block_size % tile_tokens != 0))
    fail(PKV_INVALID_ARGUMENT, "kv: block_size is %u; %s is needed", kv.block_size,
         kv.layout == PKV_LAYOUT_PACKED ? "a multiple of 16" : "1 or more");
  if (kv.kv_heads == 0 || kv.blocks == 0) fail(PKV_INVALID_ARGUMENT, "kv: no KV heads, or no blocks");
  if (kv.k == nullptr || kv.v == nullptr) fail(PKV_INVALID_ARGUMENT, "kv: %s is NULL", kv.k == nullptr ? "k" : "v");
  check_dim(kv.key_dim, "key_dim");
  check_dim(kv.value_dim, "value_dim");
  check_strides(kv, kv.k_block_stride, kv.k_row_stride, kv.k_head_stride, kv.key_dim, "kv.k");
  check_strides(kv, kv.v_block_stride, kv.v_row_stride, kv.v_head_stride, kv.value_dim, "kv.v");

  const int64_t element = dtype_bytes(kv.dtype);
  KvView view{};
  // Only ever read: attention writes to the caller's out alone.
  view.k = const_cast<unsigned char*>(static_cast<const unsigned char*>(kv.k));
  view.v = const_cast<unsigned char*>(static_cast<const unsigned char*>(kv.v));
  view.k_block_stride = kv.k_block_stride * element;
  view.k_row_stride = kv.k_row_stride * element;
  view.k_head_stride = kv.k_head_stride * element;
  view.v_block_stride = kv.v_block_stride * element;
  view.v_row_stride = kv.v_row_stride * element;
  view.v_head_stride = kv.v_head_stride * element;
  view.block_size = kv.block_size;
  view.kv_heads = kv.kv_heads;
  view.key_dim = kv.key_dim;
  view.value_dim = kv.value_dim;
  return view;
}

// Every block id that attention will follow.
void check_table(const pkv_kv_view& kv, const uint32_t* table, uint64_t stride, uint64_t first, uint64_t end, uint64_t sequence) {
  const uint64_t needed = ceil_div(end, kv.block_size);
  if (needed > stride)
    fail(PKV_OUT_OF_RANGE, "sequence %llu has %llu positions in %llu blocks, but block_table_stride is %llu",
         (unsigned long long)sequence, (unsigned long long)end, (unsigned long long)needed, (unsigned long long)stride);
  for (uint64_t i = first / kv.block_size; i < needed; i++)
    if (table[i] >= kv.blocks)
      fail(PKV_OUT_OF_RANGE, "sequence %llu, entry %llu of its block table is %u; there are %llu blocks", (unsigned long long)sequence,
           (unsigned long long)i, table[i], (unsigned long long)kv.blocks);
}

std::vector<AttendSequence> check_sequences(const pkv_kv_view& kv, const KvView& view, const pkv_attention_sequences& given,
                                            const AttendParams& params, uint64_t* rows) {
  if (given.count > 0 && (given.query_lengths == nullptr || given.kv_lengths == nullptr || given.block_tables == nullptr))
    fail(PKV_INVALID_ARGUMENT, "sequences: query_lengths, kv_lengths or block_tables is NULL");
  checked_mul(checked_mul(given.count, given.block_table_stride, "block_tables"), sizeof(uint32_t), "block_tables");
  std::vector<AttendSequence> sequences;
  for (uint64_t i = 0; i < given.count; i++) {
    const uint64_t length = given.kv_lengths[i], queries = given.query_lengths[i];
    if (queries > length)
      fail(PKV_OUT_OF_RANGE, "sequence %llu has %llu queries but %llu positions", (unsigned long long)i, (unsigned long long)queries,
           (unsigned long long)length);
    const uint64_t row = *rows;
    *rows = checked_add(*rows, queries, "rows");
    if (queries == 0) continue;
    const uint64_t seen = length - queries + 1;
    const uint64_t first = params.window == 0 || seen < params.window ? 0 : seen - params.window;
    KvView one = view;
    one.blocks = given.block_tables + i * given.block_table_stride;
    check_table(kv, one.blocks, given.block_table_stride, first, length, i);
    sequences.push_back({one, length, static_cast<uint32_t>(queries), row});
  }
  return sequences;
}

ScratchPool& default_scratch() {
  static ScratchPool* const pool = new ScratchPool(*std::pmr::new_delete_resource());
  return *pool;
}

}  // namespace

void attend_stateless(const pkv_kv_view& kv, const pkv_attention_sequences& given, const pkv_attention_params* params,
                      const pkv_tensor* q, const pkv_tensor* out) {
  const KvView view = check_view(kv);
  if (given.query_heads > max_heads) fail(PKV_INVALID_ARGUMENT, "%u query heads; at most %u are possible", given.query_heads, max_heads);
  if (given.query_heads == 0 || given.query_heads % kv.kv_heads != 0)
    fail(PKV_INVALID_ARGUMENT, "%u query heads are no multiple of %u KV heads", given.query_heads, kv.kv_heads);
  AttendCall call{};
  call.params = check_params(params, kv.key_dim, 0);
  uint64_t rows = 0;
  const std::vector<AttendSequence> sequences = check_sequences(kv, view, given, call.params, &rows);
  call.shape = {given.query_heads, kv.kv_heads, kv.key_dim, kv.value_dim, kv.dtype};
  call.sequences = sequences;
  call.q = check_rows(q, rows, given.query_heads, kv.key_dim, "q");
  call.out = check_rows(out, rows, given.query_heads, kv.value_dim, "out");
  const Kernels& kernels = select_kernels(PKV_ISA_AUTO);
  const KvKernels* const by_dtype = kv.layout == PKV_LAYOUT_PACKED ? kernels.packed : kernels.plain;
  attend(default_workers(), default_scratch(), kernels, by_dtype[dtype_index(kv.dtype)], call);
}

}  // namespace pkv
