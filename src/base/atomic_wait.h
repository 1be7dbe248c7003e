// Waiting for an atomic number to change. std::atomic::wait() does that, too, but on systems other
// than Linux the one of libstdc++ 12 looks at the number before it takes the lock that wakers take,
// so it may sleep through the change.
#pragma once

#include <atomic>
#include <cstddef>

#ifdef _WIN32
// As in windows.h, whose macros nothing above base should meet.
extern "C" {
__declspec(dllimport) int __stdcall WaitOnAddress(volatile void*, void*, size_t, unsigned long);
__declspec(dllimport) void __stdcall WakeByAddressAll(void*);
}
#endif

namespace pkv {

// Returns when the number is not `seen`.
template <class T>
void wait_for_change(const std::atomic<T>& number, T seen, std::memory_order order) noexcept {
#ifdef _WIN32
  while (number.load(order) == seen)
    WaitOnAddress(const_cast<std::atomic<T>*>(&number), &seen, sizeof seen, 0xFFFFFFFF);
#else
  number.wait(seen, order);
#endif
}

// Wakes all threads that wait for a change of the number. The caller has changed it.
template <class T>
void wake_waiting(std::atomic<T>& number) noexcept {
#ifdef _WIN32
  WakeByAddressAll(&number);
#else
  number.notify_all();
#endif
}

}  // namespace pkv
