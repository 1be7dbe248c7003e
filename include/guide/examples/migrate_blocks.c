/* A scheduler over block tables, with the calls of vLLM's KVCacheManager. The engine keeps keys and
 * values itself, so no model is needed here. */
#include "toy.h"

enum { BLOCK = 16, BLOCKS = 8, MOST = 128 };

/* [manager] */
/* get_computed_blocks: the session takes over the cached blocks of its prompt. The last token is
 * left out, because its output is needed. */
static uint64_t get_computed_blocks(pkv_session session, size_t n, const int32_t* prompt) {
  uint64_t matched;
  check(pkv_session_admit(session, n - 1, prompt, 0, &matched));
  matched -= matched % BLOCK; /* only whole blocks, as in vLLM: then no block must be copied */
  check(pkv_session_trim(session, matched));
  return matched;
}

/* allocate_slots: the blocks for n new tokens, or PKV_OUT_OF_BLOCKS where vLLM returns None. */
static pkv_status allocate_slots(pkv_cache cache, pkv_session session, uint32_t n, pkv_batch* step,
                                 int64_t* slot_mapping) {
  const pkv_status status = pkv_batch_begin(cache, 1, &session, &n, step);
  if (status != PKV_OK) return status; /* nothing has changed */
  size_t count;
  check(pkv_batch_get_slot_mapping(*step, 0, MOST, slot_mapping, &count));
  return PKV_OK; /* run the model, then commit: full blocks are cached from then on */
}
/* [manager end] */

/* A step of one request, whose rows the engine would write to the slots. */
static pkv_status step(pkv_cache cache, pkv_session session, const int32_t* tokens, size_t end) {
  uint64_t held;
  int64_t slots[MOST];
  uint32_t table[BLOCKS];
  size_t count;
  pkv_batch batch;
  check(pkv_session_get_length(session, &held));
  const uint32_t n = (uint32_t)(end - held);
  const pkv_status status = allocate_slots(cache, session, n, &batch, slots);
  if (status != PKV_OK) return status;
  check(pkv_batch_get_block_copies(batch, 0, 0, NULL, NULL, &count));
  if (count > 0) exit(EXIT_FAILURE); /* no session shares a part of a block */
  check(pkv_session_get_block_table(session, 0, BLOCKS, table, &count));
  for (uint32_t i = 0; i < n; i++) {
    const uint64_t at = held + i;
    if (slots[i] != table[at / BLOCK] * BLOCK + (int64_t)(at % BLOCK)) exit(EXIT_FAILURE);
  }
  check(pkv_batch_commit(batch, n, tokens + held));
  return PKV_OK;
}

static void print_table(const char* name, pkv_session session) {
  uint32_t table[BLOCKS];
  size_t count;
  uint64_t length;
  check(pkv_session_get_length(session, &length));
  check(pkv_session_get_block_table(session, 0, BLOCKS, table, &count));
  printf("%s: %2llu tokens, blocks", name, (unsigned long long)length);
  for (size_t i = 0; i < count; i++) printf(" %u", table[i]);
  putchar('\n');
}

int main(void) {
  const pkv_layer_group group = {.struct_size = sizeof group,
                                 .layers = 1,
                                 .query_heads = 1,
                                 .kv_heads = 1,
                                 .key_dim = 16,
                                 .blocks = BLOCKS};
  const pkv_prefix_config prefix = {.struct_size = sizeof prefix, .eviction = PKV_EVICTION_LRU};
  const pkv_cache_config config = {.struct_size = sizeof config,
                                   .groups = &group,
                                   .storage = PKV_STORAGE_EXTERNAL, /* block ids only */
                                   .block_size = BLOCK,
                                   .prefix = &prefix};
  pkv_cache cache;
  check(pkv_cache_create(&config, &cache));

  /* Two prompts of 50 tokens, of which the first 40 are equal. */
  int32_t a_tokens[MOST], b_tokens[MOST];
  for (int i = 0; i < MOST; i++) a_tokens[i] = i, b_tokens[i] = i < 40 ? i : 1000 + i;
  pkv_session a, b;
  check(pkv_session_open(cache, NULL, &a));
  check(pkv_session_open(cache, NULL, &b));
  get_computed_blocks(a, 50, a_tokens);
  check(step(cache, a, a_tokens, 50));
  print_table("a", a);
  const uint64_t computed = get_computed_blocks(b, 50, b_tokens);
  check(step(cache, b, b_tokens, 50));
  print_table("b", b);

  /* [preempt] */
  size_t length = 50;
  while (step(cache, a, a_tokens, length + 1) == PKV_OK) check(step(cache, b, b_tokens, ++length));
  const uint32_t one = 1;
  pkv_session victims[2];
  size_t count;
  check(pkv_batch_choose_victims(cache, 1, &a, &one, 2, victims, &count)); /* the newest request */
  check(pkv_session_suspend(victims[0])); /* its tokens are remembered, its blocks are free */
  check(step(cache, a, a_tokens, length + 1));
  print_table("b waits; a", a);
  check(pkv_session_close(a)); /* free: full blocks stay cached until their memory is needed */
  uint64_t kept, total;
  check(pkv_session_resume(b, &kept, &total));
  printf("b is back: %llu of %llu tokens were still cached\n", (unsigned long long)kept,
         (unsigned long long)total);
  /* [preempt end] */
  check(step(cache, b, b_tokens, (size_t)total + 1));
  print_table("b", b);
  check(pkv_cache_destroy(cache));
  return computed == 32 && count == 1 && victims[0] == b ? EXIT_SUCCESS : EXIT_FAILURE;
}
