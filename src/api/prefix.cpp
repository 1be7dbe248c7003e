#include <pagedkv/prefix.h>

#include "api/boundary.h"
#include "engine/cache.h"
#include "engine/config.h"

namespace pkv {
namespace {

PrefixIndex& index_of(const Lease& lease) {
  PrefixIndex* const index = lease.object<Cache>().prefix();
  if (index == nullptr) fail(PKV_UNSUPPORTED, "the cache has no prefix index: its config had none");
  return *index;
}

pkv_prefix_stats public_stats(const PrefixFigures& figures) {
  pkv_prefix_stats stats{};
  stats.struct_size = sizeof stats;
  stats.matches = figures.matches;
  stats.asked_tokens = figures.asked_tokens;
  stats.matched_tokens = figures.matched_tokens;
  stats.matched_blocks = figures.matched_blocks;
  stats.published_blocks = figures.published;
  stats.evicted_blocks = figures.evicted;
  stats.cached_blocks = figures.cached;
  stats.evictable_blocks = figures.evictable;
  return stats;
}

}  // namespace
}  // namespace pkv

using namespace pkv;

pkv_status pkv_prefix_config_init(pkv_prefix_config* config, size_t struct_size) {
  return init_struct(config, struct_size, default_prefix(), "config");
}

pkv_status pkv_prefix_get_stats(pkv_cache cache, const void* salt, size_t salt_size, pkv_prefix_stats* out) {
  return guarded([&] {
    const Lease lease(bits(cache), Kind::cache, Access::read);
    const PrefixIndex& index = index_of(lease);
    fill_struct(out, public_stats(salt_size == PKV_ALL_SALTS ? index.figures() : index.figures(check_salt(salt, salt_size))), "out");
  });
}

pkv_status pkv_prefix_clear(pkv_cache cache, const void* salt, size_t salt_size) {
  return guarded([&] {
    const Lease lease(bits(cache), Kind::cache, Access::read);
    PrefixIndex& index = index_of(lease);
    if (salt_size == PKV_ALL_SALTS) return index.clear(nullptr);
    const std::string_view one = check_salt(salt, salt_size);
    index.clear(&one);
  });
}
