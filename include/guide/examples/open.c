/* Opens the library at run time. The program uses only types from the headers and is not linked to
 * the library. */
#include <dlfcn.h>
#include <pagedkv/pagedkv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Functions take their types from the headers: a wrong one does not compile. */
static __typeof__(pkv_version)* library_version;
static __typeof__(pkv_cache_create)* cache_create;
static __typeof__(pkv_cache_destroy)* cache_destroy;

static void find(void* library, const char* name, void* function) {
  void* symbol = dlsym(library, name);
  if (symbol == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(EXIT_FAILURE);
  }
  memcpy(function, &symbol,
         sizeof symbol); /* ISO C cannot cast a data pointer to a function pointer */
}

int main(void) {
  void* library = dlopen("libpagedkv.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return EXIT_FAILURE;
  }
  find(library, "pkv_version", &library_version);
  find(library, "pkv_cache_create", &cache_create);
  find(library, "pkv_cache_destroy", &cache_destroy);

  const pkv_layer_group model = {.struct_size = sizeof model,
                                 .layers = 1,
                                 .query_heads = 1,
                                 .kv_heads = 1,
                                 .key_dim = 64,
                                 .blocks = 16};
  const pkv_cache_config config = {.struct_size = sizeof config, .groups = &model};
  pkv_cache cache;
  if (cache_create(&config, &cache) != PKV_OK) return EXIT_FAILURE;
  const uint32_t version = library_version();
  printf("pagedkv %u.%u.%u made a cache\n", version / 1000000, version / 1000 % 1000,
         version % 1000);
  return cache_destroy(cache) == PKV_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
