// The results that kernels should compute, in double precision and directly from the definitions.
#pragma once

#include <pagedkv/common.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace pkv::kernels::test {

inline bool is_integer(pkv_dtype dtype) { return dtype == PKV_INT8 || dtype == PKV_INT4; }
inline unsigned bits_of(pkv_dtype dtype) {
  return dtype == PKV_F32                        ? 32
         : dtype == PKV_F16 || dtype == PKV_BF16 ? 16
         : dtype == PKV_INT4                     ? 4
                                                 : 8;
}

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline const double nan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double u = 0x1p-24;  // half a unit in the last place of fp32, relative

// The same for the dtypes of a caller's rows.
inline double unit_roundoff(pkv_dtype dtype) {
  return dtype == PKV_F32 ? u : dtype == PKV_F16 ? 0x1p-11 : 0x1p-8;
}

// Returns the value of an element's bits, which is exact. For INT8 and INT4 it is the number that
// is multiplied by the scale.
double decode(pkv_dtype dtype, uint32_t bits);

// Returns the bits nearest to a value that is exact in double, ties to even. NaN gives some NaN.
// Beyond the largest number the 8-bit floats saturate; an infinity stays one, or becomes NaN where
// the type has none. Integers take what fits.
uint32_t encode(pkv_dtype dtype, double value);

bool is_nan(pkv_dtype dtype, uint32_t bits);

// Reads the bits of an element of whole bytes, so not of INT4.
uint32_t read_bits(pkv_dtype dtype, const unsigned char* from);
void write_bits(pkv_dtype dtype, unsigned char* to, uint32_t bits);

// One query row and the tokens it sees.
struct SeenToken {
  const double* k;
  const double* v;
  // One scale for each dim, or NULL if V has none.
  const double* v_scale;
  uint64_t position;
  uint64_t place;  // its position for the slope
};

struct Problem {
  const float* q;
  uint32_t key_dim, value_dim;
  uint64_t position;  // The position of the query.
  double softcap;     // 0 means none.
  double slope;
  bool has_sink;
  double sink_logit;
  std::vector<SeenToken> tokens;
};

// What a kernel rounds in addition to fp32 arithmetic.
struct Rounding {
  // What is lost of a product when q and K are multiplied as at most two bf16 numbers.
  double split;
  // q is rounded to 2^-15 of its largest element.
  bool integer_query;
  // The relative rounding of a weight before it is multiplied by V.
  double weights;
  // The products of weights and scales of V are rounded to 2^-16 of the largest one in a strip.
  enum class Weights { floats, integers_few_rows, integers_many_rows } integer_weights;
};

// The result, and the largest error of a kernel. With u = 2^-24, D the key dim, T the tokens, and A
// the largest sum |q k| of a token:
//
//   A score is off by e, the sum of
//     (D + 4) u A                       for sums of D terms in any order, the rounding of K when it
//                                       is unpacked, and scales
//     split A                           2^-16 if q is cut after 8 bits and the rest is rounded;
//                                       2^-15 if the product of two second parts is left out, too
//     (1 + 2^-8) 2^-15 max|q| sum|k|    for integer_query: 2^-8 for the roundings of q / unit,
//                                       which is at most 2^14
//     16 u softcap                      for tanh from an exponential of 5 u, a difference, a sum,
//                                       a quotient and a product
//     2 u (A + |slope distance|)        for a product and a sum
//
//   A weight is off by r = e + 6 u S + 4 u + 8 u steps, relative, where S is the largest |score|:
//     2 u S      for a difference of scores
//     2 u S      for its product with log2 e
//     4 u        for the exponential
//     8 u        for each of `steps` changes of the maximum and merges of parts,
//                and u times how far the maximum moved, which adds up to 2 u S
//
//   The output is off by the sum of
//     (2 r + 2 (T + steps) u + 4 u) sum p|v| / sum p
//                                       for numerator and denominator
//     weights sum p|v| / sum p          for the rounding of weights
//     (1 + 2^-8) 2^-16 (sum over strips of max(p s) sum |v| / s) / sum p
//                                       for integer_weights, with s the scales; a strip has at most
//                                       32 tokens with few rows, 128 with many
//     1e-35                             for denormals; 1e-25 with integer_weights, where numbers
//                                       below 1e-30 become 0
//
//   The log-sum-exp is off by r + (T + steps) u + 4 u (|max| + |lse| + 1).
class Reference {
 public:
  explicit Reference(const Problem& problem);

  // The row sees no token. There may be a sink logit.
  bool saw_nothing() const { return saw_nothing_; }
  double bound(uint32_t d, double steps, const Rounding& rounding) const;
  double lse_bound(double steps, const Rounding& rounding) const;

  std::vector<double> out;
  double lse;

 private:
  std::vector<double> score(const Problem& problem);
  void add_rounding_of_weights(const Problem& problem, const std::vector<double>& weights,
                               uint64_t strip_tokens, std::vector<double>& to) const;
  double relative(double steps, const Rounding& rounding) const;

  bool saw_nothing_;
  double terms_, dims_, max_ = 0;
  double products_ = 0, rounded_query_ = 0, softcap_, added_ = 0, largest_score_ = 0;
  // One number for each dim, divided by the sum of the weights.
  std::vector<double> absolute_, rounded_by_32_, rounded_by_128_;
};

}  // namespace pkv::kernels::test
