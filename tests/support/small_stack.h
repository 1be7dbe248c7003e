// Runs a function where the stack is small, so that a call whose depth grows with its input ends in
// a crash.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <exception>
#include <functional>
#include <stdexcept>

#include "sanitizers.h"

namespace pkv::test {

// musl gives threads this much. Sanitizers put space between variables.
inline constexpr size_t small_stack_bytes = size_t{sanitized ? 1024 : 128} << 10;

// Runs a function on a thread with a small stack, and throws what it throws.
inline void on_small_stack(const std::function<void()>& run) {
  struct Call {
    const std::function<void()>& run;
    std::exception_ptr thrown;
  } call{run, {}};
  const auto start = [](void* given) -> void* {
    Call& made = *static_cast<Call*>(given);
    try {
      made.run();
    } catch (...) {
      made.thrown = std::current_exception();
    }
    return nullptr;
  };
  pthread_attr_t attributes;
  pthread_t thread;
  if (pthread_attr_init(&attributes) != 0 ||
      pthread_attr_setstacksize(&attributes, small_stack_bytes) != 0 ||
      pthread_create(&thread, &attributes, start, &call) != 0)
    throw std::runtime_error("no thread with a small stack");
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  if (call.thrown) std::rethrow_exception(call.thrown);
}

}  // namespace pkv::test
