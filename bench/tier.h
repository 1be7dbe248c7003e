// What a store behind the memory gains and costs, for any store: pkv-bench has the directory and
// files, pkv-bench-redis Redis.
#pragma once

#include <functional>

#include "fixture.h"

namespace pkv::bench {

// Opens the same store again and again: what was put stays there.
using OpenStore = std::function<pkv_store()>;

// Seconds to write and read as many bytes without the library, in pieces of one block.
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

// tier/first_token, tier/spill, tier/fetch, tier/decode of the store of this name.
void register_tier(const std::string& name, const OpenStore& open, const Plain& plain);
// tier/first_token of a saved session.
void register_first_token_from_file();

}  // namespace pkv::bench
