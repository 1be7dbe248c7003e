// Limits: the exact number of missing blocks, references at their limit, and sizes whose products
// do not fit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "../support/portable.h"
#include "world.h"

namespace hostile::limits_test {
namespace {

#define IN_CHILD(...) EXPECT_EQ(in_child([&] __VA_ARGS__), "")

pkv_session open_session(pkv_cache cache, uint64_t reserved_tokens) {
  pkv_session session = nullptr;
  OK(pkv_session_open(cache, nullptr, &session));
  OK(pkv_session_reserve(session, reserved_tokens));
  return session;
}

// All `blocks` blocks are reserved by one-block sessions, so a step over `steps` is short of
// blocks. Closing one session fewer than the count says does not help. Closing that many does.
void check_short(pkv_cache cache, std::vector<pkv_session>& holders,
                 const std::vector<pkv_session>& steps, const std::vector<uint32_t>& new_tokens) {
  pkv_batch batch = nullptr;
  const auto begin = [&] {
    return pkv_batch_begin(cache, steps.size(), steps.data(), new_tokens.data(), &batch);
  };
  WANT(PKV_OUT_OF_BLOCKS, begin());
  const uint64_t told = pkv_last_error_details()->blocks_short;
  HOSTILE_CHECK(told > 0 && told <= holders.size(), "%llu blocks short",
                static_cast<unsigned long long>(told));
  HOSTILE_CHECK(
      std::string(pkv_last_error()).find(std::to_string(told) + " short") != std::string::npos,
      "%s", pkv_last_error());
  for (uint64_t freed = 0; freed < told; freed++) {
    WANT(PKV_OUT_OF_BLOCKS, begin());
    const unsigned long long now = pkv_last_error_details()->blocks_short;
    HOSTILE_CHECK(now == told - freed, "%llu short after %llu were freed, %llu before", now,
                  static_cast<unsigned long long>(freed), static_cast<unsigned long long>(told));
    HOSTILE_CHECK(batch == nullptr, "a batch was given out");
    OK(pkv_cache_validate(cache));
    OK(pkv_session_close(holders.back()));
    holders.pop_back();
  }
  OK(begin());
  OK(pkv_batch_abort(batch));
}

// Records the largest requested size.
class LargestSize {
 public:
  const pkv_allocator* allocator() const { return &allocator_; }
  size_t largest = 0;

 private:
  static void* alloc(void* user, size_t size, size_t alignment) {
    LargestSize& self = *static_cast<LargestSize*>(user);
    self.largest = std::max(self.largest, size);
    return portable::allocate_aligned(alignment, (size + alignment - 1) / alignment * alignment);
  }
  static void free(void*, void* memory, size_t, size_t) { portable::free_aligned(memory); }

