// A lock for many readers or one writer, for work of some microseconds. To sleep and wake takes
// longer than that, so a thread that finds the lock taken first spins, then yields, and only then
// sleeps. A waiting writer goes before readers that come later, so that they cannot starve it.
//
// No thread spins without end: a spinning thread with a real-time priority would keep the thread
// that it waits for from running. So if a reader finds that only a writer waits, and the writer
// does not take the lock for a while, the reader goes first.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "base/atomic_wait.h"

namespace pkv {

class ReadWriteLock {
 public:
  bool try_lock() noexcept {
    uint32_t state = state_.load(std::memory_order_relaxed);
    return (state & ~writer_waits) == 0 &&
           state_.compare_exchange_strong(state, writer, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  void lock() noexcept {
    for (int tries = 0; !try_lock();)
      wait(tries, state_.fetch_or(writer_waits, std::memory_order_relaxed) | writer_waits);
  }
  void unlock() noexcept {
    state_.store(0, std::memory_order_release);
    wake_waiting(state_);
  }

  void lock_shared() noexcept {
    for (int tries = 0;;) {
      uint32_t state = state_.load(std::memory_order_relaxed);
      const bool writer_late = state == writer_waits && tries >= spins + yields;
      if ((state & (writer | writer_waits)) != 0 && !writer_late)
        wait(tries, state);
      else if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire,
                                            std::memory_order_relaxed))
        return;
    }
  }
  void unlock_shared() noexcept {
    const uint32_t before = state_.fetch_sub(1, std::memory_order_release);
    if (before == (1 | writer_waits)) wake_waiting(state_);
  }

 private:
  // The state is the number of readers, plus these bits.
  static constexpr uint32_t writer = 1u << 31, writer_waits = 1u << 30;
  static constexpr int spins = 64, yields = 64;

  void wait(int& tries, uint32_t state) noexcept {
    if (tries < spins) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    } else if (tries < spins + yields || state == writer_waits) {
      std::this_thread::yield();  // The lock is free, so nobody would wake this thread.
    } else {
      wait_for_change(state_, state, std::memory_order_relaxed);
      tries = spins;  // The writer that was also woken goes first.
    }
    if (tries < spins + yields) tries++;
  }

  std::atomic<uint32_t> state_ = 0;
};

}  // namespace pkv
