// How errors get their sentences. Both libraries compile this file.
#include "base/status.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace pkv {

namespace {

[[noreturn]] void throw_error(const pkv_error_details& details, const char* format, va_list args) {
  Error error{details, {}};
  std::vsnprintf(error.text, sizeof error.text, format, args);
  throw error;
}

}  // namespace

void fail(pkv_status status, const char* format, ...) {
  va_list args;
  va_start(args, format);
  throw_error(plain_details(status), format, args);
}

void fail(const pkv_error_details& details, const char* format, ...) {
  va_list args;
  va_start(args, format);
  throw_error(details, format, args);
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
