// Combines the queue, the writer and the reader.
#include "engine/store/queued_store.h"

#include <algorithm>

#include "base/status.h"

namespace pkv::store {

QueuedStore::QueuedStore(Cache& cache, const pkv_store_config& config)
    : format_(cache, config),
      store_(*config.store, cache.logger()),
      max_wait_(config.wait_ms),
      queue_(cache.config().max_queued_blocks != 0 ? cache.config().max_queued_blocks
                                                   : memory::largest_pool(cache.groups()) / 4 + 1),
      writer_(format_, store_, queue_),
      reader_(format_, store_) {}

// Both threads are told to end before either is joined.
void QueuedStore::stop() noexcept {
  queue_.stop();
  reader_.stop();
  writer_.worker().join();
  reader_.worker().join();
}

// The logger may wait, so it is called without the locks.
uint64_t QueuedStore::release_for(const Choose& choose) {
  const uint64_t taken = queue_.taken() + reader_.taken();
  if (release_chosen(choose)) log_dropped();
  return taken;
}

// What was read goes first, since the store has it, then what waits longest to be written, and last
// what is being written. The reader's own thread needs blocks for its content, and has the lock.
bool QueuedStore::release_chosen(const Choose& choose) {
  std::vector<prefix::Releasable> releasables, written;
  std::unique_lock<std::mutex> reading;
  if (!reader_.worker().is_caller()) reading = reader_.worker().lock_to_release(releasables);
  const size_t read = releasables.size();
  const auto writing = writer_.worker().lock_to_release(written);
  const auto queueing = queue_.lock(releasables);
  const size_t queued = releasables.size() - read;
  releasables.insert(releasables.end(), written.begin(), written.end());
  std::vector<size_t> from_queue;
  const std::vector<size_t> chosen = choose(releasables);
  for (const size_t place : chosen)
    if (place < read)
      reader_.worker().release();
    else if (place < read + queued)
      from_queue.push_back(place - read);
    else
      writer_.worker().release();
  std::sort(from_queue.begin(), from_queue.end());
  queue_.release(from_queue);
  return std::ranges::any_of(chosen, [&](size_t place) { return place >= read; });
}

void QueuedStore::log_dropped() noexcept {
  const Logger& logger = format_.cache().logger();
  if (logger.listens() && dropped_interval_.begin())
    logger.log(PKV_LOG_WARNING,
               "blocks are short: some were dropped before they were written to the store; %llu "
               "tokens so far",
               llu(queue_.dropped() * format_.cache().config().block_size));
}

void QueuedStore::fetch(std::string_view salt, prefix::Tokens text) {
  const Cache& cache = format_.cache();
  if (!waits() || cache.prefix()->cached(salt, text) == text.size() / cache.config().block_size)
    return;
  try {
    reader_.prefetch(salt, text, prefix::normal_retention, 0);
  } catch (const Error& error) {  // without a thread, memory alone is matched
    return cache.log_failed_copy(error.text);
  }
  reader_.wait(salt, text, std::chrono::steady_clock::now() + max_wait_);
}

pkv_store_stats QueuedStore::stats() const {
  const uint64_t block_size = format_.cache().config().block_size;
  pkv_store_stats stats{};
  stats.struct_size = sizeof stats;
  stats.queued_tokens = queue_.unwritten() * block_size;
  stats.down = reads_pause() || writes_pause();
  stats.lost_tokens = queue_.dropped() * block_size;
  stats.failures = store_.failures();
  writer_.report(stats);
  reader_.report(stats);
  return stats;
}

void QueuedStore::inspect(const std::function<void(std::span<const Content* const>)>& look) {
  std::vector<const Content*> contents;
  const auto reading = reader_.worker().freeze(contents);
  const auto writing = writer_.worker().freeze(contents);
  const auto queued = queue_.freeze(contents);
  look(contents);
}

}  // namespace pkv::store
