// The results that a call should give, computed by the reference.
#pragma once

#include <string>
#include <vector>

#include "reference.h"
#include "run.h"

namespace pkv::kernels::test {

class Expected {
 public:
  Expected(const Sequence& sequence, const Call& call, const std::vector<float>& q);

  // Describes what is wrong with a table's results. Returns "" if nothing is. lse may be empty.
  std::string difference(const NamedTable& table, const Rows& out,
                         const std::vector<float>& lse) const;

 private:
  Problem problem(const Decoded& kv, uint32_t head, uint32_t i, uint32_t g, const float* q) const;
  std::string row_difference(const Reference& expected, const Rounding& rounding, uint32_t i,
                             uint32_t query_head, const Rows& out,
                             const std::vector<float>& lse) const;
  Rounding rounding_of(const NamedTable& table) const;

  const Shape shape_;
  const Call call_;
  std::vector<Reference> rows_;  // [heads of the call][queries][heads_per_kv_head]
};

}  // namespace pkv::kernels::test
