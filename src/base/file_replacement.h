// Replaces an old file by a complete new one, atomically and durably. It has its own file because
// it must hold against crashes and against other users of the same directory; files.h only reads
// and writes.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/files.h"

namespace pkv::os {

// ---- Temporary files ----------------------------------------------------------------------------

// A new file in a directory, which only its owner can read and write, and which gets its name when
// it is complete. Until then it has no name where the file system allows that (O_TMPFILE), and
// elsewhere a random one. While it has a random name, its writer holds an exclusive lock (flock) on
// it, so that a process that finds such a file can tell whether its writer still runs.
class TemporaryFile {
 public:
  // The directory must outlive the object. The path is for error sentences.
  TemporaryFile(const File& directory, std::string path);
  // Removes the file unless publish() was called.
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  File& file() { return file_; }
  // Gives the file this name in its directory. Replaces a file that already has the name.
  void publish(const std::string& name);

 private:
  File create();
  std::optional<File> create_unnamed() const;
  std::optional<File> create_named();
  bool link_as(const std::string& name) const;

  const File& directory_;
  const std::string path_;
  std::string name_;  // empty while the file has no name
  File file_;
};

// True for names of the form that temporary files get: ".pagedkv-0123456789abcdef.tmp".
bool is_temporary_name(const char* name);

// Removes a temporary file if its writer has certainly ended: a regular file of the effective user
// with a temporary name and no other name, on which nobody holds a lock. Returns whether it did.
bool remove_orphan(int directory, const char* name);

// ---- Replacement --------------------------------------------------------------------------------

// A new file that replaces the file at a path when it is complete: a process that opens the path
// gets the old file or the new one, never a part. Only its owner can read and write the new file,
// unless the old file's mode can be trusted: see mode_to_keep().
class FileReplacement {
 public:
  // Also removes temporary files that killed processes left in the directory. With durable set,
  // commit() returns only when the file and its name are on disk.
  FileReplacement(const char* path, bool durable);
  // Replaces a name in an open directory by a private file, and removes nothing else.
  FileReplacement(File directory, std::string name, bool durable);
  FileReplacement(const FileReplacement&) = delete;
  FileReplacement& operator=(const FileReplacement&) = delete;

  File& file() { return temporary_.file(); }
  // Replaces the old file, which stays if this is not called.
  void commit();

 private:
  struct Target {
    std::string path, name;  // the name is the path's within its directory
    File directory;
    uint32_t mode;
    gid_t group;  // the group of the old file, if its mode is kept
  };
  static Target find(const char* path);
  void set_mode();

  const bool durable_;
  Target target_;
  TemporaryFile temporary_;
};

// The mode of a file that replaces an old one: the old permissions, without set-id bits, if only
// the effective user can have put the old file there; otherwise 0600. That is certain if the old
// file is the user's and has no other name (hard link), and nobody else can have given it this
// name: the directory is the user's or root's, and is sticky or not writable by others.
uint32_t mode_to_keep(const struct stat& directory, const struct stat& old);

}  // namespace pkv::os
