#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

#include "system.h"
#include "util.h"

mapped_file map_file(const char* path, const char* what) {
  struct stat status;
  mapped_file file = {NULL, 0};
  int descriptor = open(
      path, O_RDONLY | O_NONBLOCK |
                O_CLOEXEC); /* not blocking: a FIFO without a writer is refused, not waited for */
  if (descriptor < 0) die(EXIT_BAD_INPUT, "cannot open the %s %s: %s", what, path, strerror(errno));
  if (fstat(descriptor, &status) != 0)
    die(EXIT_BAD_INPUT, "cannot read the %s %s: %s", what, path, strerror(errno));
  if (!S_ISREG(status.st_mode)) die(EXIT_BAD_INPUT, "the %s %s is not a regular file", what, path);
  if (status.st_size == 0) die(EXIT_BAD_INPUT, "the %s %s is empty", what, path);
  if ((uintmax_t)status.st_size > SIZE_MAX)
    die(EXIT_BAD_INPUT, "the %s %s is too large for this machine", what, path);
  file.size = (size_t)status.st_size;
  void* memory = mmap(NULL, file.size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (memory == MAP_FAILED)
    die(EXIT_BAD_INPUT, "cannot map the %s %s (%zu bytes): %s", what, path, file.size,
        strerror(errno));
  close(descriptor);
  file.data = memory;
  return file;
}

void unmap_file(mapped_file* file) {
  if (file->data != NULL) munmap((void*)file->data, file->size);
  file->data = NULL;
  file->size = 0;
}

#ifdef __APPLE__
const char library_name[] = "libpagedkv.1.dylib";
#else
const char library_name[] = "libpagedkv.so.1";
#endif

void* library_open(const char* path) { return dlopen(path, RTLD_NOW | RTLD_LOCAL); }
void* library_find(void* library, const char* name) { return dlsym(library, name); }
const char* library_error(void) { return dlerror(); }

size_t folder_length(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash != NULL ? (size_t)(slash - path) + 1 : 0;
}

void prepare_output(void) {}
int read_byte(void) { return getchar(); }

#ifdef __APPLE__
bool program_path(char* path, size_t size) {
  uint32_t room = size < UINT32_MAX ? (uint32_t)size : UINT32_MAX;
  return _NSGetExecutablePath(path, &room) == 0;
}
#else
bool program_path(char* path, size_t size) {
  const ssize_t length = readlink("/proc/self/exe", path, size);
  if (length <= 0 || (size_t)length == size) return false;
  path[length] = '\0';
  return true;
}
#endif

bool terminal_size(size_t* rows, size_t* columns) {
  struct winsize size;
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0)
    return false;
  *rows = size.ws_row;
  *columns = size.ws_col;
  return true;
}
