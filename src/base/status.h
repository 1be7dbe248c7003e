// How code below the C boundary reports an error: it throws an Error, which holds the status and a
// sentence for pkv_last_error(). The sentence is in a fixed buffer, so that reporting that memory
// ran out needs no memory.
#pragma once

#include <pagedkv/common.h>

#include <cstdint>

namespace pkv {

struct Error {
  pkv_status status;
  char text[256];
};

// Throws an Error with a printf-formatted sentence.
[[noreturn]] void fail(pkv_status status, const char* format, ...)
    __attribute__((format(printf, 2, 3)));

// A number for %llu, whatever uint64_t is on the platform.
inline unsigned long long llu(uint64_t number) { return number; }

// The operating system's description of an errno. It is static text, so it is safe in any thread.
const char* errno_text(int error);

}  // namespace pkv
