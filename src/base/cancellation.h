// Protection from pthread_cancel() of a thread that is inside a call. Header-only, so that both
// libraries can use it.
#pragma once

#include <pthread.h>

namespace pkv::os {

// Holds off pthread_cancel() of this thread while it lives, so that a call is never cancelled
// halfway.
class WithoutCancellation {
 public:
  WithoutCancellation() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~WithoutCancellation() { pthread_setcancelstate(before_, nullptr); }
  WithoutCancellation(const WithoutCancellation&) = delete;
  WithoutCancellation& operator=(const WithoutCancellation&) = delete;

 private:
  int before_;
};

}  // namespace pkv::os
