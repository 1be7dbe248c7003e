// Saves to a disk that fails or is full. The file that was there before stays, or the new one is
// complete.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <thread>

#include "disk_fixture.h"

namespace store::disk_test {
namespace {

TEST(Path, IsReplacedAsAWholeAndIsItsOwnersAlone) {
  const Fixture fixture;
  const std::string path = fixture.directory / "chat.pkv";
  CHECK(fixture.save_to(at_path(path), fixture.session));
  EXPECT_EQ(fixture.file, content_of(path));
  struct stat status;
  ASSERT_EQ(0, stat(path.c_str(), &status));
  EXPECT_EQ(0600u, status.st_mode & 07777);
  ASSERT_EQ(0, chmod(path.c_str(), 0640));
  CHECK(fixture.save_to(at_path(path), fixture.other));
  EXPECT_EQ(fixture.other_file, content_of(path));
  ASSERT_EQ(0, stat(path.c_str(), &status));
  EXPECT_EQ(0640u, status.st_mode & 07777);
  ASSERT_EQ(0, chmod(path.c_str(), 0700));
  CHECK(fixture.save_to(at_path(path), fixture.other));
  ASSERT_EQ(0, stat(path.c_str(), &status));
  EXPECT_EQ(0700u, status.st_mode & 07777);
  EXPECT_EQ((std::set<std::string>{"chat.pkv"}), fixture.directory.names());
  const std::vector<Session> loaded = load(fixture.target, at_path(path));
  expect_same(fixture.other, loaded[0], fixture.plan);
}

TEST(Path, OnlyRegularFiles) {
  const Fixture fixture;
  const std::string regular = fixture.directory / "regular";
  files::write(regular, fixture.file);
  fs::create_directory(fixture.directory / "directory");
  ASSERT_EQ(0, mkfifo((fixture.directory / "fifo").c_str(), 0600));
  fs::create_symlink(regular, fixture.directory / "link");
  const std::set<std::string> names = fixture.directory.names();
  for (const std::string& path :
       {fixture.directory / "directory", fixture.directory / "fifo", fixture.directory / "link",
        fixture.directory / "", std::string("/dev/full"), fixture.directory / "regular/below",
        fixture.directory / "missing/below", fixture.directory / "..", fixture.directory / ".",
        fixture.directory / (std::string(200, 'x') + "/below")}) {
    EXPECT_EQ(PKV_IO, fixture.save_to(at_path(path), fixture.other)) << path;
    EXPECT_NE(nullptr, std::strstr(pkv_last_error(), "errno")) << pkv_last_error();
    EXPECT_EQ(PKV_IO, try_load(fixture.target, at_path(path))) << path;
  }
  EXPECT_EQ(PKV_IO, try_load(fixture.target, at_path(fixture.directory / "missing")));
  EXPECT_EQ(names, fixture.directory.names());
  EXPECT_EQ(fixture.file, content_of(regular)) << "through the link, perhaps";
}

TEST(Path, InADirectoryThatCannotBeWritten) {
  const Fixture fixture;
  ASSERT_EQ(0, chmod(fixture.directory.path().c_str(), 0555));
  const uid_t before = geteuid();
  if (before == 0 && seteuid(65534) != 0) FAIL() << "root writes everywhere";
  const pkv_status status =
      fixture.save_to(at_path(fixture.directory / "chat.pkv"), fixture.session);
  if (before == 0 && seteuid(before) != 0) FAIL();
  EXPECT_EQ(PKV_IO, status);
  ASSERT_EQ(0, chmod(fixture.directory.path().c_str(), 0700));
}

// Each call on files fails once, at every place where one is made. The status is IO, and the old
// file is unchanged. Calls that are interrupted or short are repeated. A failed optional call does
// not stop a save, nor does a name or a lock that another process has. A temporary file that cannot
// be removed stays.
void each_call_faulty(const Fixture& fixture, disk::Fault fault, int error, bool unnamed) {
  const std::set<std::string> optional = {"open",    "flock",     "fstatat",   "fstat",
                                          "stat",    "lgetxattr", "fdopendir", "getrandom",
                                          "readdir", "unlinkat"};
  const std::string path = fixture.directory / "chat.pkv";
  for (uint64_t k = 1;; k++) {
    files::write(path, fixture.file);
    files::write(fixture.directory / orphan, fixture.file);
    ASSERT_EQ(0, chmod(path.c_str(), 0640));  // A mode that the new file must get.
    const auto [status, struck] = strike(
        k, fault, error, unnamed, [&] { return fixture.save_to(at_path(path), fixture.other); });
    if (struck.empty()) {
      EXPECT_EQ(PKV_OK, status);
      EXPECT_GT(k, 5u) << "calls were tried";
      break;
    }
    const Bytes now = content_of(path);
    if (fault != disk::Fault::fails) {
      EXPECT_EQ(PKV_OK, status) << struck << " " << k << ": " << pkv_last_error();
      EXPECT_EQ(fixture.other_file, now);
    } else if (status == PKV_OK) {
      EXPECT_TRUE(optional.contains(struck) || (struck == "linkat" && error == EEXIST))
          << struck << " " << k;
      EXPECT_EQ(fixture.other_file, now);
    } else {
      EXPECT_EQ(PKV_IO, status) << struck;
      EXPECT_TRUE(now == fixture.file || (struck == "fsync" && now == fixture.other_file))
          << struck << " " << k;
    }
    // A save that fails, or cannot look at the orphan, leaves it.
    std::set<std::string> names = fixture.directory.names();
    names.erase(orphan);
    EXPECT_EQ((std::set<std::string>{"chat.pkv"}), names) << struck << " " << k;
  }
}

TEST(Faults, OfEveryCallOfASave) {
  const Fixture fixture;
  for (const bool unnamed : {true, false}) {
    for (const int error : {EIO, ENOSPC, EDQUOT, EEXIST, EWOULDBLOCK, ENOENT, ENODATA, ENOTSUP})
      each_call_faulty(fixture, disk::Fault::fails, error, unnamed);
    each_call_faulty(fixture, disk::Fault::short_count, 0, unnamed);
  }
  each_call_faulty(fixture, disk::Fault::interrupted, 0, true);
}

TEST(Faults, AWriteThatWritesNothing) {
  const Fixture fixture;
  const std::string path = fixture.directory / "chat.pkv";
  for (uint64_t k = 1, writes = 0;; k++) {
    files::write(path, fixture.file);
    const auto [status, struck] = strike(k, disk::Fault::nothing, 0, true, [&] {
      return fixture.save_to(at_path(path), fixture.other);
    });
    EXPECT_EQ(struck == "write" ? PKV_IO : PKV_OK, status) << struck << " " << k;
    EXPECT_EQ(struck == "write" ? fixture.file : fixture.other_file, content_of(path)) << k;
    writes += struck == "write";
    if (!struck.empty()) continue;
    EXPECT_GT(writes, 0u);
    break;
  }
}

TEST(Faults, AnErrorWithoutAName) {
  const Fixture fixture;
  disk::error = 3000;
  disk::before = [](const char* call) {
    return std::strcmp(call, "write") == 0 ? disk::Fault::fails : disk::Fault::none;
  };
  const pkv_status status =
      fixture.save_to(at_path(fixture.directory / "chat.pkv"), fixture.session);
  disk::before = nullptr;
  EXPECT_EQ(PKV_IO, status);
  EXPECT_NE(nullptr, std::strstr(pkv_last_error(), "nknown error")) << pkv_last_error();
  EXPECT_NE(nullptr, std::strstr(pkv_last_error(), "(errno 3000)")) << pkv_last_error();
}

TEST(Faults, OfEveryCallOfALoad) {
  const Fixture fixture(300);
  const std::string path = fixture.directory / "chat.pkv";
  files::write(path, fixture.file);
  const State before = state_of(fixture.target);
  for (const disk::Fault fault :
       {disk::Fault::fails, disk::Fault::interrupted, disk::Fault::short_count}) {
    for (uint64_t k = 1;; k++) {
      const auto [status, struck] =
          strike(k, fault, EIO, true, [&] { return try_load(fixture.target, at_path(path)); });
      if (struck.empty()) {
        EXPECT_GT(k, 3u);
        break;
      }
      // If the size of a file is unknown, it is found by reading.
      if (fault == disk::Fault::fails && status == PKV_OK) {
        EXPECT_TRUE(struck == "fstat" || struck == "lseek") << struck << " " << k;
      } else {
        EXPECT_EQ(fault == disk::Fault::fails ? PKV_IO : PKV_OK, status)
            << struck << " " << k << ": " << pkv_last_error();
      }
      EXPECT_EQ(before, state_of(fixture.target));
    }
  }
}

TEST(Faults, OfCallbacks) {
  const Fixture fixture(300);
  struct Memory {
    Bytes bytes;
    size_t at = 0;
    uint64_t calls = 0, faulty = 0;
    // What the faulty one returns. 0 means half of what is asked for.
    int64_t answer = 0;
    bool answers(uint64_t n, int64_t* result) {
      if (++calls != faulty) return false;
      *result = answer != 0 ? answer : static_cast<int64_t>(n / 2);
      return answer != 0;
    }
  };
  pkv_stream hooks = stream(PKV_STREAM_CALLBACKS);
  hooks.write = [](void* user, const void* from, uint64_t n) {
    Memory& self = *static_cast<Memory*>(user);
    int64_t count = static_cast<int64_t>(n);
    if (self.answers(n, &count)) return count;
    const auto* bytes = static_cast<const unsigned char*>(from);
    self.bytes.insert(self.bytes.end(), bytes, bytes + count);
    return count;
  };
  hooks.read = [](void* user, void* to, uint64_t n) {
    Memory& self = *static_cast<Memory*>(user);
    int64_t count = static_cast<int64_t>(n);
    if (self.answers(n, &count)) return count;
    count = std::min(count, static_cast<int64_t>(self.bytes.size() - self.at));
    std::memcpy(to, self.bytes.data() + self.at, static_cast<size_t>(count));
    self.at += static_cast<size_t>(count);
    return count;
  };
  const State before = state_of(fixture.target);
  for (const int64_t answer : {int64_t{0}, int64_t{-EIO}, INT64_MIN, INT64_MAX}) {
    for (uint64_t k = 1;; k++) {
      Memory memory;
      memory.faulty = k, memory.answer = answer;
      hooks.user = &memory;
      const pkv_status saved = fixture.save_to(hooks, fixture.session);
      const bool struck = memory.calls >= k;
      EXPECT_EQ(answer == 0 || !struck ? PKV_OK : PKV_IO, saved) << k << ": " << pkv_last_error();
      if (saved == PKV_OK) {
        EXPECT_EQ(fixture.file, memory.bytes);
      }
      Memory reading{.bytes = fixture.file};
      reading.faulty = k, reading.answer = answer;
      hooks.user = &reading;
      const pkv_status loaded = try_load(fixture.target, hooks);
      EXPECT_EQ(answer == 0 || reading.calls < k ? PKV_OK : PKV_IO, loaded)
          << k << ": " << pkv_last_error();
      EXPECT_EQ(before, state_of(fixture.target));
      if (!struck && reading.calls < k) break;
    }
  }
  // A stream that has half of the file ends too early.
  Memory half;
  half.bytes.assign(fixture.file.begin(),
                    fixture.file.begin() + static_cast<std::ptrdiff_t>(fixture.file.size() / 2));
  hooks.user = &half;
  EXPECT_EQ(PKV_CORRUPT, try_load(fixture.target, hooks));
  EXPECT_EQ(before, state_of(fixture.target));
}

TEST(Faults, ACallbackMayNotCallBack) {
  const Fixture fixture;
  pkv_stream hooks = stream(PKV_STREAM_CALLBACKS);
  pkv_session session = fixture.session;
  hooks.user = &session;
  hooks.write = [](void* user, const void*, uint64_t n) {
    uint64_t length = 0;
    EXPECT_EQ(PKV_REENTRANT, pkv_session_get_length(*static_cast<pkv_session*>(user), &length));
    return static_cast<int64_t>(n);
  };
  EXPECT_EQ(PKV_OK, fixture.save_to(hooks, fixture.session));
}

// ---- Temporary files ----------------------------------------------------------------------------

// While a save makes a call for the first time, another save in the same directory runs from its
// beginning to its end. It does not mistake a file of the first save for an orphan, or the first
// save notices.
void save_during(const Fixture& fixture, const std::string& wanted, bool unnamed) {
  bool saved = false;
  disk::no_unnamed_files = !unnamed;
  disk::before = [&](const char* call) {
    if (call != wanted || saved) return disk::Fault::none;
    saved = true;
    std::thread([&] {
      CHECK(fixture.save_to(at_path(fixture.directory / "other.pkv"), fixture.other));
    }).join();
    return disk::Fault::none;
  };
  const pkv_status status =
      fixture.save_to(at_path(fixture.directory / "chat.pkv"), fixture.session);
  disk::before = nullptr;
  disk::no_unnamed_files = false;
  EXPECT_TRUE(saved) << wanted;
  EXPECT_EQ(PKV_OK, status) << pkv_last_error();
  EXPECT_EQ(fixture.file, content_of(fixture.directory / "chat.pkv"));
  EXPECT_EQ((std::set<std::string>{"chat.pkv", "other.pkv"}), fixture.directory.names());
}

TEST(TemporaryFile, OfALiveWriterStays) {
  for (const bool unnamed : {true, false}) {
    const Fixture fixture;
    files::write(fixture.directory / "chat.pkv", fixture.other_file);
    for (const char* call : {"write", "fsync", "renameat"}) save_during(fixture, call, unnamed);
  }
}

// A temporary file looks like an orphan until it is locked. If another process removes it, another
// file is made.
TEST(TemporaryFile, TakenForAnOrphanIsMadeAgain) {
  const Fixture fixture;
  save_during(fixture, "flock", false);
}

// In a changed root, what /proc/self/fd leads to is another file, or nothing.
TEST(TemporaryFile, HasANameWhereProcLeadsElsewhere) {
  const Fixture fixture;
  for (const char* elsewhere : {"/", "/dev/null", "/missing"}) {
    const std::string path = fixture.directory / "chat.pkv";
    std::vector<disk::Operation> journal;
    disk::stat_instead = elsewhere;
    disk::journal = &journal;
    const pkv_status status = fixture.save_to(at_path(path), fixture.session);
    disk::stat_instead = nullptr;
    disk::journal = nullptr;
    EXPECT_EQ(PKV_OK, status) << pkv_last_error();
    EXPECT_EQ(fixture.file, content_of(path));
    EXPECT_EQ((std::set<std::string>{"chat.pkv"}), fixture.directory.names());
    // It had a name from the beginning.
    ASSERT_EQ(disk::Operation::create, journal.at(1).kind) << elsewhere;
    EXPECT_TRUE(journal[1].name.ends_with(".tmp")) << elsewhere << ": " << journal[1].name;
  }
}

// Only one save in 64 looks at all names of a large directory, so it takes some until the last
// orphan is gone.
TEST(TemporaryFile, OrphansOfALargeDirectoryAreRemovedInTheEnd) {
  const Fixture fixture;
  for (int i = 0; i < 1200; i++) files::write(fixture.directory / std::to_string(i), Bytes(1));
  for (int i = 0; i < 300; i++)
    files::write(fixture.directory / (".pagedkv-0123456789abc" + std::to_string(100 + i) + ".tmp"),
                 Bytes(1));
  const auto orphans = [&] {
    const std::set<std::string> names = fixture.directory.names();
    return std::count_if(names.begin(), names.end(),
                         [](const std::string& name) { return name.ends_with(".tmp"); });
  };
  int saves = 0;
  for (; orphans() > 0 && saves < 2000; saves++)
    CHECK(fixture.save_to(at_path(fixture.directory / "chat.pkv"), fixture.session));
  EXPECT_EQ(0, orphans()) << "after " << saves << " saves";
  EXPECT_EQ(1201u, fixture.directory.names().size());
}

TEST(TemporaryFile, NamesThatAreNearlyThoseOfOurs) {
  const Fixture fixture;
  const std::set<std::string> names = {".pagedkv-0123456789abcdef.tmq",
                                       ".pagedkw-0123456789abcdef.tmp",
                                       ".pagedkv-0123456789abcdeg.tmp", "chat.pkv"};
  for (const std::string& name : names) files::write(fixture.directory / name, fixture.file);
  CHECK(fixture.save_to(at_path(fixture.directory / "chat.pkv"), fixture.other));
  EXPECT_EQ(names, fixture.directory.names());
}

// ---- Descriptors --------------------------------------------------------------------------------

TEST(Descriptor, OneAfterAnotherInOneFile) {
  const Fixture fixture;
  const int file = ::open((fixture.directory / "two").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  pkv_stream to = stream(PKV_STREAM_DESCRIPTOR);
  to.descriptor = file;
  CHECK(fixture.save_to(to, fixture.session));
  CHECK(fixture.save_to(to, fixture.other));
  ASSERT_EQ(0, lseek(file, 0, SEEK_SET));
  const std::vector<Session> one = load(fixture.target, to), two = load(fixture.target, to);
  expect_same(fixture.session, one[0], fixture.plan);
  expect_same(fixture.other, two[0], fixture.plan);
  close(file);
}

TEST(Descriptor, APipeAndADiskThatIsFull) {
  const Fixture fixture(300);
  int ends[2];
  ASSERT_EQ(0, pipe(ends));
  pkv_stream to = stream(PKV_STREAM_DESCRIPTOR), from = to;
  to.descriptor = ends[1];
  from.descriptor = ends[0];
  std::thread writer([&] { CHECK(fixture.save_to(to, fixture.session)); });
  const std::vector<Session> loaded = load(fixture.target, from);
  writer.join();
  expect_same(fixture.session, loaded[0], fixture.plan);
  // The reader has closed the pipe. This is an error, not a signal.
  close(ends[0]);
  EXPECT_EQ(PKV_IO, fixture.save_to(to, fixture.session));
  sigset_t pending, pipes;
  sigpending(&pending);
  EXPECT_EQ(0, sigismember(&pending, SIGPIPE));
  // A signal that was pending before is still pending afterwards.
  sigemptyset(&pipes);
  sigaddset(&pipes, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipes, nullptr);
  pthread_kill(pthread_self(), SIGPIPE);
  EXPECT_EQ(PKV_IO, fixture.save_to(to, fixture.session));
  close(ends[1]);
  const timespec now{};
  EXPECT_EQ(SIGPIPE, sigtimedwait(&pipes, nullptr, &now));
  pthread_sigmask(SIG_UNBLOCK, &pipes, nullptr);
  to.descriptor = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  EXPECT_EQ(PKV_IO, fixture.save_to(to, fixture.session));
  close(to.descriptor);
}

}  // namespace
}  // namespace store::disk_test
