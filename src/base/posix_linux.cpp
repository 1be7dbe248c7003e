// The Linux calls behind posix.h.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/posix.h"

namespace pkv::os {

namespace {

// Keeps a signal that this thread raises from ending the process: the signal is blocked meanwhile,
// and taken from the queue afterwards. It does nothing if the signal was already pending.
class SignalGuard {
 public:
  explicit SignalGuard(int signal) {
    sigset_t pending;
    sigemptyset(&signals_);
    sigaddset(&signals_, signal);
    sigpending(&pending);
    wanted_ = sigismember(&pending, signal) == 0;
    if (wanted_) pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  ~SignalGuard() {
    if (!wanted_) return;
    const int error = errno;
    const timespec now{};
    while (sigtimedwait(&signals_, nullptr, &now) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

 private:
  bool wanted_;
  sigset_t signals_, before_;
};

// The path under which this process can name its open file.
std::string proc_link(int descriptor) { return "/proc/self/fd/" + std::to_string(descriptor); }

// Whether proc_link() leads to the file: in a chroot, /proc may be missing or be anything.
bool has_proc_link(int descriptor) {
  struct stat file, linked;
  return fstat(descriptor, &file) == 0 && stat(proc_link(descriptor).c_str(), &linked) == 0 &&
         is_same(file, linked);
}

}  // namespace

ssize_t write_quietly(int descriptor, int signal, const void* from, size_t n) {
  const SignalGuard guard(signal);
  return write(descriptor, from, n);
}

int allocate_quietly(int descriptor, int signal, uint64_t size) {
  const SignalGuard guard(signal);
  return posix_fallocate(descriptor, 0, static_cast<off_t>(size));
}

int sync(int descriptor) { return fsync(descriptor); }

std::chrono::nanoseconds change_time(const struct stat& status) {
  return std::chrono::seconds(status.st_mtim.tv_sec) +
         std::chrono::nanoseconds(status.st_mtim.tv_nsec);
}

int open_unnamed(int directory, mode_t mode) {
  const int descriptor = openat(directory, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
  if (descriptor < 0 || has_proc_link(descriptor)) return descriptor;
  close(descriptor);
  errno = ENOENT;
  return -1;
}

int link_unnamed(int descriptor, int directory, const char* name) {
  return linkat(AT_FDCWD, proc_link(descriptor).c_str(), directory, name, AT_SYMLINK_FOLLOW);
}

// The group bits of the mode are the mask of an access control list, so nothing is hidden.
bool has_hidden_rights(int) { return false; }
int remove_hidden_rights(int) { return 0; }

bool has_acl(int directory, const char* name) {
  const std::string path = proc_link(directory) + '/' + name;
  return lgetxattr(path.c_str(), "system.posix_acl_access", nullptr, 0) >= 0 ||
         (errno != ENODATA && errno != ENOTSUP);
}

void keep_in_process(void* memory, size_t size) {
  (void)madvise(memory, size, MADV_DONTFORK);
  (void)madvise(memory, size, MADV_DONTDUMP);
}

}  // namespace pkv::os
