// NEON as in every AArch64 CPU.
#include "kernels/isa/neon.hpp"

#include "kernels/instruction_sets.h"
#include "kernels/make_table.hpp"

namespace pkv::kernels {

namespace {

struct Neon : NeonBase<xsimd::neon64> {};

}  // namespace

constexpr Table neon_table = make_table<Neon>(PKV_ISA_NEON);

}  // namespace pkv::kernels
