#include "sampler.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "../common/util.h"

typedef struct candidate {
  double probability;
  int32_t token;
} candidate;

/* SplitMix64 (Steele, Lea and Flood 2014). */
static uint64_t next_random(uint64_t* state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

sampler sampler_new(double temperature, double top_p, uint64_t seed, uint64_t stream) {
  sampler s = {temperature, top_p, seed};
  s.state = next_random(&s.state) ^ stream * 0xD1342543DE82EF95u;
  return s;
}

/* The first of the best tokens; a NaN score loses against every other. */
static int32_t best_token(const float* logits, size_t vocabulary) {
  size_t best = 0;
  for (size_t i = 1; i < vocabulary; i++)
    if (logits[i] > logits[best] || isnan(logits[best])) best = i;
  return (int32_t)best;
}

static int by_probability(const void* a, const void* b) {
  const candidate *x = a, *y = b;
  if (x->probability != y->probability) return x->probability < y->probability ? 1 : -1;
  return (x->token > y->token) - (x->token < y->token);
}

int32_t sampler_next(sampler* s, const float* logits, size_t vocabulary) {
  const int32_t best = best_token(logits, vocabulary);
  if (s->temperature <= 0) return best;
  const double draw = (double)(next_random(&s->state) >> 11) * 0x1p-53;

  candidate* candidates = new_array(vocabulary, sizeof *candidates);
  double sum = 0, kept = 0;
  for (size_t i = 0; i < vocabulary; i++) {
    const double p = exp(((double)logits[i] - (double)logits[best]) / s->temperature);
    candidates[i].probability = p <= DBL_MAX ? p : 0;
    candidates[i].token = (int32_t)i;
    sum += candidates[i].probability;
  }
  qsort(candidates, vocabulary, sizeof *candidates, by_probability);

  size_t count = 0;
  while (count < vocabulary && (count == 0 || kept < s->top_p * sum))
    kept += candidates[count++].probability;
  size_t chosen = 0;
  double below = candidates[0].probability;
  while (chosen + 1 < count && below <= draw * kept) below += candidates[++chosen].probability;
  const int32_t token = candidates[chosen].token;
  free(candidates);
  return token;
}
