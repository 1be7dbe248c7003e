// Memory that is a file: the system keeps of it what it has room for, and reads the rest when it is
// used.
#pragma once

#include <cstddef>

namespace pkv::os {

// Maps a new file of size bytes of zeros in a directory. The file has no name, so that it is gone
// with the mapping, and all of its room is taken at once. Neither children of fork() nor core dumps
// have the memory. Throws an IoError; a symbolic link at the end of the path is not followed.
void* map_file(const char* directory, size_t size);
// Undoes map_file() with the same size.
void unmap_file(void* memory, size_t size);

// Makes the system begin to read [memory, memory + size) of a mapped file, and returns at once.
void read_ahead(const void* memory, size_t size);

}  // namespace pkv::os
