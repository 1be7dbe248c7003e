// Files: reading, writing, and putting a new one durably in the place of an old one. What the
// system refuses is an IO error with the name of the file and the errno.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/status.h"

namespace pkv::os {

// An Error that knows the errno behind its sentence.
struct IoError : Error {
  int error;
};

// Throws an IoError: "cannot open /a/file: No such file or directory (errno 2)".
[[noreturn]] void fail_io(const char* what, const std::string& name, int error);

// Throws an IoError for what is no regular file; `what` begins the sentence for a directory.
void check_regular(const struct stat& status, const char* what, const std::string& name);

class File {
 public:
  // The descriptor is closed with the object if it is owned. name: for sentences.
  File(int descriptor, bool owned, std::string name);
  File(File&& other) noexcept;
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int descriptor() const { return descriptor_; }
  const std::string& name() const { return name_; }

  // As many bytes as asked for; fewer only at the end.
  size_t read(void* to, size_t n);
  void write(const void* from, size_t n);
  void sync() const;
  // Bytes from here to the end, and the way back to a position; none where it is not a regular
  // file.
  std::optional<uint64_t> left() const;
  uint64_t position() const;
  void go_to(uint64_t position);

 private:
  int descriptor_;
  bool owned_;
  bool may_signal_;  // a write may raise SIGPIPE
  std::string name_;
};

// Opens a regular file; a symbolic link at the end of the path is not followed. Opens nothing else:
// opening a FIFO or a device can have effects of its own.
File open_to_read(const char* path);

// Calls visit(name) for each name in a directory but "." and "..", until it returns false.
// Returns false if the directory cannot be read.
bool for_each_name(int directory, const std::function<bool(const char*)>& visit);

// ---- Temporary files ----------------------------------------------------------------------------

// A new file in a directory, readable and writable by its owner only, that gets its name when it is
// complete. Until then it has no name where the file system allows that (O_TMPFILE), or a random
// one. While it has a random name, its writer holds an exclusive lock (flock) on it: so a process
// that meets such a file can tell whether the writer still lives.
class Temporary {
 public:
  // The directory outlives it; path: for sentences.
  Temporary(const File& directory, std::string path);
  ~Temporary();  // without publish() nothing stays
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  File& file() { return file_; }
  // Gives the file this name in its directory, in the place of the file that has it now, if any.
  void publish(const std::string& name);

 private:
  File create();
  std::optional<File> create_unnamed() const;
  std::optional<File> create_named();
  bool link_as(const std::string& name) const;

  const File& directory_;
  const std::string path_;
  std::string name_;  // empty while it has none
  File file_;
};

// Whether a file is named as temporary files are: ".pagedkv-0123456789abcdef.tmp".
bool is_temporary_name(const char* name);

// Removes a temporary file whose writer has certainly ended: a regular file of the effective user,
// named as above and in no other way, on which nobody has a lock. Returns whether it did.
bool remove_orphan(int directory, const char* name);

// ---- Replacement --------------------------------------------------------------------------------

// A new file that takes the place of the one at a path, or of nothing, when it is complete: whoever
// opens the path sees the old file or the new one. Only the owner can read and write it, unless it
// replaces a file whose mode can be trusted: see mode_to_keep.
class Replacement {
 public:
  // durable: commit() returns when the file and its name are on disk. Also removes what killed
  // processes left in the directory.
  Replacement(const char* path, bool durable);
  // A private file by a name in a directory; removes nothing.
  Replacement(File directory, std::string name, bool durable);
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;

  File& file() { return temporary_.file(); }
  void commit();  // without it the old file stays

 private:
  struct Target {
    std::string path, name;  // name: within its directory
    File directory;
    uint32_t mode;
    gid_t group;  // of the file that the mode is kept of
  };
  static Target find(const char* path);
  void set_mode();

  const bool durable_;
  Target target_;
  Temporary temporary_;
};

// The mode that a file gets when it replaces an old one: the permissions of the old one if it is
// certain that the effective user, and nobody else, put it there, else 0600. Set-id bits are never
// kept. What makes it certain: the file is his and has no other name (a hard link), and only he can
// have given it this name: the directory is his or root's, and others cannot write to it or it is
// sticky.
uint32_t mode_to_keep(const struct stat& directory, const struct stat& old);

}  // namespace pkv::os
