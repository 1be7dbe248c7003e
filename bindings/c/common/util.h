/* Shared by all files of the program: one way to end with an error, memory that is there or the
 * program ends, a clock. */
#ifndef PKV_GENERATE_UTIL_H
#define PKV_GENERATE_UTIL_H

#include <stddef.h>
#include <stdio.h>

enum { EXIT_BAD_INPUT = 1, EXIT_BAD_OPTION = 2 };

/* Argument `text` is a format of printf() for the arguments from `first` on. With MinGW, "printf"
 * would mean the formats of Microsoft's C library. */
#ifdef __MINGW32__
#define PRINTF_FORMAT(text, first) format(gnu_printf, text, first)
#else
#define PRINTF_FORMAT(text, first) format(printf, text, first)
#endif

/* Prints "pkv-generate: <sentence>" to stderr and ends the program. */
void die(int status, const char* format, ...) __attribute__((PRINTF_FORMAT(2, 3), noreturn));

/* Zeroed memory for count elements; ends the program if there is none. */
void* new_array(size_t count, size_t size);

/* Makes room for at least `needed` elements; doubles the room, so that appending is cheap. */
void* grow_array(void* array, size_t* capacity, size_t needed, size_t size);

/* Monotonic time. */
double seconds(void);

#endif
