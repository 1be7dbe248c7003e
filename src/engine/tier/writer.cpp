// The common parts of the tier (construction, give_way, statistics), and the thread that writes.
#include <string.h>

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/memory.h"
#include "base/os.h"
#include "base/status.h"
#include "engine/file/file.h"
#include "engine/tier/store_tier.h"

namespace pkv::tier {

namespace {

std::vector<unsigned char> bytes_of(const void* data, uint64_t size) {
  const auto* const bytes = static_cast<const unsigned char*>(data);
  return size == 0 ? std::vector<unsigned char>{} : std::vector<unsigned char>(bytes, bytes + size);
}

constexpr size_t max_stored_keys = size_t{1} << 20;
constexpr uint64_t default_buffer_bytes = uint64_t{4} << 20;

}  // namespace

StoreTier::StoreTier(Cache& cache, const pkv_store_config& config)
    : cache_(cache),
      secret_(
          {static_cast<const unsigned char*>(config.key), static_cast<size_t>(config.key_size)}),
      model_(hash_model(cache.config().block_size, file::saved_groups(cache.config()),
                        bytes_of(config.fingerprint, config.fingerprint_size), secret_)),
      max_wait_(config.wait_ms),
      max_queued_(config.queue_blocks != 0 ? config.queue_blocks
                                           : memory::largest_pool(cache.groups()) / 4 + 1),
      batch_positions_(1),
      store_(*config.store, cache.logger()) {
  if (!secret_.empty()) file::check_ciphers();
  for (const auto& each : cache.groups()) {
    item_bytes_.push_back(block_value_bytes(*each));
    position_bytes_ += item_bytes_.back();
  }
  const uint64_t positions =
      (config.buffer_bytes != 0 ? config.buffer_bytes : default_buffer_bytes) / position_bytes_;
  batch_positions_ =
      static_cast<size_t>(std::clamp<uint64_t>(positions, 1, memory::largest_pool(cache.groups())));
}

StoreTier::~StoreTier() {
  {
    const std::lock_guard lock(queue_mutex_);
    stopping_ = true;
    for (ReadRequest& request : reads_) request.cancelled = true;
  }
  work_queued_.notify_all();
  if (writer_.joinable()) writer_.join();
  if (reader_.joinable()) reader_.join();
  explicit_bzero(model_.data(), model_.size());
}

void StoreTier::start(std::thread& thread, std::vector<unsigned char>& buffer,
                      void (StoreTier::*run)() noexcept) {
  if (thread.joinable()) return;
  buffer.resize(batch_positions_ * position_bytes_);
  try {
    thread = std::thread(run, this);
  } catch (const std::system_error& error) {
    fail(PKV_NO_MEMORY, "a thread for the store could not be started: %s (error %d)", error.what(),
         error.code().value());
  }
}

std::vector<ContentKey> StoreTier::keys_of(std::string_view salt, prefix::Tokens text,
                                           uint64_t from, uint64_t to) const {
  std::vector<ContentKey> keys;
  keys.reserve((to - from) * groups());
  BlockKeys chain(model_, salt);
  for (uint64_t i = 0; i < to; i++) {
    chain.advance(text.subspan(i * block_size(), block_size()));
    for (size_t g = 0; g < groups() && i >= from; g++)
      keys.push_back(chain.key(static_cast<uint32_t>(g)));
  }
  return keys;
}

uint64_t StoreTier::give_way() noexcept {
  const uint64_t taken = taken_.load(std::memory_order_acquire);
  bool any = false;
  {
    const std::lock_guard lock(queue_mutex_);
    any = !writes_.empty();
    writes_.clear();  // locked, so that inspect() sees every block that is held
    dropped_.fetch_add(queued_blocks_, std::memory_order_relaxed);
    queued_blocks_ = 0;
  }
  giving_way_.fetch_add(1, std::memory_order_relaxed);
  const auto let_go = [&](std::mutex& mutex, std::optional<Content>& content) {
    const std::lock_guard lock(mutex);
    any = any || content.has_value();
    content.reset();
  };
  let_go(writer_mutex_, writer_content_);
  // If the reader itself comes here, it is allocating blocks for its content.
  if (std::this_thread::get_id() != reader_id_.load(std::memory_order_relaxed))
    let_go(reader_mutex_, reader_content_);
  giving_way_.fetch_sub(1, std::memory_order_relaxed);
  work_done_.notify_all();
  if (any && cache_.logger().listens() && dropped_interval_.begin())
    cache_.logger().log(PKV_LOG_WARNING,
                        "blocks are so short that some left before they were written to the store; "
                        "%llu block positions were dropped so far",
                        (unsigned long long)dropped_.load(std::memory_order_relaxed));
  return taken;
}

// A thread that unlocks a mutex and locks it again at once would starve the threads that wait for
// it. The writer and the reader hold a lock only for a short time, so give_way() waits only that
// long.
void StoreTier::yield_to_give_way() const noexcept {
  while (giving_way_.load(std::memory_order_relaxed) > 0) std::this_thread::yield();
}

uint64_t StoreTier::flush(Clock::time_point until) noexcept {
  std::unique_lock lock(queue_mutex_);
  flushing_++;
  work_queued_.notify_all();
  work_done_.wait_until(lock, until, [&] { return writes_.empty() && writing_blocks_ == 0; });
  flushing_--;
  return queued_blocks_ + writing_blocks_;
}

pkv_store_stats StoreTier::stats() const {
  pkv_store_stats stats{};
  stats.struct_size = sizeof stats;
  {
    const std::lock_guard lock(queue_mutex_);
    stats.queued_blocks = queued_blocks_ + writing_blocks_;
  }
  stats.down = store_.down();
  stats.dropped_blocks = dropped_.load(std::memory_order_relaxed);
  stats.written_items = written_.load(std::memory_order_relaxed);
  stats.written_bytes = written_bytes_.load(std::memory_order_relaxed);
  stats.known_items = known_items_.load(std::memory_order_relaxed);
  stats.asked_items = asked_.load(std::memory_order_relaxed);
  stats.read_items = read_.load(std::memory_order_relaxed);
  stats.read_bytes = read_bytes_.load(std::memory_order_relaxed);
  stats.corrupt_items = corrupt_.load(std::memory_order_relaxed);
  stats.failures = store_.failures();
  return stats;
}

void StoreTier::inspect(const std::function<void(std::span<const Content* const>)>& look) {
  // In the order that store_tier.h prescribes.
  const std::scoped_lock reading(reader_mutex_);
  const std::scoped_lock queue(queue_mutex_);
  const std::scoped_lock writing(writer_mutex_);
  std::vector<const Content*> contents;
  for (const Content& content : writes_) contents.push_back(&content);
  if (writer_content_) contents.push_back(&*writer_content_);
  if (reader_content_) contents.push_back(&*reader_content_);
  look(contents);
}

// ---- Writing ------------------------------------------------------------------------------------

void StoreTier::write(Content content) noexcept {
  const uint64_t blocks = content.hold().depth();
  if (blocks == 0) return;
  content.tokens().resize(blocks * block_size());
  for (memory::Sequence& sequence : content.sequences()) sequence.trim(blocks * block_size());
  const std::lock_guard lock(queue_mutex_);
  if (stopping_ || queued_blocks_ >= max_queued_) {
    dropped_.fetch_add(blocks, std::memory_order_relaxed);
    return;
  }
  try {
    start(writer_, write_buffer_, &StoreTier::run_writer);
    writes_.push_back(std::move(content));
    taken_.fetch_add(1, std::memory_order_release);
  } catch (...) {  // no memory for the queue or for a thread
    dropped_.fetch_add(blocks, std::memory_order_relaxed);
    return;
  }
  queued_blocks_ += blocks;
  work_queued_.notify_all();
}

// Runs at a low priority: steps are more urgent than what is written, which is of use later, if at
// all.
void StoreTier::run_writer() noexcept {
  os::lower_priority();
  for (;;) {
    std::string salt;
    std::vector<int32_t> text;
    {
      std::unique_lock lock(queue_mutex_);
      work_queued_.wait(lock, [&] { return stopping_ || !writes_.empty(); });
      if (writes_.empty()) return;
      const std::lock_guard content_lock(writer_mutex_);
      writer_content_.emplace(std::move(writes_.front()));
      writes_.pop_front();
      writing_blocks_ = writer_content_->hold().depth();
      queued_blocks_ -= writing_blocks_;
      try {
        salt = writer_content_->hold().salt();
        text.assign(writer_content_->tokens().begin(), writer_content_->tokens().end());
      } catch (const std::bad_alloc&) {
        text.clear();
      }
    }
    uint64_t dropped = text.empty() ? writing_blocks_ : 0;
    try {
      write_content(salt, text);
    } catch (const std::bad_alloc&) {
      dropped = text.size() / block_size();
    }
    finish_writing(dropped);
  }
}

void StoreTier::finish_writing(uint64_t dropped) noexcept {
  dropped_.fetch_add(dropped, std::memory_order_relaxed);
  {
    const std::lock_guard lock(writer_mutex_);
    writer_content_.reset();
  }
  {
    const std::lock_guard lock(queue_mutex_);
    writing_blocks_ = 0;
  }
  work_done_.notify_all();
}

void StoreTier::write_content(const std::string& salt, const std::vector<int32_t>& text) {
  const size_t total = text.size() / block_size();
  const std::vector<ContentKey> keys = keys_of(salt, text, 0, total);
  for (size_t first = 0; first < total;) {
    const size_t count = std::min(batch_positions_, total - first);
    const std::chrono::nanoseconds begin = os::thread_time();
    const size_t stored = write_batch(std::span(keys).subspan(first * groups(), count * groups()),
                                      text, first, count);
    if (stored < count) {
      dropped_.fetch_add(total - first - stored, std::memory_order_relaxed);
      return;
    }
    first += count;
    throttle_during_steps(os::thread_time() - begin);
  }
}

// Sleeps so that the writer works a tenth of the time while steps run, since a step waits for the
// slowest of its threads. Does not sleep while a caller of flush() waits for the writer.
void StoreTier::throttle_during_steps(std::chrono::nanoseconds worked) {
  const uint64_t ended = cache_.counters().commits + cache_.counters().aborts;
  const Clock::time_point now = Clock::now();
  if (std::exchange(steps_seen_, ended) != ended) last_step_ = now;
  if (now - last_step_ > std::chrono::seconds(1)) return;
  std::unique_lock lock(queue_mutex_);
  work_queued_.wait_for(lock, 9 * worked, [&] { return stopping_ || flushing_ > 0; });
}

namespace {

pkv_store_item item_of(const ContentKey& key, void* data, uint64_t size) {
  pkv_store_item item{};
  std::copy(key.begin(), key.end(), item.key);
  item.data = data;
  item.size = size;
  return item;
}

}  // namespace

// Sets stored[i] for each key that the store has, from memory or by asking the store.
void StoreTier::find_stored(std::span<const ContentKey> keys, std::vector<unsigned char>& stored) {
  Items asked;
  std::vector<size_t> asked_indices;
  {
    const std::lock_guard lock(queue_mutex_);
    for (size_t i = 0; i < keys.size(); i++) {
      stored[i] = stored_keys_.contains(key_prefix(keys[i]));
      if (stored[i]) continue;
      asked.push_back(item_of(keys[i], nullptr, 0));
      asked_indices.push_back(i);
    }
  }
  store_.probe(asked);
  for (size_t i = 0; i < asked.size(); i++)
    stored[asked_indices[i]] = asked[i].size == item_bytes_[asked_indices[i] % groups()];
}

// Writes a batch of positions. Returns `count` if all are in the store now, and 0 if the content
// was released or the store failed.
size_t StoreTier::write_batch(std::span<const ContentKey> keys, prefix::Tokens text, size_t first,
                              size_t count) {
  std::vector<unsigned char> stored(keys.size());
  find_stored(keys, stored);
  Items items;
  unsigned char* at = write_buffer_.data();
  for (size_t i = 0; i < keys.size(); i++) {
    const size_t position = first + i / groups(), g = i % groups();
    yield_to_give_way();
    {
      // Locked for one block at a time, so that give_way() waits only for that.
      const std::lock_guard lock(writer_mutex_);
      if (!writer_content_) return 0;
      const memory::Sequence& sequence = writer_content_->sequences()[g];
      known_items_.fetch_add(stored[i], std::memory_order_relaxed);
      if (stored[i] != 0 || sequence.blocks()[position] == memory::no_block) continue;
      pack_block_value(cache_.kernels(), {&group(g), sequence.ids()}, position, keys[i],
                       text.subspan(position * block_size(), block_size()), at);
    }
    seal_block_value(group(g), keys[i], secret_, at);
    items.push_back(item_of(keys[i], at, item_bytes_[g]));
    at += item_bytes_[g];
    stored[i] = 1;  // if put() succeeds
  }
  const uint64_t written = store_.put(items);
  written_.fetch_add(written, std::memory_order_relaxed);
  for (size_t i = 0; i < written; i++)
    written_bytes_.fetch_add(items[i].size, std::memory_order_relaxed);
  if (written < items.size()) return 0;
  const std::lock_guard lock(queue_mutex_);
  if (stored_keys_.size() + keys.size() > max_stored_keys) stored_keys_.clear();
  for (size_t i = 0; i < keys.size(); i++)
    if (stored[i] != 0) stored_keys_.insert(key_prefix(keys[i]));
  return count;
}

}  // namespace pkv::tier
