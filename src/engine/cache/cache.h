// A cache: the memory of every layer group, the prefix index and the store, the kernels of this
// processor and the threads that run them. Sessions, batches and snapshots all refer to one.
#pragma once

#include <pagedkv/attention.h>

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/count.h"
#include "base/logger.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "engine/attention/scratch_pool.h"
#include "engine/cache/config.h"
#include "engine/cache/store.h"
#include "engine/memory/block_io.h"
#include "engine/memory/group.h"
#include "engine/memory/pages.h"
#include "engine/prefix/index.h"
#include "kernels/kernels.h"

namespace pkv {

// Where a layer of the model is stored.
struct LayerPlace {
  uint32_t group;
  uint32_t layer;  // its index within the group
};

// What sessions and batches count for the statistics of their cache.
struct Counters {
  Count tokens;  // committed ones of the sessions that are open now
  Count copied_blocks, commits, aborts;
  Count committed_tokens;  // over all time
  Count opened_sessions, suspensions;
  Count suspended_sessions, sessions, snapshots, batches;  // at the moment
};

// Counts an object as long as it lives.
class Counted {
 public:
  explicit Counted(Count& count) noexcept : count_(count) { count_ += 1; }
  ~Counted() { count_ -= 1; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  Count& count_;
};

class Cache {
 public:
  // `config` comes from check_config(); `allocator` and `logger` may be NULL. Throws OUT_OF_MEMORY,
  // bad_alloc.
  Cache(const CacheConfig& config, const pkv_allocator* allocator, const pkv_logger* logger);
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  const CacheConfig& config() const { return config_; }
  HookMemory& memory() { return memory_; }
  std::span<const std::unique_ptr<memory::Group>> groups() const { return groups_; }
  memory::Group& group(uint32_t index) const;  // throws OUT_OF_RANGE
  // NULL unless the groups share one memory.
  memory::Pages* pages() const { return pages_.get(); }
  LayerPlace place(uint32_t layer) const;  // throws OUT_OF_RANGE
  const kernels::Table& kernels() const { return kernels_; }
  Workers& workers() { return workers_; }
  attention::ScratchPool& scratch() { return scratch_; }
  const Logger& logger() const { return logger_; }
  Counters& counters() { return counters_; }
  const Counters& counters() const { return counters_; }
  prefix::Index* prefix() const { return prefix_.get(); }  // NULL without an index
  // Copies blocks of opaque groups; NULL if there are none.
  memory::BlockIo* block_io() { return block_io_ ? &*block_io_ : nullptr; }
  // Returns how many blocks of a group are being copied now.
  uint64_t moving(size_t group) const { return block_io_ ? block_io_->moving(group) : 0; }
  // Returns how many blocks of a group the index would give up.
  uint64_t evictable(size_t group) const { return prefix_ ? prefix_->evictable(group) : 0; }
  void set_store(std::unique_ptr<Store> store) { store_ = std::move(store); }
  Store* store() const { return store_.get(); }  // NULL without a store

  // Tells the logger that blocks are short and cached ones were evicted; at most once a minute.
  void log_eviction() const;
  // Tells the logger why a thread of the store could not copy blocks; at most once a minute.
  void log_failed_copy(const char* sentence) const noexcept;
  // Tells the logger that a pin ended early; at most once a minute.
  void log_yielded_pin() const;
  // Counts a suspension for the logger. It is fruitless if no step was committed since the session
  // was resumed: a scheduler that resumes in the step that preempted does so forever.
  void log_suspension(bool fruitless) const noexcept;

  // Everything but the numbers of open objects, which only the API knows.
  pkv_cache_stats stats() const;
  // Describes the memory of one layer for pkv_kv_attend() and for kernels of the caller. Throws
  // OUT_OF_RANGE, and UNSUPPORTED unless storage is INTERNAL.
  pkv_kv_view kv_view(uint32_t layer) const;

 private:
  // The memory of K and V: of each group, or of all.
  std::vector<const memory::Slab*> slabs() const;
  void prefault();
  void log_shortcomings() const;

  HookMemory memory_;
  const Logger logger_;
  const CacheConfig config_;
  const kernels::Table& kernels_;
  Workers workers_;
  std::vector<LayerPlace> places_;  // by layer of the model
  std::unique_ptr<memory::Pages> pages_;
  std::optional<memory::BlockIo> block_io_;
  std::vector<std::unique_ptr<memory::Group>> groups_;
  std::unique_ptr<prefix::Index> prefix_;
  attention::ScratchPool scratch_;
  Counters counters_;
  mutable LogInterval eviction_interval_{std::chrono::minutes(1)};
  mutable LogInterval copy_interval_{std::chrono::minutes(1)};
  mutable LogInterval pin_interval_{std::chrono::minutes(1)};
  mutable std::atomic<uint32_t> fruitless_suspensions_{0};  // in a row
  // The store comes last, so that it is destroyed first: its threads use all of the above.
  std::unique_ptr<Store> store_;
};

}  // namespace pkv
