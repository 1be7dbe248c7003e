/* Attention over chosen blocks: a long text, of which a query reads the few blocks that matter. */
#include <math.h>
#include <pagedkv/experimental.h>
#include <pagedkv/pagedkv.h>
#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 2048, HEADS = 2, DIM = 32, TOP = 4, PASSAGE = 64, MATTERS = 19 };

static float k[TOKENS + 1][DIM], v[TOKENS + 1][DIM], q[HEADS][DIM];

static void check(pkv_status status) {
  if (status == PKV_OK) return;
  fprintf(stderr, "%s: %s\n", pkv_status_name(status), pkv_last_error());
  exit(EXIT_FAILURE);
}

/* A number between -1 and 1 that looks random. */
static float noise(int i) {
  const float x = sinf((float)i * 12.9898f) * 437.585f;
  return 2 * (x - floorf(x)) - 1;
}

/* The keys of a passage are alike, and the queries look for one of the 32 passages. */
static void make_rows(void) {
  for (int t = 0; t <= TOKENS; t++)
    for (int d = 0; d < DIM; d++) {
      k[t][d] = noise(t / PASSAGE * DIM + d) + 0.2f * noise(t * DIM - d);
      v[t][d] = noise(t + 7 * d);
    }
  for (int h = 0; h < HEADS; h++)
    for (int d = 0; d < DIM; d++) q[h][d] = 8 * noise(MATTERS * DIM + d) + 0.5f * noise(h + d);
}

static double distance(float (*a)[DIM], float (*b)[DIM]) {
  double sum = 0, whole = 0;
  for (int h = 0; h < HEADS; h++)
    for (int d = 0; d < DIM; d++)
      sum += pow(a[h][d] - b[h][d], 2), whole += a[h][d] * (double)a[h][d];
  return sqrt(sum / whole);
}

int main(void) {
  make_rows();
  const pkv_layer_group model = {.struct_size = sizeof model,
                                 .layers = 2,
                                 .query_heads = HEADS,
                                 .kv_heads = 1,
                                 .key_dim = DIM,
                                 .blocks = 80};
  const pkv_cache_config config = {
      .struct_size = sizeof config, .groups = &model, .block_size = 32};
  pkv_cache cache;
  pkv_session session;
  check(pkv_cache_create(&config, &cache));
  check(pkv_session_open(cache, NULL, &session));
  const uint32_t all = TOKENS, one = 1;
  const pkv_tensor keys = {.data = k, .dtype = PKV_F32}, values = {.data = v, .dtype = PKV_F32};
  pkv_batch batch;
  check(pkv_batch_begin(cache, 1, &session, &all, &batch));
  for (uint32_t layer = 0; layer < 2; layer++) check(pkv_batch_write(batch, layer, &keys, &values));
  check(pkv_batch_commit(batch, 0, NULL));

  const pkv_tensor new_keys = {.data = k[TOKENS], .dtype = PKV_F32},
                   new_values = {.data = v[TOKENS], .dtype = PKV_F32},
                   queries = {.data = q, .dtype = PKV_F32};
  float whole[HEADS][DIM], few[HEADS][DIM], whole_lse[HEADS], few_lse[HEADS];
  const pkv_tensor whole_out = {.data = whole, .dtype = PKV_F32},
                   few_out = {.data = few, .dtype = PKV_F32};
  check(pkv_batch_begin(cache, 1, &session, &one, &batch));
  for (uint32_t layer = 0; layer < 2; layer++)
    check(pkv_batch_write(batch, layer, &new_keys, &new_values));
  pkv_attention_params params = {.struct_size = sizeof params};
  pkv_attention_outputs outputs = {.struct_size = sizeof outputs, .lse = whole_lse};
  check(pkv_batch_attend(batch, 0, &params, &queries, &whole_out, &outputs));

  /* [choose] */
  uint32_t chosen[TOP]; /* for each query and KV head, of which there is one here */
  pkv_chosen_blocks blocks = {
      .struct_size = sizeof blocks, .top_blocks = TOP, .first_blocks = 1, .last_blocks = 1};
  params.chosen_blocks = &blocks;
  const pkv_block_outputs wanted = {.struct_size = sizeof wanted, .chosen = chosen};
  outputs.block_outputs = &wanted;
  outputs.lse = few_lse;
  check(pkv_batch_attend(batch, 0, &params, &queries, &few_out, &outputs));
  printf("chosen:");
  for (int i = 0; i < TOP; i++) printf(" %u", chosen[i]);
  /* The first block, the last one, and that of the new token are read in any case. */
  printf("\n%d of 65 blocks, with %.1f %% of the attention\n", TOP + 3,
         100 * exp(few_lse[0] - whole_lse[0]));
  /* [choose end] */
  printf("the output is off by less than a hundredth: %s\n",
         distance(whole, few) < 0.01 ? "yes" : "no");

  /* [lists] */
  blocks = (pkv_chosen_blocks){.struct_size = sizeof blocks,
                               .first_blocks = 1,
                               .last_blocks = 1,
                               .lists = chosen, /* what layer 0 chose, or a model's own indexer */
                               .list_blocks = TOP};
  check(pkv_batch_attend(batch, 1, &params, &queries, &few_out, NULL));
  /* [lists end] */
  check(pkv_batch_abort(batch));
  check(pkv_cache_destroy(cache));
  return EXIT_SUCCESS;
}
