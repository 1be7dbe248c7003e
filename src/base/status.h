// How code below the C boundary reports an error: it throws an Error, which holds the status and
// its sentence. The text is a fixed buffer, so that reporting "out of memory" needs no memory.
#pragma once

#include <pagedkv/common.h>

namespace pkv {

struct Error {
  pkv_status status;
  char text[256];
};

// Throws an Error with a printf-formatted sentence.
[[noreturn]] void fail(pkv_status status, const char* format, ...)
    __attribute__((format(printf, 2, 3)));

// What the operating system says of an errno. Static text, from any thread.
const char* errno_text(int error);

}  // namespace pkv
