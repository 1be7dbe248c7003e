/* Redis or Valkey behind the memory. Without a server it says so and ends with 1. */
#include <pagedkv/redis.h>

#include "toy.h"

int main(int argc, char** argv) {
  /* [open] */
  pkv_redis_config redis = {.struct_size = sizeof redis, .ttl_seconds = 24 * 3600};
  redis.servers =
      argc > 1
          ? argv[1]
          : "redis://:secret@127.0.0.1:6379"; /* or "10.0.0.5:6379,10.0.0.6:6379" of a cluster */
  if (argc > 2) redis.tls_ca_file = argv[2];  /* for rediss://; else the CAs of the system */
  pkv_store store = {.struct_size = sizeof store};
  if (pkv_redis_open(&redis, &store) != PKV_OK) {
    fprintf(stderr, "%s\n", pkv_redis_last_error());
    return EXIT_FAILURE;
  }
  /* [open end] */
  const pkv_store_config store_config = {.struct_size = sizeof store_config,
                                         .store = &store,
                                         .fingerprint = "toy model 1",
                                         .fingerprint_size = 11};
  const pkv_prefix_config prefix = {.struct_size = sizeof prefix};
  pkv_cache_config config = toy_config();
  config.prefix = &prefix;
  config.store = &store_config;
  pkv_cache cache;
  check(pkv_cache_create(&config, &cache));

  text t = {0};
  add(&t, "humpty dumpty sat on a wall, humpty dumpty had a great fall.");
  const text* texts[] = {&t};
  pkv_session session;
  float p[1][LETTERS];
  check(pkv_session_open(cache, NULL, &session));
  check(toy_forward(cache, 1, &session, texts, p));
  check(pkv_session_close(session));
  uint64_t queued;
  check(pkv_cache_flush_store(cache, 10000, &queued));
  pkv_store_stats stats = {.struct_size = sizeof stats};
  check(pkv_cache_get_store_stats(cache, &stats));
  printf("%llu blocks are in the store\n",
         (unsigned long long)(stats.written_items + stats.known_items));
  check(pkv_cache_destroy(cache));
  return EXIT_SUCCESS;
}
