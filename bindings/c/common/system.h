/* What differs between systems: files as memory, paths, libraries that are opened at run time, the
 * terminal. */
#ifndef PKV_GENERATE_SYSTEM_H
#define PKV_GENERATE_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>

/* Maps a regular file as read-only memory. Ends the program, naming `what`, if the path is anything
 * else or the file is empty. */
typedef struct mapped_file {
  const unsigned char* data;
  size_t size;
} mapped_file;
mapped_file map_file(const char* path, const char* what);
void unmap_file(mapped_file* file);

/* The file name under which programs load the library. */
extern const char library_name[];
/* Opens a library. Returns NULL if that fails; library_error() then says why. */
void* library_open(const char* path);
void* library_find(void* library, const char* name);
const char* library_error(void);

/* The next byte of stdin or EOF, as getchar() returns it; also UTF-8 of a console of Windows. */
int read_byte(void);

/* How much of a path names the folder, with the separator behind it. */
size_t folder_length(const char* path);

/* Makes stdout write the same bytes on every system, which a terminal shows as UTF-8. */
void prepare_output(void);

/* Writes the path of this program. Returns false if it is unknown or longer than `size`. */
bool program_path(char* path, size_t size);

/* The size of the terminal behind stderr. Returns false if there is none. */
bool terminal_size(size_t* rows, size_t* columns);

#endif
