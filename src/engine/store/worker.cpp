// Starts the thread, and lets others release its content between two steps.
#include "engine/store/worker.h"

#include <system_error>
#include <utility>

#include "base/status.h"

namespace pkv::store {

void Worker::join() noexcept {
  if (thread_.joinable()) thread_.join();
}

void Worker::start(size_t buffer_bytes, const std::function<void()>& run) {
  if (id_.load(std::memory_order_relaxed) != std::thread::id()) return;
  const std::lock_guard lock(mutex_);
  if (thread_.joinable()) return;
  buffer_.resize(buffer_bytes);
  try {
    thread_ = std::thread(run);
  } catch (const std::system_error& error) {
    fail(PKV_OUT_OF_MEMORY, "a thread for the store could not be started: %s (error %d)",
         error.what(), error.code().value());
  }
  id_.store(thread_.get_id(), std::memory_order_relaxed);
}

// A thread that unlocks a mutex and locks it again at once would starve the threads that wait for
// it, so it yields to them first.
std::unique_lock<std::mutex> Worker::lock() noexcept {
  while (releasing_.load(std::memory_order_relaxed) > 0) std::this_thread::yield();
  return std::unique_lock(mutex_);
}

std::unique_lock<std::mutex> Worker::lock_to_release(std::vector<prefix::Releasable>& releasables) {
  releasing_.fetch_add(1, std::memory_order_relaxed);
  std::unique_lock lock(mutex_);
  releasing_.fetch_sub(1, std::memory_order_relaxed);
  prefix::Releasable all;
  if (content_) all.push_back(content_->releasable());
  if (in_flight_ && !copying_) all.push_back(in_flight_->releasable());
  if (!all.empty()) releasables.push_back(std::move(all));
  return lock;
}

void Worker::release() noexcept {
  content_.reset();
  if (!copying_) in_flight_.reset();
}

std::unique_lock<std::mutex> Worker::freeze(std::vector<const Content*>& contents) {
  std::unique_lock lock(mutex_);
  for (const std::optional<Content>* each : {&content_, &in_flight_})
    if (*each) contents.push_back(&**each);
  return lock;
}

}  // namespace pkv::store
