// A new file in a directory, which only its owner can read and write, and which gets its name when
// it is complete.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/directory.h"

namespace pkv::os {

// Until it is published, the file has no name where the file system allows that (O_TMPFILE), and
// elsewhere a random one. While it has a random name, its writer holds a lock on it, so that a
// process that finds such a file can tell whether its writer still runs.
class TemporaryFile {
 public:
  // The directory must outlive the object. The path is for error sentences.
  TemporaryFile(const Directory& directory, std::string path);
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

  const Directory& directory_;
  const std::string path_;
  std::string name_;  // empty while the file has no name
  File file_;
};

// A name of the form that temporary files get: ".pagedkv-0123456789abcdef.tmp". Throws IO.
std::string random_name(const std::string& path);
bool is_temporary_name(const char* name);

// Removes a temporary file if its writer has certainly ended: a regular file of the user with a
// temporary name and no other name, on which nobody holds a lock. Returns whether it did.
bool remove_orphan(const Directory& directory, const char* name);

// Who may read and write a file besides the user, and as which group.
struct Rights {
  uint32_t mode, group;
};
// Only the user.
Rights private_rights();
// Those of a file that replaces an old one. They are the old ones, without set-id bits, if only the
// user can have put the old file there; otherwise the private ones. That is certain if the old file
// is the user's and has no other name (hard link), and nobody else can have given it this name: the
// directory is the user's or root's, and is sticky or not writable by others. The path is for error
// sentences. Throws IO, also if the old one is no regular file.
Rights rights_to_keep(const Directory& directory, const std::string& name, const std::string& path);
// Keeps the rights of group and others only if the file can get the group for which they were
// meant. Throws IO.
void set_rights(const File& file, Rights rights, const std::string& path);

}  // namespace pkv::os
