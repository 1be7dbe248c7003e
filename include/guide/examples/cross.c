/* Cross-attention: the keys and values of an image are written once, in a session of their own, and
 * the tokens of two answers attend to them. */
#include <math.h>
#include <pagedkv/pagedkv.h>
#include <stdio.h>
#include <stdlib.h>

enum { PATCHES = 20, ANSWERS = 2, ROWS = 33, HEADS = 4, KV_HEADS = 2, DIM = 32, BLOCKS = 8 };

static float k[PATCHES][KV_HEADS][DIM], v[PATCHES][KV_HEADS][DIM];
static float q[ROWS][HEADS][DIM], out[ROWS][HEADS][DIM];

static void check(pkv_status status) {
  if (status == PKV_OK) return;
  fprintf(stderr, "%s: %s\n", pkv_status_name(status), pkv_last_error());
  exit(EXIT_FAILURE);
}

static void fill(void* rows, size_t bytes, float step) {
  for (size_t i = 0; i < bytes / sizeof(float); i++) ((float*)rows)[i] = sinf((float)i * step);
}

/* How far element d of a result is from a plain softmax over all patches. */
static double error_at(int row, int head, int d) {
  const int kv_head = head / (HEADS / KV_HEADS);
  double weights = 0, sum = 0;
  for (int t = 0; t < PATCHES; t++) {
    double score = 0;
    for (int i = 0; i < DIM; i++) score += (double)q[row][head][i] * k[t][kv_head][i];
    const double weight = exp(score / sqrt(DIM));
    weights += weight, sum += weight * v[t][kv_head][d];
  }
  return fabs(out[row][head][d] - sum / weights);
}

int main(void) {
  fill(k, sizeof k, 1), fill(v, sizeof v, 3), fill(q, sizeof q, 7);
  const pkv_layer_group model = {.struct_size = sizeof model,
                                 .layers = 1,
                                 .query_heads = HEADS,
                                 .kv_heads = KV_HEADS,
                                 .key_dim = DIM,
                                 .blocks = BLOCKS};
  const pkv_cache_config config = {.struct_size = sizeof config, .groups = &model};
  pkv_cache cache;
  pkv_session image;
  check(pkv_cache_create(&config, &cache));
  check(pkv_session_open(cache, NULL, &image));

  /* [write] */
  const pkv_tensor keys = {.data = k, .dtype = PKV_F32}, values = {.data = v, .dtype = PKV_F32};
  const uint32_t patch_count = PATCHES;
  pkv_batch batch;
  check(pkv_batch_begin(cache, 1, &image, &patch_count, &batch));
  check(pkv_batch_write(batch, 0, &keys, &values)); /* once for each layer */
  check(pkv_batch_commit(batch, 0, NULL));
  /* [write end] */

  /* [attend] */
  pkv_kv_view view = {.struct_size = sizeof view};
  check(pkv_cache_get_kv_view(cache, 0, &view));
  uint32_t table[ANSWERS][BLOCKS]; /* the image's table, for each answer */
  size_t count;
  for (int i = 0; i < ANSWERS; i++)
    check(pkv_session_get_block_table(image, 0, BLOCKS, table[i], &count));
  /* One prompt, longer than the image, and one new token. */
  const uint32_t rows[ANSWERS] = {ROWS - 1, 1};
  const uint64_t patches[ANSWERS] = {PATCHES, PATCHES};
  /* Queries have no position in the image, so any number works. */
  const int64_t anywhere[ROWS] = {0};
  const pkv_kv_sequences answers = {.struct_size = sizeof answers,
                                    .query_heads = HEADS,
                                    .count = ANSWERS,
                                    .query_lengths = rows,
                                    .kv_lengths = patches,
                                    .block_tables = table[0],
                                    .block_table_stride = BLOCKS,
                                    .query_positions = anywhere};
  /* Every query sees the whole image. */
  const pkv_attention_params params = {.struct_size = sizeof params, .bidirectional = 1};
  const pkv_tensor queries = {.data = q, .dtype = PKV_F32},
                   outputs = {.data = out, .dtype = PKV_F32};
  check(pkv_kv_attend(NULL, &view, &answers, &params, &queries, &outputs, NULL));
  /* [attend end] */

  double worst = 0;
  for (int row = 0; row < ROWS; row++)
    for (int head = 0; head < HEADS; head++)
      for (int d = 0; d < DIM; d++) worst = fmax(worst, error_at(row, head, d));
  printf("%d tokens of %d answers see %d patches, as in a plain softmax: %s\n", ROWS, ANSWERS,
         PATCHES, worst < 1e-5 ? "yes" : "no");
  check(pkv_cache_destroy(cache));
  return worst < 1e-5 ? EXIT_SUCCESS : EXIT_FAILURE;
}
