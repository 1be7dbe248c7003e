/* A directory behind the memory. Run it twice: the second time the full blocks of the prompt are
 * there. */
#include "toy.h"

/* [create] */
static pkv_cache create_with_directory(const char* path) {
  /* Beyond 100 MiB, files that were not used for longest are deleted. */
  const pkv_directory_config directory = {
      .struct_size = sizeof directory, .path = path, .max_bytes = 100 << 20};
  pkv_store store = {.struct_size = sizeof store};
  check(pkv_store_open_directory(&directory, &store));

  const pkv_store_config store_config = {
      .struct_size = sizeof store_config,
      .store = &store,              /* the cache closes it */
      .fingerprint = "toy model 1", /* of the weights: another model's blocks are never taken */
      .fingerprint_size = 11};
  const pkv_prefix_config prefix = {.struct_size = sizeof prefix};
  pkv_cache_config config = toy_config();
  config.prefix = &prefix;
  config.store = &store_config;
  pkv_cache cache;
  check(pkv_cache_create(&config, &cache));
  return cache;
}
/* [create end] */

static uint64_t answer(pkv_cache cache, text* t) {
  pkv_session session;
  uint64_t matched, in_memory;
  /* [request] */
  const pkv_hint prefetch = {
      .struct_size = sizeof prefetch, .action = PKV_HINT_PREFETCH, .end = PKV_TO_END};
  const pkv_prompt prompt = {.struct_size = sizeof prompt, .tokens = t->tokens, .n = t->length - 1};
  /* When a request begins to wait for its turn: */
  check(pkv_hint_prompt(cache, &prompt, &prefetch, NULL));
  /* What has arrived when its turn comes is used. A scheduler has better things to do than wait:
   * this is an example. */
  check(pkv_prefetch_wait(cache, &prompt, 1000, &in_memory, NULL));
  check(pkv_session_open(cache, NULL, &session));
  check(pkv_session_admit(session, prompt.n, prompt.tokens, 0, &matched));
  /* [request end] */
  const text* texts[] = {t};
  for (int i = 0; i < 16; i++) {
    float p[1][LETTERS];
    check(toy_forward(cache, 1, &session, texts, p));
    t->tokens[t->length++] = most_likely(p[0]);
  }
  /* From here on a thread of the cache writes its blocks to the store. */
  check(pkv_session_close(session));
  return matched;
}

int main(int argc, char** argv) {
  pkv_cache cache = create_with_directory(argc > 1 ? argv[1] : "kv");
  text t = {0};
  add(&t, "if you go down in the woods today you are sure of a big surprise. if you go down");
  const size_t prompt = t.length;
  const uint64_t matched = answer(cache, &t);
  printf("%llu of %zu tokens were there; it goes on: ", (unsigned long long)matched, prompt);
  print("", &t, prompt);
  check(pkv_cache_destroy(cache)); /* waits until all is written */
  return EXIT_SUCCESS;
}
