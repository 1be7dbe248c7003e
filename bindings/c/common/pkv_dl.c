#include "pkv_dl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "system.h"
#include "util.h"

/* Opens the library in `folder`, relative to the folder of this program; NULL if there is none. */
static void* open_beside(const char* folder) {
  char path[4096 + 64];
  if (!program_path(path, 4096)) return NULL;
  const size_t length = folder_length(path);
  snprintf(path + length, sizeof path - length, "%s%s", folder, library_name);
  FILE* file = fopen(path, "rb");
  if (file == NULL) return NULL;
  fclose(file);
  return library_open(path);
}

static void* open_somewhere(void) {
  static const char* const folders[] = {"", "../src/", "../lib/"};
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    void* handle = open_beside(folders[i]);
    if (handle != NULL) return handle;
  }
  return library_open(library_name);
}

void pkv_dl_open(pkv_dl* lib, const char* path) {
  if (path == NULL) path = getenv("PAGEDKV_LIBRARY");
  if (path != NULL && *path == '\0') path = NULL; /* dlopen would take "" for this program */
  lib->handle = path != NULL ? library_open(path) : open_somewhere();
  if (lib->handle == NULL)
    die(EXIT_BAD_INPUT, "cannot open the library (name it with --library or PAGEDKV_LIBRARY): %s",
        library_error());

  /* ISO C has no cast from an object pointer to a function pointer; POSIX promises that the bytes
   * are the same. */
#define PKV_DL_RESOLVE(name)                                                                       \
  {                                                                                                \
    void* symbol = library_find(lib->handle, "pkv_" #name);                                        \
    if (symbol == NULL)                                                                            \
      die(EXIT_BAD_INPUT, "the library %s has no pkv_" #name, path != NULL ? path : library_name); \
    memcpy(&lib->name, &symbol, sizeof symbol);                                                    \
  }
  PKV_DL_FUNCTIONS(PKV_DL_RESOLVE)
#undef PKV_DL_RESOLVE
}
