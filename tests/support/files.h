// Files of tests: their bytes, and directories that are removed with their object.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "portable.h"

namespace files {

// Returns all of a file, or nothing where there is none. Content is a container of bytes.
template <class Content = std::string>
Content read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Content(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

inline void write(const std::filesystem::path& path, const std::vector<unsigned char>& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

// Makes an empty directory that nobody else has.
inline std::string make_directory(
    const std::filesystem::path& parent = portable::temporary_directory()) {
  std::string name = portable::make_directory(parent);
  if (name.empty()) throw std::runtime_error("cannot make a directory in " + parent.string());
  return name;
}

// A directory that is removed with the object, by the process that made it.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(const std::filesystem::path& parent = portable::temporary_directory())
      : path_(make_directory(parent)) {}
  ~TemporaryDirectory() {
    std::error_code ignored;
    if (portable::process_id() == maker_) std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  const std::string path_;
  const int maker_ = portable::process_id();
};

}  // namespace files
