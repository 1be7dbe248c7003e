/* Prefix reuse: a session reuses the blocks of an earlier one with the same prefix and the same
 * salt. */
#include "toy.h"

static const char SYSTEM[] =
    "you are a parrot that says what came before. answer in a friendly way, and never use a "
    "comma. ";

/* [request] */
/* Answers a question of a tenant; the cached part of its beginning is not computed again. */
static void answer(pkv_cache cache, const char* tenant, const char* question) {
  /* Tenants share nothing, and cannot tell what others have cached. */
  const pkv_session_config config = {
      .struct_size = sizeof config, .salt = tenant, .salt_size = strlen(tenant)};
  pkv_session session;
  check(pkv_session_open(cache, &config, &session));

  text t = {0};
  add(&t, SYSTEM);
  add(&t, question);
  uint64_t matched;
  check(pkv_session_admit(session, t.length - 1, t.tokens, 0,
                          &matched)); /* not the last one, whose output is needed */
  printf("%s asks: %3zu tokens, %2llu of them cached\n", tenant, t.length,
         (unsigned long long)matched);

  const text* texts[] = {&t};
  float p[1][LETTERS];
  for (int i = 0; i < 8; i++) { /* the first pass computes what was not cached */
    check(toy_forward(cache, 1, &session, texts, p));
    t.tokens[t.length++] = most_likely(p[0]);
  }
  const pkv_hint returns = {.struct_size = sizeof returns,
                            .action = PKV_HINT_EXPECT_RETURN,
                            .duration_ms = 30000}; /* the user will read for half a minute, say */
  check(pkv_hint_session(session, &returns, NULL));
  check(pkv_session_close(session)); /* its blocks stay cached until their memory is needed */
}
/* [request end] */

/* Computes the system prompt for a tenant once and keeps it, even if memory is needed. */
static void keep_system_prompt(pkv_cache cache, const char* tenant) {
  text t = {0};
  add(&t, SYSTEM);
  const pkv_session_config config = {
      .struct_size = sizeof config, .salt = tenant, .salt_size = strlen(tenant)};
  pkv_session session;
  check(pkv_session_open(cache, &config, &session));
  const text* texts[] = {&t};
  float p[1][LETTERS];
  check(toy_forward(cache, 1, &session, texts, p));
  check(pkv_session_close(session));

  /* [pin] */
  const pkv_hint pin = {.struct_size = sizeof pin, .action = PKV_HINT_PIN, .end = PKV_TO_END};
  pkv_hint_result result = {.struct_size = sizeof result};
  const pkv_prompt prompt = {.struct_size = sizeof prompt,
                             .salt = tenant,
                             .salt_size = strlen(tenant),
                             .tokens = t.tokens,
                             .n = t.length};
  check(pkv_hint_prompt(cache, &prompt, &pin, &result));
  /* [pin end] */
  printf("%s pins %llu of %zu tokens: full blocks\n", tenant, (unsigned long long)result.tokens,
         t.length);
}

/* [events] */
/* Returns how many leading tokens of a text a cache has, as far as a router knows. `known` has the
 * hashes of blocks that were stored and not removed since, according to the events of the cache. A
 * match can end after the last known block of the text, even if blocks before it are not known.
 */
static size_t likely_cached(const uint64_t* known, size_t count, const char* tenant,
                            uint32_t block_size, const text* t) {
  uint64_t hashes[MAX_TEXT];
  const pkv_prompt prompt = {.struct_size = sizeof prompt,
                             .salt = tenant,
                             .salt_size = strlen(tenant),
                             .tokens = t->tokens,
                             .n = t->length};
  check(pkv_prefix_hash_blocks(&prompt, block_size, hashes));
  for (size_t blocks = t->length / block_size; blocks > 0; blocks--)
    for (size_t i = 0; i < count; i++)
      if (known[i] == hashes[blocks - 1]) return blocks * block_size;
  return 0;
}
/* [events end] */

int main(void) {
  const pkv_prefix_config prefix = {.struct_size = sizeof prefix, .max_events = 1000};
  pkv_cache_config config = toy_config();
  config.prefix = &prefix;
  pkv_cache cache;
  check(pkv_cache_create(&config, &cache));

  keep_system_prompt(cache, "ann");
  answer(cache, "ann", "hello?");
  answer(cache, "ann", "hello there?");
  answer(cache, "bob", "hello?");

  pkv_prefix_stats stats = {.struct_size = sizeof stats};
  check(pkv_prefix_get_stats(cache, "ann", 3, &stats));
  printf("ann: %llu of %llu tokens asked for were cached\n",
         (unsigned long long)stats.matched_tokens, (unsigned long long)stats.lookup_tokens);

  pkv_prefix_event events[100];
  uint64_t next = 0, known[100];
  size_t n, count = 0;
  check(pkv_prefix_read_events(cache, &next, 100, events, &n, NULL));
  for (size_t i = 0; i < n; i++)
    if (events[i].kind == PKV_PREFIX_EVENT_PUBLISHED) known[count++] = events[i].hash;
  text t = {0};
  add(&t, SYSTEM);
  add(&t, "who are you?");
  printf("a router finds %zu tokens for bob and %zu for eve\n",
         likely_cached(known, count, "bob", 16, &t), likely_cached(known, count, "eve", 16, &t));
  check(pkv_cache_destroy(cache));
  return EXIT_SUCCESS;
}
