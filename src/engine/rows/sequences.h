// Checks the sequences that a caller describes in its own memory.
#pragma once

#include <pagedkv/kv.h>

#include <span>
#include <vector>

#include "engine/rows/rows.h"

namespace pkv::rows {

class Sequences {
 public:
  // `view`: what check_view() made of `kv`. Refers to the lists of `given`. With `window` and
  // `sinks`, block ids that are not seen are not checked. Throws INVALID_ARGUMENT, OUT_OF_RANGE,
  // OVERFLOW, bad_alloc.
  Sequences(const pkv_kv_view& kv, const kernels::KvView& view,
            const pkv_attention_sequences& given, uint32_t window, uint32_t sinks);

  // Those that have queries.
  std::span<const Sequence> list() const { return list_; }
  const BatchRows& rows() const { return rows_; }

 private:
  std::vector<Sequence> list_;
  BatchRows rows_;
};

}  // namespace pkv::rows
