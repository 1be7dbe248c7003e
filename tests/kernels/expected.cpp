#include "expected.h"

#include <cmath>
#include <limits>
#include <sstream>

namespace pkv::kernels::test {

namespace {

// Half of the smallest denormal.
double min_roundoff(pkv_dtype dtype) { return dtype == PKV_F16 ? 0x1p-25 : 0x1p-134; }

}  // namespace

Expected::Expected(const Sequence& sequence, const Call& call, const std::vector<float>& q)
    : shape_(sequence.shape), call_(call) {
  for (uint32_t head = call.head_begin; head < call.head_end; head++) {
    const Decoded kv = sequence.decoded(head);
    const float* row =
        q.data() + size_t{head} * call.queries * shape_.heads_per_kv_head * shape_.key_dim;
    for (uint32_t i = 0; i < call.queries; i++)
      for (uint32_t g = 0; g < shape_.heads_per_kv_head; g++, row += shape_.key_dim)
        rows_.emplace_back(problem(kv, head, i, g, row));
  }
}

Problem Expected::problem(const Decoded& kv, uint32_t head, uint32_t i, uint32_t g,
                          const float* q) const {
  const uint32_t query_head = head * shape_.heads_per_kv_head + g;
  Problem row{};
  row.q = q;
  row.key_dim = shape_.key_dim;
  row.value_dim = shape_.value_dim;
  row.position = call_.first_query + i;
  row.softcap = call_.softcap;
  row.slope = call_.alibi_slopes.empty() ? 0 : call_.alibi_slopes[query_head];
  row.has_sink = !call_.sink_logits.empty();
  row.sink_logit = row.has_sink ? call_.sink_logits[query_head] : 0;
  for (uint64_t position = call_.begin(); position < call_.end(); position++)
    if (call_.sees(i, position))
      row.tokens.push_back({&kv.k[position * shape_.key_dim], &kv.v[position * shape_.value_dim],
                            kv.v_scale.empty() ? nullptr : &kv.v_scale[position * shape_.value_dim],
                            position, call_.place_of(position)});
  return row;
}

static double rounding_of_weights(const NamedTable& table, pkv_dtype results, const Shape& shape) {
  if (table.matrix_unit) return results == PKV_BF16 ? 0x1p-8 : results == PKV_F16 ? 0x1p-15 : 0;
  const bool as_stored = shape.v_dtype == PKV_BF16 && !shape.latent;
  return table.multiplies_bf16 && results == PKV_BF16 && as_stored ? 0x1p-8 : 0;
}

Rounding Expected::rounding_of(const NamedTable& table) const {
  if (table.kernels->isa == PKV_ISA_SCALAR) return {};
  using enum Rounding::Weights;
  const bool integer_v = is_integer(shape_.v_dtype) && !shape_.latent;
  if (takes_matmul(shape_, call_))
    return {
        table.matrix_unit && call_.results == PKV_F16 && shape_.k_dtype == PKV_F16 ? 0x1p-15 : 0,
        table.multiplies_integer_pairs && is_integer(shape_.k_dtype),
        rounding_of_weights(table, call_.results, shape_),
        table.multiplies_integer_pairs && integer_v ? integers_many_rows : floats};
  const auto as_bf16 = [&](pkv_dtype dtype) {
    const bool fp8 = dtype == PKV_FP8_E4M3 || dtype == PKV_FP8_E5M2;
    return table.multiplies_bf16 &&
           (dtype == PKV_BF16 || (fp8 && table.kernels->isa == PKV_ISA_AVX512_BF16));
  };
  const bool few_rows_by_unit = table.matrix_unit && shape_.k_dtype == PKV_BF16 &&
                                shape_.v_dtype == PKV_BF16 && shape_.heads_per_kv_head >= 8,
             few_rows_by_pairs =
                 table.kernels->isa == PKV_ISA_AVX512_BF16 && as_bf16(shape_.v_dtype),
             rounds_weights = call_.results == PKV_BF16 && !shape_.latent &&
                              (few_rows_by_unit || few_rows_by_pairs);
  return {as_bf16(shape_.k_dtype) && !call_.whole_queries ? 0x1p-16 : 0, is_integer(shape_.k_dtype),
          rounds_weights ? 0x1p-8 : 0, integer_v ? integers_few_rows : floats};
}

std::string Expected::difference(const NamedTable& table, const Rows& out,
                                 const std::vector<float>& lse) const {
  const Rounding rounding = rounding_of(table);
  size_t row = 0;
  for (uint32_t head = call_.head_begin; head < call_.head_end; head++)
    for (uint32_t i = 0; i < call_.queries; i++)
      for (uint32_t g = 0; g < shape_.heads_per_kv_head; g++, row++) {
        const std::string found =
            row_difference(rows_[row], rounding, i, head * shape_.heads_per_kv_head + g, out, lse);
        if (found.empty()) continue;
        std::ostringstream text;
        text << table.name << (takes_matmul(shape_, call_) ? " matmul" : " direct") << " layout "
             << shape_.layout << " dtypes " << shape_.k_dtype << "/" << shape_.v_dtype << " dims "
             << shape_.key_dim << "/" << shape_.value_dim << " latent " << shape_.latent
             << " GQA group " << shape_.heads_per_kv_head << " queries " << call_.queries
             << " from " << call_.first_query << " causal " << call_.causal << " window "
             << call_.window << " sinks " << call_.sinks << " mask from "
             << (call_.mask.empty() ? -1 : static_cast<int64_t>(call_.mask_begin)) << " softcap "
             << call_.softcap << " positions [" << call_.begin() << ", " << call_.end() << ") in "
             << call_.cuts.size() - 1 << " parts: head " << head << " query " << i << " g " << g
             << " " << found;
        return text.str();
      }
  return "";
}

std::string Expected::row_difference(const Reference& expected, const Rounding& rounding,
                                     uint32_t i, uint32_t query_head, const Rows& out,
                                     const std::vector<float>& lse) const {
  // The maximum may change with each tile and part. The sinks are read separately.
  const double steps = static_cast<double>(shape_.length / 16 + 2 * call_.cuts.size() + 4);
  std::ostringstream text;
  for (uint32_t d = 0; d < shape_.value_dim; d++) {
    const double got = out.value(i, query_head, d), want = expected.out[d];
    double bound = expected.bound(d, steps, rounding) + std::fabs(want) * unit_roundoff(out.dtype) +
                   min_roundoff(out.dtype);
    if (expected.saw_nothing()) bound = 0;
    if (std::fabs(got - want) <= bound) continue;
    text << "dim " << d << " is " << got << ", not " << want << " +- " << bound;
    return text.str();
  }
  if (lse.empty()) return "";
  const double got = lse[size_t{i} * shape_.kv_heads * shape_.heads_per_kv_head + query_head];
  if (got == expected.lse || std::fabs(got - expected.lse) <= expected.lse_bound(steps, rounding))
    return "";
  text << "lse is " << got << ", not " << expected.lse << " +- "
       << expected.lse_bound(steps, rounding);
  return text.str();
}

}  // namespace pkv::kernels::test
