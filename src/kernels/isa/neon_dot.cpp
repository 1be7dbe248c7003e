// NEON with the dot product of bytes (FEAT_DotProd).
#include "kernels/instruction_sets.h"
#include "kernels/isa/neon.hpp"
#include "kernels/isa/neon_bytes.hpp"
#include "kernels/make_table.hpp"

namespace pkv::kernels {

namespace {

struct ByteDots {
  static void arrange(int8x16_t&, int8x16_t&) {}
  static void multiply(int32x4_t (&sum)[2], int8x16_t a, int8x16_t b, int8x16_t factors) {
    sum[0] = vdotq_laneq_s32(vdotq_laneq_s32(sum[0], a, factors, 0), b, factors, 1);
    sum[1] = vdotq_laneq_s32(vdotq_laneq_s32(sum[1], a, factors, 2), b, factors, 3);
  }
  static int32x4_t total(const int32x4_t (&sum)[2]) {
    return vaddq_s32(vshlq_n_s32(sum[0], 8), sum[1]);
  }
};

struct NeonDot : NeonBase<xsimd::neon64> {
  using Bytes = ByteDots;
};

}  // namespace

constexpr Table neon_dot_table = make_table<NeonDot>(PKV_ISA_NEON_DOT);

}  // namespace pkv::kernels
