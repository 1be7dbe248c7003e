/* A scheduler that makes no progress, and what the log and the figures say of it. */
#include "toy.h"

/* [hear] */
/* Any thread may call it, several at once. It must not call the library. */
static void hear(void* user, pkv_log_level level, const char* line) {
  (void)user;
  printf("%s: %s\n", level == PKV_LOG_WARNING ? "warning" : "info", line);
}

static pkv_cache create(uint64_t blocks) {
  static const pkv_logger logger = {hear, NULL};
  pkv_cache_config config = toy_config();
  toy_model.blocks = blocks;
  config.logger = &logger;
  config.isa = PKV_ISA_SCALAR;
  config.huge_pages = PKV_HUGE_PAGES_OFF; /* so that nothing here depends on the machine */
  pkv_cache cache;
  check(pkv_cache_create(&config, &cache));
  return cache;
}
/* [hear end] */

int main(void) {
  pkv_cache cache = create(4);
  static text t[2];
  const text* texts[] = {&t[0], &t[1]};
  pkv_session sessions[2];
  float p[2][LETTERS];
  for (int i = 0; i < 2; i++) {
    check(pkv_session_open(cache, NULL, &sessions[i]));
    add(&t[i], "abcdefghijklmnopqrstuvwxyz.,?! a"); /* two blocks of 16 */
  }
  check(toy_forward(cache, 2, sessions, texts, p));
  for (int i = 0; i < 2; i++) t[i].tokens[t[i].length++] = most_likely(p[i]);

  /* [wrong] */
  for (int round = 0; round < 5; round++) { /* each needs a third block: there are four in all */
    uint64_t length, total;
    if (toy_forward(cache, 2, sessions, texts, p) == PKV_OK) break;
    check(pkv_session_suspend(sessions[1]));
    check(pkv_session_resume(sessions[1], &length, &total)); /* wrong: see schedule.md */
  }
  /* [wrong end] */
  check(pkv_session_suspend(sessions[1]));
  check(toy_forward(cache, 1, sessions, texts, p));

  pkv_cache_stats stats = {.struct_size = sizeof stats};
  pkv_pool_stats pools = {.struct_size = sizeof pools};
  check(pkv_cache_get_stats(cache, &stats));
  check(pkv_cache_get_pool_stats(cache, PKV_ALL_GROUPS, &pools));
  printf("%llu suspensions, %llu session suspended now, %llu steps, %llu of %llu blocks held\n",
         (unsigned long long)stats.suspensions, (unsigned long long)stats.suspended_sessions,
         (unsigned long long)stats.commits, (unsigned long long)pools.held_blocks,
         (unsigned long long)pools.blocks);
  printf("validate: %s\n", pkv_status_name(pkv_cache_validate(cache)));
  check(pkv_cache_destroy(cache));
  return EXIT_SUCCESS;
}
