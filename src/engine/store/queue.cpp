// Passes contents from sessions to the writer.
#include "engine/store/queue.h"

#include <utility>

namespace pkv::store {

bool Queue::push(Content content, Writing why) {
  const uint64_t blocks = content.hold().depth();
  const std::lock_guard lock(mutex_);
  const uint64_t most = why == Writing::for_hint ? max_blocks_ / 2 + 1 : max_blocks_;
  if (stopping_ || queued_ >= most) return false;
  contents_.push_back(std::move(content));
  taken_.fetch_add(1, std::memory_order_release);
  queued_ += blocks;
  changed_.notify_all();
  return true;
}

void Queue::count_dropped(uint64_t blocks) noexcept { dropped_ += blocks; }

uint64_t Queue::flush(std::chrono::steady_clock::time_point until) noexcept {
  std::unique_lock lock(mutex_);
  flushing_++;
  changed_.notify_all();
  written_.wait_until(lock, until, [&] { return contents_.empty() && writing_ == 0; });
  flushing_--;
  return queued_ + writing_;
}

std::unique_lock<std::mutex> Queue::lock(std::vector<prefix::Releasable>& releasables) {
  std::unique_lock lock(mutex_);
  for (Content& content : contents_) releasables.push_back({content.releasable()});
  return lock;
}

void Queue::release(std::span<const size_t> places) noexcept {
  size_t place = 0;
  for (auto content = contents_.begin(); !places.empty(); place++) {
    const auto next = std::next(content);
    if (place == places.front()) {
      const uint64_t blocks = content->hold().depth();
      queued_ -= blocks;
      count_dropped(blocks);
      contents_.erase(content);
      places = places.subspan(1);
    }
    content = next;
  }
  written_.notify_all();
}

void Queue::stop() noexcept {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
}

bool Queue::wait() noexcept {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopping_ || !contents_.empty(); });
  return !contents_.empty();
}

void Queue::pop(std::optional<Content>& to) noexcept {
  const std::lock_guard lock(mutex_);
  if (contents_.empty()) return;
  to.emplace(std::move(contents_.front()));
  contents_.pop_front();
  writing_ = to->hold().depth();
  queued_ -= writing_;
}

void Queue::finish(uint64_t written) noexcept {
  const std::lock_guard lock(mutex_);
  count_dropped(std::exchange(writing_, 0) - written);
  written_.notify_all();
}

void Queue::pause(std::chrono::nanoseconds time) noexcept {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [&] { return stopping_ || flushing_ > 0; });
}

uint64_t Queue::unwritten() const noexcept {
  const std::lock_guard lock(mutex_);
  return queued_ + writing_;
}

std::unique_lock<std::mutex> Queue::freeze(std::vector<const Content*>& contents) {
  std::unique_lock lock(mutex_);
  for (const Content& content : contents_) contents.push_back(&content);
  return lock;
}

}  // namespace pkv::store
