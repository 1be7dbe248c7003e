// The C functions of pools of block ids without a cache (pkv_pool_).
#include <pagedkv/pool.h>

#include "api/boundary.h"
#include "api/stats.h"
#include "base/hooks.h"
#include "base/status.h"

namespace pkv::api {
namespace {

struct PoolObject {
  PoolObject(const pkv_pool_config& config)
      : memory(config.allocator), pool(config.blocks, &memory) {}
  HookMemory memory;
  memory::Pool pool;
};

// Calls lease a pool for reading: many threads may change the pool itself at once.
class PoolLease : public LeaseOf<pkv_pool, Kind::pool, PoolObject> {
 public:
  using LeaseOf::LeaseOf;
  memory::Pool& operator*() const { return object<PoolObject>().pool; }
  memory::Pool* operator->() const { return &**this; }
};

// Throws an error about the block if an operation on it failed.
void check(pkv_status status, const memory::Pool& pool, pkv_block_ref block, const char* verb) {
  if (status == PKV_OK) return;
  const uint32_t id = PKV_BLOCK_ID(block);
  if (status == PKV_OUT_OF_MEMORY)
    fail(status, "%s: no memory to look for duplicates in the list", verb);
  if (id >= pool.blocks()) fail(PKV_OUT_OF_RANGE, "block %u; the pool has %u", id, pool.blocks());
  const memory::BlockState state = pool.state(id);
  fail(status, "%s of block %u, generation %u: it is in generation %u with %u references", verb, id,
       static_cast<uint32_t>(block >> 32), state.generation, state.references);
}

}  // namespace
}  // namespace pkv::api

using namespace pkv;
using namespace pkv::api;

pkv_status pkv_pool_create(const pkv_pool_config* config, pkv_pool* out) {
  return guarded([&] {
    check_pointer(out, "out");
    const pkv_pool_config known = read_struct(config, "config");
    if (known.blocks == 0) fail(PKV_INVALID_ARGUMENT, "0 blocks; there must be at least 1");
    if (known.blocks > INT32_MAX)
      fail(PKV_TOO_LARGE, "%u blocks; there can be at most 2^31 - 1", known.blocks);
    check_allocator(known.allocator);
    *out = PoolLease::make(std::make_unique<PoolObject>(known));
  });
}

pkv_status pkv_pool_destroy(pkv_pool handle) {
  return guarded([&] { PoolLease::close(handle); });
}

pkv_status pkv_pool_alloc(pkv_pool handle, size_t n, pkv_block_ref* blocks) {
  return guarded([&] {
    const PoolLease pool(handle);
    check_list(blocks, n, "blocks");
    if (n > pool->blocks())
      fail(PKV_TOO_LARGE, "%zu blocks are asked for; the pool has %u", n, pool->blocks());
    if (pool->try_alloc(n, blocks)) return;
    const uint32_t free = pool->free_count();
    fail(blocks_details(UINT32_MAX, n > free ? n - free : 1),
         "%zu blocks are asked for, %u of %u are free", n, free, pool->blocks());
  });
}

pkv_status pkv_pool_retain(pkv_pool handle, size_t n, const pkv_block_ref* blocks) {
  return guarded([&] {
    const PoolLease pool(handle);
    check_list(blocks, n, "blocks");
    size_t failed = 0;
    const pkv_status status = pool->retain(n, blocks, &failed);
    if (status != PKV_OK)
      for_entry(failed, [&] { check(status, *pool, blocks[failed], "retain"); });
  });
}

pkv_status pkv_pool_release(pkv_pool handle, size_t n, const pkv_block_ref* blocks) {
  return guarded([&] {
    const PoolLease pool(handle);
    check_list(blocks, n, "blocks");
    size_t failed = 0;
    const pkv_status status = pool->release(n, blocks, &failed);
    if (status != PKV_OK)
      for_entry(failed, [&] { check(status, *pool, blocks[failed], "release"); });
  });
}

pkv_status pkv_pool_get_stats(pkv_pool handle, pkv_pool_stats* out) {
  return guarded([&] {
    const PoolLease pool(handle);
    pkv_pool_stats stats{};
    stats.struct_size = sizeof stats;
    add_stats(*pool, stats);
    fill_struct(out, stats, "out");
  });
}

pkv_status pkv_pool_validate(pkv_pool handle) {
  return guarded([&] { PoolLease(handle)->validate(); });
}
