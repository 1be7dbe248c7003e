// The masks of an attention call as the kernels read them: bits in words. Trees that are given by
// parents, and bytes of a bool mask, become words here.
#pragma once

#include <vector>

#include "base/parallel.h"
#include "engine/attention/call.h"

namespace pkv::attention {

class Masks {
 public:
  // The mask of one sequence: that of query i begins at words + i * stride and has a bit for each
  // position from `begin` on. `words` is NULL without a mask.
  struct Rows {
    const uint64_t* words = nullptr;
    uint64_t stride = 0;
    uint64_t begin = 0;
  };

  // `call` is checked. Refers to its mask as long as it lives. Throws bad_alloc.
  Masks(Workers& workers, const AttendCall& call);

  const Rows& of(size_t sequence) const { return rows_[sequence]; }

 private:
  void add_words(const AttendCall& call);
  void add_trees(const AttendCall& call);
  void add_bools(Workers& workers, const AttendCall& call);

  std::vector<Rows> rows_;       // by sequence
  std::vector<uint64_t> words_;  // what was made here
};

}  // namespace pkv::attention
