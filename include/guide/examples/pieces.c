/* Attention in two pieces, as where a part of a text lies on another device: the log-sum-exp of
 * each says what it counts for. */
#include <math.h>

#include "toy.h"

enum { TOKENS = 48, FIRST = 32, HEADS = 2, DIM = 16 };

static float k[TOKENS * DIM], v[TOKENS * DIM], q[HEADS * DIM];

/* Attention of the last token's query over the `n` tokens that begin at `first`. */
static void attend(int first, uint32_t n, float* out, float* lse) {
  const pkv_layer_group model = {.struct_size = sizeof model,
                                 .layers = 1,
                                 .query_heads = HEADS,
                                 .kv_heads = 1,
                                 .key_dim = DIM,
                                 .blocks = 8};
  const pkv_cache_config config = {.struct_size = sizeof config, .groups = &model};
  pkv_cache cache;
  pkv_session session;
  check(pkv_cache_create(&config, &cache));
  check(pkv_session_open(cache, NULL, &session));
  const pkv_tensor all_k = {.data = k + first * DIM, .dtype = PKV_F32},
                   all_v = {.data = v + first * DIM, .dtype = PKV_F32};
  pkv_batch batch;
  check(pkv_batch_begin(cache, 1, &session, &n, &batch));
  check(pkv_batch_write(batch, 0, &all_k, &all_v));
  check(pkv_batch_commit(batch, 0, NULL));

  pkv_kv_view view = {.struct_size = sizeof view};
  check(pkv_cache_get_kv_view(cache, 0, &view));
  uint32_t table[8], one = 1;
  size_t count;
  check(pkv_session_get_block_table(session, 0, 8, table, &count));
  const uint64_t length = n;
  const pkv_kv_sequences sequences = {.struct_size = sizeof sequences,
                                      .query_heads = HEADS,
                                      .count = 1,
                                      .query_lengths = &one,
                                      .kv_lengths = &length,
                                      .block_tables = table,
                                      .block_table_stride = 8};
  const pkv_attention_outputs outputs = {.struct_size = sizeof outputs, .lse = lse};
  const pkv_tensor queries = {.data = q, .dtype = PKV_F32},
                   result = {.data = out, .dtype = PKV_F32};
  check(pkv_kv_attend(NULL, &view, &sequences, NULL, &queries, &result, &outputs));
  check(pkv_cache_destroy(cache));
}

int main(void) {
  for (int i = 0; i < TOKENS * DIM; i++) k[i] = sinf((float)i), v[i] = cosf((float)i * 3);
  for (int i = 0; i < HEADS * DIM; i++) q[i] = sinf((float)i * 7);
  /* [merge] */
  float whole[HEADS * DIM], here[HEADS * DIM], there[HEADS * DIM], merged[HEADS * DIM],
      lse_here[HEADS], lse_there[HEADS];
  attend(0, TOKENS, whole, NULL);
  attend(0, FIRST, there, lse_there); /* on the other device */
  attend(FIRST, TOKENS - FIRST, here, lse_here);
  const pkv_tensor parts[] = {{.data = there, .dtype = PKV_F32}, {.data = here, .dtype = PKV_F32}},
                   result = {.data = merged, .dtype = PKV_F32};
  const float* const lse[] = {lse_there, lse_here};
  check(pkv_attention_merge(NULL, 2, parts, lse, 1, HEADS, DIM, &result, NULL));
  /* [merge end] */
  float worst = 0;
  for (int i = 0; i < HEADS * DIM; i++) worst = fmaxf(worst, fabsf(merged[i] - whole[i]));
  /* Weights are 1 in all, values up to 1: sums of 48 are off by at most 48 roundings of 2^-24 in
   * each of weights and values, 5.8e-6. */
  printf("merged pieces and the whole agree: %s\n", worst < 1e-5f ? "yes" : "no");
  return worst < 1e-5f ? EXIT_SUCCESS : EXIT_FAILURE;
}
