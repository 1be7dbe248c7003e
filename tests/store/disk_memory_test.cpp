// Caches whose memory is a file, and files that a process opens, if system calls or allocations
// fail: each time there is a status and a sentence, and no descriptor and no file is left.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <optional>

#include "../support/memory.h"
#include "disk_fixture.h"

namespace store::disk_memory_test {
namespace {

ModelConfig in_file(const Directory& directory) {
  ModelConfig config = config_of({2, 4, 2, 16}, 64);
  config.memory_directory = directory.path().c_str();
  return config;
}

// Creates a cache, and closes it if that worked.
pkv_status try_create(const Directory& directory) {
  const ModelConfig config = in_file(directory);
  pkv_cache cache = nullptr;
  const pkv_status status = pkv_cache_create(&config, &cache);
  if (status == PKV_OK) CHECK(pkv_cache_destroy(cache));
  return status;
}

void expect_sentence(const char* words) {
  EXPECT_NE(nullptr, std::strstr(pkv_last_error(), words)) << pkv_last_error();
}

// Each call on files fails once, at every place. A failed optional call does not stop the cache.
void each_call_fails(disk::Fault fault, int error, bool unnamed) {
  const std::set<std::string> optional = {"open", "flock", "stat", "fstat", "fstatvfs", "unlinkat"};
  const Directory directory;
  const size_t descriptors = portable::count_descriptors();
  for (uint64_t k = 1;; k++) {
    const auto [status, struck] =
        strike(k, fault, error, unnamed, [&] { return try_create(directory); });
    if (fault != disk::Fault::fails || struck.empty() || optional.contains(struck)) {
      EXPECT_TRUE(status == PKV_OK || struck == "open") << struck << ": " << pkv_last_error();
    } else {
      EXPECT_EQ(PKV_IO, status) << struck;
    }
    if (status != PKV_OK) expect_sentence(("errno " + std::to_string(error)).c_str());
    EXPECT_EQ(std::set<std::string>{}, directory.names()) << struck << " " << k;
    EXPECT_EQ(descriptors, portable::count_descriptors()) << struck << " " << k;
    if (struck.empty()) {
      EXPECT_GT(k, 5u) << "calls were tried";
      break;
    }
  }
}

TEST(FileMemory, FaultsOfEveryCall) {
  for (const bool unnamed : {true, false})
    for (const int error : {EIO, ENOSPC, EDQUOT, EEXIST, EWOULDBLOCK})
      each_call_fails(disk::Fault::fails, error, unnamed);
  each_call_fails(disk::Fault::interrupted, EINTR, true);
}

// Other users cannot use the room that a file system keeps for root, and are refused before the
// device is full.
TEST(FileMemory, RootMayTakeWhatIsKeptForRoot) {
  const Directory directory;
  fs::permissions(directory.path(), fs::perms::all);
  const uid_t before = geteuid();
  disk::room_is_for_root = true;
  if (before == 0) {
    EXPECT_EQ(PKV_OK, try_create(directory)) << pkv_last_error();
    ASSERT_EQ(0, seteuid(65534));
  }
  const pkv_status status = try_create(directory);
  if (before == 0) {
    ASSERT_EQ(0, seteuid(before));
  }
  disk::room_is_for_root = false;
  EXPECT_EQ(PKV_IO, status);
  expect_sentence("No space left on device");
}

// Some file systems have no figures: the device is then asked for the room itself.
TEST(FileMemory, RoomThatIsNotTold) {
  const Directory directory;
  disk::room_is_not_told = true;
  const pkv_status status = try_create(directory);
  disk::room_is_not_told = false;
  EXPECT_EQ(PKV_OK, status) << pkv_last_error();
}

// ---- Files that are too large for this process --------------------------------------------------

// While it lives, no file of this process may be larger, and the signal of one that gets so would
// end the process.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(signal(SIGXFSZ, SIG_DFL)) {
    if (getrlimit(RLIMIT_FSIZE, &before_) != 0) throw std::runtime_error("getrlimit");
    const rlimit lower{bytes, before_.rlim_max};
    if (setrlimit(RLIMIT_FSIZE, &lower) != 0) throw std::runtime_error("setrlimit");
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_;
};

TEST(FileSizeLimit, IsAStatusAndNoSignal) {
  const Fixture fixture(300);
  const std::string path = fixture.directory / "chat.pkv";
  files::write(path, fixture.other_file);
  {
    const FileSizeLimit limit(4096);
    EXPECT_EQ(PKV_IO, try_create(fixture.directory));
    expect_sentence("File too large");
    EXPECT_EQ(PKV_IO, fixture.save_to(at_path(path), fixture.session));
    expect_sentence("File too large");
    sigset_t pending;
    sigpending(&pending);
    EXPECT_EQ(0, sigismember(&pending, SIGXFSZ));
  }
  EXPECT_EQ(fixture.other_file, content_of(path));
  EXPECT_EQ((std::set<std::string>{"chat.pkv"}), fixture.directory.names());
  EXPECT_EQ(PKV_OK, try_create(fixture.directory));
  EXPECT_EQ(PKV_OK, fixture.save_to(at_path(path), fixture.session));
}

TEST(FileSizeLimit, MayBeLoweredWhileAFileIsOpen) {
  const Fixture fixture(300);
  std::optional<FileSizeLimit> limit;
  disk::before = [&](const std::string& call) {
    if (call == "write" && !limit) limit.emplace(4096);
    return disk::Fault::none;
  };
  const pkv_status status =
      fixture.save_to(at_path(fixture.directory / "chat.pkv"), fixture.session);
  disk::before = nullptr;
  ASSERT_TRUE(limit);
  EXPECT_EQ(PKV_IO, status);
  expect_sentence("File too large");
  EXPECT_EQ(std::set<std::string>{}, fixture.directory.names());
}

// ---- Refused memory -----------------------------------------------------------------------------

// A call gets no memory from its k-th allocation on, for every k. It is made once before: oneTBB,
// which starts once per process, would spin forever if its own memory were refused.
template <class Call>
void refuse_each(const Directory& directory, const Call& call) {
  CHECK(call());
  const std::set<std::string> names = directory.names();
  const size_t descriptors = portable::count_descriptors();
  for (const bool unnamed : {true, false}) {
    bool struck = true;
    for (uint64_t k = 1; struck; k++) {
      ASSERT_LT(k, 1000u) << "there is no end to the allocations";
      disk::no_unnamed_files = !unnamed;
      pkv_status status;
      {
        const memory::Refusal refusal(k);
        status = call();
        struck = refusal.struck();
      }
      disk::no_unnamed_files = false;
      EXPECT_EQ(struck ? PKV_OUT_OF_MEMORY : PKV_OK, status) << k << ": " << pkv_last_error();
      EXPECT_EQ(names, directory.names()) << k;
      ASSERT_EQ(descriptors, portable::count_descriptors()) << k;
    }
  }
}

TEST(RefusedMemory, LeavesNoFileOfACache) {
  const Directory directory;
  refuse_each(directory, [&] { return try_create(directory); });
}

TEST(RefusedMemory, LeavesNoFileOfASaveOrALoad) {
  const Fixture fixture;
  const std::string path = fixture.directory / "a name that is too long to need no memory.pkv";
  files::write(path, fixture.file);
  const pkv_stream stream = at_path(path);
  refuse_each(fixture.directory, [&] { return fixture.save_to(stream, fixture.session); });
  EXPECT_EQ(fixture.file, content_of(path));
  refuse_each(fixture.directory, [&] { return try_load(fixture.target, stream); });
}

}  // namespace
}  // namespace store::disk_memory_test
