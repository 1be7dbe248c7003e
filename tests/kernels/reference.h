// What the kernels should compute, in double precision and straight from the definitions.
#pragma once

#include <pagedkv/common.h>

#include <cstdint>
#include <vector>

namespace pkv::kernels::test {

inline bool is_integer(pkv_dtype dtype) { return dtype == PKV_INT8 || dtype == PKV_INT4; }
inline unsigned bits_of(pkv_dtype dtype) {
  return dtype == PKV_F32                        ? 32
         : dtype == PKV_F16 || dtype == PKV_BF16 ? 16
         : dtype == PKV_INT4                     ? 4
                                                 : 8;
}

// The value of an element's bits, exact; of INT8 and INT4 the number its scale is multiplied by.
double decode(pkv_dtype dtype, uint32_t bits);

// The bits nearest to a value that is exact in double, ties to even; NaN gives some NaN. Beyond the
// largest number: the 8-bit floats saturate, and an infinity is one, or NaN where the type has
// none. Integers take what fits.
uint32_t encode(pkv_dtype dtype, double value);

bool is_nan(pkv_dtype dtype, uint32_t bits);

// Whole bytes: not INT4.
uint32_t read_bits(pkv_dtype dtype, const unsigned char* from);
void write_bits(pkv_dtype dtype, unsigned char* to, uint32_t bits);

// One query row and the tokens it sees.
struct SeenToken {
  const double* k;
  const double* v;
  const double* v_scale;  // of each dim; NULL: V has none
  uint64_t position;
};

struct Problem {
  const float* q;
  uint32_t key_dim, value_dim;
  uint64_t position;  // of the query
  double softcap;     // 0: none
  double slope;
  bool has_sink;
  double sink_logit;
  std::vector<SeenToken> tokens;
};

// What a kernel rounds beside fp32 arithmetic.
struct Rounding {
  bool split_query;    // q is multiplied as two bf16 numbers, where one is not enough
  bool integer_query;  // q is rounded to 2^-15 of its largest element
  bool bf16_weights;   // weights are rounded to 2^-8 before they are multiplied by V
  // The products of weights and scales of V are rounded to 2^-16 of the largest one in the tiles of
  // a step, of which there are two at most.
  bool integer_weights;
};

// The result, and how far a kernel may be off. With u = 2^-24, D the key dim, T the tokens, and A
// the largest sum |q k| of a token:
//
//   a score     e = (D + 4) u A                     sums of D terms in any order; K rounded once
//   when
//                                                   it is unpacked; scales
//                 + 2^-16 A                         split_query: high is q cut after 8 bits, low is
//                 the
//                                                   rest, rounded to nearest
//                 + (1 + 2^-8) 2^-15 max|q| sum|k|  integer_query: 2^-8 for the roundings of q /
//                 unit,
//                                                   which is at most 2^14
//                 + 16 u softcap                    tanh from an exponential of 5 u, a difference,
//                 a
//                                                   sum, a quotient and a product
//                 + 2 u (A + |slope distance|)      a product and a sum
//
//   a weight    r = e + 4 u S + 4 u + 8 u steps     relative. S is the largest |score|. A
//   difference of
//                                                   scores rounds by 2 u S, the exponential by 4 u,
//                                                   each of `steps` changes of the maximum and
//                                                   merges of parts by 8 u, and by u times how far
//                                                   the maximum moved, which adds up to 2 u S
//
//   the output  (2 r + 2 (T + steps) u + 4 u) sum p|v| / sum p
//                                                   numerator and denominator
//                 + 2^-8 sum p|v| / sum p           bf16_weights
//                 + (1 + 2^-8) 2^-16 (sum over pairs of tiles of max(p s) sum |v| / s) / sum p
//                                                   integer_weights, with s the scales
//                 + 1e-35                           denormals; 1e-25 with integer_weights, where
//                 what is
//                                                   below 1e-30 becomes 0
//
//   lse         r + (T + steps) u + 4 u (|max| + |lse| + 1)
class Reference {
 public:
  explicit Reference(const Problem& problem);

  bool saw_nothing() const { return saw_nothing_; }  // no token; there may be a sink logit
  double bound(uint32_t d, double steps, const Rounding& rounding) const;
  double lse_bound(double steps, const Rounding& rounding) const;

  std::vector<double> out;
  double lse;

 private:
  std::vector<double> score(const Problem& problem);
  void add_rounding_of_weights(const Problem& problem, const std::vector<double>& weights);
  double relative(double steps, const Rounding& rounding) const;

  bool saw_nothing_;
  double terms_, dims_, max_ = 0;
  double products_ = 0, rounded_query_ = 0, softcap_, added_ = 0, largest_score_ = 0;
  std::vector<double> absolute_, rounded_weights_;  // by dim, over the sum
};

}  // namespace pkv::kernels::test
