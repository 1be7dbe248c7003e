/* A program compiled against older headers (older/) works with the library of today: its smaller
 * structs are filled no further than they go, and what it does not know has its default. */
#include <pagedkv/pagedkv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 3, QUERY_HEADS = 4, KV_HEADS = 2, DIM = 32, TOKENS = 40, GUARD = 0x5A };

static void check(pkv_status status, const char* call) {
  if (status == PKV_OK) return;
  fprintf(stderr, "%s: %s: %s\n", call, pkv_status_string(status), pkv_last_error());
  exit(EXIT_FAILURE);
}
#define CHECK(call) check((call), #call)

static void expect(int truth, const char* what) {
  if (truth) return;
  fprintf(stderr, "does not hold: %s\n", what);
  exit(EXIT_FAILURE);
}
#define EXPECT(truth) expect((truth), #truth)

/* A struct with bytes behind it that nobody may write. */
#define GUARDED(type, name)   \
  struct {                    \
    type it;                  \
    unsigned char guard[256]; \
  } name;                     \
  memset(&name, GUARD, sizeof name)
#define EXPECT_GUARD(name) \
  for (size_t i = 0; i < sizeof name.guard; i++) EXPECT(name.guard[i] == GUARD)

static pkv_cache make_cache(void) {
  pkv_layer_group groups[2]; /* a list whose stride is the older size */
  for (int i = 0; i < 2; i++) {
    CHECK(pkv_layer_group_init(&groups[i], sizeof groups[i]));
    groups[i].layers = 1 + (uint32_t)i;
    groups[i].query_heads = QUERY_HEADS;
    groups[i].kv_heads = KV_HEADS;
    groups[i].key_dim = DIM;
    groups[i].dtype = i == 0 ? PKV_F32 : PKV_BF16;
  }
  groups[1].window = 24;
  GUARDED(pkv_cache_config, config);
  CHECK(pkv_cache_config_init(&config.it, sizeof config.it));
  EXPECT_GUARD(config);
  EXPECT(config.it.struct_size == sizeof config.it);
  config.it.group_count = 2;
  config.it.groups = groups;
  config.it.blocks = 64;
  GUARDED(pkv_cache_plan, plan);
  plan.it.struct_size = sizeof plan.it;
  CHECK(pkv_cache_compute_plan(&config.it, PKV_ALL_GROUPS, &plan.it));
  EXPECT_GUARD(plan);
  EXPECT(plan.it.groups == 2 && plan.it.bytes_per_token == 2 * KV_HEADS * DIM * (4 + 2 * 2));
  pkv_cache cache;
  CHECK(pkv_cache_create(&config.it, &cache));
  return cache;
}

static void run_step(pkv_cache cache, pkv_session session, uint32_t n) {
  static float k[TOKENS][KV_HEADS][DIM], v[TOKENS][KV_HEADS][DIM], q[TOKENS][QUERY_HEADS][DIM],
      out[TOKENS][QUERY_HEADS][DIM];
  const pkv_tensor keys = {k, PKV_F32, 0, 0, 0}, values = {v, PKV_F32, 0, 0, 0};
  const pkv_tensor queries = {q, PKV_F32, 0, 0, 0}, outputs = {out, PKV_F32, 0, 0, 0};
  for (int t = 0; t < TOKENS; t++) v[t][0][0] = v[t][1][0] = (float)t;
  GUARDED(pkv_attention_params, params);
  CHECK(pkv_attention_params_init(&params.it, sizeof params.it));
  EXPECT_GUARD(params);
  pkv_batch batch;
  CHECK(pkv_batch_begin(cache, 1, &session, &n, NULL, &batch));
  for (uint32_t layer = 0; layer < LAYERS; layer++) {
    CHECK(pkv_batch_write(batch, layer, &keys, &values));
    CHECK(pkv_batch_attend(batch, layer, &params.it, &queries, &outputs));
    /* Keys are alike: the mean of the values that are seen. */
    const float mean = layer == 0 || n <= 24 ? (float)(n - 1) / 2 : (float)(n - 24 + n - 1) / 2;
    const float error = out[n - 1][QUERY_HEADS - 1][0] - mean;
    EXPECT(error < 0.1f && error > -0.1f);
  }
  CHECK(pkv_batch_commit(batch, NULL));
}

static void expect_stats(pkv_cache cache) {
  GUARDED(pkv_cache_stats, stats);
  stats.it.struct_size = sizeof stats.it;
  CHECK(pkv_cache_get_stats(cache, &stats.it));
  EXPECT_GUARD(stats);
  EXPECT(stats.it.sessions == 2 && stats.it.tokens == 2 * TOKENS && stats.it.commits == 1 &&
         stats.it.committed_tokens == TOKENS);
  GUARDED(pkv_pool_stats, pool);
  pool.it.struct_size = sizeof pool.it;
  CHECK(pkv_cache_get_pool_stats(cache, 0, &pool.it));
  EXPECT_GUARD(pool);
  EXPECT(pool.it.used == 3 && pool.it.shared == 3);
  GUARDED(pkv_kv_view, view);
  view.it.struct_size = sizeof view.it;
  CHECK(pkv_cache_kv_view(cache, 0, &view.it));
  EXPECT_GUARD(view);
  EXPECT(view.it.key_dim == DIM && view.it.kv_heads == KV_HEADS && view.it.blocks == 64);
}

int main(void) {
  pkv_cache cache = make_cache();
  pkv_session_config config;
  CHECK(pkv_session_config_init(&config, sizeof config));
  config.reserve_tokens = 20;
  pkv_session session, child;
  CHECK(pkv_session_open(cache, &config, &session));
  run_step(cache, session, TOKENS);
  CHECK(pkv_session_fork(session, &child));
  expect_stats(cache);
  CHECK(pkv_cache_validate(cache));
  CHECK(pkv_cache_destroy(cache));
  printf("built against %zu bytes of pkv_cache_config, run with version %s\n",
         sizeof(pkv_cache_config), pkv_version_string());
  return EXIT_SUCCESS;
}
