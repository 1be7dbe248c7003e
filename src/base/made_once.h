// An object of the whole process, made at its first use and never destroyed: a call may still use
// it while the process ends. There is no lock, which a fork() in the middle would leave locked in
// the child for ever: whoever comes first has made it, and others throw their own away.
#pragma once

#include <atomic>
#include <memory>

namespace pkv {

// place: a constinit pointer, NULL at first. make() returns a std::unique_ptr and may throw.
template <class Object, class Make>
Object& made_once(std::atomic<Object*>& place, const Make& make) {
  if (Object* const there = place.load(std::memory_order_acquire)) return *there;
  std::unique_ptr<Object> made = make();
  Object* there = nullptr;
  if (!place.compare_exchange_strong(there, made.get(), std::memory_order_acq_rel)) return *there;
  return *made.release();
}

}  // namespace pkv
