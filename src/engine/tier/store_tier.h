// The tier that keeps blocks in a pkv_store. A session that ends or is suspended passes its content
// to the queue, and the writer puts the blocks into the store. When a text is requested, the reader
// gets them back. Writer and reader have a thread each, so that no step waits for the store. If the
// cache runs out of blocks nevertheless, give_way() releases all that the three hold.
//
// Lock order: reader, writer, queue. Each locks only itself, and calls only those after it.
#pragma once

#include "engine/tier/queue.h"
#include "engine/tier/reader.h"
#include "engine/tier/writer.h"

namespace pkv::tier {

class StoreTier final : public Tier {
 public:
  // The config must have been checked and have the size of this build. Throws UNSUPPORTED, OVERFLOW
  // or bad_alloc. The store stays the caller's to close until own_store().
  StoreTier(Cache& cache, const pkv_store_config& config);
  // Takes over the store, which is then closed with the tier.
  void own_store() noexcept { store_.own(); }
  // Writes all queued content first.
  ~StoreTier() override;

  void write(Content content) noexcept override { writer_.write(std::move(content)); }
  uint64_t give_way() noexcept override;
  void fetch(std::string_view salt, prefix::Tokens text) override;
  void inspect(const std::function<void(std::span<const Content* const>)>& look) override;

  Queue& queue() { return queue_; }
  Reader& reader() { return reader_; }
  pkv_store_stats stats() const;

 private:
  const ItemFormat format_;
  StoreCalls store_;
  const std::chrono::milliseconds max_wait_;
  LogInterval dropped_interval_{std::chrono::minutes(1)};
  Queue queue_;
  Writer writer_;
  Reader reader_;
};

}  // namespace pkv::tier
