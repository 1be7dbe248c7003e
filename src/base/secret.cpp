// Wipes the bytes of a secret, and what copying and using them left elsewhere.
#include "base/secret.h"

#include "base/os.h"

namespace pkv {

namespace {

// Copies, BLAKE2b and AES leave parts of keys in vector registers. The dynamic loader saves these
// registers on the stack when it binds a shared library's function at its first call.
void wipe_vector_registers() noexcept {
#if defined(__x86_64__)
  const os::X86Features features = os::x86_features();
#define PKV_CLOBBERED                                                                      \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
      "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
  if (features.avx512f) {
    // This file is compiled without AVX-512, so the compiler has nothing in these registers.
    asm volatile(
        "vpxord %%zmm16, %%zmm16, %%zmm16\n vpxord %%zmm17, %%zmm17, %%zmm17\n"
        "vpxord %%zmm18, %%zmm18, %%zmm18\n vpxord %%zmm19, %%zmm19, %%zmm19\n"
        "vpxord %%zmm20, %%zmm20, %%zmm20\n vpxord %%zmm21, %%zmm21, %%zmm21\n"
        "vpxord %%zmm22, %%zmm22, %%zmm22\n vpxord %%zmm23, %%zmm23, %%zmm23\n"
        "vpxord %%zmm24, %%zmm24, %%zmm24\n vpxord %%zmm25, %%zmm25, %%zmm25\n"
        "vpxord %%zmm26, %%zmm26, %%zmm26\n vpxord %%zmm27, %%zmm27, %%zmm27\n"
        "vpxord %%zmm28, %%zmm28, %%zmm28\n vpxord %%zmm29, %%zmm29, %%zmm29\n"
        "vpxord %%zmm30, %%zmm30, %%zmm30\n vpxord %%zmm31, %%zmm31, %%zmm31\n" ::
            : "memory");
  }
  if (features.avx) {
    asm volatile("vzeroall" ::: PKV_CLOBBERED, "memory");
    return;
  }
  asm volatile(
      "pxor %%xmm0, %%xmm0\n pxor %%xmm1, %%xmm1\n pxor %%xmm2, %%xmm2\n pxor %%xmm3, %%xmm3\n"
      "pxor %%xmm4, %%xmm4\n pxor %%xmm5, %%xmm5\n pxor %%xmm6, %%xmm6\n pxor %%xmm7, %%xmm7\n"
      "pxor %%xmm8, %%xmm8\n pxor %%xmm9, %%xmm9\n pxor %%xmm10, %%xmm10\n"
      "pxor %%xmm11, %%xmm11\n pxor %%xmm12, %%xmm12\n pxor %%xmm13, %%xmm13\n"
      "pxor %%xmm14, %%xmm14\n pxor %%xmm15, %%xmm15\n" ::
          : PKV_CLOBBERED, "memory");
#undef PKV_CLOBBERED
#elif defined(__aarch64__)
  asm volatile(
      "movi v0.2d, #0\n movi v1.2d, #0\n movi v2.2d, #0\n movi v3.2d, #0\n movi v4.2d, #0\n"
      "movi v5.2d, #0\n movi v6.2d, #0\n movi v7.2d, #0\n movi v16.2d, #0\n movi v17.2d, #0\n"
      "movi v18.2d, #0\n movi v19.2d, #0\n movi v20.2d, #0\n movi v21.2d, #0\n"
      "movi v22.2d, #0\n movi v23.2d, #0\n movi v24.2d, #0\n movi v25.2d, #0\n"
      "movi v26.2d, #0\n movi v27.2d, #0\n movi v28.2d, #0\n movi v29.2d, #0\n"
      "movi v30.2d, #0\n movi v31.2d, #0\n" ::
          : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19", "v20",
            "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31", "memory");
#endif
}

// Wipes what is left of the frames of functions that have returned.
[[gnu::noinline]] void wipe_stack_below() noexcept {
  constexpr size_t deepest = 16384;
  unsigned char frames[deepest];
  os::wipe(frames, sizeof frames);
}

}  // namespace

void wipe(std::span<unsigned char> bytes) noexcept {
  os::wipe(bytes.data(), bytes.size());
  wipe_vector_registers();
  wipe_stack_below();
}

}  // namespace pkv
