#include "reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace pkv::kernels::test {

namespace {

constexpr double integer_unit = (1 + 0x1p-8) * 0x1p-15, weight_unit = (1 + 0x1p-8) * 0x1p-16;

// A binary floating-point format: its stored mantissa bits, its exponent bits, and the bits of its
// largest finite number.
struct Format {
  unsigned mantissa_bits, exponent_bits;
  uint32_t largest;
  int min_exponent() const { return 2 - (1 << (exponent_bits - 1)); }
  uint32_t sign() const { return 1u << (mantissa_bits + exponent_bits); }
};

Format format_of(pkv_dtype dtype) {
  switch (dtype) {
    case PKV_F32:
      return {23, 8, 0x7F7FFFFF};
    case PKV_F16:
      return {10, 5, 0x7BFF};
    case PKV_BF16:
      return {7, 8, 0x7F7F};
    // The highest exponent holds numbers, too. Only its last code is NaN.
    case PKV_FP8_E4M3:
      return {3, 4, 0x7E};
    default:
      return {2, 5, 0x7B};
  }
}

}  // namespace

double decode(pkv_dtype dtype, uint32_t bits) {
  if (dtype == PKV_INT8) return static_cast<int8_t>(bits);
  if (dtype == PKV_INT4) return bits < 8 ? bits : static_cast<double>(bits) - 16;
  const Format f = format_of(dtype);
  const double sign = (bits & f.sign()) != 0 ? -1.0 : 1.0;
  const uint32_t magnitude = bits & (f.sign() - 1);
  const uint32_t mantissa = magnitude & ((1u << f.mantissa_bits) - 1),
                 exponent = magnitude >> f.mantissa_bits;
  if (magnitude > f.largest) {
    const bool infinite = dtype != PKV_FP8_E4M3 && mantissa == 0;
    return infinite ? sign * infinity : std::numeric_limits<double>::quiet_NaN();
  }
  const int unit = f.min_exponent() - static_cast<int>(f.mantissa_bits);
  if (exponent == 0) return sign * std::ldexp(mantissa, unit);
  return sign *
         std::ldexp(mantissa + (1u << f.mantissa_bits), static_cast<int>(exponent) - 1 + unit);
}

uint32_t encode(pkv_dtype dtype, double value) {
  if (dtype == PKV_INT8)
    return static_cast<uint8_t>(static_cast<int>(std::clamp(std::nearbyint(value), -128.0, 127.0)));
  if (dtype == PKV_INT4)
    return static_cast<unsigned>(std::clamp(std::nearbyint(value), -8.0, 7.0)) & 15;
  const Format f = format_of(dtype);
  const bool saturates = bits_of(dtype) == 8;
  const uint32_t sign = std::signbit(value) ? f.sign() : 0;
  if (std::isnan(value)) return f.sign() - 1;
  if (std::isinf(value)) return sign | (f.largest + 1);  // In E4M3 this is NaN.
  if (value == 0) return sign;
  const int exponent = std::max(std::ilogb(value), f.min_exponent());
  // Counts in units of the last place. nearbyint rounds ties to even, and a carry moves on into the
  // exponent field by itself.
  const double units =
      std::nearbyint(std::ldexp(std::fabs(value), static_cast<int>(f.mantissa_bits) - exponent));
  const uint64_t bits = static_cast<uint64_t>(units) +
                        (static_cast<uint64_t>(exponent - f.min_exponent()) << f.mantissa_bits);
  return sign |
         static_cast<uint32_t>(std::min<uint64_t>(bits, saturates ? f.largest : f.largest + 1));
}

bool is_nan(pkv_dtype dtype, uint32_t bits) { return std::isnan(decode(dtype, bits)); }

uint32_t read_bits(pkv_dtype dtype, const unsigned char* from) {
  uint32_t bits = 0;
  std::memcpy(&bits, from, bits_of(dtype) / 8);
  return bits;
}

void write_bits(pkv_dtype dtype, unsigned char* to, uint32_t bits) {
  std::memcpy(to, &bits, bits_of(dtype) / 8);
}

