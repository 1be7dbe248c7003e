// The masks of an attention call as the kernels read them: bits in words. Trees that are given by
// parents, and bytes of a bool mask, become words here.
#pragma once

#include <vector>

#include "base/parallel.h"
#include "engine/attention/call.h"

namespace pkv::attention {

class Masks {
 public:
  // Sets the masks of the sequences, which are those of the call. They refer to this object and to
  // the caller's mask. `call` is checked. Throws bad_alloc.
  Masks(Workers& workers, const AttendCall& call, std::span<AttendSequence> sequences);

 private:
  void add_words(const AttendCall& call);
  void add_trees(const AttendCall& call);
  void add_bools(Workers& workers, const AttendCall& call);

  const std::span<AttendSequence> sequences_;
  std::vector<uint64_t> words_;  // what was made here
};

}  // namespace pkv::attention
