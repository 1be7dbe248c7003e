/* A hybrid model: layer 0 sees everything, layer 1 the last 32 tokens. Blocks that left its window
 * are free one step late. */
#include "toy.h"

/* [groups] */
static pkv_cache create_hybrid(void) {
  const pkv_layer_group full = {.struct_size = sizeof full,
                                .layers = 1, /* the next one; layer_indices could name another */
                                .query_heads = 1,
                                .kv_heads = 1,
                                .key_dim = KEY_DIM,
                                .value_dim = LETTERS,
                                .blocks = 16};
  pkv_layer_group groups[] = {full, full};
  groups[1].window = 32;
  const pkv_cache_config config = {
      .struct_size = sizeof config, .group_count = 2, .groups = groups}; /* copied */
  pkv_cache cache;
  check(pkv_cache_create(&config, &cache));
  return cache;
}
/* [groups end] */

static size_t blocks_held(pkv_session session, uint32_t group) {
  uint32_t ids[32];
  size_t count, held = 0;
  check(pkv_session_get_block_table(session, group, 32, ids, &count));
  for (size_t i = 0; i < count; i++)
    held += ids[i] !=
            PKV_NO_BLOCK_ID; /* the table keeps its length: position / 16 is still the index */
  return held;
}

int main(void) {
  const pkv_cache cache = create_hybrid();
  pkv_session session;
  check(pkv_session_open(cache, NULL, &session));
  text t = {0};
  add(&t, "if a dog chews shoes, whose sho");
  const text* texts[] = {&t};
  float p[1][LETTERS];
  size_t before = 0;
  while (t.length < 100) {
    check(toy_forward(cache, 1, &session, texts, p));
    const size_t held = blocks_held(session, 1);
    if (held != before)
      printf("after %2zu tokens: %zu blocks for layer 0, %zu for layer 1\n", t.length,
             blocks_held(session, 0), held);
    before = held;
    t.tokens[t.length++] = most_likely(p[0]);
  }
  /* A trim to where the last step began is possible, even if a block left the window in that step,
   * unless blocks were short. */
  uint64_t length;
  check(pkv_session_get_length(session, &length));
  check(pkv_session_trim(session, length - 1));
  printf("trim to 20: %s\n",
         pkv_status_name(pkv_session_trim(session, 20))); /* tokens in its window are gone */
  check(pkv_cache_destroy(cache));
  return EXIT_SUCCESS;
}
