// The macOS calls behind posix.h. Signals of writes go to the process there, and not to the thread
// that writes: blocking them would not help.
#include <fcntl.h>
#include <mach/vm_inherit.h>
#include <signal.h>
#include <sys/acl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/posix.h"

namespace pkv::os {

namespace {

// Whether a file of this size would exceed the limit of this process, which raises SIGXFSZ.
bool exceeds_limit(uint64_t size) {
  rlimit limit;
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
         size > limit.rlim_cur;
}

// Where the next write begins; 0 if that cannot be told.
uint64_t write_position(int descriptor) {
  struct stat status;
  const int flags = fcntl(descriptor, F_GETFL);
  const bool at_end = flags >= 0 && (flags & O_APPEND) != 0 && fstat(descriptor, &status) == 0;
  const off_t at = at_end ? status.st_size : lseek(descriptor, 0, SEEK_CUR);
  return at < 0 ? 0 : static_cast<uint64_t>(at);
}

bool allows_somebody(acl_t list) {
  acl_entry_t entry;
  for (int next = ACL_FIRST_ENTRY; acl_get_entry(list, next, &entry) == 0; next = ACL_NEXT_ENTRY) {
    acl_tag_t tag;
    if (acl_get_tag_type(entry, &tag) != 0 || tag == ACL_EXTENDED_ALLOW) return true;
  }
  return false;
}

}  // namespace

ssize_t write_quietly(int descriptor, int signal, const void* from, size_t n) {
  if (signal == SIGXFSZ) {
    if (!exceeds_limit(write_position(descriptor) + n)) return write(descriptor, from, n);
    errno = EFBIG;
    return -1;
  }
  // The caller's descriptor keeps its own setting.
  const bool changes =
      fcntl(descriptor, F_GETNOSIGPIPE) == 0 && fcntl(descriptor, F_SETNOSIGPIPE, 1) == 0;
  const ssize_t written = write(descriptor, from, n);
  const int error = errno;
  if (changes) (void)fcntl(descriptor, F_SETNOSIGPIPE, 0);
  errno = error;
  return written;
}

int allocate_quietly(int descriptor, int, uint64_t size) {
  struct stat status;
  if (fstat(descriptor, &status) != 0) return errno;
  const auto wanted = static_cast<off_t>(size);
  if (wanted <= status.st_size) return 0;
  if (exceeds_limit(size)) return EFBIG;
  fstore_t room{F_ALLOCATEALL, F_PEOFPOSMODE, 0, wanted - status.st_size, 0};
  if (fcntl(descriptor, F_PREALLOCATE, &room) != 0) return errno;
  return ftruncate(descriptor, wanted) == 0 ? 0 : errno;
}

// fsync() itself leaves the bytes in the cache of the drive. Network file systems have only that.
int sync(int descriptor) {
  const int done = fcntl(descriptor, F_FULLFSYNC);
  const bool is_missing = errno == ENOTSUP || errno == EINVAL || errno == ENOTTY;
  return done < 0 && is_missing ? fsync(descriptor) : done;
}

std::chrono::nanoseconds change_time(const struct stat& status) {
  return std::chrono::seconds(status.st_mtimespec.tv_sec) +
         std::chrono::nanoseconds(status.st_mtimespec.tv_nsec);
}

int open_unnamed(int, mode_t) { return errno = ENOTSUP, -1; }
int link_unnamed(int, int, const char*) { return errno = ENOTSUP, -1; }

bool has_hidden_rights(int descriptor) {
  const acl_t list = acl_get_fd_np(descriptor, ACL_TYPE_EXTENDED);
  if (list == nullptr) return errno != ENOENT && errno != ENOTSUP;
  const bool found = allows_somebody(list);
  acl_free(list);
  return found;
}

int remove_hidden_rights(int descriptor) {
  if (!has_hidden_rights(descriptor)) return 0;
  const acl_t none = acl_init(0);
  if (none == nullptr) return -1;
  const int done = acl_set_fd_np(descriptor, none, ACL_TYPE_EXTENDED);
  const int error = errno;
  acl_free(none);
  errno = error;
  return done;
}

bool has_acl(int directory, const char* name) {
  const int descriptor =
      openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (descriptor < 0) return true;
  const acl_t list = acl_get_fd_np(descriptor, ACL_TYPE_EXTENDED);
  const bool has_none = list == nullptr && (errno == ENOENT || errno == ENOTSUP);
  if (list != nullptr) acl_free(list);
  close(descriptor);
  return !has_none;
}

// A process dumps no core there unless its user asks for that.
void keep_in_process(void* memory, size_t size) { (void)minherit(memory, size, VM_INHERIT_NONE); }

}  // namespace pkv::os
