/* The next token from its scores. */
#ifndef PKV_GENERATE_SAMPLER_H
#define PKV_GENERATE_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

typedef struct sampler {
  double temperature; /* 0: the best token, always */
  double top_p;       /* draw from the likeliest tokens that have this probability together */
  uint64_t state;     /* of the random numbers */
} sampler;

/* Each stream of a seed is its own sequence, so a session draws the same numbers whatever runs
 * beside it. */
sampler sampler_new(double temperature, double top_p, uint64_t seed, uint64_t stream);
int32_t sampler_next(sampler* s, const float* logits, size_t vocabulary);

#endif
