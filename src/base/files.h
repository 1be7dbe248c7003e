// Files: reading, writing, and putting a new one durably in the place of an old one. What the system refuses is an IO error with the name
// of the file and the errno.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace pkv::os {

// Throws IO: "cannot open /a/file: No such file or directory (errno 2)".
[[noreturn]] void fail_io(const char* what, const std::string& name, int error);

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
  void sync();
  // Bytes from here to the end, and the way back to a position; none where it is not a regular file.
  std::optional<uint64_t> left() const;
  uint64_t position() const;
  void go_to(uint64_t position);

 private:
  int descriptor_;
  bool owned_;
  bool may_signal_;  // a write may raise SIGPIPE
  std::string name_;
};

// A regular file, not through a symbolic link.
File open_to_read(const char* path);

// A new file that takes the place of the one at a path, or of nothing, when it is complete: whoever opens the path sees the old file or the
// new one. Until then it has no name where the file system allows that, so that a process that ends leaves nothing behind.
class Replacement {
 public:
  // durable: commit() returns when the file and its name are on disk.
  Replacement(const char* path, bool durable);
  ~Replacement();  // without commit() the old file stays
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;

  File& file() { return file_; }
  void commit();

 private:
  struct Target {
    std::string path, name;  // name: within its directory
    File directory;
    uint32_t mode;
  };
  static Target find(const char* path);
  File create();

  const bool durable_;
  Target target_;
  std::string temporary_;  // its name so far, within the directory
  bool named_ = false;
  File file_;
};

}  // namespace pkv::os
