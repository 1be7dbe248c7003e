#include "base/files.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/status.h"

namespace pkv::os {

void fail_io(const char* what, const std::string& name, int error) {
  // The end of a long name says more than its beginning.
  const size_t shown = name.size() > 120 ? name.size() - 120 : 0;
  fail(PKV_IO, "%s %s%s: %s (errno %d)", what, shown > 0 ? "..." : "", name.c_str() + shown, errno_text(error), error);
}

namespace {

// Keeps a write to a pipe nobody reads from ending the process: the signal is held back and taken.
class WithoutSignal {
 public:
  explicit WithoutSignal(bool wanted) : wanted_(wanted) {
    if (!wanted_) return;
    sigset_t pending;
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGPIPE);
    sigpending(&pending);
    wanted_ = sigismember(&pending, SIGPIPE) == 0;
    if (wanted_) pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  ~WithoutSignal() {
    if (!wanted_) return;
    const int error = errno;
    const timespec now{};
    while (sigtimedwait(&signals_, nullptr, &now) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  WithoutSignal(const WithoutSignal&) = delete;
  WithoutSignal& operator=(const WithoutSignal&) = delete;

 private:
  bool wanted_;
  sigset_t signals_, before_;
};

bool is_regular(int descriptor) {
  struct stat status;
  return fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

// Repeats a call that a signal interrupts.
template <class Call>
auto uninterrupted(const Call& call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

}  // namespace

File::File(int descriptor, bool owned, std::string name)
    : descriptor_(descriptor), owned_(owned), may_signal_(!is_regular(descriptor)), name_(std::move(name)) {}

File::File(File&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), owned_(other.owned_), may_signal_(other.may_signal_), name_(std::move(other.name_)) {}

File::~File() {
  if (owned_ && descriptor_ >= 0) close(descriptor_);
}

size_t File::read(void* to, size_t n) {
  size_t done = 0;
  while (done < n) {
    const ssize_t got = uninterrupted([&] { return ::read(descriptor_, static_cast<char*>(to) + done, n - done); });
    if (got < 0) fail_io("cannot read", name_, errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

void File::write(const void* from, size_t n) {
  const WithoutSignal without(may_signal_);
  size_t done = 0;
  while (done < n) {
    const ssize_t written = uninterrupted([&] { return ::write(descriptor_, static_cast<const char*>(from) + done, n - done); });
    if (written <= 0) fail_io("cannot write", name_, written < 0 ? errno : EIO);
    done += static_cast<size_t>(written);
  }
}

void File::sync() {
  if (uninterrupted([&] { return fsync(descriptor_); }) < 0) fail_io("cannot sync", name_, errno);
}

std::optional<uint64_t> File::left() const {
  struct stat status;
  if (fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  const uint64_t size = static_cast<uint64_t>(status.st_size), at = position();
  return size > at ? size - at : 0;
}

uint64_t File::position() const {
  const off_t at = lseek(descriptor_, 0, SEEK_CUR);
  return at > 0 ? static_cast<uint64_t>(at) : 0;
}

void File::go_to(uint64_t position) {
  if (lseek(descriptor_, static_cast<off_t>(position), SEEK_SET) < 0) fail_io("cannot seek in", name_, errno);
}

File open_to_read(const char* path) {
  // Without O_NONBLOCK a FIFO would wait for somebody to write.
  const int descriptor = uninterrupted([&] { return open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); });
  if (descriptor < 0) fail_io("cannot open", path, errno);
  File file(descriptor, true, path);
  struct stat status;
  if (fstat(descriptor, &status) != 0) fail_io("cannot look at", path, errno);
  if (S_ISDIR(status.st_mode)) fail_io("cannot read", path, EISDIR);
  if (!S_ISREG(status.st_mode)) fail_io("not a regular file:", path, EINVAL);
  return file;
}

// ---- Replacement ----------------------------------------------------------------------------------------------------

namespace {

constexpr uint32_t private_mode = 0600;  // what a model was told is nobody else's business

std::string random_name() {
  uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) fail(PKV_IO, "no random number for a name: errno %d", errno);
  char text[40];
  std::snprintf(text, sizeof text, ".pagedkv-%016llx.tmp", static_cast<unsigned long long>(number));
  return text;
}

std::string own_link(int descriptor) { return "/proc/self/fd/" + std::to_string(descriptor); }

}  // namespace

Replacement::Target Replacement::find(const char* path) {
  const std::string whole = path;
  const size_t slash = whole.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : slash == 0 ? "/" : whole.substr(0, slash);
  const int descriptor = uninterrupted([&] { return open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (descriptor < 0) fail_io("cannot open the directory of", whole, errno);
  Target target{whole, slash == std::string::npos ? whole : whole.substr(slash + 1), File(descriptor, true, directory), private_mode};
  if (target.name.empty() || target.name == "." || target.name == "..") fail_io("cannot replace", whole, EISDIR);
  struct stat status;
  if (fstatat(descriptor, target.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno != ENOENT) fail_io("cannot look at", whole, errno);
    return target;
  }
  if (S_ISLNK(status.st_mode)) fail_io("a symbolic link is not replaced:", whole, ELOOP);
  if (S_ISDIR(status.st_mode)) fail_io("cannot replace", whole, EISDIR);
  if (!S_ISREG(status.st_mode)) fail_io("not a regular file:", whole, EINVAL);
  target.mode = status.st_mode & 07777;
  return target;
}

File Replacement::create() {
  const int directory = target_.directory.descriptor();
  const int unnamed = uninterrupted([&] { return openat(directory, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, private_mode); });
  if (unnamed >= 0) {
    File file(unnamed, true, target_.path);
    if (access(own_link(unnamed).c_str(), F_OK) == 0) return file;
  }
  for (;;) {
    temporary_ = random_name();
    const int named = uninterrupted(
        [&] { return openat(directory, temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, private_mode); });
    if (named < 0 && errno == EEXIST) continue;
    if (named < 0) fail_io("cannot create a file beside", target_.path, errno);
    named_ = true;
    return File(named, true, target_.path);
  }
}

Replacement::Replacement(const char* path, bool durable) : durable_(durable), target_(find(path)), file_(create()) {}

Replacement::~Replacement() {
  if (named_) unlinkat(target_.directory.descriptor(), temporary_.c_str(), 0);
}

void Replacement::commit() {
  const int directory = target_.directory.descriptor();
  if (target_.mode != private_mode && uninterrupted([&] { return fchmod(file_.descriptor(), target_.mode); }) < 0)
    fail_io("cannot set the mode of", target_.path, errno);
  if (durable_) file_.sync();
  while (!named_) {
    temporary_ = random_name();
    named_ = linkat(AT_FDCWD, own_link(file_.descriptor()).c_str(), directory, temporary_.c_str(), AT_SYMLINK_FOLLOW) == 0;
    if (!named_ && errno != EEXIST) fail_io("cannot name a file beside", target_.path, errno);
  }
  if (renameat(directory, temporary_.c_str(), directory, target_.name.c_str()) != 0) fail_io("cannot replace", target_.path, errno);
  named_ = false;
  if (durable_) target_.directory.sync();
}

}  // namespace pkv::os
