// The thread that writes contents to a store. It runs at a low priority, because steps are more
// urgent: what it writes is useful later, if at all.
#pragma once

#include "engine/store/item_format.h"
#include "engine/store/queue.h"
#include "engine/store/store_calls.h"
#include "engine/store/worker.h"

namespace pkv::store {

class Writer {
 public:
  Writer(const ItemFormat& format, StoreCalls& store, Queue& queue)
      : format_(format), store_(store), queue_(queue) {}

  // See Store::enqueue. Also returns false if there is no memory for the queue or for a thread.
  bool enqueue(Content content, Writing why) noexcept;
  // The thread and the content that it works on, for release_for().
  Worker& worker() { return worker_; }
  void report(pkv_store_stats& stats) const noexcept;

 private:
  void run() noexcept;
  void write_next(uint64_t& written);
  using Stored = std::vector<unsigned char>;  // by key: 1 if the store lacks nothing of it
  Stored write_batch(std::span<const ContentKey> keys, prefix::Tokens text, size_t first);
  uint64_t count_written(const Stored& stored, uint64_t first, uint64_t& lost_before) const;
  void put(std::span<const ContentKey> keys, std::span<pkv_store_item> items,
           std::span<const size_t> indices, Stored& stored);
  using Copies = std::vector<std::vector<memory::BlockIo::Copy>>;  // by group
  void retain_in_flight(size_t g, memory::Block block);
  bool read_opaque(const Copies& copies);
  Stored find_stored(std::span<const ContentKey> keys, uint64_t text_items);
  void throttle_during_steps(std::chrono::nanoseconds worked);

  const ItemFormat& format_;
  StoreCalls& store_;
  Queue& queue_;
  // How many steps had ended when the writer looked last, and when it last saw this number change.
  uint64_t steps_seen_ = 0;
  std::chrono::steady_clock::time_point last_step_{};
  Count written_items_, written_bytes_, known_items_;
  Worker worker_;  // comes last, so that its thread ends first
};

}  // namespace pkv::store
