// Replaces an old file by a complete new one, atomically and durably. It has its own file because
// it must hold against crashes and against other users of the same directory; files.h only reads
// and writes.
#pragma once

#include <string>

#include "base/temporary_file.h"

namespace pkv::os {

// A new file that replaces the file at a path when it is complete: a process that opens the path
// gets the old file or the new one, never a part. Only its owner can read and write the new file,
// unless the old file's rights can be trusted: see rights_to_keep().
class FileReplacement {
 public:
  // Also removes temporary files that killed processes left in the directory. With durable set,
  // commit() returns only when the file and its name are on disk.
  FileReplacement(const char* path, bool durable);
  // Replaces a name in an open directory by a private file, and removes nothing else.
  FileReplacement(Directory directory, std::string name, bool durable);
  FileReplacement(const FileReplacement&) = delete;
  FileReplacement& operator=(const FileReplacement&) = delete;

  File& file() { return temporary_.file(); }
  // Replaces the old file, which stays if this is not called.
  void commit();

 private:
  struct Target {
    std::string path, name;  // the name is the path's within its directory
    Directory directory;
    Rights rights;
  };
  static Target find(const char* path);

  const bool durable_;
  Target target_;
  TemporaryFile temporary_;
};

}  // namespace pkv::os
