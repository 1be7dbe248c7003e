// Power cuts while a file is replaced. Whatever unsynced data the disk keeps, the path has the old
// file or the new one.
#include <cstring>
#include <map>

#include "disk_fixture.h"

namespace store::power_cut_test {
namespace {

// A disk after a power cut. Synced data exists; of the rest, any part may exist. Each write
// to a file since its last sync may be lost (zeros, if a later one is there), and so may each new
// name and each rename in a directory since its last sync.
class Disk {
 public:
  explicit Disk(const Bytes& old) : contents_{{-1, old}} {
    if (!old.empty()) names_[name] = -1;
  }

  // Builds the disk after the first `count` operations. The bits of `lost` say which of those that
  // were not synced are lost.
  Disk(const Bytes& old, const std::vector<disk::Operation>& journal, size_t count, uint64_t lost)
      : Disk(old) {
    // The names as a process sees them.
    std::map<std::string, int> now = names_;
    for (size_t i = 0; i < count; i++) {
      const disk::Operation& operation = journal[i];
      const bool keeps = synced(journal, i, count) || (lost >> unsynced_++ & 1) == 0;
      switch (operation.kind) {
        case disk::Operation::write: {
          Bytes& bytes = contents_[operation.file];
          const size_t at = sizes_[operation.file];
          sizes_[operation.file] += operation.bytes.size();
          if (!keeps) break;
          bytes.resize(std::max(bytes.size(), sizes_[operation.file]));
          std::copy(operation.bytes.begin(), operation.bytes.end(),
                    bytes.begin() + static_cast<std::ptrdiff_t>(at));
          break;
        }
        case disk::Operation::create:
        case disk::Operation::link:
          if (!operation.name.empty()) now[operation.name] = operation.file;
          if (!operation.name.empty() && keeps) names_[operation.name] = operation.file;
          break;
        case disk::Operation::rename:
          now[operation.target] = now[operation.name];
          now.erase(operation.name);
          if (keeps) names_[operation.target] = now[operation.target], names_.erase(operation.name);
          break;
        default:
          break;
      }
    }
  }

  size_t unsynced() const { return unsynced_; }
  // Returns "" if there is no file. An empty file never occurs.
  Bytes at_path() { return names_.count(name) != 0 ? contents_[names_.at(name)] : Bytes(); }

  static constexpr const char* name = "chat.pkv";

 private:
  static bool synced(const std::vector<disk::Operation>& journal, size_t i, size_t count) {
    for (size_t k = i + 1; k < count; k++) {
      if (journal[i].kind == disk::Operation::write &&
          journal[k].kind == disk::Operation::sync_file && journal[k].file == journal[i].file)
        return true;
      if (journal[i].kind != disk::Operation::write &&
          journal[k].kind == disk::Operation::sync_directory)
        return true;
    }
    return false;
  }

  std::map<std::string, int> names_;
  std::map<int, Bytes> contents_;
  std::map<int, size_t> sizes_;
  size_t unsynced_ = 0;
};

// Records the operations of a save over a file, or where there is none yet (`old` is empty).
std::vector<disk::Operation> journal_of(const Fixture& fixture, const Bytes& old, bool unnamed) {
  const std::string path = fixture.directory / Disk::name;
  fs::remove(path);
  if (!old.empty()) files::write(path, old);
  std::vector<disk::Operation> journal;
  disk::journal = &journal;
  uint64_t calls = 0;
  if (!unnamed)
    disk::before = [&](const char* call) {
      disk::error = EOPNOTSUPP;
      return std::strcmp(call, "open") == 0 && ++calls == 2 ? disk::Fault::fails
                                                            : disk::Fault::none;
    };
  CHECK(fixture.save_to(at_path(path), fixture.other));
  disk::before = nullptr;
  disk::journal = nullptr;
  return journal;
}

// Cuts the power after each operation, with every choice of what is lost. The path has the old file
// or the new one; once the call has returned, the new one.
void cut_everywhere(const Fixture& fixture, const Bytes& old, bool unnamed) {
  const std::vector<disk::Operation> journal = journal_of(fixture, old, unnamed);
  ASSERT_GE(journal.size(), 5u);
  size_t states = 0, old_ones = 0;
  for (size_t count = 0; count <= journal.size(); count++) {
    const size_t unsynced = Disk(old, journal, count, 0).unsynced();
    ASSERT_LT(unsynced, 16u);
    for (uint64_t lost = 0; lost < uint64_t{1} << unsynced; lost++, states++) {
      Disk disk(old, journal, count, lost);
      const Bytes found = disk.at_path();
      ASSERT_TRUE(found == old || found == fixture.other_file)
          << "after " << count << " operations, lost " << lost;
      old_ones += found == old;
      ASSERT_TRUE(count < journal.size() || found == fixture.other_file);
    }
  }
  EXPECT_GT(states, 10u);
  EXPECT_GT(old_ones, 0u);
}

TEST(PowerCut, LeavesTheOldFileOrTheNewOne) {
  const Fixture fixture(1000);  // The file has several pieces.
  for (const bool unnamed : {true, false})
    for (const Bytes& old : {fixture.file, Bytes()}) cut_everywhere(fixture, old, unnamed);
}

// Without the syncs the model loses files, which shows that the test can fail.
TEST(PowerCut, TheModelFindsAMissingSync) {
  const Fixture fixture(1000);
  std::vector<disk::Operation> journal = journal_of(fixture, fixture.file, true);
  std::erase_if(journal, [](const disk::Operation& operation) {
    return operation.kind == disk::Operation::sync_file;
  });
  bool broken = false;
  const size_t unsynced = Disk(fixture.file, journal, journal.size(), 0).unsynced();
  for (uint64_t lost = 0; lost < uint64_t{1} << unsynced; lost++) {
    Disk disk(fixture.file, journal, journal.size(), lost);
    const Bytes found = disk.at_path();
    if (found == fixture.file || found == fixture.other_file) continue;
    broken = true;
    EXPECT_EQ(PKV_CORRUPT, try_load(fixture.target, buffer(found)))
        << "and even then nothing wrong is accepted";
  }
  EXPECT_TRUE(broken);
}

}  // namespace
}  // namespace store::power_cut_test
