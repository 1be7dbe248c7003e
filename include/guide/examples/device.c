/* An engine whose keys and values lie in memory of its own (a device's, say): the cache keeps ids
 * and tells where all goes. */
#include <math.h>

#include "toy.h"

enum {
  BLOCKS = 16,
  BLOCK_SIZE = 16,
  SLOTS = BLOCKS * BLOCK_SIZE,
  DIM = 16,
  SESSIONS = 2,
  ROWS = 64
};

static float device_k[SLOTS][DIM],
    device_v[SLOTS][DIM]; /* one layer, one head: slot = block id * block size + offset */

static void make_rows(float* rows, size_t n, float seed) { /* instead of projections */
  for (size_t i = 0; i < n * DIM; i++) rows[i] = sinf(seed + (float)i);
}

/* One query over the slots of its sequence: what a kernel of the device does. */
static void attend(const float* q, const uint32_t* slots, uint32_t n, float* out) {
  float sum = 0;
  memset(out, 0, DIM * sizeof *out);
  for (uint32_t j = 0; j < n; j++) {
    float score = 0;
    for (int d = 0; d < DIM; d++) score += q[d] * device_k[slots[j]][d];
    const float weight = expf(score / sqrtf(DIM));
    for (int d = 0; d < DIM; d++) out[d] += weight * device_v[slots[j]][d];
    sum += weight;
  }
  for (int d = 0; d < DIM; d++) out[d] /= sum;
}

/* [step] */
static void step(pkv_cache cache, size_t n, const pkv_session* sessions, const uint32_t* new_tokens,
                 const float* k, const float* v, const float* q, float (*out)[DIM]) {
  pkv_batch batch;
  check(pkv_batch_begin(cache, n, sessions, new_tokens, &batch));

  uint32_t from[SESSIONS], to[SESSIONS];
  size_t count;
  /* Shared blocks that this step writes into are copied first. */
  check(pkv_batch_get_block_copies(batch, 0, SESSIONS, from, to, &count));
  for (size_t i = 0; i < count; i++) {
    memcpy(device_k[to[i] * BLOCK_SIZE], device_k[from[i] * BLOCK_SIZE],
           BLOCK_SIZE * sizeof *device_k);
    memcpy(device_v[to[i] * BLOCK_SIZE], device_v[from[i] * BLOCK_SIZE],
           BLOCK_SIZE * sizeof *device_v);
    printf("copied block %u to %u\n", from[i], to[i]);
  }

  int64_t slots[ROWS];
  check(pkv_batch_get_slot_mapping(batch, 0, ROWS, slots, &count)); /* where the new rows go */
  for (size_t row = 0; row < count; row++) {
    memcpy(device_k[slots[row]], k + row * DIM, sizeof *device_k);
    memcpy(device_v[slots[row]], v + row * DIM, sizeof *device_v);
  }

  uint32_t indptr[SESSIONS + 1], indices[SESSIONS * SLOTS];
  /* What each session reads. */
  check(pkv_batch_get_kv_indices(batch, 0, PKV_INDEX_SLOTS, indptr, SESSIONS * SLOTS, indices,
                                 &count, NULL));
  size_t row = 0;
  for (size_t i = 0; i < n; i++) {
    row += new_tokens[i];
    attend(q + (row - 1) * DIM, indices + indptr[i], indptr[i + 1] - indptr[i],
           out[i]); /* the last new token of the session */
  }
  check(pkv_batch_commit(batch, 0, NULL));
}
/* [step end] */

/* The same, computed by the library's kernels over the engine's memory and a block table. */
static void attend_here(pkv_session session, const float* q, float* out) {
  const pkv_kv_view view = {.struct_size = sizeof view,
                            .dtype = PKV_F32,
                            .layout = PKV_LAYOUT_PLAIN,
                            .block_size = BLOCK_SIZE,
                            .kv_heads = 1,
                            .key_dim = DIM,
                            .value_dim = DIM,
                            .blocks = BLOCKS,
                            .k = device_k,
                            .v = device_v,
                            .k_block_stride = BLOCK_SIZE * DIM,
                            .k_row_stride = DIM,
                            .k_head_stride = DIM,
                            .v_block_stride = BLOCK_SIZE * DIM,
                            .v_row_stride = DIM,
                            .v_head_stride = DIM};
  uint32_t table[BLOCKS];
  size_t count;
  uint64_t length;
  check(pkv_session_get_block_table(session, 0, BLOCKS, table, &count));
  check(pkv_session_get_length(session, &length));
  const uint32_t one = 1;
  const pkv_kv_sequences sequences = {.struct_size = sizeof sequences,
                                      .query_heads = 1,
                                      .count = 1,
                                      .query_lengths = &one,
                                      .kv_lengths = &length,
                                      .block_tables = table,
                                      .block_table_stride = BLOCKS};
  float query[DIM];
  memcpy(query, q, sizeof query);
  const pkv_tensor queries = {.data = query, .dtype = PKV_F32},
                   outputs = {.data = out, .dtype = PKV_F32};
  check(pkv_kv_attend(NULL, &view, &sequences, NULL, &queries, &outputs, NULL));
}

int main(void) {
  const pkv_layer_group model = {.struct_size = sizeof model,
                                 .layers = 1,
                                 .query_heads = 1,
                                 .kv_heads = 1,
                                 .key_dim = DIM,
                                 .blocks = BLOCKS};
  const pkv_cache_config config = {
      .struct_size = sizeof config, .groups = &model, .storage = PKV_STORAGE_EXTERNAL};
  pkv_cache cache;
  check(pkv_cache_create(&config, &cache));

  static float k[ROWS * DIM], v[ROWS * DIM], q[ROWS * DIM];
  float out[SESSIONS][DIM], here[DIM];
  pkv_session sessions[SESSIONS];
  check(pkv_session_open(cache, NULL, &sessions[0]));
  const uint32_t prompt = 20, one_each[SESSIONS] = {1, 1};
  make_rows(k, prompt, 1), make_rows(v, prompt, 2), make_rows(q, prompt, 3);
  step(cache, 1, sessions, &prompt, k, v, q, out);
  check(pkv_session_fork(sessions[0], &sessions[1]));
  make_rows(k, 2, 4), make_rows(v, 2, 5), make_rows(q, 2, 6);
  step(cache, 2, sessions, one_each, k, v, q,
       out); /* both write into the part-filled block that they share */

  float worst = 0;
  for (int i = 0; i < SESSIONS; i++) {
    attend_here(sessions[i], q + i * DIM, here);
    for (int d = 0; d < DIM; d++) worst = fmaxf(worst, fabsf(here[d] - out[i][d]));
  }
  /* Weights are 1 in all, values below 1: sums of 21 are off by at most 21 roundings of 2^-24 in
   * each of weights and values, 2.5e-6. */
  printf("both ways agree: %s\n", worst < 1e-5f ? "yes" : "no");
  check(pkv_cache_destroy(cache));
  return worst < 1e-5f ? EXIT_SUCCESS : EXIT_FAILURE;
}
