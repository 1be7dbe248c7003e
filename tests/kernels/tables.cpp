#include "tables.h"

namespace pkv {
#if defined(__x86_64__)
extern const Kernels emulated_bf16_kernels;
#endif
}  // namespace pkv

namespace pkv::test {

const std::vector<NamedTable>& tables() {
  static const std::vector<NamedTable> all = [] {
    constexpr NamedTable known[] = {{"scalar", nullptr, false}, {"sse2", nullptr, false},       {"avx2", nullptr, false},
                                    {"avx512", nullptr, false}, {"avx512_bf16", nullptr, true}, {"neon", nullptr, false}};
    std::vector<NamedTable> found;
    for (int isa = PKV_ISA_SCALAR; isa <= PKV_ISA_NEON; isa++) {
      if (!isa_supported(static_cast<pkv_isa>(isa))) continue;
      const NamedTable& name = known[isa - PKV_ISA_SCALAR];
      found.push_back({name.name, &select_kernels(static_cast<pkv_isa>(isa)), name.splits_queries});
    }
#if defined(__x86_64__)
    if (isa_supported(PKV_ISA_AVX512)) found.push_back({"emulated_bf16", &emulated_bf16_kernels, true});
#endif
    return found;
  }();
  return all;
}

}  // namespace pkv::test
