// NEON with BF16, products of matrices of bytes (FEAT_I8MM), and the dot product of bytes.
#include "kernels/isa/neon_bf16.hpp"

#include "kernels/instruction_sets.h"
#include "kernels/isa/neon_bytes.hpp"
#include "kernels/make_table.hpp"

namespace pkv::kernels {

namespace {

// Products of 2 x 8 by 8 x 2: the high bytes are one row, the low bytes the other.
struct ByteMatrices {
  static void arrange(int8x16_t& a, int8x16_t& b) {
    const int32x4_t x = vreinterpretq_s32_s8(a), y = vreinterpretq_s32_s8(b);
    a = vreinterpretq_s8_s32(vzip1q_s32(x, y));
    b = vreinterpretq_s8_s32(vzip2q_s32(x, y));
  }
  static void multiply(int32x4_t (&sum)[2], int8x16_t a, int8x16_t b, int8x16_t factors) {
    sum[0] = vmmlaq_s32(sum[0], factors, a);
    sum[1] = vmmlaq_s32(sum[1], factors, b);
  }
  static int32x4_t total(const int32x4_t (&sum)[2]) {
    const int64x2_t x = vreinterpretq_s64_s32(sum[0]), y = vreinterpretq_s64_s32(sum[1]);
    const int32x4_t high = vreinterpretq_s32_s64(vzip1q_s64(x, y)),
                    low = vreinterpretq_s32_s64(vzip2q_s64(x, y));
    return vaddq_s32(vshlq_n_s32(high, 8), low);
  }
};

struct NeonBf16 : NeonBase<xsimd::neon64> {
  using Dot = NeonBf16;
  using Bytes = ByteMatrices;
};

}  // namespace

constexpr Table neon_bf16_table = make_table<NeonBf16>(PKV_ISA_NEON_BF16);

}  // namespace pkv::kernels
