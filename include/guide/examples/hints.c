/* Hints: an agent says what it knows about the future of cached tokens. */
#include "toy.h"

static const char* const OUTCOMES[] = {"?", "done", "clipped", "deferred", "rejected", "missing"};

static const char* const REASONS[] = {
    "",         ", not cached", ", a limit",         ", the quota",
    ", in use", ", no store",   ", the store fails", ", no index"};

static void tell(const char* what, const pkv_hint_result* result) {
  printf("%-27s %-8s %3llu tokens%s\n", what, OUTCOMES[result->outcome],
         (unsigned long long)result->tokens, REASONS[result->reason]);
}

/* Gives a hint about a text, for example one of which no session is open now. */
static void hint_text(pkv_cache cache, const char* what, const text* t, pkv_hint hint) {
  pkv_hint_result result = {.struct_size = sizeof result};
  hint.struct_size = sizeof hint;
  const pkv_prompt said = {.struct_size = sizeof said, .tokens = t->tokens, .n = t->length};
  check(pkv_hint_prompt(cache, &said, &hint, &result));
  tell(what, &result);
}

/* [session] */
/* A turn of an agent: it thinks, then calls a tool for which it waits 20 seconds, about. */
static void think(pkv_cache cache, text* t) {
  pkv_session session;
  pkv_hint_result result = {.struct_size = sizeof result};
  check(pkv_session_open(cache, NULL, &session));
  const size_t prompt = t->length;
  const text* texts[] = {t};
  for (int i = 0; i < 40; i++) {
    float p[1][LETTERS];
    check(toy_forward(cache, 1, &session, texts, p));
    t->tokens[t->length++] = most_likely(p[0]);
  }
  const pkv_hint returns = {
      .struct_size = sizeof returns, .action = PKV_HINT_EXPECT_RETURN, .duration_ms = 20000};
  check(pkv_hint_session(session, &returns, &result));
  tell("return in 20 s", &result);
  const pkv_hint drop = {
      .struct_size = sizeof drop, .action = PKV_HINT_DROP, .first = prompt, .end = PKV_TO_END};
  check(pkv_hint_session(session, &drop, &result)); /* the next turn does not have its thoughts */
  tell("drop what it thought", &result);
  check(pkv_session_close(session));
}
/* [session end] */

/* A clock that stands still until the program moves it. */
static uint64_t now_ms(void* user) { return *(const uint64_t*)user; }

int main(void) {
  const pkv_prefix_config prefix = {.struct_size = sizeof prefix};
  uint64_t now = 0;
  const pkv_clock clock = {now_ms, &now};
  pkv_cache_config config = toy_config();
  config.prefix = &prefix;
  config.clock = &clock;
  pkv_cache cache;
  check(pkv_cache_create(&config, &cache));

  text t = {0};
  add(&t,
      "you are an agent with a hammer. hit the nail that the user shows you. the nail is here.");
  text prompt = t;
  think(cache, &t);
  hint_text(cache, "what is left of all", &t,
            (pkv_hint){.action = PKV_HINT_SET_RETENTION, .end = PKV_TO_END});
  hint_text(cache, "pin the prompt for a minute", &prompt,
            (pkv_hint){.action = PKV_HINT_PIN, .end = 64, .duration_ms = 60000});
  hint_text(cache, "drop all", &t, (pkv_hint){.action = PKV_HINT_DROP, .end = PKV_TO_END});
  now += 60000; /* a minute later */
  hint_text(cache, "unpin it", &prompt, (pkv_hint){.action = PKV_HINT_UNPIN, .end = 64});
  hint_text(cache, "drop all", &t, (pkv_hint){.action = PKV_HINT_DROP, .end = PKV_TO_END});
  hint_text(cache, "store it", &prompt, (pkv_hint){.action = PKV_HINT_STORE, .end = PKV_TO_END});
  check(pkv_cache_destroy(cache));
  return EXIT_SUCCESS;
}
