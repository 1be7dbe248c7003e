// One attention call as the engine makes it: prepare, attend part by part, finish.
#pragma once

#include <vector>

#include "sequence.h"
#include "tables.h"

namespace pkv::test {

struct Call {
  uint32_t queries = 1;
  uint64_t first_query = 0;
  uint32_t causal = 1;
  uint32_t window = 0;
  std::vector<uint64_t> cuts;  // parts are [cuts[i], cuts[i + 1])

  uint64_t begin() const { return cuts.front(); }
  uint64_t end() const { return cuts.back(); }
  // What query i sees, from the definition in views.h.
  uint64_t lo(uint32_t i) const {
    const uint64_t next = first_query + i + 1, lo = window != 0 && next > window ? next - window : 0;
    return lo > begin() ? lo : begin();
  }
  uint64_t hi(uint32_t i) const { return causal != 0 && first_query + i + 1 < end() ? first_query + i + 1 : end(); }
};

// q: [kv_heads][queries * group][key_dim].
inline void attend_and_finish(const Kernels& kernels, Sequence& sequence, const Call& call, const std::vector<float>& q,
                              Rows& out) {
  const Shape& s = sequence.shape;
  const size_t rows = size_t{s.kv_heads} * call.queries * s.group, parts = call.cuts.size() - 1;
  const float unset = 12345.0f;
  std::vector<float> partial(parts * rows * s.value_dim, unset), max(parts * rows, unset), sum(parts * rows, unset);
  for (size_t part = 0; part < parts; part++)
    of(kernels, s.layout, s.dtype)
        .attend({sequence.view(), s.group, call.queries, call.first_query, call.cuts[part], call.cuts[part + 1], call.causal,
                 call.window, q.data(), partial.data() + part * rows * s.value_dim, max.data() + part * rows,
                 sum.data() + part * rows});
  kernels.finish({s.kv_heads, s.group, call.queries, s.value_dim, static_cast<uint32_t>(parts),
                  static_cast<int64_t>(rows * s.value_dim), static_cast<int64_t>(rows), partial.data(), max.data(), sum.data(),
                  out.view()});
}

inline std::vector<float> random_queries(const Shape& s, uint32_t queries, Random& random) {
  std::vector<float> q(size_t{s.kv_heads} * queries * s.group * s.key_dim);
  for (float& x : q) x = real(random);
  return q;
}

}  // namespace pkv::test
