#include "store.h"

#include <pagedkv/redis.h>
#include <stdlib.h>
#include <string.h>

#include "../common/system.h"
#include "../common/util.h"

#define PLUGIN "libpagedkv-redis.so.1"

static void open_directory(const pkv_dl* lib, const char* path, pkv_store* store) {
  const pkv_directory_config config = {.struct_size = sizeof config, .path = path};
  if (lib->store_open_directory(&config, store) != PKV_OK)
    die(EXIT_BAD_INPUT, "--store: %s", lib->last_error());
}

static void* symbol(void* plugin, const char* name) {
  void* const found = library_find(plugin, name);
  if (found == NULL) die(EXIT_BAD_INPUT, "--store: %s has no %s", PLUGIN, name);
  return found;
}

static void open_redis(const char* url, pkv_store* store) {
  const char* named = getenv("PAGEDKV_REDIS_LIBRARY");
  void* const plugin = library_open(named != NULL && *named != '\0' ? named : PLUGIN);
  if (plugin == NULL)
    die(EXIT_BAD_INPUT, "--store: cannot open the plugin (name it with PAGEDKV_REDIS_LIBRARY): %s",
        library_error());
  __typeof__(pkv_redis_open)* open;
  __typeof__(pkv_redis_last_error)* last_error;
  /* ISO C has no cast from an object pointer to a function pointer; POSIX promises that the bytes
   * are the same. */
  memcpy(&open, (void*[]){symbol(plugin, "pkv_redis_open")}, sizeof open);
  memcpy(&last_error, (void*[]){symbol(plugin, "pkv_redis_last_error")}, sizeof last_error);
  const pkv_redis_config config = {.struct_size = sizeof config, .servers = url};
  if (open(&config, store) != PKV_OK) die(EXIT_BAD_INPUT, "--store: %s", last_error());
}

void store_open(const pkv_dl* lib, const char* where, pkv_store* store) {
  if (strstr(where, "://") != NULL)
    open_redis(where, store);
  else
    open_directory(lib, where, store);
}
