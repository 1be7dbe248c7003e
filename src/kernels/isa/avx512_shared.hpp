// What avx512.cpp and avx512_vnni.cpp compile for the sets that extend AVX-512. Their register
// tiles have the same sizes.
#pragma once

#include "kernels/drivers.hpp"

namespace pkv::kernels {

extern const Drivers avx512_drivers;
// By dtype, from fp32 on.
extern const StoredOps avx512_stored[last_dtype - PKV_F32 + 1];
extern const DtypeOps avx512_ops[last_dtype - PKV_F32 + 1];
extern const DtypeOps avx512_plain_ops[plain_dtype_count];
// int8 and int4.
extern const StoredOps vnni_stored[2];
extern const DtypeOps vnni_ops[2];

}  // namespace pkv::kernels
