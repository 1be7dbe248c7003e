// What avx2.cpp compiles for AVX-VNNI, too.
#pragma once

#include "kernels/drivers.hpp"

namespace pkv::kernels {

extern const Drivers avx2_drivers;
// By dtype, from fp32 on.
extern const DtypeOps avx2_ops[last_dtype - PKV_F32 + 1];
extern const DtypeOps avx2_plain_ops[plain_dtype_count];

}  // namespace pkv::kernels
