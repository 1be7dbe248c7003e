#include "base/status.h"

#include <cstdarg>
#include <cstdio>

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

}  // namespace pkv
