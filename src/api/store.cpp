// The C functions of the store behind a cache (pkv_store_, pkv_prefetch_), and of stores in a
// directory.
#include <pagedkv/store.h>

#include "api/boundary.h"
#include "base/enums.h"
#include "base/status.h"
#include "engine/cache/config.h"
#include "engine/session/session.h"
#include "engine/store/directory_store.h"
#include "engine/store/queued_store.h"

namespace pkv::api {
namespace {

store::QueuedStore& store_of(const CacheLease& cache) {
  auto* const store = dynamic_cast<store::QueuedStore*>(cache->store());
  if (store == nullptr)
    fail(PKV_UNSUPPORTED, "the cache has no store: the store of its config was NULL");
  return *store;
}

std::chrono::steady_clock::time_point deadline_in(uint32_t ms) {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
}

}  // namespace
}  // namespace pkv::api

using namespace pkv;
using namespace pkv::api;

pkv_status pkv_prefetch_wait(pkv_cache handle, const pkv_prompt* prompt, uint32_t timeout_ms,
                             uint64_t* cached, uint64_t* pending) {
  return guarded([&] {
    const CacheLease cache(handle);
    store::Reader& reader = store_of(cache).reader();
    const auto [salt, tokens] = check_text(prompt, "prompt");
    check_pointer(cached, "cached");
    const uint64_t left = reader.wait(salt, tokens, deadline_in(timeout_ms));
    if (pending != nullptr) *pending = left;
    *cached = uint64_t{cache->prefix()->cached(salt, tokens)} * cache->config().block_size;
  });
}

pkv_status pkv_prefetch_cancel(pkv_cache handle, const pkv_prompt* prompt) {
  return guarded([&] {
    const CacheLease cache(handle);
    const auto [salt, tokens] = check_text(prompt, "prompt");
    store_of(cache).reader().cancel(salt, tokens);
  });
}

pkv_status pkv_cache_flush_store(pkv_cache handle, uint32_t timeout_ms, uint64_t* queued) {
  return guarded([&] {
    const CacheLease cache(handle);
    store::Queue& queue = store_of(cache).queue();
    check_pointer(queued, "queued");
    *queued = queue.flush(deadline_in(timeout_ms)) * cache->config().block_size;
  });
}

pkv_status pkv_cache_get_store_stats(pkv_cache handle, pkv_store_stats* out) {
  return guarded([&] { fill_struct(out, store_of(CacheLease(handle)).stats(), "out"); });
}

pkv_status pkv_store_open_directory(const pkv_directory_config* config, pkv_store* out) {
  return guarded([&] {
    const pkv_directory_config known = read_struct(config, "config");
    check_pointer(known.path, "path");
    check_enum(known.durability, "durability");
    check_pointer(out, "out");
    check_struct_size<pkv_store>(out->struct_size, "out");
    *out = store::open_directory_store(known.path, known.max_bytes,
                                       known.durability == PKV_DURABILITY_ON);
  });
}

// A store that wraps another one closes it in a hook.
pkv_status pkv_store_close(pkv_store* store) {
  return pkv::guarded(keep_error, [&] {
    if (store == nullptr || (store->struct_size == 0 && store->close == nullptr)) return;
    const pkv_store known = read_struct(store, "store");
    fill_struct(store, pkv_store{}, "store");
    if (known.close == nullptr) return;
    const HookScope scope;
    known.close(known.user);
  });
}
