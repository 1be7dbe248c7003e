#include "util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

void die(int status, const char* format, ...) {
  va_list arguments;
  fflush(stdout);
  fputs("pkv-generate: ", stderr);
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  exit(status);
}

void* new_array(size_t count, size_t size) {
  void* memory = calloc(count > 0 ? count : 1, size);
  if (memory == NULL) die(EXIT_BAD_INPUT, "no memory for %zu elements of %zu bytes", count, size);
  return memory;
}

void* grow_array(void* array, size_t* capacity, size_t needed, size_t size) {
  if (needed <= *capacity) return array;
  size_t wanted = *capacity > SIZE_MAX / 2 ? SIZE_MAX : *capacity * 2;
  if (wanted < needed) wanted = needed;
  void* memory = wanted > SIZE_MAX / size ? NULL : realloc(array, wanted * size);
  if (memory == NULL) die(EXIT_BAD_INPUT, "no memory for %zu elements of %zu bytes", wanted, size);
  *capacity = wanted;
  return memory;
}

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

double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
