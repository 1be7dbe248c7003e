/* The whole life of a cache, in one step of made-up keys, values and queries. The guide explains it
 * in include/guide/first-program.md. */
#include <pagedkv/pagedkv.h>
#include <stdio.h>
#include <stdlib.h>

enum { LAYERS = 2, QUERY_HEADS = 4, KV_HEADS = 2, DIM = 32, TOKENS = 20 };

static void check(pkv_status status) {
  if (status == PKV_OK) return;
  fprintf(stderr, "%s: %s\n", pkv_status_name(status), pkv_last_error());
  exit(EXIT_FAILURE);
}

int main(void) {
  pkv_cache cache;
  pkv_session session;
  pkv_batch batch;
  static float k[TOKENS][KV_HEADS][DIM], v[TOKENS][KV_HEADS][DIM], q[TOKENS][QUERY_HEADS][DIM],
      out[TOKENS][QUERY_HEADS][DIM];
  /* All keys are alike, so attention gives the mean of the values so far. */
  for (int t = 0; t < TOKENS; t++) v[t][0][0] = v[t][1][0] = (float)t;

  const pkv_layer_group model = {.struct_size = sizeof model,
                                 .layers = LAYERS,
                                 .query_heads = QUERY_HEADS,
                                 .kv_heads = KV_HEADS,
                                 .key_dim = DIM};
  const pkv_cache_config config = {.struct_size = sizeof config, .groups = &model, .blocks = 64};
  /* [step] */
  check(pkv_cache_create(&config, &cache));
  check(pkv_session_open(cache, NULL, &session));

  const uint32_t new_tokens = TOKENS;
  const pkv_tensor keys = {.data = k, .dtype = PKV_F32}, values = {.data = v, .dtype = PKV_F32};
  const pkv_tensor queries = {.data = q, .dtype = PKV_F32};
  const pkv_tensor outputs = {.data = out, .dtype = PKV_F32};
  check(pkv_batch_begin(cache, 1, &session, &new_tokens, &batch));
  for (uint32_t layer = 0; layer < LAYERS; layer++) {
    check(pkv_batch_write(batch, layer, &keys, &values));
    check(pkv_batch_attend(batch, layer, NULL, &queries, &outputs, NULL));
  }
  check(pkv_batch_commit(batch, 0, NULL));
  /* [step end] */

  uint32_t blocks[4];
  size_t count;
  check(pkv_session_get_block_table(session, 0, 4, blocks, &count));
  printf("token %d attends to %d tokens: %.2f (expected %.2f)\nblock table:", TOKENS - 1, TOKENS,
         out[TOKENS - 1][0][0], (TOKENS - 1) / 2.0);
  for (size_t i = 0; i < count; i++) printf(" %u", blocks[i]);
  printf("\n");
  check(pkv_cache_destroy(cache)); /* closes the session as well */
  return EXIT_SUCCESS;
}
