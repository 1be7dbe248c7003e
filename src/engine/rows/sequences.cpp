// Checks lengths, positions and block tables before any of them is used.
#include "engine/rows/sequences.h"

#include <algorithm>

#include "base/checked.h"
#include "base/status.h"

namespace pkv::rows {

namespace {

// Checks that a block table reaches to position `end` and that the blocks with positions [first,
// end) exist. Other ids are not used, and may have any value.
void check_table(const pkv_kv_view& kv, const uint32_t* table, uint64_t stride, uint64_t first,
                 uint64_t end, uint64_t sequence) {
  const uint64_t needed = ceil_div(end, kv.block_size);
  if (needed > stride)
    fail(PKV_OUT_OF_RANGE,
         "sequence %llu has %llu positions in %llu blocks, but block_table_stride is %llu",
         llu(sequence), llu(end), llu(needed), llu(stride));
  for (uint64_t i = first / kv.block_size; i < needed; i++)
    if (table[i] >= kv.blocks)
      fail(PKV_OUT_OF_RANGE,
           "sequence %llu, entry %llu of its block table is %u; there are %llu blocks",
           llu(sequence), llu(i), table[i], llu(kv.blocks));
}

// Throws if a sequence has more queries than its positions allow.
void check_lengths(uint64_t sequence, uint64_t queries, uint64_t length, bool positions) {
  if (positions ? queries > 0 && length == 0 : queries > length)
    fail(PKV_OUT_OF_RANGE, "sequence %llu has %llu queries but %llu positions", llu(sequence),
         llu(queries), llu(length));
}

// Returns the lowest position of the queries of a sequence. Throws if one is negative.
uint64_t lowest_position(const Sequence& sequence) {
  if (sequence.positions == nullptr) return sequence.position(0);
  const int64_t lowest =
      *std::min_element(sequence.positions, sequence.positions + sequence.queries);
  if (lowest < 0)
    fail(PKV_OUT_OF_RANGE, "query_positions: %lld in sequence %llu is negative", (long long)lowest,
         llu(sequence.index));
  return static_cast<uint64_t>(lowest);
}

void check_lists(const pkv_kv_sequences& given) {
  if (given.count == 0) return;
  if (given.query_lengths == nullptr || given.kv_lengths == nullptr ||
      given.block_tables == nullptr)
    fail(PKV_INVALID_ARGUMENT, "sequences: query_lengths, kv_lengths or block_tables is NULL");
  checked_bytes(given.count, sizeof given.kv_lengths[0], "kv_lengths");
  checked_bytes(checked_mul(given.count, given.block_table_stride, "block_tables"),
                sizeof(uint32_t), "block_tables");
}

}  // namespace

Sequences::Sequences(const pkv_kv_view& kv, const kernels::KvView& view,
                     const pkv_kv_sequences& given, uint32_t window, uint32_t sinks, bool masked)
    : rows_(given.first_rows) {
  check_lists(given);
  for (uint64_t i = 0; i < given.count; i++) {
    const uint64_t length = given.kv_lengths[i], queries = given.query_lengths[i];
    check_lengths(i, queries, length, given.query_positions != nullptr);
    const uint64_t first_query = rows_.rows();
    rows_.add(queries);
    if (queries == 0) continue;
    Sequence sequence{view, length, static_cast<uint32_t>(queries), first_query, i};
    const uint32_t* const table = sequence.kv.blocks =
        given.block_tables + i * given.block_table_stride;
    if (given.query_positions != nullptr) {
      checked_bytes(rows_.rows(), sizeof(int64_t), "query_positions");
      sequence.positions = given.query_positions + first_query;
    }
    // The first position in the window of the query that sees the furthest back.
    const uint64_t visible = lowest_position(sequence) + 1;
    uint64_t first = window == 0 || visible < window ? 0 : std::min(visible - window, length - 1);
    if (masked) first = std::min(first, sequence.start());
    check_table(kv, table, given.block_table_stride, first, length, i);
    if (first > 0)
      check_table(kv, table, given.block_table_stride, 0, std::min<uint64_t>(sinks, first), i);
    list_.push_back(sequence);
  }
}

}  // namespace pkv::rows
