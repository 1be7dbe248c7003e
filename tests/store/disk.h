// The test's control over system calls on files. disk.cpp replaces these calls in its program.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace disk {

// What happens instead of a call.
enum class Fault { none, fails, interrupted, short_count, nothing };

// While it is set, it is asked before each call with the call's name ("write"), and says what
// happens. `error` is the errno of Fault::fails; Fault::nothing is a write of no bytes.
extern thread_local std::function<Fault(const char* call)> before;
extern thread_local int error;

// Makes files without a name (O_TMPFILE) impossible, as they are on some file systems.
extern thread_local bool no_unnamed_files;
// The path that stat() looks at instead of the one it is given.
extern thread_local const char* stat_instead;
// Reserves all room of devices for root, as many file systems do with a part of it.
extern thread_local bool room_is_for_root;
// Makes devices report no room at all, as some file systems do.
extern thread_local bool room_is_not_told;

// One operation of a save on the disk. They are kept in order.
struct Operation {
  enum Kind { create, write, sync_file, link, rename, sync_directory } kind;
  // Which of the files that were made, from 0 on.
  int file = -1;
  std::vector<unsigned char> bytes;  // The bytes of a write.
  // The names of create (empty for a file without a name), link and rename.
  std::string name, target;
};
extern thread_local std::vector<Operation>* journal;

}  // namespace disk