Reference::Reference(const Problem& problem)
    : out(problem.value_dim),
      lse(-infinity),
      saw_nothing_(problem.tokens.empty()),
      terms_(static_cast<double>(problem.tokens.size()) + 1),
      dims_(problem.key_dim),
      softcap_(problem.softcap),
      absolute_(problem.value_dim),
      rounded_by_32_(problem.value_dim),
      rounded_by_128_(problem.value_dim) {
  if (saw_nothing_ && !problem.has_sink) return;
  std::vector<double> weights = score(problem);
  double sum = problem.has_sink ? std::exp(problem.sink_logit - max_) : 0;
  for (size_t i = 0; i < weights.size(); i++) {
    weights[i] = std::exp(weights[i] - max_);
    sum += weights[i];
    for (uint32_t d = 0; d < problem.value_dim; d++) {
      out[d] += weights[i] * problem.tokens[i].v[d];
      absolute_[d] += weights[i] * std::fabs(problem.tokens[i].v[d]);
    }
  }
  if (!saw_nothing_ && problem.tokens[0].v_scale != nullptr) {
    add_rounding_of_weights(problem, weights, 32, rounded_by_32_);
    add_rounding_of_weights(problem, weights, 128, rounded_by_128_);
  }
  lse = max_ + std::log(sum);
  for (auto* const sums : {&out, &absolute_, &rounded_by_32_, &rounded_by_128_})
    for (double& x : *sums) x /= sum;
}

std::vector<double> Reference::score(const Problem& problem) {
  std::vector<double> scores;
  double largest_q = 0;
  for (uint32_t d = 0; d < problem.key_dim; d++)
    largest_q = std::max(largest_q, std::fabs(double{problem.q[d]}));
  max_ = problem.has_sink ? problem.sink_logit : -infinity;
  largest_score_ = problem.has_sink ? std::fabs(problem.sink_logit) : 0;
  for (const SeenToken& token : problem.tokens) {
    double product = 0, absolute = 0, keys = 0;
    for (uint32_t d = 0; d < problem.key_dim; d++) {
      product += problem.q[d] * token.k[d];
      absolute += std::fabs(problem.q[d] * token.k[d]);
      keys += std::fabs(token.k[d]);
    }
    const double added =
        problem.slope * (static_cast<double>(token.place) - static_cast<double>(problem.position));
    const double capped = softcap_ != 0 ? softcap_ * std::tanh(product / softcap_) : product;
    scores.push_back(capped + added);
    products_ = std::max(products_, absolute);
    rounded_query_ = std::max(rounded_query_, integer_unit * largest_q * keys);
    added_ = std::max(added_, std::fabs(added));
    max_ = std::max(max_, scores.back());
    largest_score_ = std::max(largest_score_, std::fabs(scores.back()));
  }
  return scores;
}

void Reference::add_rounding_of_weights(const Problem& problem, const std::vector<double>& weights,
                                        uint64_t strip_tokens, std::vector<double>& to) const {
  const uint32_t dims = problem.value_dim;
  for (size_t begin = 0, end; begin < weights.size(); begin = end) {
    double largest = 0;
    for (end = begin; end < weights.size() && problem.tokens[end].position / strip_tokens ==
                                                  problem.tokens[begin].position / strip_tokens;
         end++)
      for (uint32_t d = 0; d < dims; d++)
        largest = std::max(largest, weights[end] * problem.tokens[end].v_scale[d]);
    for (size_t i = begin; i < end; i++)
      for (uint32_t d = 0; d < dims; d++)
        if (problem.tokens[i].v[d] != 0)
          to[d] += weight_unit * largest * std::fabs(problem.tokens[i].v[d]) /
                   problem.tokens[i].v_scale[d];
  }
}

double Reference::relative(double steps, const Rounding& rounding) const {
  const double score_error = ((dims_ + 4) * u + rounding.split) * products_ +
                             (rounding.integer_query ? rounded_query_ : 0) + 16 * u * softcap_ +
                             2 * u * (products_ + added_);
  return score_error + 6 * u * largest_score_ + 4 * u + 8 * u * steps;
}

double Reference::bound(uint32_t d, double steps, const Rounding& rounding) const {
  using enum Rounding::Weights;
  const double integers =
      rounding.integer_weights == floats
          ? 0
          : 1e-25 + (rounding.integer_weights == integers_many_rows ? rounded_by_128_
                                                                    : rounded_by_32_)[d];
  return (2 * relative(steps, rounding) + 2 * (terms_ + steps) * u + 4 * u + rounding.weights) *
             absolute_[d] +
         integers + 1e-35;
}

double Reference::lse_bound(double steps, const Rounding& rounding) const {
  return relative(steps, rounding) + (terms_ + steps) * u +
         4 * u * (std::fabs(max_) + std::fabs(lse) + 1);
}

}  // namespace pkv::kernels::test
