#include "util.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

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

double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
