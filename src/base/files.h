// Reading and writing files. If the system refuses an operation, it throws IO, with the name of the
// file and the errno.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace pkv::os {

// Throws IO: "cannot open /a/file: No such file or directory (errno 2)".
[[noreturn]] void fail_io(const char* what, const std::string& name, int error);

class File {
 public:
  enum class Owner { object, caller };
  // If the object is the owner, it closes the descriptor when it is destroyed, or when there is no
  // memory for the name. The name is for error sentences.
  File(int descriptor, Owner owner, std::string_view name);
  File(File&& other) noexcept;
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int descriptor() const { return descriptor_; }
  const std::string& name() const { return name_; }

  // Reads n bytes; returns fewer only at the end of the file.
  size_t read(void* to, size_t n);
  void write(const void* from, size_t n);
  // Takes room for all of a file of this size. Returns 0, or an errno.
  int allocate(uint64_t size);
  void sync() const;
  // The number of bytes from the position to the end; nothing if this is not a regular file.
  std::optional<uint64_t> remaining() const;
  uint64_t position() const;
  void seek(uint64_t position);
  // Sets the time of its last change, since 1970, if that is possible.
  void touch(std::chrono::nanoseconds time) const noexcept;

 private:
  File(int descriptor, Owner owner) noexcept;

  int descriptor_;
  Owner owner_;
  int signal_;  // the signal that a write may raise
  std::string name_;
};

// Opens a regular file for reading. It follows no symbolic link at the end of the path, and opens
// no FIFO or device, because opening one can have side effects.
File open_to_read(const char* path);

// The file behind a caller's descriptor, which stays open. Throws UNSUPPORTED where descriptors are
// not the system's own.
File file_of(int descriptor);

}  // namespace pkv::os
