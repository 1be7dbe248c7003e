// Wrappers in which the C functions of both libraries run, so that neither an exception nor
// pthread_cancel() ends them halfway: guarded() for exported functions, guarded_call() and
// guarded_close() for those in the table of a store.
#pragma once

#include <pthread.h>

#include <cerrno>
#include <exception>
#include <new>

#include "base/memory.h"
#include "base/status.h"

namespace pkv {

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

// Stores the error of a failed call for this thread, and returns the status. Each library defines
// it, together with the function that returns the sentence.
using KeepError = pkv_status (*)(const pkv_error_details& details, const char* sentence) noexcept;

// Runs the body of an exported function. Turns exceptions into statuses and stores their sentences.
template <class Body>
pkv_status guarded(KeepError keep_error, const Body& body) noexcept {
  const WithoutCancellation no_cancellation;
  try {
    body();
    return PKV_OK;
  } catch (const Error& error) {
    return keep_error(error, error.text);
  } catch (const Misaligned& error) {
    return keep_error(plain_details(PKV_OUT_OF_MEMORY), error.what());
  } catch (const std::bad_alloc&) {
    return keep_error(plain_details(PKV_OUT_OF_MEMORY),
                      "the allocator refused memory for the call's own tables");
  } catch (const std::exception& error) {
    return keep_error(plain_details(PKV_INTERNAL), error.what());
  } catch (...) {
    return keep_error(plain_details(PKV_INTERNAL), "an unknown exception");
  }
}

// Runs a function of a store's table, whose errors are negative errnos.
template <class Body>
int64_t guarded_call(const Body& body) noexcept {
  const WithoutCancellation no_cancellation;
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return -ENOMEM;
  } catch (...) {
    return -EIO;
  }
}

// Deletes the object behind the `user` pointer of a store's table.
template <class Object>
void guarded_close(void* user) noexcept {
  const WithoutCancellation no_cancellation;
  delete static_cast<Object*>(user);
}

}  // namespace pkv
