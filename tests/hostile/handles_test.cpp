// Handles that were never given out, or are closed, are recognised by their bits. They are never
// followed.
#include <gtest/gtest.h>

#include <random>

#include "matrix.h"

namespace hostile::handles_test {
namespace {

#define IN_CHILD(...) EXPECT_EQ(in_child([&] __VA_ARGS__), "")

TEST(Handles, RandomBitsAreStale) {
  IN_CHILD({
    World world;
    std::mt19937_64 random(1);
    world.remember();
    const uint64_t known[] = {bits(world.cache), bits(world.session), bits(world.batch),
                              bits(world.snapshot), bits(world.pool)};
    size_t found = 0;
    uint64_t value = 0;
    int64_t slots[8];
    size_t rows = 0;
    pkv_session opened = nullptr;
    auto stats = made<pkv_pool_stats>();
    for (size_t i = 0; i < 100000; i++) {
      uint64_t forged = random();
      // Some forged handles differ from an open one in a single bit or byte.
      if (i % 3 == 1) forged = known[forged % 5] ^ (uint64_t{1} << (forged >> 8) % 64);
      if (i % 3 == 2) forged = known[forged % 5] ^ ((forged >> 32 & 0xFF) << (forged >> 8) % 8 * 8);
      pkv_status status = PKV_OK;
      switch (i % 4) {
        case 0:
          status = pkv_session_get_length(from_bits<pkv_session>(forged), &value);
          break;
        case 1:
          status = pkv_batch_get_slot_mapping(from_bits<pkv_batch>(forged), 0, 8, slots, &rows);
          break;
        case 2:
          status = pkv_snapshot_fork(from_bits<pkv_snapshot>(forged), &opened);
          if (status == PKV_OK) OK(pkv_session_close(opened));
          break;
        case 3:
          status = pkv_pool_get_stats(from_bits<pkv_pool>(forged), &stats);
          break;
      }
      found += status == PKV_OK;
      HOSTILE_CHECK(
          status == PKV_STALE_HANDLE || status == PKV_OK || status == PKV_INVALID_ARGUMENT,
          "%#llx gave %s", static_cast<unsigned long long>(forged), pkv_status_name(status));
    }
    // A change of no bit is the handle itself.
    HOSTILE_CHECK(found < 2000, "%zu forged handles were found", found);
    world.check_state();
    world.validate();
    world.close();
  });
}

// Closing a forged handle must not close any object.
TEST(Handles, ClosingRandomBitsClosesNothing) {
  IN_CHILD({
    World world;
    std::mt19937_64 random(2);
    world.remember();
    for (size_t i = 0; i < 10000; i++) {
      const uint64_t forged = random();
      WANT(PKV_STALE_HANDLE, pkv_session_close(from_bits<pkv_session>(forged)));
      WANT(PKV_STALE_HANDLE, pkv_batch_abort(from_bits<pkv_batch>(forged)));
      WANT(PKV_STALE_HANDLE, pkv_snapshot_close(from_bits<pkv_snapshot>(forged)));
      WANT(PKV_STALE_HANDLE, pkv_cache_destroy(from_bits<pkv_cache>(forged)));
      WANT(PKV_STALE_HANDLE, pkv_pool_destroy(from_bits<pkv_pool>(forged)));
    }
    world.check_state();
    world.close();
  });
}

// A closed handle stays stale when its slot is used again, by any kind of object.
TEST(Handles, AReusedPlaceIsAnotherHandle) {
  IN_CHILD({
    World world;
    std::vector<pkv_session> closed;
    for (size_t i = 0; i < 2000; i++) {
      pkv_session session = nullptr;
      OK(pkv_session_open(world.cache, nullptr, &session));
      for (size_t back = 1; back <= 5 && back <= closed.size(); back++) {
        uint64_t length = 0;
        HOSTILE_CHECK(closed[closed.size() - back] != session, "a handle came back");
        WANT(PKV_STALE_HANDLE, pkv_session_get_length(closed[closed.size() - back], &length));
      }
      OK(pkv_session_close(session));
      closed.push_back(session);
    }
    for (const pkv_session session : closed) WANT(PKV_STALE_HANDLE, pkv_session_close(session));
    world.validate();
    world.close();
  });
}

// Blocks of a pool are released twice, in every way.
TEST(Handles, BlocksFreedTwice) {
  IN_CHILD({
    World world;
    const pkv_block_ref block = world.blocks[5];
    OK(pkv_pool_release(world.pool, 1, &block));
    WANT(PKV_NOT_HELD, pkv_pool_release(world.pool, 1, &block));
    pkv_block_ref again = 0;
    OK(pkv_pool_alloc(world.pool, 1, &again));
    HOSTILE_CHECK(PKV_BLOCK_ID(again) == PKV_BLOCK_ID(block) && again != block,
                  "the id comes back in another generation");
    world.remember();
    WANT(PKV_NOT_HELD, pkv_pool_release(world.pool, 1, &block));
    WANT(PKV_NOT_HELD, pkv_pool_retain(world.pool, 1, &block));
    const pkv_block_ref mixed[] = {world.blocks[0], again, block};
    WANT(PKV_NOT_HELD, pkv_pool_release(world.pool, 3, mixed));
    WANT(PKV_NOT_HELD, pkv_pool_retain(world.pool, 3, mixed));
    world.check_state();
    world.close();
  });
}

}  // namespace
}  // namespace hostile::handles_test
