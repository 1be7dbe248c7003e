// For the files of base that call POSIX: nobody else includes it.
#pragma once

#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace pkv::os {

// Repeats a system call as long as a signal interrupts it (EINTR), and returns its result.
template <class Call>
auto retry_on_eintr(const Call& call) {
  for (;;) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

inline bool is_same(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// Throws IO if the file is not a regular one; for a directory the sentence begins with `what`.
void check_regular(const struct stat& status, const char* what, const std::string& name);

// ---- What Linux and macOS do differently: posix_linux.cpp and posix_macos.cpp -------------------

// As write(). The signal that it may raise does not end the process: SIGXFSZ where a file would
// exceed this process's size limit, SIGPIPE where nobody reads.
ssize_t write_quietly(int descriptor, int signal, const void* from, size_t n);
// Takes room for all of a file of this size, without such a signal. Returns 0, or an errno.
int allocate_quietly(int descriptor, int signal, uint64_t size);
// As fsync(): afterwards a power cut loses nothing.
int sync(int descriptor);
std::chrono::nanoseconds change_time(const struct stat& status);

// Opens a new file without a name. Returns -1 if it could not get a name later.
int open_unnamed(int directory, mode_t mode);
// As link(): gives that file a name.
int link_unnamed(int descriptor, int directory, const char* name);

// Whether an access control list lets others do what the mode does not show.
bool has_hidden_rights(int descriptor);
// Removes such rights, which a new file may have from its directory. Returns 0, or -1.
int remove_hidden_rights(int descriptor);
// Whether a file has, or may have, an access control list that restricts whom the mode names.
bool has_acl(int directory, const char* name);

// Keeps mapped memory out of forked children and core dumps, as far as the system can.
void keep_in_process(void* memory, size_t size);

}  // namespace pkv::os
