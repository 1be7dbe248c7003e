// Directories in which the library keeps files. A directory is opened once, and what is in it is
// named relative to it and without following links, so that nobody can put another one in its place
// meanwhile.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/files.h"

namespace pkv::os {

// What may separate the names in a path.
extern const char path_separators[];

// What to do if the last name of a path is a symbolic link.
enum class Links { follow, refuse };

class Directory {
 public:
  // Throws IO; the sentence is "WHAT PATH: No such file or directory (errno 2)".
  static Directory open(const std::string& path, Links links, const char* what,
                        const std::string& shown_path);
  // Opens the directory of a store, or makes it. It must belong to the user, and nobody else may be
  // able to write to it. durable: if it is new, it survives a crash of the system. Throws IO.
  static Directory open_own(const char* path, bool durable);

  const std::string& path() const { return file_.name(); }
  int descriptor() const { return file_.descriptor(); }
  void sync() const;
  // Calls visit(name) for each name except "." and "..", until visit returns false. Returns false
  // if the directory, or the rest of it, cannot be read.
  bool for_each_name(const std::function<bool(const char*)>& visit) const;

  // Opens a directory in this one. Returns nullopt and an errno in *error if there is none, or if
  // others may write to it (EPERM).
  std::optional<Directory> find_own(const char* name, int* error = nullptr) const;
  // Makes it if it does not exist. Throws IO.
  Directory find_or_make_own(const std::string& name, bool durable) const;

  // The user's own regular files. Others are not there for these functions.
  struct Status {
    uint64_t bytes;
    std::chrono::nanoseconds changed;  // since some moment
  };
  std::optional<Status> find_file(const char* name) const;
  // Opens a file for reading.
  std::optional<File> open_file(const char* name) const;
  // Returns whether it removed a file.
  bool remove_file(const char* name) const;
  // Throws IO if something else has the name.
  void check_replaceable(const std::string& name) const;

 private:
  Directory(File file, uint32_t owner) : file_(std::move(file)), owner_(owner) {}

  File file_;
  uint32_t owner_;  // the user who opened it, where users are numbers
};

}  // namespace pkv::os
