#include "engine/cache.h"

#include <algorithm>
#include <cstdio>

#include "base/checked.h"
#include "base/os.h"
#include "engine/tier.h"

namespace pkv {

Cache::Cache(const CacheConfig& config, const pkv_allocator* allocator, const pkv_logger* logger)
    : memory_(allocator),
      logger_(logger != nullptr ? *logger : pkv_logger{}),
      config_(config),
      kernels_(select_kernels(config.isa)),
      workers_(config.threads, config.runner),
      places_(config.layers),
      scratch_(memory_) {
  for (uint32_t g = 0; g < config_.groups.size(); g++) {
    const GroupConfig& group = config_.groups[g];
    groups_.push_back(std::make_unique<Group>(config_.storage, config_.layout, group.shape,
                                              config_.block_size, group.blocks, memory_,
                                              config_.huge_pages));
    for (uint32_t i = 0; i < group.shape.layers; i++) places_[group.layer_indices[i]] = {g, i};
    const auto& slab = groups_.back()->slab;
    if (slab && memory_.is_system() && config_.huge_pages == PKV_HUGE_PAGES_ADVISE && !slab->huge())
      warn("the system offers no transparent huge pages; attention will be slower");
  }
  if (config_.prefix)
    prefix_ =
        std::make_unique<PrefixIndex>(config_.prefix_config, config_.block_size, groups_, memory_);
  if (config_.prefault) prefault();
}

Cache::~Cache() = default;

Tier& Cache::start_tier(const pkv_store_config& config) {
  tier_ = std::make_unique<Tier>(*this, config);
  return *tier_;
}

void Cache::warn(const char* message) const {
  if (logger_.log == nullptr) return;
  HookScope scope;
  logger_.log(logger_.user, PKV_LOG_WARNING, message);
}

void Cache::prefault() {
  constexpr uint64_t piece = uint64_t{32} << 20;
  for (const auto& group : groups_) {
    if (!group->slab) continue;
    unsigned char* const data = group->slab->data();
    const uint64_t size = group->slab->size();
    workers_.for_each(ceil_div(size, piece), [&](size_t i, unsigned) {
      os::populate(data + i * piece, std::min(piece, size - i * piece));
    });
  }
}

Group& Cache::group(uint32_t index) const {
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
    const PoolStats pool = group->pool.stats();
    stats.blocks += pool.blocks;
    stats.free_blocks += pool.free;
    stats.used_blocks += pool.used;
    stats.used_blocks_peak += pool.used_peak;
    stats.slots_filled += pool.slots_filled;
    stats.slots_reserved += pool.used * group->block_size;
    stats.bytes_reserved += group->tensor_bytes.load(std::memory_order_relaxed);
    if (group->slab) stats.bytes_reserved += group->slab->size();
  }
  for (size_t g = 0; prefix_ && g < groups_.size(); g++)
    stats.evictable_blocks += prefix_->evictable(g);
  stats.tokens = counters_.tokens.load(std::memory_order_relaxed);
  stats.copied_blocks = counters_.copied_blocks.load(std::memory_order_relaxed);
  stats.commits = counters_.commits.load(std::memory_order_relaxed);
  stats.aborts = counters_.aborts.load(std::memory_order_relaxed);
  stats.committed_tokens = counters_.committed_tokens.load(std::memory_order_relaxed);
  stats.suspended_sessions = counters_.suspended_sessions.load(std::memory_order_relaxed);
  stats.suspensions = counters_.suspensions.load(std::memory_order_relaxed);
  return stats;
}

pkv_kv_view Cache::kv_view(uint32_t layer) const {
  const LayerPlace at = place(layer);
  const Group& group = *groups_[at.group];
  if (!group.slab) fail(PKV_UNSUPPORTED, "only storage PAGED has blocks to view");
  const KvView view = group.layout.view(group.slab->data(), at.layer);
  const int64_t key_unit = stride_unit(group.shape.dtype),
                value_unit = stride_unit(group.shape.value_dtype);
  pkv_kv_view out{};
  out.struct_size = sizeof out;
  out.dtype = group.shape.dtype;
  out.value_dtype = group.shape.value_dtype;
  out.layout = config_.layout;
  out.block_size = config_.block_size;
  out.kv_heads = group.shape.kv_heads;
  out.key_dim = group.shape.key_dim;
  out.value_dim = group.shape.value_dim;
  out.blocks = group.pool.blocks();
  out.k = view.k.data;
  out.v = view.v.data;
  out.k_block_stride = view.k.block_stride / key_unit;
  out.k_row_stride = view.k.row_stride / key_unit;
  out.k_head_stride = view.k.head_stride / key_unit;
  out.v_block_stride = view.v.block_stride / value_unit;
  out.v_row_stride = view.v.row_stride / value_unit;
  out.v_head_stride = view.v.head_stride / value_unit;
  return out;
}

