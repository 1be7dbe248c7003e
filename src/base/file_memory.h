// Memory backed by a file: the system keeps as much of it in RAM as there is room for, and reads
// the rest when it is used.
#pragma once

#include <cstddef>

namespace pkv::os {

// Maps a new file of `size` zero bytes in a directory. The file has no name, so it disappears with
// the mapping, and all of its room is taken at once. Neither children of fork() nor core dumps get
// the memory. Throws IO; a symbolic link at the end of the path is not followed.
void* map_file(const char* directory, size_t size);
// Undoes map_file() with the same size.
void unmap_file(void* memory, size_t size);

// Makes the system start reading [memory, memory + size) of a mapped file, and returns at once.
void read_ahead(const void* memory, size_t size);

}  // namespace pkv::os
