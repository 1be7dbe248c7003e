// The system's calls on files, as the library makes them, in the hands of the test: disk.cpp
// replaces them in its program.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace disk {

// What a call shall do instead.
enum class Fault { none, fails, interrupted, short_count };

// Before each call while it is set: its name ("write"), and what comes of it. Errno of
// Fault::fails.
extern thread_local std::function<Fault(const char* call)> before;
extern thread_local int error;

// Makes files without a name (O_TMPFILE) impossible, as on some file systems.
extern thread_local bool no_unnamed_files;

// What a save does to a disk, in its order.
struct Operation {
  enum Kind { create, write, sync_file, link, rename, sync_directory } kind;
  int file = -1;                     // which of the files that were made, from 0 on
  std::vector<unsigned char> bytes;  // write
  std::string name, target;          // create (empty: without a name), link, rename
};
extern thread_local std::vector<Operation>* journal;

}  // namespace disk