namespace {

// What else there is to say about the blocks of a group: "3 of 8 are free, 2 evictable, 1 stays
// free (watermark)".
struct Having {
  char text[128];
};

uint64_t evictable(const Cache& cache, size_t group) {
  return cache.prefix() != nullptr ? cache.prefix()->evictable(group) : 0;
}

Having describe(const Cache& cache, size_t group, uint32_t keep) {
  const Pool& pool = cache.groups()[group]->pool;
  Having having{};
  int at = std::snprintf(having.text, sizeof having.text, "%u of %u are free", pool.free_count(),
                         pool.blocks());
  const auto add = [&](const char* format, unsigned long long number) {
    at += std::snprintf(having.text + at, sizeof having.text - static_cast<size_t>(at), format,
                        number);
  };
  if (cache.prefix() != nullptr) add(", %llu evictable", evictable(cache, group));
  if (keep > 0) add(", %llu stay free (watermark)", keep);
  return having;
}

uint64_t missing(const Cache& cache, std::span<const uint64_t> counts, uint32_t keep) {
  uint64_t total = 0;
  for (size_t g = 0; g < counts.size(); g++) {
    const uint64_t have = cache.groups()[g]->pool.free_count() + evictable(cache, g),
                   needed = counts[g] == 0 ? 0 : counts[g] + keep;
    total += needed > have ? needed - have : 0;
  }
  return total;
}

// From what is free, else from what the prefix index can do without.
bool take_evicting(const Cache& cache, size_t group, uint64_t count, uint32_t keep, Block* out) {
  Pool& pool = cache.groups()[group]->pool;
  const auto try_alloc = [&] {
    return (keep == 0 || pool.free_count() >= count + keep) && pool.try_alloc(count, out);
  };
  if (try_alloc()) return true;
  // Another thread may be quicker to what was evicted.
  while (cache.prefix() != nullptr && cache.prefix()->make_free(group, count + keep))
    if (try_alloc()) return true;
  return false;
}

// What waits to be written to a store is the last to go.
bool take(const Cache& cache, size_t group, uint64_t count, uint32_t keep, Block* out) {
  if (take_evicting(cache, group, count, keep, out)) return true;
  return cache.tier() != nullptr && cache.tier()->give_way() &&
         take_evicting(cache, group, count, keep, out);
}

}  // namespace

Taken::Taken(Cache& cache, std::span<const uint64_t> counts, uint32_t keep, uint64_t* short_by,
             const char* who)
    : cache_(cache), blocks_(counts.size()), passed_(counts.size()) {
  for (size_t g = 0; g < counts.size(); g++) {
    if (counts[g] > cache.groups()[g]->pool.blocks() - keep)
      fail(PKV_TOO_LARGE, "%s needs %llu blocks in group %zu: %s", who,
           (unsigned long long)counts[g], g, describe(cache, g, keep).text);
    blocks_[g].resize(counts[g]);
  }
  for (size_t g = 0; g < counts.size(); g++) {
    if (counts[g] == 0 || take(cache, g, counts[g], keep, blocks_[g].data())) continue;
    for (size_t rest = g; rest < counts.size(); rest++) blocks_[rest].clear();  // were not taken
    give_back();
    // Another thread may have released blocks since: one is the least that was short.
    const uint64_t total = std::max<uint64_t>(missing(cache, counts, keep), 1);
    if (short_by != nullptr) *short_by = total;
    fail(PKV_OUT_OF_BLOCKS, "%s needs %llu blocks in group %zu, %s (%llu short over all groups)",
         who, (unsigned long long)counts[g], g, describe(cache, g, keep).text,
         (unsigned long long)total);
  }
}

void Taken::give_back() noexcept {
  for (size_t g = 0; g < blocks_.size(); g++)
    for (size_t i = passed_[g]; i < blocks_[g].size(); i++)
      cache_.groups()[g]->pool.release(blocks_[g][i]);
}

}  // namespace pkv
