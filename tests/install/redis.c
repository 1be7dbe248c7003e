/* Both libraries in one program: each has its own sentence of an error. Nobody listens on port 1.
 */
#include <pagedkv/pagedkv.h>
#include <pagedkv/redis.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  const pkv_redis_config config = {.struct_size = sizeof config, .servers = "127.0.0.1:1"};
  pkv_store store = {.struct_size = sizeof store};
  pkv_cache cache;
  if (pkv_cache_create(NULL, &cache) != PKV_INVALID_ARGUMENT) return 1;
  if (pkv_redis_open(&config, &store) != PKV_IO) return 2;
  printf("%s; %s\n", pkv_last_error(), pkv_redis_last_error());
  return strstr(pkv_redis_last_error(), "127.0.0.1:1") == NULL;
}
