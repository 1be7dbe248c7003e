/* What a model takes, before anything is allocated; and what rounding costs. */
#include <math.h>

#include "toy.h"

static const struct {
  const char* name;
  pkv_dtype k, v;
} TYPES[] = {
    {"f32", PKV_F32, PKV_F32},          {"bf16", PKV_BF16, PKV_BF16}, {"int8", PKV_INT8, PKV_INT8},
    {"int8, int4", PKV_INT8, PKV_INT4}, {"int4", PKV_INT4, PKV_INT4},
};

/* [plan] */
/* A model of 28 layers, 32 query heads over 8 KV heads of 128. */
static pkv_cache_sizes plan(pkv_dtype k, pkv_dtype v, uint32_t block_size) {
  const pkv_layer_group model = {.struct_size = sizeof model,
                                 .layers = 28,
                                 .query_heads = 32,
                                 .kv_heads = 8,
                                 .key_dim = 128,
                                 .dtype = k,
                                 .value_dtype = v};
  const pkv_cache_config config = {.struct_size = sizeof config,
                                   .groups = &model,
                                   .block_size = block_size,
                                   .memory_bytes = 4ull << 30}; /* or .blocks of the model */
  pkv_cache_sizes result = {.struct_size = sizeof result};
  check(pkv_cache_compute_sizes(&config, PKV_ALL_GROUPS, &result));
  return result;
}
/* [plan end] */

/* [error] */
/* How far stored rows are off, at most, in parts of the largest element: rows go in, and are read
 * back as they were stored. */
static void worst_error(pkv_dtype k_type, pkv_dtype v_type, double* k_error, double* v_error) {
  enum { ROWS = 64, DIM = 128 };
  static float rows[ROWS * DIM], k[ROWS * DIM], v[ROWS * DIM];
  uint32_t state = 1;
  for (int i = 0; i < ROWS * DIM; i++) { /* even over [-1, 1] */
    state = state * 1664525u + 1013904223u;
    rows[i] = (float)state / 2147483648.0f - 1;
  }
  const pkv_layer_group model = {.struct_size = sizeof model,
                                 .layers = 1,
                                 .query_heads = 1,
                                 .kv_heads = 1,
                                 .key_dim = DIM,
                                 .dtype = k_type,
                                 .value_dtype = v_type,
                                 .blocks = 4};
  const pkv_cache_config config = {.struct_size = sizeof config, .groups = &model};
  pkv_cache cache;
  pkv_session session;
  check(pkv_cache_create(&config, &cache));
  check(pkv_session_open(cache, NULL, &session));
  const pkv_tensor in = {.data = rows, .dtype = PKV_F32}, k_out = {.data = k, .dtype = PKV_F32},
                   v_out = {.data = v, .dtype = PKV_F32};
  const uint32_t new_tokens = ROWS;
  pkv_batch batch;
  check(pkv_batch_begin(cache, 1, &session, &new_tokens, &batch));
  check(pkv_batch_write(batch, 0, &in, &in));
  check(pkv_batch_commit(batch, 0, NULL));
  check(pkv_session_read(session, 0, 0, ROWS, &k_out, &v_out));
  check(pkv_cache_destroy(cache));
  *k_error = *v_error = 0;
  for (int i = 0; i < ROWS * DIM; i++) {
    *k_error = fmax(*k_error, fabsf(k[i] - rows[i]));
    *v_error = fmax(*v_error, fabsf(v[i] - rows[i]));
  }
}
/* [error end] */

int main(void) {
  printf("%-12s%18s%18s%14s%14s\n", "K and V", "bytes per token", "tokens in 4 GiB", "K error",
         "V error");
  for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++) {
    const pkv_cache_sizes p = plan(TYPES[i].k, TYPES[i].v, 16);
    double k, v;
    worst_error(TYPES[i].k, TYPES[i].v, &k, &v);
    printf("%-12s%18llu%18llu%14.6f%14.6f\n", TYPES[i].name, (unsigned long long)p.bytes_per_token,
           (unsigned long long)p.tokens, k, v);
  }
  printf("%-12s%18s%20s\n", "block size", "bytes per block", "wasted per session");
  for (uint32_t size = 16; size <= 256; size *= 4) {
    const pkv_cache_sizes p = plan(PKV_BF16, PKV_BF16, size);
    printf("%-12u%18llu%20llu\n", size, (unsigned long long)p.bytes_per_block,
           (unsigned long long)p.bytes_per_block / 2); /* half a block */
  }
  return EXIT_SUCCESS;
}
