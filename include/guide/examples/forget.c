/* Dropping blocks in the middle: a text of 2,048 tokens of which a session keeps a quarter. */
#include <pagedkv/experimental.h>
#include <pagedkv/pagedkv.h>
#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 2048, DIM = 32, BLOCK = 32, BLOCKS = TOKENS / BLOCK };

static float k[TOKENS + 1][DIM], v[TOKENS + 1][DIM], q[DIM], out[DIM];

static void check(pkv_status status) {
  if (status == PKV_OK) return;
  fprintf(stderr, "%s: %s\n", pkv_status_name(status), pkv_last_error());
  exit(EXIT_FAILURE);
}

static uint64_t blocks_of(pkv_session session) {
  pkv_session_info info = {.struct_size = sizeof info};
  check(pkv_session_get_info(session, &info));
  return info.blocks;
}

/* Keeps the first block, the last four, and the blocks that matter: here every fifth. */
static size_t choose_dropped(uint32_t* dropped) {
  size_t count = 0;
  for (uint32_t i = 1; i < BLOCKS - 4; i++)
    if (i % 5 != 0) dropped[count++] = i;
  return count;
}

int main(void) {
  for (int t = 0; t <= TOKENS; t++)
    for (int d = 0; d < DIM; d++) k[t][d] = v[t][d] = (float)((t * 31 + d * 17) % 64) / 32 - 1;
  for (int d = 0; d < DIM; d++) q[d] = 0.5f;
  const pkv_layer_group model = {.struct_size = sizeof model,
                                 .layers = 1,
                                 .query_heads = 1,
                                 .kv_heads = 1,
                                 .key_dim = DIM,
                                 .blocks = 80};
  const pkv_cache_config config = {
      .struct_size = sizeof config, .groups = &model, .block_size = BLOCK};
  pkv_cache cache;
  pkv_session session;
  check(pkv_cache_create(&config, &cache));
  check(pkv_session_open(cache, NULL, &session));
  const pkv_tensor keys = {.data = k, .dtype = PKV_F32}, values = {.data = v, .dtype = PKV_F32};
  const uint32_t all = TOKENS, one = 1;
  pkv_batch batch;
  check(pkv_batch_begin(cache, 1, &session, &all, &batch));
  check(pkv_batch_write(batch, 0, &keys, &values));
  check(pkv_batch_commit(batch, 0, NULL));

  /* [drop] */
  uint32_t dropped[BLOCKS];
  const size_t count = choose_dropped(dropped);
  printf("blocks before: %d\n", (int)blocks_of(session));
  check(pkv_session_drop_blocks(session, 0, count, dropped));
  printf("blocks after: %d\n", (int)blocks_of(session));
  /* [drop end] */

  uint64_t length;
  check(pkv_session_get_length(session, &length));
  printf("length: %d\n", (int)length);
  const pkv_tensor key = {.data = k[TOKENS], .dtype = PKV_F32},
                   value = {.data = v[TOKENS], .dtype = PKV_F32},
                   query = {.data = q, .dtype = PKV_F32}, result = {.data = out, .dtype = PKV_F32};
  check(pkv_batch_begin(cache, 1, &session, &one, &batch));
  check(pkv_batch_write(batch, 0, &key, &value));
  check(
      pkv_batch_attend(batch, 0, NULL, &query, &result, NULL)); /* does not see what was dropped */
  size_t seen;
  uint32_t indptr[2];
  static uint32_t slots[TOKENS];
  check(pkv_batch_get_kv_indices(batch, 0, PKV_INDEX_SLOTS, indptr, TOKENS, slots, &seen, NULL));
  printf("tokens that the query saw: %d\n", (int)seen);
  check(pkv_batch_commit(batch, 0, NULL));

  /* [trim] */
  check(pkv_session_get_trim_point(session, 1000, &length));
  printf("trim to 1000: %s\n", pkv_status_name(pkv_session_trim(session, 1000)));
  printf("trim to %d: %s\n", (int)length, pkv_status_name(pkv_session_trim(session, length)));
  /* [trim end] */
  check(pkv_session_close(session));
  check(pkv_cache_destroy(cache));
  return 0;
}
