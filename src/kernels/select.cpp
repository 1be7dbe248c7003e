#if defined(__x86_64__)
#include <cpuid.h>

#include <atomic>
#endif

#include "base/os.h"
#include "base/status.h"
#include "kernels/instruction_sets.h"

namespace pkv::kernels {

namespace {

struct Candidate {
  const Table* table;
  // Returns whether the CPU has the instructions and the system saves their registers.
  bool (*runs_here)();
  // Returns whether the table is faster here than those below it, provided that it runs. `pkv-bench
  // --choose` shows it.
  bool (*is_fast)();
};

bool always() { return true; }

#if defined(__x86_64__)
bool has_avx2() { return os::x86_features().avx2; }

bool has_avx_vnni() { return os::x86_features().avx_vnni; }

bool has_avx512() {
  const os::X86Features features = os::x86_features();
  return features.avx2 && features.avx512;
}

bool has_avx512_vnni() { return has_avx512() && os::x86_features().vnni; }

// Of the CPUs with BF16, only Cooper Lake lacks VBMI.
bool has_avx512_bf16() {
  return has_avx512_vnni() && os::x86_features().bf16 && os::x86_features().vbmi;
}

// A bf16 dot product does two multiply-adds per lane. AMD's CPUs do as many products per cycle with
// it as in fp32, or twice as many; Intel's do half as many.
bool has_fast_bf16_dot() { return !os::x86_features().intel; }

bool has_tiles_of_bf16() {
  unsigned a, b, c, d;
  constexpr unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & amx_bf16) != 0 && (d & amx_tile) != 0;
}

// Zen 5 has AVX-VNNI, Zen 4 lacks it.
bool is_zen5() { return has_avx512_bf16() && has_fast_bf16_dot() && has_avx_vnni(); }

enum class Amx { unknown, none, refused, usable };

Amx ask_for_amx() {
  if (!has_avx512_bf16() || !has_tiles_of_bf16()) return Amx::none;
  return os::permit_tiles() ? Amx::usable : Amx::refused;
}

// Two threads that ask at once get the same answer.
std::atomic<Amx> amx_answer{Amx::unknown};

Amx amx() {
  if (amx_answer.load(std::memory_order_relaxed) == Amx::unknown)
    amx_answer.store(ask_for_amx(), std::memory_order_relaxed);
  return amx_answer.load(std::memory_order_relaxed);
}

// As has_amx(), but does not ask for the permission if nobody has yet.
bool could_have_amx() {
  const Amx known = amx_answer.load(std::memory_order_relaxed);
  if (known != Amx::unknown) return known == Amx::usable;
  return has_avx512_bf16() && has_tiles_of_bf16() && os::saves_tiles();
}

bool has_amx() { return amx() == Amx::usable; }
#elif defined(__aarch64__)
bool has_neon_dot() { return os::arm_features().dot_products; }

bool has_neon_bf16() {
  return has_neon_dot() && os::arm_features().bf16 && os::arm_features().int8_products;
}
#endif

// The best table comes first.
constexpr Candidate candidates[] = {
#if defined(__x86_64__)
    {&amx_table, has_amx, always},
    {&zen5_table, is_zen5, always},
    {&avx512_bf16_table, has_avx512_bf16, has_fast_bf16_dot},
    {&avx512_vnni_table, has_avx512_vnni, always},
    {&avx512_table, has_avx512, always},
    {&avx_vnni_table, has_avx_vnni, always},
    {&avx2_table, has_avx2, always},
    {&sse2_table, always, always},
#elif defined(__aarch64__)
    {&neon_bf16_table, has_neon_bf16, always},
    {&neon_dot_table, has_neon_dot, always},
    {&neon_table, always, always},
#endif
    {&scalar_table, always, always},
};

const Table* find(pkv_isa isa) {
  for (const Candidate& candidate : candidates) {
    const bool wanted = isa == PKV_ISA_AUTO ? candidate.is_fast() : isa == candidate.table->isa;
    if (wanted && candidate.runs_here()) return candidate.table;
  }
  return nullptr;
}

}  // namespace

const char* isa_name(pkv_isa isa) {
  switch (isa) {
    case PKV_ISA_AUTO:
      return "auto";
    case PKV_ISA_SCALAR:
      return "scalar";
    case PKV_ISA_SSE2:
      return "sse2";
    case PKV_ISA_AVX2:
      return "avx2";
    case PKV_ISA_AVX_VNNI:
      return "avx_vnni";
    case PKV_ISA_AVX512:
      return "avx512";
    case PKV_ISA_AVX512_BF16:
      return "avx512_bf16";
    case PKV_ISA_AVX512_VNNI:
      return "avx512_vnni";
    case PKV_ISA_AMX:
      return "amx";
    case PKV_ISA_NEON:
      return "neon";
    case PKV_ISA_NEON_DOT:
      return "neon_dot";
    case PKV_ISA_NEON_BF16:
      return "neon_bf16";
  }
  return "unknown";
}

bool isa_supported(pkv_isa isa) {
  if (isa == PKV_ISA_AUTO) return true;
#if defined(__x86_64__)
  if (isa == PKV_ISA_AMX) return could_have_amx();
#endif
  return find(isa) != nullptr;
}

const char* describe_fall_back(const Table& chosen) {
#if defined(__x86_64__)
  if (amx() == Amx::refused)
    return "the CPU has AMX, but the system does not let this process use it";
  if (chosen.isa == PKV_ISA_SSE2)
    return "the CPU lacks AVX2, FMA or F16C: attention runs on SSE2, several times slower";
#endif
  if (chosen.isa == PKV_ISA_SCALAR)
    return "no kernels fit this CPU: attention runs in plain C++, many times slower";
  return nullptr;
}

const Table& select(pkv_isa isa) {
  const Table* table = find(isa);
  if (table == nullptr)
    fail(PKV_UNSUPPORTED, "instruction set %s is not in this build, or this CPU lacks it",
         isa_name(isa));
  return *table;
}

}  // namespace pkv::kernels
