#include "reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace pkv::test {

namespace {

// Binary floating-point formats: stored mantissa bits and the exponent of the smallest normal number.
struct Format {
  int mantissa_bits, exponent_bits;
  int min_exponent() const { return 2 - (1 << (exponent_bits - 1)); }
};

Format format_of(pkv_dtype dtype) { return dtype == PKV_F32 ? Format{23, 8} : dtype == PKV_F16 ? Format{10, 5} : Format{7, 8}; }

}  // namespace

double decode(pkv_dtype dtype, uint32_t bits) {
  const Format f = format_of(dtype);
  const uint32_t mantissa = bits & ((1u << f.mantissa_bits) - 1);
  const uint32_t exponent = bits >> f.mantissa_bits & ((1u << f.exponent_bits) - 1);
  const double sign = bits >> (f.mantissa_bits + f.exponent_bits) & 1 ? -1.0 : 1.0;
  if (exponent == (1u << f.exponent_bits) - 1)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, f.min_exponent() - f.mantissa_bits);
  return sign *
         std::ldexp(mantissa + (1u << f.mantissa_bits), static_cast<int>(exponent) - 1 + f.min_exponent() - f.mantissa_bits);
}

uint32_t encode(pkv_dtype dtype, double value) {
  const Format f = format_of(dtype);
  const uint32_t infinity = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
  const uint32_t sign = std::signbit(value) ? 1u << (f.mantissa_bits + f.exponent_bits) : 0;
  if (std::isnan(value)) return infinity | 1u << (f.mantissa_bits - 1);
  if (std::isinf(value)) return sign | infinity;
  if (value == 0) return sign;
  const int exponent = std::max(std::ilogb(value), f.min_exponent());
  // In units of the last place; nearbyint rounds ties to even. A carry moves on into the exponent field by itself.
  const auto units = static_cast<uint64_t>(std::nearbyint(std::ldexp(std::fabs(value), f.mantissa_bits - exponent)));
  const uint64_t bits = units + (static_cast<uint64_t>(exponent - f.min_exponent()) << f.mantissa_bits);
  return sign | static_cast<uint32_t>(std::min<uint64_t>(bits, infinity));
}

bool is_nan(pkv_dtype dtype, uint32_t bits) { return std::isnan(decode(dtype, bits)); }

uint32_t read_bits(pkv_dtype dtype, const unsigned char* from) {
  uint32_t wide = 0;
  uint16_t narrow;
  if (dtype == PKV_F32) {
    std::memcpy(&wide, from, 4);
    return wide;
  }
  std::memcpy(&narrow, from, 2);
  return narrow;
}

void write_bits(pkv_dtype dtype, unsigned char* to, uint32_t bits) {
  const auto narrow = static_cast<uint16_t>(bits);
  if (dtype == PKV_F32)
    std::memcpy(to, &bits, 4);
  else
    std::memcpy(to, &narrow, 2);
}

Attention attend_reference(const std::vector<double>& q, const std::vector<std::vector<double>>& k,
                           const std::vector<std::vector<double>>& v, size_t value_dim, double steps, bool split_query) {
  const double u = 0x1p-24;
  const size_t tokens = k.size();
  Attention result{std::vector<double>(value_dim), std::vector<double>(value_dim)};
  if (tokens == 0) return result;

  std::vector<double> score(tokens);
  double magnitude = 0;  // the largest sum |q k|; no score is larger
  for (size_t t = 0; t < tokens; t++) {
    double absolute = 0;
    for (size_t d = 0; d < q.size(); d++) {
      score[t] += q[d] * k[t][d];
      absolute += std::fabs(q[d] * k[t][d]);
    }
    magnitude = std::max(magnitude, absolute);
  }
  const double max = *std::max_element(score.begin(), score.end());
  double sum = 0;
  std::vector<double> absolute(value_dim);
  for (size_t t = 0; t < tokens; t++) {
    const double weight = std::exp(score[t] - max);
    sum += weight;
    for (size_t d = 0; d < value_dim; d++) {
      result.out[d] += weight * v[t][d];
      absolute[d] += std::fabs(weight * v[t][d]);
    }
  }
  const double score_error = (static_cast<double>(q.size()) + 2) * u * magnitude + (split_query ? 0x1p-16 * magnitude : 0);
  const double relative = score_error + 2 * u * magnitude + 4 * u + steps * 8 * u + 2 * u * magnitude;
  for (size_t d = 0; d < value_dim; d++) {
    result.out[d] /= sum;
    result.bound[d] = (2 * relative + 2 * (static_cast<double>(tokens) + steps) * u + 4 * u) * absolute[d] / sum + 1e-35;
  }
  return result;
}

}  // namespace pkv::test
