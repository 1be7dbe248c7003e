#include "tables.h"

namespace pkv::kernels {
#if defined(__x86_64__)
extern const Table emulated_bf16_table;
extern const Table emulated_amx_table;
#endif
}  // namespace pkv::kernels

namespace pkv::kernels::test {

const std::vector<NamedTable>& tables() {
  static const std::vector<NamedTable> all = [] {
    std::vector<NamedTable> found;
    for (const pkv_isa isa : instruction_sets)
      if (isa_supported(isa))
        found.push_back({isa_name(isa), &select(isa),
                         isa == PKV_ISA_AVX512_BF16 || isa == PKV_ISA_NEON_BF16, isa == PKV_ISA_AMX,
                         isa == PKV_ISA_AVX2 || isa == PKV_ISA_AVX_VNNI ||
                             isa == PKV_ISA_AVX512_VNNI || isa == PKV_ISA_AVX512_BF16});
#if defined(__x86_64__)
    if (isa_supported(PKV_ISA_AVX512)) {
      found.push_back({"emulated_bf16", &emulated_bf16_table, true, false, false});
      found.push_back({"emulated_amx", &emulated_amx_table, false, true, false});
    }
#endif
    return found;
  }();
  return all;
}

}  // namespace pkv::kernels::test
