// Checks the sequences that a caller describes in its own memory.
#pragma once

#include <pagedkv/kv.h>

#include <span>
#include <vector>

#include "engine/rows/rows.h"

namespace pkv::rows {

// A sequence with queries.
struct Sequence {
  uint64_t index;  // in the caller's list
  uint64_t length;
  uint32_t queries;
  uint64_t first_query;      // among the queries of all sequences
  const uint32_t* table;     // its block table
  const int64_t* positions;  // of its queries; NULL: the last ones

  uint64_t position(uint32_t query) const {
    return positions != nullptr ? static_cast<uint64_t>(positions[query])
                                : length - queries + query;
  }
};

class Sequences {
 public:
  // Refers to the lists of `given`. With `window` and `sinks`, block ids that are not seen are not
  // checked. Throws INVALID_ARGUMENT, OUT_OF_RANGE, OVERFLOW, bad_alloc.
  Sequences(const pkv_kv_view& kv, const pkv_attention_sequences& given, uint32_t window,
            uint32_t sinks);

  // Those that have queries.
  std::span<const Sequence> list() const { return list_; }
  const BatchRows& rows() const { return rows_; }

 private:
  std::vector<Sequence> list_;
  BatchRows rows_;
};

}  // namespace pkv::rows
