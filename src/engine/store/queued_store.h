// The store of a cache: a pkv_store behind a queue. A session that ends or is suspended passes its
// content to the queue, and the writer puts the blocks into the pkv_store. When a text is
// requested, the reader gets them back. Writer and reader have a thread each, so that no step waits
// for the store. If the cache runs out of blocks, release_for() releases what the three hold.
//
// Lock order: reader, writer, queue, index and pools. Each locks only itself, and calls only those
// after it; but the reader allocates blocks while its content is locked, which may call
// release_for(). That locks the others, and never the reader that called it. While requests are
// locked, nothing else is.
#pragma once

#include "engine/store/queue.h"
#include "engine/store/reader.h"
#include "engine/store/writer.h"

namespace pkv::store {

class QueuedStore final : public Store {
 public:
  // The config must have been checked and have the size of this build. Throws UNSUPPORTED, OVERFLOW
  // or bad_alloc. The pkv_store stays the caller's to close until own_store().
  QueuedStore(Cache& cache, const pkv_store_config& config);
  // Takes over the pkv_store, which is then closed with this object.
  void own_store() noexcept { store_.own(); }
  ~QueuedStore() override { stop(); }

  bool enqueue(Content content, Writing why) noexcept override {
    return writer_.enqueue(std::move(content), why);
  }
  bool prefetch(std::string_view salt, prefix::Tokens text, uint8_t retention,
                uint64_t duration_ms) override {
    return reader_.prefetch(salt, text, retention, duration_ms);
  }
  bool reads_pause() const noexcept override { return store_.reading().pauses(); }
  bool writes_pause() const noexcept override { return store_.writing().pauses(); }
  uint64_t release_for(const Choose& choose) override;
  bool waits() const noexcept override { return max_wait_.count() > 0 && !reads_pause(); }
  void fetch(std::string_view salt, prefix::Tokens text) override;
  void inspect(const std::function<void(std::span<const Content* const>)>& look) override;
  void stop() noexcept override;

  Queue& queue() { return queue_; }
  Reader& reader() { return reader_; }
  pkv_store_stats stats() const;

 private:
  // Releases what choose() names of all contents. Returns whether one of them was not written yet.
  bool release_chosen(const Choose& choose);
  void log_dropped() noexcept;

  const ItemFormat format_;
  StoreCalls store_;
  const std::chrono::milliseconds max_wait_;
  LogInterval dropped_interval_{std::chrono::minutes(1)};
  Queue queue_;
  Writer writer_;
  Reader reader_;
};

}  // namespace pkv::store
