// How errors get their sentences. Both libraries compile this file.
#include "base/status.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace pkv {

void fail(pkv_status status, const char* format, ...) {
  Error error{};
  error.status = status;
  va_list args;
  va_start(args, format);
  std::vsnprintf(error.text, sizeof error.text, format, args);
  va_end(args);
  throw error;
}

const char* errno_text(int error) {
#if defined(__GLIBC__) && __GLIBC_MINOR__ >= 32
  const char* const text = strerrordesc_np(error);
  return text != nullptr ? text : "unknown error";
#else
  return std::strerror(error);  // static text in musl, and in glibc for each error that it knows
#endif
}

}  // namespace pkv
