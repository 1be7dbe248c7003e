// Checks the sequences that a caller describes in its own memory.
#pragma once

#include <pagedkv/kv.h>

#include <span>
#include <vector>

#include "engine/rows/rows.h"

namespace pkv::rows {

class Sequences {
 public:
  // `view` is the result of check_view() for `kv`. The object refers to the lists of `given`. With
  // `window` and `sinks`, it does not check the ids of blocks that are not seen; those of the last
  // `queries` positions are, if a mask decides which of them are seen. Throws INVALID_ARGUMENT,
  // OUT_OF_RANGE, OVERFLOW and bad_alloc.
  Sequences(const pkv_kv_view& kv, const kernels::KvView& view, const pkv_kv_sequences& given,
            uint32_t window, uint32_t sinks, bool masked);

  // The sequences that have queries.
  std::span<const Sequence> list() const { return list_; }
  const BatchRows& rows() const { return rows_; }

 private:
  std::vector<Sequence> list_;
  BatchRows rows_;
};

}  // namespace pkv::rows
