/* Loads the library, uses it and lets it go, a thousand times in one process. Argument: the
 * library's path. */
#include <dlfcn.h>
#include <pagedkv/pagedkv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A function by its name, with its type from the headers. POSIX has dlsym() return functions as
 * data pointers, which ISO C has no conversion for. */
#define FIND(function)                                         \
  void* function##_address = dlsym(library, "pkv_" #function); \
  __typeof__(pkv_##function)* function;                        \
  if (function##_address == NULL) return "pkv_" #function;     \
  memcpy(&function, &function##_address, sizeof function)

#define TRY(call) \
  if ((call) != PKV_OK) return #call

enum { tokens = 70 };

/* Returns what failed, or NULL. */
static const char* use(void* library) {
  FIND(cache_create);
  FIND(session_open);
  FIND(batch_begin);
  FIND(batch_write);
  FIND(batch_attend);
  FIND(batch_commit);
  FIND(cache_destroy);
  static float rows[tokens * 32], outputs[tokens * 32];
  const pkv_tensor in = {.data = rows, .dtype = PKV_F32}, out = {.data = outputs, .dtype = PKV_F32};
  const uint32_t count = tokens;
  const pkv_layer_group model = {.struct_size = sizeof model,
                                 .layers = 1,
                                 .query_heads = 2,
                                 .kv_heads = 2,
                                 .key_dim = 16,
                                 .blocks = 8};
  const pkv_cache_config config = {.struct_size = sizeof config, .groups = &model, .threads = 2};
  pkv_cache cache;
  pkv_session session;
  pkv_batch batch;
  for (size_t i = 0; i < tokens * 32; i++) rows[i] = 1;
  TRY(cache_create(&config, &cache));
  TRY(session_open(cache, NULL, &session));
  TRY(batch_begin(cache, 1, &session, &count, &batch));
  TRY(batch_write(batch, 0, &in, &in));
  TRY(batch_attend(batch, 0, NULL, &in, &out, NULL));
  TRY(batch_commit(batch, 0, NULL));
  TRY(cache_destroy(cache));
  for (size_t i = 0; i < tokens * 32; i++)
    if (outputs[i] < 0.999f || outputs[i] > 1.001f) return "the outputs, which are means of ones";
  return NULL;
}

int main(int argc, char** argv) {
  if (argc != 2) return EXIT_FAILURE;
  for (int cycle = 0; cycle < 1000; cycle++) {
    void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
      fprintf(stderr, "cycle %d: %s\n", cycle, dlerror());
      return EXIT_FAILURE;
    }
    const char* failed = use(library);
    if (failed != NULL) {
      fprintf(stderr, "cycle %d: %s\n", cycle, failed);
      return EXIT_FAILURE;
    }
    if (dlclose(library) != 0) {
      fprintf(stderr, "cycle %d: %s\n", cycle, dlerror());
      return EXIT_FAILURE;
    }
  }
  return EXIT_SUCCESS;
}
