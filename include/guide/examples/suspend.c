/* More sessions than memory: those that do not fit are suspended. The texts are the same in the
 * end.
 *
 * usage: suspend [BLOCKS [WATERMARK]]   compares a cache of BLOCKS with one of plenty */
#include "toy.h"

enum { SESSIONS = 6, LENGTH = 120 };

static const char* const prompts[SESSIONS] = {
    "a rose is a rose is a r",          "row, row, row your boat. row, r", "to be or not to be, th",
    "the cat sat on the mat. the cat ", "one two three one two th",        "so it goes and so it g",
};

/* [scheduler] */
typedef struct queue {
  pkv_session sessions[SESSIONS];
  text texts[SESSIONS];
  int waiting[SESSIONS]; /* suspended */
  int preemptions, steps;
} queue;

/* Resumes suspended sessions, oldest first, while there is room. Each gets its blocks now, and the
 * next pass computes again what was lost. */
static void resume_what_fits(queue* q) {
  for (int i = 0; i < SESSIONS; i++) {
    uint64_t length, total, short_by;
    if (!q->waiting[i]) continue;
    const pkv_status status = pkv_session_resume(q->sessions[i], &length, &total, &short_by);
    if (status == PKV_OUT_OF_BLOCKS) return;
    check(status);
    q->waiting[i] = 0;
  }
}

/* Suspends the sessions that the library chooses, so that the others get their next token. */
static void make_room(pkv_cache cache, queue* q, size_t n, const pkv_session* running,
                      const uint32_t* new_tokens) {
  pkv_session victims[SESSIONS];
  size_t count;
  check(pkv_batch_choose_victims(cache, n, running, new_tokens, SESSIONS, victims, &count));
  for (size_t v = 0; v < count; v++) {
    check(pkv_session_suspend(victims[v])); /* frees its blocks; the token ids stay */
    for (int i = 0; i < SESSIONS; i++)
      if (q->sessions[i] == victims[v]) q->waiting[i] = 1;
    q->preemptions++;
  }
}

/* Adds one token to each session that has room. Returns how many are not done yet. */
static int step(pkv_cache cache, queue* q) {
  q->steps++;
  resume_what_fits(q); /* once, and never in a step that has preempted */
  for (;;) {
    pkv_session running[SESSIONS];
    const text* texts[SESSIONS];
    text* grow[SESSIONS];
    uint32_t new_tokens[SESSIONS];
    float p[SESSIONS][LETTERS];
    size_t n = 0;
    int left = 0;
    for (int i = 0; i < SESSIONS; i++) {
      left += q->sessions[i] != NULL;
      if (q->sessions[i] == NULL || q->waiting[i]) continue;
      uint64_t held;
      check(pkv_session_get_length(q->sessions[i], &held));
      new_tokens[n] = (uint32_t)(q->texts[i].length - held);
      grow[n] = &q->texts[i], texts[n] = &q->texts[i], running[n++] = q->sessions[i];
    }
    if (n == 0) return left;
    const pkv_status status = toy_forward(cache, n, running, texts, p);
    if (status == PKV_OUT_OF_BLOCKS || status == PKV_BATCH_TOO_LARGE) {
      make_room(cache, q, n, running, new_tokens);
      continue;
    }
    check(status);
    for (size_t i = 0; i < n; i++) grow[i]->tokens[grow[i]->length++] = most_likely(p[i]);
    return left;
  }
}
/* [scheduler end] */

/* Completes all texts in a cache of this many blocks. */
static queue run(uint64_t blocks, uint32_t watermark) {
  static queue q;
  memset(&q, 0, sizeof q);
  pkv_cache_config config = toy_config();
  pkv_cache cache;
  config.blocks = blocks;
  config.watermark_blocks =
      watermark; /* the last blocks are for sessions that are already running */
  check(pkv_cache_create(&config, &cache));
  for (int i = 0; i < SESSIONS; i++) {
    check(pkv_session_open(cache, NULL, &q.sessions[i]));
    add(&q.texts[i], prompts[i]);
  }
  while (step(cache, &q) > 0) {
    if (q.steps > SESSIONS * LENGTH) { /* each step adds a token to some session */
      fprintf(stderr, "%llu blocks: no progress\n", (unsigned long long)blocks);
      exit(EXIT_FAILURE);
    }
    for (int i = 0; i < SESSIONS; i++)
      if (q.sessions[i] != NULL && q.texts[i].length >= LENGTH) {
        check(pkv_session_close(q.sessions[i]));
        q.sessions[i] = NULL, q.waiting[i] = 0;
      }
  }
  check(pkv_cache_validate(cache));
  check(pkv_cache_destroy(cache));
  return q;
}

int main(int argc, char** argv) {
  const uint64_t blocks = argc > 1 ? strtoull(argv[1], NULL, 10) : 16;
  const uint32_t watermark = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 2;
  const queue roomy = run(64, 0), tight = run(blocks, watermark);
  int same = 0;
  for (int i = 0; i < SESSIONS; i++)
    same += memcmp(roomy.texts[i].tokens, tight.texts[i].tokens,
                   LENGTH * sizeof *roomy.texts[i].tokens) == 0;
  print("", &tight.texts[3], 0);
  printf("64 blocks: %d preemptions\n%llu blocks: %s preemptions, %d of %d texts the same\n",
         roomy.preemptions, (unsigned long long)blocks, tight.preemptions > 0 ? "some" : "no", same,
         SESSIONS);
  return same == SESSIONS && roomy.preemptions == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
