/* The first step. The guide explains this program in include/guide/first-program.md. */
/* [program] */
#include <pagedkv/pagedkv.h>
#include <stdio.h>
#include <stdlib.h>

static void check(pkv_status status) {
  if (status == PKV_OK) return;
  fprintf(stderr, "%s: %s\n", pkv_status_name(status), pkv_last_error());
  exit(EXIT_FAILURE);
}

int main(void) {
  static float k[20][2][32], v[20][2][32], q[20][4][32], out[20][4][32];
  for (int t = 0; t < 20; t++) v[t][0][0] = (float)t;
  pkv_tensor keys = {.data = k, .dtype = PKV_F32}, values = {.data = v, .dtype = PKV_F32};
  pkv_tensor queries = {.data = q, .dtype = PKV_F32};
  pkv_tensor result = {.data = out, .dtype = PKV_F32};
  pkv_layer_group model = {.struct_size = sizeof model};
  model.layers = 2, model.query_heads = 4, model.kv_heads = 2, model.key_dim = 32;
  model.blocks = 64;
  pkv_cache_config config = {.struct_size = sizeof config, .groups = &model};
  /* [step] */
  pkv_cache cache;
  check(pkv_cache_create(&config, &cache));
  pkv_session session;
  check(pkv_session_open(cache, NULL, &session));
  pkv_batch batch;
  const uint32_t new_tokens = 20;
  check(pkv_batch_begin(cache, 1, &session, &new_tokens, &batch));
  for (uint32_t layer = 0; layer < 2; layer++) {
    check(pkv_batch_write(batch, layer, &keys, &values));
    check(pkv_batch_attend(batch, layer, NULL, &queries, &result, NULL));
  }
  check(pkv_batch_commit(batch, 0, NULL));
  /* [step end] */
  printf("token 19 attends to 20 tokens: %.2f (expected 9.50)\n", out[19][0][0]);
  check(pkv_session_close(session));
  check(pkv_cache_destroy(cache));
}
/* [program end] */
