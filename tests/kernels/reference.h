// What the kernels should compute, in double precision and straight from the definitions.
#pragma once

#include <pagedkv/common.h>

#include <vector>

namespace pkv::test {

// The value of stored bits (f32: the low 32, else the low 16), exact.
double decode(pkv_dtype dtype, uint32_t bits);

// The bits nearest to a value that is exact in double, ties to even. NaN gives some NaN.
uint32_t encode(pkv_dtype dtype, double value);

bool is_nan(pkv_dtype dtype, uint32_t bits);

uint32_t read_bits(pkv_dtype dtype, const unsigned char* from);
void write_bits(pkv_dtype dtype, unsigned char* to, uint32_t bits);

// One query row against the tokens it sees: k[i] and v[i] are rows of token i.
struct Attention {
  std::vector<double> out;
  std::vector<double> bound;  // how far fp32 arithmetic may be off, element by element
};

// The bound: with u = 2^-24, a computed score is off by at most (D + 2) u sum|q k| (D fused or unfused steps in any order), and
// by 2^-16 sum|q k| more where q is split into two bf16 numbers. A weight exp(score - max) then has the relative error
//   r = score error + u (|score| + |max|) (the difference) + 4 u (exp itself)
//       + for each change of the maximum and each merge of parts: 8 u, and u times how far it moved,
// which `steps` of them bounds. Sums of T terms add T u. Numerator and denominator both have this error:
//   bound = (2 r + 2 (T + steps) u + 4 u) sum p|v| / sum p
Attention attend_reference(const std::vector<double>& q, const std::vector<std::vector<double>>& k,
                           const std::vector<std::vector<double>>& v, size_t value_dim, double steps, bool split_query);

}  // namespace pkv::test
