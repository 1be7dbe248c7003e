// Sorts rows by their slots, so that one thread copies each tile, and rows that follow each other
// are copied together.
#include "engine/rows/kv_slots.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/status.h"
#include "engine/rows/rows.h"
#include "engine/rows/sequences.h"
#include "kernels/tile_layout.h"

namespace pkv::rows {

namespace {

// A row of a caller's tensors and the slot that it belongs to.
struct SlotRow {
  uint64_t slot;
  uint64_t k_begin, v_begin;  // the elements at which it begins
  size_t order = 0;           // among all rows of the call
};

// Rows of the same tile are copied by one thread, because elements of two tokens may share a byte.
uint64_t tile_of(const SlotRow& row) { return row.slot / kernels::tile_tokens; }

// Returns the number of rows from rows[0] on that follow each other, as their slots do, in one tile
// and one block.
size_t run_length(std::span<const SlotRow> rows, const kernels::RowsView& k,
                  const kernels::RowsView& v, uint32_t block_size) {
  const auto k_stride = static_cast<uint64_t>(k.row_stride),
             v_stride = static_cast<uint64_t>(v.row_stride);
  size_t n = 1;
  while (n < rows.size() && rows[n].slot == rows[0].slot + n &&
         rows[n].k_begin == rows[0].k_begin + n * k_stride &&
         rows[n].v_begin == rows[0].v_begin + n * v_stride &&
         rows[n].slot % kernels::tile_tokens != 0 && rows[n].slot % block_size != 0)
    n++;
  return n;
}

// Returns the memory of one block as a view without a block table.
kernels::KvView block_view(const kernels::KvView& view, uint64_t block) {
  kernels::KvView one = view;
  one.blocks = nullptr;
  one.k.data += static_cast<int64_t>(block) * view.k.block_stride;
  if (one.v.data != nullptr) one.v.data += static_cast<int64_t>(block) * view.v.block_stride;
  return one;
}

uint64_t token_bytes(const kernels::KvView& view) {
  return uint64_t{view.kv_heads} * (kernels::row_bytes(view.k.dtype, view.k.dim) +
                                    kernels::row_bytes(view.v.dtype, view.v.dim));
}

// Returns the first index of each part of about `part_rows` rows that one thread copies, and the
// end of the last part. No tile is in two parts.
std::vector<size_t> cut_parts(std::span<const SlotRow> rows, size_t part_rows) {
  std::vector<size_t> cuts = {0};
  for (size_t i = 1; i < rows.size(); i++)
    if (i - cuts.back() >= part_rows && tile_of(rows[i]) != tile_of(rows[i - 1])) cuts.push_back(i);
  cuts.push_back(rows.size());
  return cuts;
}

// Throws OUT_OF_RANGE unless the slot exists.
void check_slot(const pkv_kv_view& kv, int64_t slot, uint64_t row) {
  if (slot < 0 || static_cast<uint64_t>(slot) / kv.block_size >= kv.blocks)
    fail(PKV_OUT_OF_RANGE, "the slot of row %llu is %lld; there are %llu blocks of %u", llu(row),
         (long long)slot, llu(kv.blocks), kv.block_size);
}

std::vector<SlotRow> check_slots(const pkv_kv_view& kv, std::span<const int64_t> slots,
                                 const kernels::RowsView& k, const kernels::RowsView& v) {
  std::vector<SlotRow> rows;
  rows.reserve(slots.size());
  for (uint64_t i = 0; i < slots.size(); i++) {
    if (slots[i] == PKV_NO_SLOT) continue;
    check_slot(kv, slots[i], i);
    rows.push_back({static_cast<uint64_t>(slots[i]), i * static_cast<uint64_t>(k.row_stride),
                    i * static_cast<uint64_t>(v.row_stride)});
  }
  return rows;
}

// Runs a store or load kernel over rows with slots that exist, in parallel if there is enough to
// copy. If rows have the same slot, the last one is copied last.
void copy_slots(Workers& workers, void (*kernel)(const kernels::CopyTask&),
                const kernels::KvView& view, std::span<SlotRow> rows, const kernels::RowsView& k,
                const kernels::RowsView& v) {
  constexpr uint64_t part_bytes = 128 << 10;
  const auto before = [](const SlotRow& a, const SlotRow& b) {
    return std::pair(tile_of(a), a.order) < std::pair(tile_of(b), b.order);
  };
  for (size_t i = 0; i < rows.size(); i++) rows[i].order = i;
  if (!std::is_sorted(rows.begin(), rows.end(), before))
    std::sort(rows.begin(), rows.end(), before);
  const std::vector<size_t> cuts =
      cut_parts(rows, std::max<uint64_t>(1, part_bytes / token_bytes(view)));
  workers.for_each(cuts.size() - 1, [&](size_t part, unsigned) {
    for (size_t i = cuts[part]; i < cuts[part + 1];) {
      const SlotRow& row = rows[i];
      const size_t n = run_length(rows.subspan(i, cuts[part + 1] - i), k, v, view.block_size);
      kernel({block_view(view, row.slot / view.block_size), row.slot % view.block_size, n,
              rows_at(k, row.k_begin), rows_at(v, row.v_begin)});
      i += n;
    }
  });
}

// Checks sequences that are copied. A window of 1 skips the ids of blocks before the first position
// that is copied.
Sequences check_positions(const pkv_kv_view& kv, const kernels::KvView& view,
                          const pkv_kv_sequences& given) {
  return Sequences(kv, view, given, 1, 0, false);
}

// Returns the rows of the queries of all sequences, with the slots of their positions.
std::vector<SlotRow> rows_of(const Sequences& sequences, const pkv_kv_view& kv,
                             const BatchTensor& keys, const BatchTensor& values) {
  const BatchRows& batch = sequences.rows();
  std::vector<SlotRow> rows;
  rows.reserve(batch.rows());
  for (const Sequence& one : sequences.list()) {
    const uint64_t k_begin = keys.begin(batch, one), v_begin = values.begin(batch, one);
    for (uint32_t i = 0; i < one.queries; i++) {
      const uint64_t position = one.position(i);
      if (position >= one.length)
        fail(PKV_OUT_OF_RANGE, "query_positions: %llu in sequence %llu, which has %llu",
             llu(position), llu(one.index), llu(one.length));
      rows.push_back({uint64_t{one.kv.blocks[position / kv.block_size]} * kv.block_size +
                          position % kv.block_size,
                      k_begin + i * static_cast<uint64_t>(keys.view.row_stride),
                      v_begin + i * static_cast<uint64_t>(values.view.row_stride)});
    }
  }
  return rows;
}

}  // namespace

void write_slots(Workers& workers, const kernels::Table& kernels, const pkv_kv_view& kv,
                 std::span<const int64_t> slots, const pkv_tensor* k, const pkv_tensor* v) {
  const kernels::KvView view = check_view(kv);
  check_writable(kv);
  const kernels::RowsView k_rows = check_rows(k, slots.size(), kv.kv_heads, kv.key_dim, "k");
  const kernels::RowsView v_rows =
      check_values(v, slots.size(), kv.kv_heads, kv.value_dim, kv.v == nullptr);
  std::vector<SlotRow> rows = check_slots(kv, slots, k_rows, v_rows);
  copy_slots(workers, kernels.store, view, rows, k_rows, v_rows);
}

void write_sequences(Workers& workers, const kernels::Table& kernels, const pkv_kv_view& kv,
                     const pkv_kv_sequences& given, const pkv_tensor* k, const pkv_tensor* v) {
  const kernels::KvView view = check_view(kv);
  check_writable(kv);
  const Sequences sequences = check_positions(kv, view, given);
  const BatchRows& batch = sequences.rows();
  const BatchTensor keys = check_rows(k, batch, kv.kv_heads, kv.key_dim, "k");
  const BatchTensor values = check_values(v, batch, kv.kv_heads, kv.value_dim, kv.v == nullptr);
  std::vector<SlotRow> rows = rows_of(sequences, kv, keys, values);
  copy_slots(workers, kernels.store, view, rows, keys.view, values.view);
}

void read_slots(Workers& workers, const kernels::Table& kernels, const pkv_kv_view& kv,
                std::span<const int64_t> slots, const pkv_tensor* k, const pkv_tensor* v) {
  const kernels::KvView view = check_view(kv);
  kernels::RowsView k_rows{}, v_rows{};
  if (k != nullptr) k_rows = check_rows(k, slots.size(), kv.kv_heads, kv.key_dim, "k");
  if (v != nullptr) v_rows = check_rows(v, slots.size(), kv.kv_heads, kv.value_dim, "v");
  std::vector<SlotRow> rows = check_slots(kv, slots, k_rows, v_rows);
  copy_slots(workers, kernels.load, view, rows, k_rows, v_rows);
}

void read_sequences(Workers& workers, const kernels::Table& kernels, const pkv_kv_view& kv,
                    const pkv_kv_sequences& given, const pkv_tensor* k, const pkv_tensor* v) {
  const kernels::KvView view = check_view(kv);
  const Sequences sequences = check_positions(kv, view, given);
  BatchTensor keys{}, values{};
  if (k != nullptr) keys = check_rows(k, sequences.rows(), kv.kv_heads, kv.key_dim, "k");
  if (v != nullptr) values = check_rows(v, sequences.rows(), kv.kv_heads, kv.value_dim, "v");
  std::vector<SlotRow> rows = rows_of(sequences, kv, keys, values);
  copy_slots(workers, kernels.load, view, rows, keys.view, values.view);
}

}  // namespace pkv::rows
