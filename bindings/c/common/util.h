/* Shared by all files of the program: one way to end with an error, memory that is there or the
 * program ends, files as bytes, a clock. */
#ifndef PKV_GENERATE_UTIL_H
#define PKV_GENERATE_UTIL_H

#include <stddef.h>

enum { EXIT_BAD_INPUT = 1, EXIT_BAD_OPTION = 2 };

/* Prints "pkv-generate: <sentence>" to stderr and ends the program. */
void die(int status, const char* format, ...) __attribute__((format(printf, 2, 3), noreturn));

/* Zeroed memory for count elements; ends the program if there is none. */
void* new_array(size_t count, size_t size);

/* Makes room for at least `needed` elements; doubles the room, so that appending is cheap. */
void* grow_array(void* array, size_t* capacity, size_t needed, size_t size);

/* Maps a regular file as read-only memory. Ends the program, naming `what`, if the path is anything
 * else or the file is empty. */
typedef struct mapped_file {
  const unsigned char* data;
  size_t size;
} mapped_file;
mapped_file map_file(const char* path, const char* what);
void unmap_file(mapped_file* file);

/* Monotonic time. */
double seconds(void);

#endif
