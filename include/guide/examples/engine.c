/* A complete engine: requests arrive, wait, are answered together and leave. */
#include "toy.h"

enum { REQUESTS = 3, ANSWER = 24 };

typedef struct request {
  const char* prompt;
  int arrives; /* at this step */
  text text;
  pkv_session session; /* NULL: not begun, or done */
  size_t end;
} request;

static request requests[REQUESTS] = {
    {.prompt = "a rose is a rose is a r", .arrives = 0},
    {.prompt = "row, row, row your boat. row, r", .arrives = 0},
    {.prompt = "to be or not to be, th", .arrives = 5},
};

int main(void) {
  const pkv_cache_config config = toy_config();
  pkv_cache cache;
  check(pkv_cache_create(&config, &cache));

  size_t done = 0;
  for (int step = 0; done < REQUESTS; step++) {
    pkv_session sessions[REQUESTS];
    const text* texts[REQUESTS];
    request* running[REQUESTS];
    float p[REQUESTS][LETTERS];
    size_t n = 0;
    for (request* r = requests; r < requests + REQUESTS; r++) {
      if (r->arrives == step) {
        check(pkv_session_open(cache, NULL, &r->session));
        add(&r->text, r->prompt);
        r->end = r->text.length + ANSWER;
      }
      if (r->session != NULL) running[n] = r, sessions[n] = r->session, texts[n++] = &r->text;
    }
    check(toy_forward(cache, n, sessions, texts,
                      p)); /* whole prompts of new requests, one token of the others */
    for (size_t i = 0; i < n; i++) {
      text* t = &running[i]->text;
      t->tokens[t->length++] = most_likely(p[i]);
      if (t->length < running[i]->end) continue;
      check(pkv_session_close(running[i]->session));
      running[i]->session = NULL;
      done++;
    }
  }
  for (size_t i = 0; i < REQUESTS; i++) print("", &requests[i].text, 0);

  pkv_cache_stats stats = {.struct_size = sizeof stats};
  pkv_pool_stats pools = {.struct_size = sizeof pools};
  check(pkv_cache_get_stats(cache, &stats));
  check(pkv_cache_get_pool_stats(cache, PKV_ALL_GROUPS, &pools));
  printf("%llu tokens in %llu steps; %llu blocks at most, %llu now\n",
         (unsigned long long)stats.committed_tokens, (unsigned long long)stats.commits,
         (unsigned long long)pools.held_blocks_peak, (unsigned long long)pools.held_blocks);
  check(pkv_cache_destroy(cache));
  return EXIT_SUCCESS;
}
