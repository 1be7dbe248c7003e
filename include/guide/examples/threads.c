/* Two threads drive sessions of one cache, and attention runs on threads of the program's own. */
#include <pthread.h>

#include "toy.h"

/* [runner] */
enum { WORKERS = 3 };

typedef struct job {
  size_t n, next;
  void (*task)(void* context, size_t i, uint32_t worker);
  void* context;
  pthread_mutex_t lock;
} job;

typedef struct hand {
  job* job;
  uint32_t worker;
} hand;

static void* help(void* argument) {
  const hand* h = argument;
  for (;;) {
    pthread_mutex_lock(&h->job->lock);
    const size_t i = h->job->next++;
    pthread_mutex_unlock(&h->job->lock);
    if (i >= h->job->n) return NULL;
    h->job->task(h->job->context, i, h->worker);
  }
}

/* Runs every task once, on any worker, and returns when all are done. An engine would keep its
 * threads; this example starts some in each call, to be short. */
static void run(void* user, size_t n, void (*task)(void* context, size_t i, uint32_t worker),
                void* context) {
  job j = {n, 0, task, context, PTHREAD_MUTEX_INITIALIZER};
  pthread_t threads[WORKERS];
  hand hands[WORKERS];
  (void)user;
  for (uint32_t w = 0; w < WORKERS; w++) hands[w] = (hand){&j, w};
  uint32_t started = 1; /* worker 0 is this thread */
  while (started < WORKERS && pthread_create(&threads[started], NULL, help, &hands[started]) == 0)
    started++;
  help(&hands[0]);
  for (uint32_t w = 1; w < started; w++) pthread_join(threads[w], NULL);
}
/* [runner end] */

typedef struct driver {
  pkv_cache cache;
  text text;
} driver;

/* Different threads may use different sessions of one cache at once, but one session only in turns.
 */
static void* drive(void* argument) {
  driver* d = argument;
  const text* texts[] = {&d->text};
  pkv_session session;
  check(pkv_session_open(d->cache, NULL, &session));
  for (int i = 0; i < 40; i++) {
    float p[1][LETTERS];
    check(toy_forward(d->cache, 1, &session, texts, p));
    d->text.tokens[d->text.length++] = most_likely(p[0]);
  }
  check(pkv_session_close(session));
  return NULL;
}

static void both(const pkv_runner* runner, driver* drivers) {
  pkv_cache_config config = toy_config();
  pkv_cache cache;
  config.runner = runner; /* NULL: the library's own threads */
  check(pkv_cache_create(&config, &cache));
  static const char* const prompts[] = {"a rose is a rose is a r",
                                        "row, row, row your boat. row, r"};
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) {
    drivers[i] = (driver){.cache = cache};
    add(&drivers[i].text, prompts[i]);
    if (pthread_create(&threads[i], NULL, drive, &drivers[i]) != 0) exit(EXIT_FAILURE);
  }
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  check(pkv_cache_destroy(cache));
}

int main(void) {
  const pkv_runner runner = {.run = run, .threads = WORKERS};
  driver own[2], theirs[2];
  both(&runner, own);
  both(NULL, theirs);
  int same = 0;
  for (int i = 0; i < 2; i++) {
    print("", &own[i].text, 0);
    same += memcmp(own[i].text.tokens, theirs[i].text.tokens, sizeof own[i].text.tokens) == 0;
  }
  printf("the same with the library's threads: %s\n", same == 2 ? "yes" : "no");
  return same == 2 ? EXIT_SUCCESS : EXIT_FAILURE;
}
