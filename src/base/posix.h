// For the files of base that call POSIX: nobody else includes it.
#pragma once

#include <sys/stat.h>

#include <cerrno>
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

// Throws IO if the file is not a regular one; for a directory the sentence begins with `what`.
void check_regular(const struct stat& status, const char* what, const std::string& name);

}  // namespace pkv::os
