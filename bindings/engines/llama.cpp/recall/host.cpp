#include "host.h"

#include <dlfcn.h>

#include "failure.h"

namespace pagedkv_llama {

Host::Host(void* library) {
  const auto find = [&]<class Function>(Function*& function, const char* name) {
    function =
        reinterpret_cast<Function*>(dlsym(library == nullptr ? RTLD_DEFAULT : library, name));
    if (function == nullptr)
      fail(PKV_UNSUPPORTED,
           "there is no %s: load llama.cpp 0.5 with RTLD_GLOBAL, or set `library` to its handle",
           name);
  };
#define PAGEDKV_FIND(name, result, arguments) find(name, "llama_" #name);
  PAGEDKV_LLAMA_FUNCTIONS(PAGEDKV_FIND)
#undef PAGEDKV_FIND
}

}  // namespace pagedkv_llama
