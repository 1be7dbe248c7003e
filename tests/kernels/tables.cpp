#include "tables.h"

namespace pkv {
#if defined(__x86_64__)
extern const Kernels emulated_bf16_kernels;
#endif
}  // namespace pkv

namespace pkv::test {

const std::vector<NamedTable>& tables() {
  static const std::vector<NamedTable> all = [] {
    std::vector<NamedTable> found;
    for (const pkv_isa isa : instruction_sets)
      if (isa_supported(isa))
        found.push_back({isa_name(isa), &select_kernels(isa), isa == PKV_ISA_AVX512_BF16});
#if defined(__x86_64__)
    if (isa_supported(PKV_ISA_AVX512))
      found.push_back({"emulated_bf16", &emulated_bf16_kernels, true});
#endif
    return found;
  }();
  return all;
}

}  // namespace pkv::test
