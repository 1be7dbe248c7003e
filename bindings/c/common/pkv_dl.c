#include "pkv_dl.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util.h"

#define SONAME "libpagedkv.so.1"

/* Opens the library in `folder`, relative to the folder of this program; NULL if there is none. */
static void* open_beside(const char* folder) {
  char path[PATH_MAX + 64];
  ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
  if (length <= 0 || length == PATH_MAX) return NULL;
  path[length] = '\0';
  char* name = strrchr(path, '/') + 1;
  snprintf(name, sizeof path - (size_t)(name - path), "%s" SONAME, folder);
  return access(path, R_OK) == 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

static void* open_somewhere(void) {
  static const char* const folders[] = {"", "../src/", "../lib/"};
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    void* handle = open_beside(folders[i]);
    if (handle != NULL) return handle;
  }
  return dlopen(SONAME, RTLD_NOW | RTLD_LOCAL);
}

void pkv_dl_open(pkv_dl* lib, const char* path) {
  if (path == NULL) path = getenv("PAGEDKV_LIBRARY");
  if (path != NULL && *path == '\0') path = NULL; /* dlopen would take "" for this program */
  lib->handle = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : open_somewhere();
  if (lib->handle == NULL)
    die(EXIT_BAD_INPUT, "cannot open the library (name it with --library or PAGEDKV_LIBRARY): %s",
        dlerror());

  /* ISO C has no cast from an object pointer to a function pointer; POSIX promises that the bytes
   * are the same. */
#define PKV_DL_RESOLVE(name)                                                                 \
  {                                                                                          \
    void* symbol = dlsym(lib->handle, "pkv_" #name);                                         \
    if (symbol == NULL)                                                                      \
      die(EXIT_BAD_INPUT, "the library %s has no pkv_" #name, path != NULL ? path : SONAME); \
    memcpy(&lib->name, &symbol, sizeof symbol);                                              \
  }
  PKV_DL_FUNCTIONS(PKV_DL_RESOLVE)
#undef PKV_DL_RESOLVE
}
