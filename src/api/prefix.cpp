// The C functions of the prefix index (pkv_prefix_).
#include <pagedkv/prefix.h>

#include "api/boundary.h"
#include "base/status.h"
#include "engine/cache/cache.h"
#include "engine/cache/config.h"
#include "engine/prefix/hash.h"

namespace pkv::api {
namespace {

pkv_prefix_stats public_stats(const prefix::Figures& figures, uint64_t block_size) {
  pkv_prefix_stats stats{};
  stats.struct_size = sizeof stats;
  stats.lookups = figures.lookups;
  stats.lookup_tokens = figures.lookup_tokens;
  stats.matched_tokens = figures.matched_tokens;
  stats.published_tokens = figures.published * block_size;
  stats.evicted_tokens = figures.evicted * block_size;
  stats.cached_tokens = figures.cached * block_size;
  stats.evictable_tokens = figures.evictable * block_size;
  stats.expelled_tokens = figures.expelled * block_size;
  stats.cleared_tokens = figures.cleared * block_size;
  stats.pinned_tokens = figures.pinned * block_size;
  stats.yielded_pins = figures.yielded;
  return stats;
}

}  // namespace
}  // namespace pkv::api

using namespace pkv;
using namespace pkv::api;

pkv_status pkv_prefix_get_stats(pkv_cache handle, const void* salt, size_t salt_size,
                                pkv_prefix_stats* out) {
  return guarded([&] {
    const CacheLease cache(handle);
    prefix::Index& index = index_of(*cache);
    fill_struct(
        out,
        public_stats(salt_size == PKV_ALL_SALTS ? index.figures()
                                                : index.figures(check_salt(salt, salt_size)),
                     cache->config().block_size),
        "out");
  });
}

pkv_status pkv_prefix_clear(pkv_cache handle, const void* salt, size_t salt_size) {
  return guarded([&] {
    const CacheLease cache(handle);
    prefix::Index& index = index_of(*cache);
    if (salt_size == PKV_ALL_SALTS) return index.clear(nullptr);
    const std::string_view one = check_salt(salt, salt_size);
    index.clear(&one);
  });
}

pkv_status pkv_prefix_probe(pkv_cache handle, const pkv_prompt* prompt, uint64_t* cached) {
  return guarded([&] {
    const CacheLease cache(handle);
    const prefix::Index& index = index_of(*cache);
    const auto [salt, tokens] = check_text(prompt, "prompt");
    check_pointer(cached, "cached");
    *cached = uint64_t{index.cached(salt, tokens)} * cache->config().block_size;
  });
}

pkv_status pkv_prefix_set_quota(pkv_cache handle, const void* salt, size_t salt_size,
                                uint64_t tokens) {
  return guarded([&] {
    const CacheLease cache(handle);
    prefix::Index& index = index_of(*cache);
    const std::string_view known = check_salt(salt, salt_size);
    std::optional<uint64_t> blocks;
    if (tokens != 0)
      blocks = tokens == PKV_NO_QUOTA
                   ? 0
                   : limit_in_blocks(tokens, cache->config().block_size, "tokens");
    index.set_quota(known, blocks);
  });
}

pkv_status pkv_prefix_read_events(pkv_cache handle, uint64_t* next, size_t n,
                                  pkv_prefix_event* events, size_t* count, uint64_t* lost) {
  return guarded([&] {
    const CacheLease cache(handle);
    const prefix::Index& index = index_of(*cache);
    if (!index.has_events())
      fail(PKV_UNSUPPORTED, "the cache keeps no events: its prefix config says 0");
    check_pointer(next, "next");
    check_list(events, n, "events");
    check_pointer(count, "count");
    uint64_t missed = 0;
    *count = index.read_events(*next, std::span(events, n), missed);
    if (lost != nullptr) *lost = missed;
  });
}

pkv_status pkv_prefix_hash_blocks(const pkv_prompt* prompt, uint32_t block_size, uint64_t* hashes) {
  return guarded([&] {
    check_block_size(block_size);
    const auto [salt, tokens] = check_text(prompt, "prompt");
    const size_t whole = tokens.size() / block_size;
    check_list(hashes, whole, "hashes");
    prefix::hash_blocks(tokens.first(whole * block_size), prefix::hash_salt(salt),
                        std::span(hashes, whole));
  });
}
