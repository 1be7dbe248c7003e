// Texts that share prefixes, in a cache with a prefix index. The first byte chooses storage,
// layout, policy, window and whether there is a store behind it, whose bytes may change. Keys and
// values depend on the text, so whatever was matched, copied, evicted or read back, a session must
// hold exactly these.
#include "../tests/cache/prefix_play.h"
#include "target.h"

FUZZ_TARGET(const uint8_t* data, size_t size) {
  cache_test::Random random(data, size);
  const cache_test::PrefixSetup& setup =
      cache_test::prefix_setups[random.below(std::size(cache_test::prefix_setups))];
  cache_test::PrefixWorld world(setup);
  cache_test::PrefixPlay play(world, random, true);
  for (int i = 0; i < 200 && !play.spent(); i++) {
    play.operate();
    play.compare();
  }
  play.finish();
  CHECK(pkv_cache_validate(world.cache));
  CHECK(pkv_prefix_clear(world.cache, nullptr, PKV_ALL_SALTS));
  EXPECT_EQ(0u, cache_test::stats_of(world.cache).used_blocks);
}
