// Measures what a store behind the memory gains and costs. It works with any store: pkv-bench
// measures directories and files, pkv-bench-redis measures Redis.
#pragma once

#include <functional>

#include "fixture.h"

namespace pkv::bench {

// Opens the same store each time, with the items that were put before.
using OpenStore = std::function<pkv_store()>;

// Functions that return the seconds to write and read as many bytes without the library, in pieces
// of one block.
struct Plain {
  std::function<double(std::vector<char>& bytes, size_t piece)> write, read;
};

// A folder for files, deleted with its object.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Registers store_config/first_token, store_config/spill, store_config/fetch and
// store_config/decode for the store of this name.
void register_stored(const std::string& name, const OpenStore& open, const Plain& plain);
// Registers store_config/first_token for a saved session.
void register_first_token_from_file();

}  // namespace pkv::bench
