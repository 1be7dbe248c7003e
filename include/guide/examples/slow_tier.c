/* A long text whose keys and values are in a file, in the directory that is given or this one. Each
 * question after it looks for a passage and reads the few blocks that matter. */
#include <math.h>
#include <pagedkv/experimental.h>
#include <pagedkv/pagedkv.h>
#include <stdio.h>
#include <stdlib.h>

enum {
  TOKENS = 16384,
  CHUNK = 2048,
  BLOCK = 64,
  PASSAGE = 4 * BLOCK,
  DIM = 64,
  HEADS = 4,
  TOP = 4
};

static float k[CHUNK][DIM], v[CHUNK][DIM], q[HEADS][DIM], out[HEADS][DIM];

static void check(pkv_status status) {
  if (status == PKV_OK) return;
  fprintf(stderr, "%s: %s\n", pkv_status_name(status), pkv_last_error());
  exit(EXIT_FAILURE);
}

/* A number between -1 and 1 that looks random. */
static float noise(unsigned i) {
  i = (i ^ i >> 16) * 0x45d9f3bu;
  i = (i ^ i >> 16) * 0x45d9f3bu;
  return (float)(i ^ i >> 16) / 2147483648.0f - 1;
}

/* What the keys of a passage, which are alike, have in dim d. */
static float topic(int passage, int d) { return noise((unsigned)(passage * DIM + d)); }

/* The rows of the tokens that begin at `first`. */
static void make_rows(int first, int count) {
  for (int t = 0; t < count; t++)
    for (int d = 0; d < DIM; d++) {
      const unsigned number = (unsigned)((first + t) * DIM + d);
      k[t][d] = topic((first + t) / PASSAGE, d) + 0.2f * noise(~number);
      v[t][d] = noise(number ^ 0x55555555u);
    }
}

/* Begins a step of `count` tokens and writes their keys and values. */
static pkv_batch write_step(pkv_cache cache, pkv_session session, int first, int count) {
  const uint32_t new_tokens = (uint32_t)count;
  const pkv_tensor keys = {.data = k, .dtype = PKV_F32}, values = {.data = v, .dtype = PKV_F32};
  pkv_batch batch;
  make_rows(first, count);
  check(pkv_batch_begin(cache, 1, &session, &new_tokens, &batch));
  check(pkv_batch_write(batch, 0, &keys, &values));
  return batch;
}

/* Asks for a passage with the token at `position`. */
static void ask(pkv_cache cache, pkv_session session, int position, int passage) {
  const pkv_batch batch = write_step(cache, session, position, 1);
  for (int h = 0; h < HEADS; h++)
    for (int d = 0; d < DIM; d++) q[h][d] = 8 * topic(passage, d) + noise((unsigned)(h + d));
  const pkv_tensor queries = {.data = q, .dtype = PKV_F32},
                   outputs = {.data = out, .dtype = PKV_F32};
  /* [ask] */
  uint32_t chosen[TOP]; /* for each query and KV head, of which there is one here */
  const pkv_chosen_blocks blocks = {
      .struct_size = sizeof blocks, .top_blocks = TOP, .first_blocks = 1, .last_blocks = 1};
  const pkv_attention_params params = {.struct_size = sizeof params, .chosen_blocks = &blocks};
  const pkv_block_outputs wanted = {.struct_size = sizeof wanted, .chosen = chosen};
  const pkv_attention_outputs found = {.struct_size = sizeof found, .block_outputs = &wanted};
  check(pkv_batch_attend(batch, 0, &params, &queries, &outputs, &found));
  /* [ask end] */
  check(pkv_batch_commit(batch, 0, NULL));
  const int first = passage * PASSAGE / BLOCK;
  printf("it is in blocks %d to %d:", first, first + PASSAGE / BLOCK - 1);
  int read = 3; /* the first block, the last one, and that of the new token, in any case */
  for (int i = 0; i < TOP && chosen[i] != PKV_NO_BLOCK_ID; i++, read++) printf(" %u", chosen[i]);
  printf(" were chosen, %d of %d read\n", read, position / BLOCK + 1);
}

int main(int argc, char** argv) {
  /* [config] */
  const pkv_layer_group model = {.struct_size = sizeof model,
                                 .layers = 1,
                                 .query_heads = HEADS,
                                 .kv_heads = 1,
                                 .key_dim = DIM,
                                 .dtype = PKV_BF16,
                                 .blocks = TOKENS / BLOCK + 1};
  const pkv_cache_config config = {.struct_size = sizeof config,
                                   .groups = &model,
                                   .block_size = BLOCK,
                                   .memory_directory = argc > 1 ? argv[1] : "."};
  pkv_cache cache;
  check(pkv_cache_create(&config, &cache));
  /* [config end] */
  pkv_session session;
  check(pkv_session_open(cache, NULL, &session));
  for (int t = 0; t < TOKENS; t += CHUNK)
    check(pkv_batch_commit(write_step(cache, session, t, CHUNK), 0, NULL));

  pkv_cache_sizes plan = {.struct_size = sizeof plan};
  pkv_cache_stats stats = {.struct_size = sizeof stats};
  check(pkv_cache_compute_sizes(&config, PKV_ALL_GROUPS, &plan));
  check(pkv_cache_get_stats(cache, &stats));
  printf("%d tokens: %d KiB of keys and values in a file, %d KiB of bounds in memory\n", TOKENS,
         (int)(plan.memory_bytes >> 10), (int)((stats.mapped_bytes - plan.memory_bytes) >> 10));
  ask(cache, session, TOKENS, 19);
  ask(cache, session, TOKENS + 1, 50);
  ask(cache, session, TOKENS + 2, 7);
  check(pkv_cache_destroy(cache));
  return EXIT_SUCCESS;
}
