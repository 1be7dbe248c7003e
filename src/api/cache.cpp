// The C functions of caches (pkv_cache_), and of the instruction sets that a cache can use.
#include "engine/cache/cache.h"

#include <pagedkv/cache.h>

#include <algorithm>

#include "api/boundary.h"
#include "api/stats.h"
#include "base/enums.h"
#include "base/status.h"
#include "engine/cache/metrics.h"
#include "engine/session/content.h"
#include "engine/session/session.h"
#include "engine/session/snapshot.h"
#include "engine/store/queued_store.h"
#include "kernels/kernels.h"

namespace pkv::api {
namespace {

CacheConfig read_config(const pkv_cache_config* config) {
  return check_config(read_struct(config, "config"));
}

// The contents of all sessions and snapshots of a cache, leased for reading.
class LeasedContents {
 public:
  explicit LeasedContents(uint64_t cache) {
    for (const uint64_t handle : list_children(cache, Kind::session))
      contents_.push_back(&lease(handle, Kind::session).object<Session>().content());
    for (const uint64_t handle : list_children(cache, Kind::snapshot))
      contents_.push_back(&lease(handle, Kind::snapshot).object<Snapshot>().content());
  }
  std::span<const Content* const> all() const { return contents_; }

 private:
  const Lease& lease(uint64_t handle, Kind kind) {
    leases_.emplace_back(handle, kind, Access::get).become_reader();
    return leases_.back();
  }

  std::vector<Lease> leases_;
  std::vector<const Content*> contents_;
};

}  // namespace
}  // namespace pkv::api

using namespace pkv;
using namespace pkv::api;

pkv_status pkv_cache_compute_sizes(const pkv_cache_config* config, uint32_t group,
                                   pkv_cache_sizes* out) {
  return guarded([&] { fill_struct(out, compute_sizes(read_config(config), group), "out"); });
}

pkv_status pkv_cache_create(const pkv_cache_config* config, pkv_cache* out) {
  return guarded([&] {
    check_pointer(out, "out");
    const pkv_cache_config known = read_struct(config, "config");
    auto cache = std::make_unique<Cache>(check_config(known), known.allocator, known.logger);
    const auto& config_of_store = cache->config().store;
    auto store =
        config_of_store ? std::make_unique<store::QueuedStore>(*cache, *config_of_store) : nullptr;
    store::QueuedStore* const started = store.get();
    cache->set_store(std::move(store));
    *out = CacheLease::make(std::move(cache));
    // From here on the cache owns its store. If an exception is thrown above, the caller keeps the
    // store.
    if (started == nullptr) return;
    started->own_store();
    fill_struct(config_of_store->store, pkv_store{}, "store");
  });
}

pkv_status pkv_cache_destroy(pkv_cache handle) {
  return guarded([&] {
    if (handle == nullptr) return;
    CacheLease lease(handle, Access::close);
    for (Lease& child : lock_children(bits(handle))) child.destroy();
    lease.destroy();
  });
}

pkv_status pkv_cache_get_info(pkv_cache handle, pkv_cache_info* out) {
  return guarded([&] {
    const CacheLease cache(handle);
    const CacheConfig& config = cache->config();
    pkv_cache_info info{};
    info.storage = config.storage;
    info.layout = config.layout;
    info.block_size = config.block_size;
    info.group_count = static_cast<uint32_t>(config.groups.size());
    info.layers = config.layers;
    info.threads = cache->workers().threads();
    info.isa = cache->kernels().isa;
    fill_struct(out, info, "out");
  });
}

pkv_status pkv_cache_get_stats(pkv_cache handle, pkv_cache_stats* out) {
  return guarded([&] { fill_struct(out, CacheLease(handle)->stats(), "out"); });
}

pkv_status pkv_cache_format_metrics(pkv_cache handle, size_t capacity, char* text, size_t* size) {
  return guarded([&] {
    const CacheLease cache(handle);
    check_list(text, capacity, "text");
    check_pointer(size, "size");
    const std::string formatted = format_metrics(*cache);
    check_capacity(capacity, formatted.size() + 1, size, "text");
    std::copy_n(formatted.c_str(), formatted.size() + 1, text);
  });
}

pkv_status pkv_cache_get_pool_stats(pkv_cache handle, uint32_t group, pkv_pool_stats* out) {
  return guarded([&] {
    const CacheLease cache(handle);
    pkv_pool_stats stats{};
    stats.struct_size = sizeof stats;
    if (group != PKV_ALL_GROUPS)
      add_stats(cache->group(group).pool, stats);
    else
      for (const auto& each : cache->groups()) add_stats(each->pool, stats);
    fill_struct(out, stats, "out");
  });
}

pkv_status pkv_cache_validate(pkv_cache handle) {
  return guarded([&] {
    const CacheLease cache(handle);
    const auto validate_with = [&](std::span<const Content* const> contents_of_store) {
      const LeasedContents open(bits(handle));
      std::vector<const Content*> all(open.all().begin(), open.all().end());
      all.insert(all.end(), contents_of_store.begin(), contents_of_store.end());
      validate(*cache, all);
    };
    cache->store() != nullptr ? cache->store()->inspect(validate_with) : validate_with({});
  });
}

pkv_status pkv_cache_get_kv_view(pkv_cache handle, uint32_t layer, pkv_kv_view* out) {
  return guarded([&] {
    const CacheLease cache(handle);
    fill_struct(out, cache->kv_view(layer), "out");
  });
}

const char* pkv_isa_name(pkv_isa isa) { return kernels::isa_name(isa); }
