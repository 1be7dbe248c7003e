// Files by descriptors. System calls are repeated when a signal interrupts them.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "base/files.h"
#include "base/posix.h"

namespace pkv::os {

void check_regular(const struct stat& status, const char* what, const std::string& name) {
  if (S_ISLNK(status.st_mode)) fail_io("a symbolic link is not followed:", name, ELOOP);
  if (S_ISDIR(status.st_mode)) fail_io(what, name, EISDIR);
  if (!S_ISREG(status.st_mode)) fail_io("not a regular file:", name, EINVAL);
}

namespace {

// In one call macOS moves less than 2 GiB.
constexpr size_t max_transfer = size_t{1} << 30;

bool is_regular(int descriptor) {
  struct stat status;
  return fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

// The signal that a write may raise: SIGXFSZ where a file would exceed this process's size limit,
// SIGPIPE where nobody reads.
int signal_of_writes(int descriptor) { return is_regular(descriptor) ? SIGXFSZ : SIGPIPE; }

}  // namespace

File::File(int descriptor, Owner owner) noexcept
    : descriptor_(descriptor), owner_(owner), signal_(signal_of_writes(descriptor)) {}

File::~File() {
  if (owner_ == Owner::object && descriptor_ >= 0) close(descriptor_);
}

size_t File::read(void* to, size_t n) {
  size_t done = 0;
  while (done < n) {
    const ssize_t got = retry_on_eintr([&] {
      return ::read(descriptor_, static_cast<char*>(to) + done, std::min(n - done, max_transfer));
    });
    if (got < 0) fail_io("cannot read", name_, errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

void File::write(const void* from, size_t n) {
  size_t done = 0;
  while (done < n) {
    const ssize_t written = retry_on_eintr([&] {
      return write_quietly(descriptor_, signal_, static_cast<const char*>(from) + done,
                           std::min(n - done, max_transfer));
    });
    if (written <= 0) fail_io("cannot write", name_, written < 0 ? errno : EIO);
    done += static_cast<size_t>(written);
  }
}

int File::allocate(uint64_t size) {
  int error = EINTR;
  while (error == EINTR) error = allocate_quietly(descriptor_, signal_, size);
  return error;
}

void File::sync() const {
  if (retry_on_eintr([&] { return os::sync(descriptor_); }) < 0)
    fail_io("cannot sync", name_, errno);
}

std::optional<uint64_t> File::remaining() const {
  struct stat status;
  if (fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  const uint64_t size = static_cast<uint64_t>(status.st_size), at = position();
  return size > at ? size - at : 0;
}

uint64_t File::position() const {
  const off_t at = lseek(descriptor_, 0, SEEK_CUR);
  if (at < 0) fail_io("cannot tell the position in", name_, errno);
  return static_cast<uint64_t>(at);
}

void File::seek(uint64_t position) {
  if (lseek(descriptor_, static_cast<off_t>(position), SEEK_SET) < 0)
    fail_io("cannot seek in", name_, errno);
}

void File::touch(std::chrono::nanoseconds time) const noexcept {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  const timespec at{static_cast<time_t>(seconds.count()),
                    static_cast<long>((time - seconds).count())};
  const timespec times[2] = {at, at};  // of the last access, and of the last change
  (void)futimens(descriptor_, times);
}

File open_to_read(const char* path) {
  struct stat status;
  if (lstat(path, &status) != 0) fail_io("cannot open", path, errno);
  check_regular(status, "cannot read", path);
  // Another process may have put a FIFO there meanwhile; without O_NONBLOCK, opening it would wait
  // for a writer.
  const int descriptor = retry_on_eintr(
      [&] { return open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY); });
  if (descriptor < 0) fail_io("cannot open", path, errno);
  File file(descriptor, File::Owner::object, path);
  if (fstat(descriptor, &status) != 0) fail_io("cannot look at", path, errno);
  check_regular(status, "cannot read", path);
  return file;
}

File file_of(int descriptor) {
  return File(descriptor, File::Owner::caller, "descriptor " + std::to_string(descriptor));
}

}  // namespace pkv::os
