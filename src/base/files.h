// Reading and writing files and directories by descriptors. What the system refuses becomes an
// IoError, whose sentence has the name of the file and the errno.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/status.h"

namespace pkv::os {

// An Error that keeps the errno its sentence was made from.
struct IoError : Error {
  int error;
};

// Throws an IoError: "cannot open /a/file: No such file or directory (errno 2)".
[[noreturn]] void fail_io(const char* what, const std::string& name, int error);

// Throws an IoError if the file is not a regular one; `what` begins the sentence for a directory.
void check_regular(const struct stat& status, const char* what, const std::string& name);

class File {
 public:
  // Closes the descriptor with the object if it is owned. The name is for error sentences.
  File(int descriptor, bool owned, std::string name);
  File(File&& other) noexcept;
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int descriptor() const { return descriptor_; }
  const std::string& name() const { return name_; }

  // Reads n bytes; returns fewer only at the end of the file.
  size_t read(void* to, size_t n);
  void write(const void* from, size_t n);
  void sync() const;
  // The bytes from the position to the end; nothing for what is not a regular file.
  std::optional<uint64_t> remaining() const;
  uint64_t position() const;
  void seek(uint64_t position);

 private:
  int descriptor_;
  bool owned_;
  bool may_signal_;  // a write may raise SIGPIPE
  std::string name_;
};

// Opens a regular file for reading. It follows no symbolic link at the end of the path, and opens
// no FIFO or device, because opening one can have effects of its own.
File open_to_read(const char* path);

// Calls visit(name) for each name in a directory except "." and "..", until visit returns false.
// Returns false if the directory cannot be read.
bool for_each_name(int directory, const std::function<bool(const char*)>& visit);

}  // namespace pkv::os
