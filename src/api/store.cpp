// The C functions of the store behind a cache (pkv_store_), and of stores in a directory.
#include <pagedkv/store.h>

#include "api/boundary.h"
#include "base/status.h"
#include "engine/cache/config.h"
#include "engine/session/session.h"
#include "engine/store/directory.h"
#include "engine/store/queued_store.h"

namespace pkv::api {
namespace {

// A lease of a cache that has a store.
class StoreLease {
 public:
  explicit StoreLease(pkv_cache cache) : lease_(bits(cache), Kind::cache, Access::read) {}
  Cache& cache() const { return lease_.object<Cache>(); }
  store::QueuedStore& store() const {
    auto* const store = dynamic_cast<store::QueuedStore*>(cache().store());
    if (store == nullptr)
      fail(PKV_UNSUPPORTED, "the cache has no store: the store of its config was NULL");
    return *store;
  }

 private:
  Lease lease_;
};

std::chrono::steady_clock::time_point deadline_in(uint32_t ms) {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
}

}  // namespace
}  // namespace pkv::api

using namespace pkv;
using namespace pkv::api;

pkv_status pkv_store_prefetch(pkv_cache cache, const void* salt, size_t salt_size, size_t n,
                              const int32_t* tokens) {
  return guarded([&] {
    const StoreLease lease(cache);
    check_list(tokens, n, "tokens");
    lease.store().reader().prefetch(check_salt(salt, salt_size), prefix::Tokens(tokens, n));
  });
}

pkv_status pkv_store_wait(pkv_cache cache, const void* salt, size_t salt_size, size_t n,
                          const int32_t* tokens, uint32_t timeout_ms, uint64_t* cached,
                          uint64_t* pending) {
  return guarded([&] {
    const StoreLease lease(cache);
    store::Reader& reader = lease.store().reader();
    check_list(tokens, n, "tokens");
    check_pointer(cached, "cached");
    const std::string_view known = check_salt(salt, salt_size);
    const uint64_t left = reader.wait(known, prefix::Tokens(tokens, n), deadline_in(timeout_ms));
    if (pending != nullptr) *pending = left;
    *cached = uint64_t{lease.cache().prefix()->cached(known, prefix::Tokens(tokens, n))} *
              lease.cache().config().block_size;
  });
}

pkv_status pkv_store_cancel(pkv_cache cache, const void* salt, size_t salt_size, size_t n,
                            const int32_t* tokens) {
  return guarded([&] {
    const StoreLease lease(cache);
    check_list(tokens, n, "tokens");
    lease.store().reader().cancel(check_salt(salt, salt_size), prefix::Tokens(tokens, n));
  });
}

pkv_status pkv_store_flush(pkv_cache cache, uint32_t timeout_ms, uint64_t* queued) {
  return guarded([&] {
    const StoreLease lease(cache);
    store::Queue& queue = lease.store().queue();
    check_pointer(queued, "queued");
    *queued = queue.flush(deadline_in(timeout_ms));
  });
}

pkv_status pkv_store_get_stats(pkv_cache cache, pkv_store_stats* out) {
  return guarded([&] { fill_struct(out, StoreLease(cache).store().stats(), "out"); });
}

pkv_status pkv_store_open_directory(const pkv_directory_config* config, pkv_store* out) {
  return guarded([&] {
    const pkv_directory_config known = read_struct(config, "config");
    check_pointer(known.path, "path");
    if (known.durable > 1)
      fail(PKV_INVALID_ARGUMENT, "durable is %u; it must be 0 or 1", known.durable);
    check_pointer(out, "out");
    *out = store::open_directory_store(known.path, known.capacity_bytes, known.durable != 0);
  });
}
