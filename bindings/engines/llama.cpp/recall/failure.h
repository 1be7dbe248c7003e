// What the functions of the library throw: pagedkv-llama.h returns it as a status and a sentence.
#pragma once

#include <pagedkv/common.h>

#include <string>

namespace pagedkv_llama {

struct Failure {
  pkv_status status;
  std::string sentence;
};

// Throws a Failure whose sentence is made as by printf.
[[noreturn, gnu::format(printf, 2, 3)]] void fail(pkv_status status, const char* format, ...);

}  // namespace pagedkv_llama
