// A folder with two sessions, and what their files should be.
#pragma once

#include <filesystem>
#include <set>

#include "../support/files.h"
#include "disk.h"
#include "support.h"

namespace store {

namespace fs = std::filesystem;

class Directory : public files::TemporaryDirectory {
 public:
  std::set<std::string> names() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(path())) names.insert(entry.path().filename());
    return names;
  }
};

inline Bytes content_of(const std::string& path) { return files::read<Bytes>(path); }

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
