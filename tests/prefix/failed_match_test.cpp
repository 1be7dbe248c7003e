// A match that fails changes nothing.
#include "api/boundary.h"
#include "engine/session/session.h"
#include "replay.h"

namespace failed_match_test {
namespace {

using Text = std::vector<int32_t>;

Text text(int32_t name) {
  Text tokens(32);
  for (size_t i = 0; i < tokens.size(); i++) tokens[i] = name * 1000 + static_cast<int32_t>(i);
  return tokens;
}

// A block of the text used longest ago has as many references as there can be, so nobody can match
// that text. An attempt does not count as a use.
TEST(FailedMatch, IsNoUse) {
  const cache_test::Cache cache = replay::cache_of(4, 16, PKV_EVICTION_LRU);
  const pkv::api::CacheLease lease(cache);
  pkv::memory::Pool& pool = lease->groups()[0]->pool;
  pkv::memory::Block block;
  {
    const cache_test::Session session = cache_test::open(cache);
    replay::run(cache, session, text(1));
    const pkv::api::SessionLease inside(session, pkv::api::Access::get);
    block = inside->content().table(0).blocks()[0];
  }
  replay::serve(cache, text(2));
  uint32_t references = 0;
  for (; pool.retain(block) == PKV_OK; references++) {
  }
  {
    const cache_test::Session session = cache_test::open(cache);
    const Text tokens = text(1);
    uint64_t matched;
    REFUSED(PKV_LIMIT_REACHED,
            pkv_session_admit(session, tokens.size(), tokens.data(), 0, &matched));
  }
  for (; references > 0; references--) ASSERT_EQ(PKV_OK, pool.release(block));
  CHECK(pkv_cache_validate(cache));
  const cache_test::Session greedy = cache_test::open(cache, 32);
  EXPECT_EQ(32u, replay::match(cache_test::open(cache), text(2)));
  EXPECT_EQ(0u, replay::match(cache_test::open(cache), text(1)));
}

}  // namespace
}  // namespace failed_match_test
