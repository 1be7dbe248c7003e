// A thread of the store, and the content that it works on. The thread locks the content for short
// steps only, so that a thread that lacks blocks can release it between two of them. Blocks in
// flight, which the engine's hooks copy without the lock, are not released then: they have
// references of their own.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/session/content.h"

namespace pkv::store {

class Worker {
 public:
  ~Worker() { join(); }
  // Waits for the thread, if it runs, which must have been told to end.
  void join() noexcept;

  // Allocates the buffer and starts the thread, unless it runs already. Throws bad_alloc or
  // OUT_OF_MEMORY.
  void start(size_t buffer_bytes, const std::function<void()>& run);
  unsigned char* buffer() { return buffer_.data(); }

  // Locks the content for one step of the thread, after all calls of lock_to_release() that wait.
  std::unique_lock<std::mutex> lock() noexcept;
  // Empty between two tasks and after a release. Only for the thread itself, while it has the lock.
  std::optional<Content>& content() { return content_; }

  // The blocks that the thread copies now; under the lock, too.
  std::optional<Content>& in_flight() { return in_flight_; }
  // Unlocks the content while copy() runs, which may wait for the engine. Afterwards the content
  // may be gone, but what is in flight is not.
  template <class Copy>
  void unlocked(std::unique_lock<std::mutex>& held, const Copy& copy) {
    copying_ = true;
    held.unlock();
    try {
      copy();
    } catch (...) {
      lock_again(held);
      throw;
    }
    lock_again(held);
  }

  // Locks the content for a thread that lacks blocks, and appends what release() would let go of:
  // nothing that is being copied. The engine's hook may wait for that thread, so it does not wait
  // for the end of the copy.
  std::unique_lock<std::mutex> lock_to_release(std::vector<prefix::Releasable>& releasables);
  // Releases the content, and what is in flight unless it is being copied. The caller has a lock.
  void release() noexcept;
  // Returns whether the calling thread is the worker's.
  bool is_caller() const noexcept {
    return std::this_thread::get_id() == id_.load(std::memory_order_relaxed);
  }
  // Locks the content for inspect() and appends it, and what is in flight, to `contents`.
  std::unique_lock<std::mutex> freeze(std::vector<const Content*>& contents);

 private:
  void lock_again(std::unique_lock<std::mutex>& held) noexcept {
    held = lock();
    copying_ = false;
  }

  std::mutex mutex_;
  std::optional<Content> content_, in_flight_;
  bool copying_ = false;
  std::atomic<unsigned> releasing_{0};  // the number of threads that wait in lock_to_release()
  std::vector<unsigned char> buffer_;
  std::thread thread_;
  std::atomic<std::thread::id> id_{};  // set once the thread runs
};

}  // namespace pkv::store
