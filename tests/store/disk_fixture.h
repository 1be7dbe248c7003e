// A folder with two sessions, and the expected files.
#pragma once

#include <filesystem>
#include <set>

#include "../support/files.h"
#include "disk.h"
#include "support.h"

namespace store {

namespace fs = std::filesystem;

// A temporary file that a killed process may have left.
inline const std::string orphan = ".pagedkv-0123456789abcdef.tmp";

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
  Plan plan{.blocks = 1024};
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

// Other calls are never interrupted by a signal.
inline bool may_be_interrupted(const std::string& call) {
  return call == "open" || call == "read" || call == "write" || call == "fsync" ||
         call == "flock" || call == "fchmod" || call == "posix_fallocate";
}

struct Outcome {
  pkv_status status;
  std::string struck;  // the call on files that failed; empty if fewer were made
};

// Makes a call of the library. `act` runs before its k-th call on files, gets the name of that call
// and says what happens to it. Returns the name, or "" if fewer calls were made.
template <class Act, class Call>
std::string at_call(uint64_t k, bool unnamed, const Act& act, const Call& call) {
  uint64_t calls = 0;
  std::string struck;
  disk::no_unnamed_files = !unnamed;
  disk::before = [&](const char* name) {
    if (++calls != k) return disk::Fault::none;
    struck = name;
    return act(struck);
  };
  call();
  disk::before = nullptr;
  disk::no_unnamed_files = false;
  return struck;
}

// Makes a call of the library in which the k-th call on files fails. Files are always removed.
template <class Call>
Outcome strike(uint64_t k, disk::Fault fault, int error, bool unnamed, const Call& call) {
  Outcome outcome;
  disk::error = error;
  const auto act = [&](const std::string& name) {
    const bool possible =
        name != "unlinkat" && (fault != disk::Fault::interrupted || may_be_interrupted(name));
    return possible ? fault : disk::Fault::none;
  };
  outcome.struck = at_call(k, unnamed, act, [&] { outcome.status = call(); });
  return outcome;
}

}  // namespace store
