#include "failure.h"

#include <cstdarg>
#include <cstdio>

namespace pagedkv_llama {

void fail(pkv_status status, const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  throw Failure{status, text};
}

}  // namespace pagedkv_llama
