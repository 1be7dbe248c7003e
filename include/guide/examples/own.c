/* An engine with blocks and a schedule of its own: it writes keys and values into its memory and
 * attends over them, by this library's kernels and without a cache. */
#include <math.h>

#include "toy.h"

enum { BATCH = 2, LENGTH = 20, QUERY_HEADS = 4, KV_HEADS = 2, DIM = 32, BLOCKS = 8, STRIDE = 2 };

/* As a model has them after its projections, [batch][heads][n][dim]. */
static float q[BATCH][QUERY_HEADS][LENGTH][DIM], out[BATCH][QUERY_HEADS][LENGTH][DIM];
static float k[BATCH][KV_HEADS][LENGTH][DIM], v[BATCH][KV_HEADS][LENGTH][DIM];

static pkv_tensor padded(float* rows, uint32_t heads) {
  return (pkv_tensor){.data = rows,
                      .dtype = PKV_F32,
                      .row_stride = DIM,
                      .head_stride = LENGTH * DIM,
                      .batch_stride = heads * LENGTH * DIM};
}

/* [memory] */
/* K and V of one layer: 8 blocks of 16 tokens in int8, in memory that the engine gets itself. */
static void make_memory(pkv_kv_view* kv) {
  *kv = (pkv_kv_view){.struct_size = sizeof *kv,
                      .layout = PKV_LAYOUT_PACKED,
                      .block_size = 16,
                      .kv_heads = KV_HEADS,
                      .key_dim = DIM,
                      .dtype = PKV_INT8,
                      .blocks = BLOCKS};
  uint64_t bytes;
  check(pkv_kv_view_init(kv, &bytes)); /* how large */
  kv->k = aligned_alloc(64, (bytes + 63) / 64 * 64);
  check(pkv_kv_view_init(kv, &bytes)); /* where everything lies */
}
/* [memory end] */

/* [step] */
/* One layer of a step: sequence i has new_rows[i] rows, the last of its lengths[i] tokens, in
 * blocks that the engine has chosen. */
static void step(pkv_compute compute, const pkv_kv_view* kv, const uint32_t* new_rows,
                 const uint64_t* lengths, const uint32_t* tables) {
  const pkv_kv_sequences sequences = {.struct_size = sizeof sequences,
                                      .query_heads = QUERY_HEADS,
                                      .count = BATCH,
                                      .query_lengths = new_rows,
                                      .kv_lengths = lengths,
                                      .block_tables = tables,
                                      .block_table_stride = STRIDE};
  const pkv_tensor keys = padded((float*)k, KV_HEADS), values = padded((float*)v, KV_HEADS);
  const pkv_tensor queries = padded((float*)q, QUERY_HEADS),
                   outputs = padded((float*)out, QUERY_HEADS);
  check(pkv_kv_write(compute, kv, &sequences, &keys, &values));
  check(pkv_kv_attend(compute, kv, &sequences, NULL, &queries, &outputs, NULL));
}
/* [step end] */

/* The same attention of one query, in double precision over the rows that were written. */
static double error_of(int s, int head, int row) {
  double sum = 0, mean[DIM] = {0}, worst = 0;
  for (int j = 0; j <= row; j++) {
    double score = 0;
    for (int d = 0; d < DIM; d++) score += (double)q[s][head][row][d] * k[s][head / 2][j][d];
    const double weight = exp(score / sqrt(DIM));
    sum += weight;
    for (int d = 0; d < DIM; d++) mean[d] += weight * v[s][head / 2][j][d];
  }
  for (int d = 0; d < DIM; d++) worst = fmax(worst, fabs(mean[d] / sum - out[s][head][row][d]));
  return worst;
}

static void fill(float* numbers, size_t n, int seed) {
  for (size_t i = 0; i < n; i++) numbers[i] = sinf((float)(i * (size_t)seed));
}

int main(void) {
  fill((float*)q, sizeof q / sizeof(float), 7);
  fill((float*)k, sizeof k / sizeof(float), 1);
  fill((float*)v, sizeof v / sizeof(float), 3);

  pkv_kv_view kv;
  make_memory(&kv);
  const pkv_compute_config config = {.struct_size = sizeof config,
                                     .threads = 2}; /* the engine has other work for the rest */
  pkv_compute compute;
  check(pkv_compute_create(&config, &compute));

  /* Texts of 20 and of 7 tokens, the second one padded. */
  const uint32_t rows[BATCH] = {20, 7}, tables[BATCH][STRIDE] = {{5, 2}, {7, 0}};
  const uint64_t lengths[BATCH] = {20, 7};
  step(compute, &kv, rows, lengths, tables[0]);

  double worst = 0;
  for (int s = 0; s < BATCH; s++)
    for (int head = 0; head < QUERY_HEADS; head++)
      for (int row = 0; row < (int)rows[s]; row++) worst = fmax(worst, error_of(s, head, row));
  check(pkv_compute_destroy(compute));
  free(kv.k);
  /* Numbers up to 1 are off by 1/254 at most in int8: a score by 32/254/sqrt(32) = 0.022, a mean
   * of values up to 1 by twice that and 1/254 more. */
  printf("int8 in the engine's own blocks: outputs within 0.05 of the exact ones: %s\n",
         worst < 0.05 ? "yes" : "no");
  return worst < 0.05 ? EXIT_SUCCESS : EXIT_FAILURE;
}
