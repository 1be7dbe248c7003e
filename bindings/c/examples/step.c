/* pkv-step: how long decode steps take from C, as a reference for bindings: begin, write, attend
 * and commit of one new token for each of 8 sessions, one layer of 32 query heads on 8 KV heads of
 * 128 dims in bfloat16.
 *
 * usage: pkv-step TOKENS STEPS THREADS
 *
 * Does STEPS steps with TOKENS tokens in each session. Prints, in microseconds, the median of the
 * calling thread's CPU time, which other programs disturb least, and the shortest time on the
 * clock. THREADS 0: one per CPU.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../common/pkv_dl.h"
#include "../common/util.h"

enum { SESSIONS = 8, QUERY_HEADS = 32, KV_HEADS = 8, DIM = 128 };

static pkv_dl lib;

static void check(pkv_status status) {
  if (status != PKV_OK) die(EXIT_BAD_INPUT, "%s (%s)", lib.last_error(), lib.status_name(status));
}

typedef struct rows {
  float q[SESSIONS][QUERY_HEADS][DIM], out[SESSIONS][QUERY_HEADS][DIM], k[SESSIONS][KV_HEADS][DIM],
      v[SESSIONS][KV_HEADS][DIM];
} rows;

static void decode(pkv_cache cache, pkv_session* sessions, rows* r) {
  static const uint32_t new_tokens[SESSIONS] = {1, 1, 1, 1, 1, 1, 1, 1};
  static const int32_t tokens[SESSIONS] = {1, 2, 3, 4, 5, 6, 7, 8};
  const pkv_tensor q = {.data = r->q, .dtype = PKV_F32}, out = {.data = r->out, .dtype = PKV_F32};
  const pkv_tensor k = {.data = r->k, .dtype = PKV_F32}, v = {.data = r->v, .dtype = PKV_F32};
  pkv_batch batch;
  check(lib.batch_begin(cache, SESSIONS, sessions, new_tokens, &batch));
  check(lib.batch_write(batch, 0, &k, &v));
  check(lib.batch_attend(batch, 0, NULL, &q, &out, NULL));
  check(lib.batch_commit(batch, SESSIONS, tokens));
}

static pkv_cache make_cache(size_t tokens, uint32_t threads) {
  const pkv_layer_group model = {.struct_size = sizeof model,
                                 .layers = 1,
                                 .query_heads = QUERY_HEADS,
                                 .kv_heads = KV_HEADS,
                                 .key_dim = DIM,
                                 .dtype = PKV_BF16,
                                 .blocks = SESSIONS * (tokens / 16 + 1)};
  const pkv_cache_config config = {
      .struct_size = sizeof config, .groups = &model, .prefault = 1, .threads = threads};
  pkv_cache cache;
  check(lib.cache_create(&config, &cache));
  return cache;
}

static void fill(pkv_cache cache, pkv_session* sessions, size_t tokens) {
  float* k = new_array(tokens * KV_HEADS * DIM, sizeof *k);
  for (size_t i = 0; i < tokens * KV_HEADS * DIM; i++) k[i] = (float)(i % 17) / 17;
  const pkv_tensor row = {.data = k, .dtype = PKV_F32};
  const uint32_t count = (uint32_t)tokens;
  pkv_batch batch;
  for (size_t s = 0; s < SESSIONS; s++) {
    check(lib.session_open(cache, NULL, &sessions[s]));
    check(lib.batch_begin(cache, 1, &sessions[s], &count, &batch));
    check(lib.batch_write(batch, 0, &row, &row));
    check(lib.batch_commit(batch, 0, NULL));
  }
  free(k);
}

static double processor_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static long number(const char* text, long min, const char* what) {
  char* end;
  const long n = strtol(text, &end, 10);
  if (*text == '\0' || *end != '\0' || n < min || n > 1 << 20)
    die(EXIT_BAD_OPTION, "%s takes a number from %ld to %d, not '%s'", what, min, 1 << 20, text);
  return n;
}

int main(int argc, char** argv) {
  static rows r;
  pkv_session sessions[SESSIONS];
  if (argc != 4) die(EXIT_BAD_OPTION, "usage: pkv-step TOKENS STEPS THREADS");
  const size_t tokens = (size_t)number(argv[1], 1, "TOKENS"),
               steps = (size_t)number(argv[2], 1, "STEPS");
  pkv_dl_open(&lib, NULL);
  const pkv_cache cache = make_cache(tokens, (uint32_t)number(argv[3], 0, "THREADS"));
  fill(cache, sessions, tokens);

  double* times = new_array(steps, sizeof *times);
  double shortest = 0;
  for (size_t i = 0; i < steps; i++) {
    const double start = seconds(), processor_start = processor_seconds();
    decode(cache, sessions, &r);
    times[i] = processor_seconds() - processor_start;
    const double elapsed = seconds() - start;
    if (i == 0 || elapsed < shortest) shortest = elapsed;
    for (size_t s = 0; s < SESSIONS; s++) check(lib.session_trim(sessions[s], tokens));
  }
  qsort(times, steps, sizeof *times, compare);
  printf("%.3f %.3f\n", times[steps / 2] * 1e6, shortest * 1e6);
  free(times);
  check(lib.cache_destroy(cache));
  return EXIT_SUCCESS;
}
