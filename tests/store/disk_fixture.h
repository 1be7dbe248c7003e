// A folder with two sessions, and what their files should be.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "disk.h"
#include "support.h"

namespace store {

namespace fs = std::filesystem;

class Directory {
 public:
  Directory() {
    char name[] = "/tmp/pagedkv-store-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Directory() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  std::set<std::string> names() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(path_)) names.insert(entry.path().filename());
    return names;
  }

 private:
  std::string path_;
};

inline Bytes content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void write_file(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

// A cache with a session of two tiles in two layers. `other` is a session with another text.
struct Fixture {
  Plan plan = [] {
    Plan made;
    made.blocks = 1024;
    return made;
  }();
  Directory directory;
  Cache cache = create(plan), target = create(plan);
  Session session = open(cache), other = open(cache);
  Bytes file, other_file;

  explicit Fixture(uint32_t tokens = 20) {
    append(cache, session, plan, tokens, 1);
    append(cache, other, plan, tokens, 2);
    file = save(cache, {session});
    other_file = save(cache, {other});
  }
  pkv_status save_to(const pkv_stream& to, pkv_session which) const {
    const pkv_file_item item = {which, nullptr, 100};
    return pkv_file_save(cache, 1, &item, nullptr, &to, nullptr);
  }
};

}  // namespace store
