// Replaces pthread_create, so that memory::RefusalEverywhere can refuse threads. The library uses
// it, too, because the dynamic linker chooses it for the whole process. Sanitizers have one of
// their own, which is kept.
#include "memory.h"
#include "sanitizers.h"

#ifdef _WIN32
// The linker's option --wrap gives calls to this function.
#include <pthread.h>

#include <cerrno>

extern "C" int __real_pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
extern "C" int __wrap_pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                                     void* (*start)(void*), void* argument) {
  if (memory::refuse_everywhere(memory::Source::threads)) return EAGAIN;
  return __real_pthread_create(thread, attributes, start, argument);
}
#elif !defined(__SANITIZE_ADDRESS__) && !__has_feature(address_sanitizer)
#include <dlfcn.h>
#include <pthread.h>

#include <cerrno>

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  if (memory::refuse_everywhere(memory::Source::threads)) return EAGAIN;
  return create(thread, attributes, start, argument);
}
#endif
