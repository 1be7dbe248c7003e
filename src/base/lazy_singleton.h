// A process-wide object that is made at its first use, without a lock. It is never destroyed,
// because a call may still use it while the process ends.
#pragma once

#include <atomic>
#include <memory>

namespace pkv {

// Returns the object at `place`, a constinit pointer that is NULL at first. make() returns a
// std::unique_ptr and may throw. Several threads may make an object at once: the first one to store
// it wins, and the others destroy theirs. A lock would stay locked forever in a child that is
// forked while another thread holds it.
template <class Object, class Make>
Object& lazy_singleton(std::atomic<Object*>& place, const Make& make) {
  if (Object* const existing = place.load(std::memory_order_acquire)) return *existing;
  std::unique_ptr<Object> made = make();
  Object* existing = nullptr;
  if (!place.compare_exchange_strong(existing, made.get(), std::memory_order_acq_rel))
    return *existing;
  return *made.release();
}

}  // namespace pkv
