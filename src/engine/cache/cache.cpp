// Builds a cache from its config, and reports its statistics and memory.
#include "engine/cache/cache.h"

#include <algorithm>

#include "base/checked.h"
#include "base/os.h"
#include "base/status.h"
#include "engine/rows/kv_view.h"

namespace pkv {

Cache::Cache(const CacheConfig& config, const pkv_allocator* allocator, const pkv_logger* logger)
    : memory_(allocator),
      logger_(logger),
      config_(config),
      kernels_(kernels::select(config.isa)),
      workers_(config.threads, config.runner, &logger_),
      places_(config.layers),
      scratch_(memory_) {
  if (config_.pages)
    pages_ =
        std::make_unique<memory::Pages>(*config_.pages, config_.storage == PKV_STORAGE_INTERNAL,
                                        memory_, config_.huge_pages, config_.memory_directory);
  if (config_.block_io) block_io_.emplace(*config_.block_io, memory_, config_.groups.size());
  for (uint32_t g = 0; g < config_.groups.size(); g++) {
    const GroupConfig& group = config_.groups[g];
    groups_.push_back(std::make_unique<memory::Group>(
        group.shape.opaque() ? PKV_STORAGE_EXTERNAL : config_.storage, config_.layout, group.shape,
        config_.block_size, group.blocks, group.block_stride, memory_, config_.huge_pages,
        config_.memory_directory, pages_.get()));
    for (uint32_t i = 0; i < group.shape.layers; i++) places_[group.layer_indices[i]] = {g, i};
  }
  log_shortcomings();
  if (config_.prefix) prefix_ = std::make_unique<prefix::Index>(*config_.prefix, groups_, memory_);
  if (config_.prefault) prefault();
}

// The threads of the store call store() while they end, so it must still be there.
Cache::~Cache() {
  if (store_) store_->stop();
}

// Logs a warning about each thing that works, but not as well as the caller may expect.
void Cache::log_shortcomings() const {
  if (!logger_.listens()) return;
  uint64_t bytes = compute_sizes(config_, PKV_ALL_GROUPS).memory_bytes;
  for (const auto& group : groups_)
    if (group->opaque()) bytes -= group->layout.total_bytes();
  const uint64_t machine = os::physical_memory();
  const bool in_file = !config_.memory_directory.empty();
  if (memory_.is_system() && config_.storage != PKV_STORAGE_EXTERNAL && !in_file && bytes > machine)
    logger_.log(PKV_LOG_WARNING,
                "the blocks of this cache hold %llu MiB of keys and values, but the machine has "
                "%llu MiB of memory: give it fewer blocks",
                llu(bytes >> 20), llu(machine >> 20));
  const std::vector<const memory::Slab*> all = slabs();
  const bool small_pages =
      std::any_of(all.begin(), all.end(), [](const memory::Slab* slab) { return !slab->huge(); });
  if (memory_.is_system() && !in_file && config_.huge_pages == PKV_HUGE_PAGES_ADVISE && small_pages)
    logger_.log(PKV_LOG_WARNING,
                "the system offers no transparent huge pages; attention will be slower");
  if (config_.isa != PKV_ISA_AUTO) return;
  if (const char* const fall_back = kernels::describe_fall_back(kernels_); fall_back != nullptr)
    logger_.log(PKV_LOG_WARNING, "%s", fall_back);
}

void Cache::log_yielded_pin() const {
  if (!logger_.listens() || !pin_interval_.begin()) return;
  const auto figures = prefix_->figures();
  logger_.log(PKV_LOG_WARNING,
              "blocks are short: a call ended a pin to get some; %llu pins were ended so far, %llu "
              "tokens are still pinned",
              llu(figures.yielded), llu(figures.pinned * config_.block_size));
}

void Cache::log_eviction() const {
  if (!logger_.listens() || !eviction_interval_.begin()) return;
  const auto figures = prefix_->figures();
  logger_.log(
      PKV_LOG_INFO,
      "blocks are short: cached ones that nobody uses are evicted; %llu tokens were so far, "
      "%llu are still cached",
      llu(figures.evicted * config_.block_size), llu(figures.cached * config_.block_size));
}

void Cache::log_failed_copy(const char* sentence) const noexcept {
  if (logger_.listens() && copy_interval_.begin())
    logger_.log(PKV_LOG_WARNING, "%s; what the store would have got, or gave, is a miss", sentence);
}

void Cache::log_suspension(bool fruitless) const noexcept {
  constexpr uint32_t suspicious = 3;
  if (!fruitless)
    fruitless_suspensions_.store(0, std::memory_order_relaxed);
  else if (fruitless_suspensions_.fetch_add(1, std::memory_order_relaxed) + 1 == suspicious)
    logger_.log(PKV_LOG_WARNING,
                "sessions were resumed and suspended again %u times, and no step was committed in "
                "between: resume none in the step that preempted",
                suspicious);
}

std::vector<const memory::Slab*> Cache::slabs() const {
  if (pages_ && pages_->slab()) return {pages_->slab().get()};
  std::vector<const memory::Slab*> result;
  for (const auto& group : groups_)
    if (group->slab) result.push_back(group->slab.get());
  return result;
}

// Makes the system provide all pages of the slabs now, on all threads of the cache.
void Cache::prefault() {
  constexpr uint64_t range_bytes = uint64_t{32} << 20;
  for (const memory::Slab* slab : slabs()) {
    unsigned char* const data = slab->data();
    const uint64_t size = slab->size();
    workers_.for_each(ceil_div(size, range_bytes), [&](size_t i, unsigned) {
      os::populate(data + i * range_bytes, std::min(range_bytes, size - i * range_bytes));
    });
  }
}

memory::Group& Cache::group(uint32_t index) const {
  if (index >= groups_.size())
    fail(PKV_OUT_OF_RANGE, "group %u; the cache has %zu", index, groups_.size());
  return *groups_[index];
}

LayerPlace Cache::place(uint32_t layer) const {
  if (layer >= places_.size())
    fail(PKV_OUT_OF_RANGE, "layer %u; the cache has %zu", layer, places_.size());
  return places_[layer];
}

pkv_cache_stats Cache::stats() const {
  pkv_cache_stats stats{};
  stats.struct_size = sizeof stats;
  for (const auto& group : groups_) {
    stats.filled_slots += group->pool.stats().filled_slots;
    if (const auto* bounds = group->bounds()) stats.mapped_bytes += bounds->bytes();
  }
  for (const memory::Slab* slab : slabs()) stats.mapped_bytes += slab->size();
  if (block_io_) stats.block_io_failures = block_io_->failures();
  for (size_t g = 0; g < groups_.size(); g++) stats.block_io_blocks += moving(g);
  for (size_t g = 0; g < groups_.size(); g++) stats.evictable_blocks += evictable(g);
  if (pages_) {
    stats.pages = pages_->cut().pages;
    stats.free_pages = pages_->free_pages();
  }
  stats.sessions = static_cast<uint32_t>(counters_.sessions);
  stats.snapshots = static_cast<uint32_t>(counters_.snapshots);
  stats.batches = static_cast<uint32_t>(counters_.batches);
  stats.tokens = counters_.tokens;
  stats.copied_blocks = counters_.copied_blocks;
  stats.commits = counters_.commits;
  stats.committed_tokens = counters_.committed_tokens;
  stats.suspended_sessions = counters_.suspended_sessions;
  stats.suspensions = counters_.suspensions;
  return stats;
}

pkv_kv_view Cache::kv_view(uint32_t layer) const {
  const LayerPlace at = place(layer);
  const memory::Group& group = *groups_[at.group];
  memory::check_keeps_rows(group, "kv_view");
  if (!group.slab) fail(PKV_UNSUPPORTED, "only storage INTERNAL has blocks to view");
  pkv_kv_view view =
      rows::public_view(group.layout.view(group.slab->data(), at.layer), group.pool.blocks());
  view.rotation = group.shape.rotations.kind;
  view.rotation_matrices = group.shape.rotations.shown();
  return view;
}

}  // namespace pkv
