// A naive computation of the bounds by which attention chooses blocks.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>

#include "../support/rows.h"

namespace cache_test {

// The nearest bf16 that is not below x, or with -1 not above.
inline double outward(double x, int sign) {
  const float y = static_cast<float>(x) * static_cast<float>(sign);
  const float cut = std::bit_cast<float>(std::bit_cast<uint32_t>(y) & 0xFFFF0000u);
  if (cut >= y) return static_cast<double>(cut) * sign;
  const uint32_t next = (std::bit_cast<uint32_t>(y) & 0xFFFF0000u) + 0x10000u;
  return static_cast<double>(std::bit_cast<float>(next)) * sign;
}

// The bound of a block for one row of queries and the query heads of a KV head.
inline double bound_of_block(const Rows& q, uint32_t row, uint32_t head, const Rows& k,
                             uint32_t block, uint32_t block_size) {
  const uint32_t heads_per_kv_head = q.heads() / k.heads();
  double sum = 0;
  for (uint32_t h = head * heads_per_kv_head; h < (head + 1) * heads_per_kv_head; h++) {
    for (uint32_t d = 0; d < k.dim(); d++) {
      double largest = -HUGE_VAL, smallest = HUGE_VAL;
      for (uint64_t t = uint64_t{block} * block_size; t < (block + uint64_t{1}) * block_size; t++) {
        largest = std::max(largest, double{k.get(t, head, d)});
        smallest = std::min(smallest, double{k.get(t, head, d)});
      }
      const double x = double{q.get(row, h, d)};
      sum += std::max(x * outward(largest, 1), x * outward(smallest, -1));
    }
  }
  return sum;
}

}  // namespace cache_test
