#include "rows.h"

#define GOLDEN 0x9E3779B97F4A7C15u

/* The finaliser of SplitMix64 (Steele, Lea and Flood 2014). */
static uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

int32_t scenario_token(uint64_t seed, uint64_t i) {
  return (int32_t)(mix((seed << 32) + i) & 0xFFFFF);
}

uint64_t scenario_history(uint64_t before, int32_t token) {
  return mix(before + GOLDEN * ((uint64_t)token + 1));
}

void scenario_row(float* row, uint64_t history, enum row_kind kind, uint32_t layer, size_t heads,
                  size_t dim) {
  for (size_t head = 0; head < heads; head++)
    for (size_t d = 0; d < dim; d++) {
      const uint64_t index = (((uint64_t)layer * 4 + kind) * 64 + head) * 1024 + d;
      const uint64_t bits = mix(history + GOLDEN * (1 + index)) >> 40;
      *row++ = ((float)bits / 8388608.0f - 1.0f) * (kind == ROW_Q ? 4.0f : 1.0f);
    }
}
