/* A hybrid model whose groups share one memory of twenty pages. Eight short texts take as many
 * blocks of each group; one long text takes sixteen of the group that sees everything. With ten
 * blocks for each group that text would not fit. */
#include "toy.h"

static pkv_cache create_shared(void) {
  const pkv_layer_group full = {.struct_size = sizeof full,
                                .layers = 1,
                                .query_heads = 1,
                                .kv_heads = 1,
                                .key_dim = KEY_DIM,
                                .value_dim = LETTERS};
  pkv_layer_group groups[] = {full, full};
  groups[1].window = 32;
  /* [config] */
  const pkv_cache_config config = {
      .struct_size = sizeof config,
      .group_count = 2,
      .groups = groups,
      .groups_share_memory = 1,
      .memory_bytes = 120 << 10}; /* of both groups, which have no numbers of blocks */
  /* [config end] */
  pkv_cache cache;
  check(pkv_cache_create(&config, &cache));
  return cache;
}

static void print_use(pkv_cache cache, const char* when) {
  pkv_cache_stats all = {.struct_size = sizeof all};
  check(pkv_cache_get_stats(cache, &all));
  printf("%s: %d of %d pages free", when, (int)all.free_pages, (int)all.pages);
  for (uint32_t group = 0; group < 2; group++) {
    pkv_pool_stats stats = {.struct_size = sizeof stats};
    check(pkv_cache_get_pool_stats(cache, group, &stats));
    printf(", group %d uses %d blocks", (int)group, (int)stats.held_blocks);
  }
  printf("\n");
}

/* Adds at most 16 tokens to a session. Their keys and values are zeros, as nobody asks for them. */
static void grow(pkv_cache cache, pkv_session session, int tokens) {
  static float rows[16 * KEY_DIM];
  const uint32_t count = (uint32_t)tokens;
  pkv_batch batch;
  check(pkv_batch_begin(cache, 1, &session, &count, &batch));
  const pkv_tensor k = {.data = rows, .dtype = PKV_F32}, v = {.data = rows, .dtype = PKV_F32};
  for (uint32_t layer = 0; layer < 2; layer++) check(pkv_batch_write(batch, layer, &k, &v));
  check(pkv_batch_commit(batch, 0, NULL));
}

int main(void) {
  const pkv_cache cache = create_shared();
  print_use(cache, "empty");
  pkv_session sessions[8], session;
  for (int i = 0; i < 8; i++) {
    check(pkv_session_open(cache, NULL, &sessions[i]));
    grow(cache, sessions[i], 16);
  }
  print_use(cache, "eight short texts");
  for (int i = 0; i < 8; i++) check(pkv_session_close(sessions[i]));
  check(pkv_session_open(cache, NULL, &session));
  for (int i = 0; i < 16; i++) grow(cache, session, 16);
  print_use(cache, "one long text");
  check(pkv_session_close(session));
  check(pkv_cache_destroy(cache));
  return 0;
}