  pkv_allocator allocator_{alloc, free, this};
};

// 2^30 tokens do not fit into the cache, which is found before 4 GiB are allocated for their ids.
TEST(Limits, AStepBeyondTheCacheAllocatesNothingLarge) {
  IN_CHILD({
    LargestSize memory;
    ModelConfig config = small_model(20);
    config.allocator = memory.allocator();
    pkv_cache cache = nullptr;
    pkv_session session = nullptr;
    OK(pkv_cache_create(&config, &cache));
    OK(pkv_session_open(cache, nullptr, &session));
    memory.largest = 0;
    const uint32_t tokens = 1 << 30;
    pkv_batch batch = nullptr;
    WANT(PKV_TOO_LARGE, pkv_batch_begin(cache, 1, &session, &tokens, &batch));
    HOSTILE_CHECK(memory.largest < 1 << 20, "%zu bytes at once", memory.largest);
    OK(pkv_cache_destroy(cache));
  });
}

TEST(Limits, BlocksShortIsExact) {
  for (const pkv_storage storage : {PKV_STORAGE_INTERNAL, PKV_STORAGE_EXTERNAL})
    IN_CHILD({
      ModelConfig config = small_model(20);
      config.storage = storage;
      pkv_cache cache = nullptr;
      OK(pkv_cache_create(&config, &cache));
      const std::vector<pkv_session> steps = {open_session(cache, 0), open_session(cache, 1),
                                              open_session(cache, 0)};
      std::vector<pkv_session> holders;
      while (pool_stats_of(cache).free_blocks > 2) holders.push_back(open_session(cache, 16));
      // This needs 3 + (4 - 1) + 2 blocks.
      check_short(cache, holders, steps, {33, 64, 17});
      OK(pkv_cache_destroy(cache));
    });
}

// The copy of a shared tail counts, too.
TEST(Limits, BlocksShortCountsCopies) {
  IN_CHILD({
    pkv_cache cache = nullptr;
    const ModelConfig config = small_model(12);
    OK(pkv_cache_create(&config, &cache));
    const pkv_session first = open_session(cache, 0);
    step(cache, {first}, {20}, 1);
    pkv_session second = nullptr;
    OK(pkv_session_fork(first, &second));
    std::vector<pkv_session> holders;
    while (pool_stats_of(cache).free_blocks > 0) holders.push_back(open_session(cache, 16));
    check_short(cache, holders, {first}, {1});
    check_short(cache, holders, {first, second}, {1, 20});
    OK(pkv_cache_destroy(cache));
  });
}

pkv_layer_group group_of(uint32_t count, uint32_t window, uint64_t blocks) {
  return made<pkv_layer_group>({.layers = count,
                                .query_heads = query_heads,
                                .kv_heads = kv_heads,
                                .key_dim = dim,
                                .window = window,
                                .blocks = blocks});
}

TEST(Limits, BlocksShortOverGroups) {
  IN_CHILD({
    pkv_layer_group groups[] = {group_of(1, 0, 6), group_of(1, 32, 9)};
    auto config = made<pkv_cache_config>({.group_count = 2, .groups = groups, .threads = 1});
    pkv_cache cache = nullptr;
    OK(pkv_cache_create(&config, &cache));
    const pkv_session holder = open_session(cache, 64), session = open_session(cache, 0);
    pkv_batch batch = nullptr;
    const uint32_t tokens = 96;
    // Each needs 6 blocks, and 2 and 5 are free.
    WANT(PKV_OUT_OF_BLOCKS, pkv_batch_begin(cache, 1, &session, &tokens, &batch));
    const pkv_error_details details = *pkv_last_error_details();
    HOSTILE_CHECK(details.blocks_short == 5 && details.group == 0, "%llu short, first in group %u",
                  static_cast<unsigned long long>(details.blocks_short), details.group);
    OK(pkv_cache_validate(cache));
    OK(pkv_session_close(holder));
    OK(pkv_batch_begin(cache, 1, &session, &tokens, &batch));
    OK(pkv_cache_destroy(cache));
  });
}

// A call over a list returns which entry it refused.
TEST(Limits, DetailsHaveTheIndex) {
  IN_CHILD({
    World world;
    const pkv_session suspended = open_session(world.cache, 0),
                      fresh = open_session(world.cache, 0);
    OK(pkv_session_suspend(suspended));
    pkv_batch batch = nullptr;
    pkv_session victims[3];
    size_t count = 0;
    const auto refused = [&](pkv_status wanted, uint64_t index,
                             const std::vector<pkv_session>& list, uint32_t last_tokens = 1) {
      std::vector<uint32_t> tokens(list.size(), 1);
      tokens.back() = last_tokens;
      const auto check = [&](pkv_status status, const char* what) {
        expect(wanted, status, what);
        const pkv_error_details& details = *pkv_last_error_details();
        HOSTILE_CHECK(details.status == wanted && details.index == index &&
                          details.group == UINT32_MAX && details.blocks_short == 0,
                      "%s: index %llu", what, static_cast<unsigned long long>(details.index));
      };
      check(pkv_batch_begin(world.cache, list.size(), list.data(), tokens.data(), &batch), "begin");
      check(pkv_batch_choose_victims(world.cache, list.size(), list.data(), tokens.data(), 3,
                                     victims, &count),
            "choose_victims");
    };
    refused(PKV_SUSPENDED, 1, {fresh, suspended});
    refused(PKV_STALE_HANDLE, 1, {fresh, world.closed_session, suspended});
    refused(PKV_WRONG_CACHE, 0, {world.foreign, fresh});
    refused(PKV_BUSY, 2, {fresh, world.session, world.stepping});
    refused(PKV_INVALID_ARGUMENT, 2, {fresh, world.session, fresh});
    refused(PKV_TOO_LARGE, 1, {fresh, world.session}, 100'000);
    refused(PKV_INVALID_ARGUMENT, 0, {nullptr});

    pkv_block_ref blocks[] = {0, 0};
    OK(pkv_pool_alloc(world.pool, 1, blocks));
    blocks[1] = 1u << 20;
    WANT(PKV_OUT_OF_RANGE, pkv_pool_release(world.pool, 2, blocks));
    HOSTILE_CHECK(pkv_last_error_details()->index == 1, "the second block does not exist");
    OK(pkv_pool_release(world.pool, 1, blocks));
    WANT(PKV_INVALID_ARGUMENT, pkv_pool_alloc(world.pool, 1, nullptr));
    HOSTILE_CHECK(pkv_last_error_details()->index == UINT64_MAX, "no entry is wrong");
    OK(pkv_session_close(suspended));
    OK(pkv_session_close(fresh));
    world.close();
  });
}

// A session whose first step can never leave the watermark free is refused by its index, whatever
// the other sessions of the list need.
TEST(Limits, BlocksBesidesTheWatermark) {
  IN_CHILD({
    ModelConfig config = small_model(8);
    config.watermark_blocks = 3;
    pkv_cache cache = nullptr;
    OK(pkv_cache_create(&config, &cache));
    const std::vector<pkv_session> list = {open_session(cache, 0), open_session(cache, 0)};
    pkv_batch batch = nullptr;
    pkv_session victims[2];
    size_t count = 0;
    const auto begin = [&](const std::vector<uint32_t>& tokens) {
      return pkv_batch_begin(cache, 2, list.data(), tokens.data(), &batch);
    };
    const auto choose = [&](const std::vector<uint32_t>& tokens) {
      return pkv_batch_choose_victims(cache, 2, list.data(), tokens.data(), 2, victims, &count);
    };
    const std::vector<uint32_t> six_blocks = {1, 6 * 16};
    WANT(PKV_TOO_LARGE, begin(six_blocks));
    HOSTILE_CHECK(pkv_last_error_details()->index == 1, "begin does not name the session");
    WANT(PKV_TOO_LARGE, choose(six_blocks));
    HOSTILE_CHECK(pkv_last_error_details()->index == 1, "choose_victims does not name it");
    const std::vector<uint32_t> together = {3 * 16, 5 * 16};
    WANT(PKV_BATCH_TOO_LARGE, begin(together));
    OK(choose(together));
    HOSTILE_CHECK(count == 1, "one victim is enough, not %zu", count);
    // A snapshot keeps 3 of 8 blocks even if its session is suspended, and 3 must stay free.
    step(cache, {list[0]}, {3 * 16}, 1);
    pkv_snapshot snapshot = nullptr;
    OK(pkv_snapshot_take(list[0], &snapshot));
    OK(pkv_session_set_priority(list[1], 1));
    const uint32_t tokens = 5 * 16;
    WANT(PKV_OUT_OF_BLOCKS,
         pkv_batch_choose_victims(cache, 1, &list[1], &tokens, 2, victims, &count));
    const pkv_error_details details = *pkv_last_error_details();
    HOSTILE_CHECK(details.group == 0 && details.blocks_short == 3, "%llu short",
                  static_cast<unsigned long long>(details.blocks_short));
    OK(pkv_cache_destroy(cache));
  });
}

// Slots beyond 2^31 - 1 do not fit into the int32_t of kernels.
TEST(Limits, SlotsInIndices) {
  IN_CHILD({
    ModelConfig config = small_model((1u << 23) + 1);
    config.block_size = 256;
    config.storage = PKV_STORAGE_EXTERNAL;
    pkv_cache cache = nullptr;
    OK(pkv_cache_create(&config, &cache));
    const pkv_session session = open_session(cache, 0);
    const uint32_t tokens = 3;
    pkv_batch batch = nullptr;
    OK(pkv_batch_begin(cache, 1, &session, &tokens, &batch));
    uint32_t indptr[2];
    uint32_t indices[3];
    size_t count = 0;
    WANT(PKV_OVERFLOW,
         pkv_batch_get_kv_indices(batch, 0, PKV_INDEX_SLOTS, indptr, 3, indices, &count, nullptr));
    OK(pkv_batch_get_kv_indices(batch, 0, PKV_INDEX_BLOCKS, indptr, 3, indices, &count, nullptr));
    HOSTILE_CHECK(count == 1, "one block, not %zu", count);
    OK(pkv_cache_destroy(cache));
  });
}

TEST(Limits, References) {
  IN_CHILD({
    constexpr size_t limit = 4194303;
    World world;
    const pkv_block_ref block = world.blocks[0], other = world.blocks[1];
    std::vector<pkv_block_ref> many(limit - 1, block);
    OK(pkv_pool_retain(world.pool, many.size(), many.data()));
    world.remember();
    WANT(PKV_LIMIT_REACHED, pkv_pool_retain(world.pool, 1, &block));
    const pkv_block_ref pair[] = {other, block};
    WANT(PKV_LIMIT_REACHED, pkv_pool_retain(world.pool, 2, pair));
    world.check_state();
    OK(pkv_pool_release(world.pool, 1, &block));
    const pkv_block_ref twice[] = {block, other, block};
    world.remember();
    WANT(PKV_LIMIT_REACHED, pkv_pool_retain(world.pool, 3, twice));
    world.check_state();
    OK(pkv_pool_retain(world.pool, 1, &block));
    for (size_t i = 0; i < limit; i++) OK(pkv_pool_release(world.pool, 1, &block));
    WANT(PKV_NOT_HELD, pkv_pool_release(world.pool, 1, &block));
    world.validate();
    world.close();
  });
}

// Every combination of extreme sizes is refused, or is correct by wider arithmetic.
TEST(Limits, ExtremeSizes) {
  IN_CHILD({
    size_t fits = 0, refused = 0;
    for (const uint32_t layer_count : {1u, 65536u, UINT32_MAX})
      for (const uint32_t heads : {1u, 65536u, UINT32_MAX})
        for (const uint32_t dims : {16u, 576u, UINT32_MAX - 15})
          for (const uint32_t size : {16u, 256u, UINT32_MAX})
            for (const uint64_t blocks :
                 {uint64_t{1}, uint64_t{INT32_MAX}, uint64_t{UINT32_MAX}, uint64_t{0}})
              for (const uint64_t bytes : {uint64_t{0}, uint64_t{1} << 40, uint64_t{UINT64_MAX}}) {
                ModelConfig config;
                config.model.layers = layer_count;
                config.model.query_heads = config.model.kv_heads = heads;
                config.model.key_dim = config.model.value_dim = dims;
                config.block_size = size;
                config.model.blocks = blocks;
                config.memory_bytes = bytes;
                auto plan = made<pkv_cache_sizes>();
                const pkv_status status = pkv_cache_compute_sizes(&config, PKV_ALL_GROUPS, &plan);
                if (status != PKV_OK) {
                  refused++;
                  HOSTILE_CHECK(status == PKV_INVALID_ARGUMENT || status == PKV_OVERFLOW ||
                                    status == PKV_TOO_LARGE,
                                "%s", pkv_status_name(status));
                  continue;
                }
                fits++;
                const __uint128_t token = __uint128_t{layer_count} * heads * dims * 2 * 4;
                HOSTILE_CHECK(plan.bytes_per_token == token &&
                                  plan.memory_bytes == token * size * plan.blocks,
                              "a size wrapped");
                HOSTILE_CHECK(bytes == 0 || plan.memory_bytes <= bytes, "more than the budget");
              }
    HOSTILE_CHECK(fits > 10 && refused > 100, "%zu fit, %zu were refused", fits, refused);
  });
}

TEST(Limits, Groups) {
  IN_CHILD({
    auto plan = made<pkv_cache_sizes>();
    const auto try_groups = [&](std::vector<pkv_layer_group> groups) {
      auto config = made<pkv_cache_config>(
          {.group_count = static_cast<uint32_t>(groups.size()), .groups = groups.data()});
      return pkv_cache_compute_sizes(&config, PKV_ALL_GROUPS, &plan);
    };
    const uint32_t zero = 0, two = 2, twice[] = {0, 0}, far = UINT32_MAX;
    const pkv_layer_group one = group_of(1, 0, 4);
    OK(try_groups({one, one}));
    auto indexed = one;
    indexed.layer_indices = &zero;
    OK(try_groups({indexed}));
    WANT(PKV_INVALID_ARGUMENT, try_groups({one, indexed}));  // Layer 0 is in two groups.
    indexed.layer_indices = &two;
    WANT(PKV_OUT_OF_RANGE, try_groups({one, indexed}));
    indexed.layer_indices = &far;
    WANT(PKV_OUT_OF_RANGE, try_groups({one, indexed}));
    indexed.layers = 2;
    indexed.layer_indices = twice;
    WANT(PKV_INVALID_ARGUMENT, try_groups({indexed}));
    auto odd = one;
    odd.struct_size -= 8;
    WANT(PKV_INVALID_ARGUMENT, try_groups({one, odd}));
    for (const uint32_t wrong : {0u, 8u, 56u, 60u, 72u, 4096u}) {
      odd.struct_size = wrong;
      WANT(PKV_INVALID_ARGUMENT, try_groups({odd, one}));
    }
    WANT(PKV_INVALID_ARGUMENT, try_groups(std::vector<pkv_layer_group>(70000, one)));
    auto big = one;
    big.layers = 40000;
    WANT(PKV_INVALID_ARGUMENT, try_groups({big, big}));
  });
}

}  // namespace
}  // namespace hostile::limits_test
