// A cache: the memory of every layer group, the kernels that read it and the threads that run them.
#pragma once

#include <pagedkv/attention.h>

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "base/memory.h"
#include "base/parallel.h"
#include "engine/attention/scratch.h"
#include "engine/cache/config.h"
#include "engine/cache/tier.h"
#include "engine/memory/group.h"
#include "engine/prefix/index.h"
#include "kernels/kernels.h"

namespace pkv {

// Where a layer of the model lives.
struct LayerPlace {
  uint32_t group;
  uint32_t layer;  // within the group
};

// What sessions, batches and snapshots of the cache count as they come and go.
struct Counters {
  std::atomic<uint64_t> tokens{0};  // committed, of open sessions
  std::atomic<uint64_t> copied_blocks{0};
  std::atomic<uint64_t> commits{0};
  std::atomic<uint64_t> aborts{0};
  std::atomic<uint64_t> committed_tokens{0};
  std::atomic<uint64_t> opened_sessions{0};
  std::atomic<uint64_t> suspended_sessions{0};  // now
  std::atomic<uint64_t> suspensions{0};
};

class Cache {
 public:
  Cache(const CacheConfig& config, const pkv_allocator* allocator, const pkv_logger* logger);
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  const CacheConfig& config() const { return config_; }
  HookMemory& memory() { return memory_; }
  std::span<const std::unique_ptr<memory::Group>> groups() const { return groups_; }
  memory::Group& group(uint32_t index) const;  // throws OUT_OF_RANGE
  LayerPlace place(uint32_t layer) const;      // throws OUT_OF_RANGE
  const kernels::Table& kernels() const { return kernels_; }
  Workers& workers() { return workers_; }
  attention::ScratchPool& scratch() { return scratch_; }
  Counters& counters() { return counters_; }
  prefix::Index* prefix() const { return prefix_.get(); }  // nullptr: there is none
  void set_tier(std::unique_ptr<Tier> tier) { tier_ = std::move(tier); }
  Tier* tier() const { return tier_.get(); }  // nullptr: there is none

  pkv_cache_stats stats() const;
  // The memory of one layer as a caller sees it. Throws UNSUPPORTED, OUT_OF_RANGE.
  pkv_kv_view kv_view(uint32_t layer) const;

 private:
  void prefault();
  void warn(const char* message) const;

  HookMemory memory_;
  const pkv_logger logger_;
  const CacheConfig config_;
  const kernels::Table& kernels_;
  Workers workers_;
  std::vector<LayerPlace> places_;
  std::vector<std::unique_ptr<memory::Group>> groups_;
  std::unique_ptr<prefix::Index> prefix_;
  attention::ScratchPool scratch_;
  Counters counters_;
  std::unique_ptr<Tier> tier_;  // uses all of the above until it ends
};

}  // namespace pkv
