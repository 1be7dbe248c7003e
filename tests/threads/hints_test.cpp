// Threads give hints of every kind about the same session and the same texts, while another thread
// runs that session and a device copies its blocks. No step is refused, the session keeps what it
// computed, and all hints end.
#include "../support/hints.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "../cache/elsewhere.h"
#include "../support/memory_store.h"
#include "../support/rows.h"
#include "../support/test_clock.h"

namespace cache_test::hints_test {
namespace {

constexpr size_t longest = 200;
constexpr int names = 3, rounds = 400;

Text text_of(uint64_t name) { return tokens(static_cast<int32_t>(1000 * (1 + name)), longest); }

pkv_hint draw_hint(Random& random) {
  const uint64_t end = random.chance(30) ? 0 : random.below(longest + 1);
  return hint_of(static_cast<pkv_hint_action>(random.between(1, 8)),
                 {.first = random.below(std::max<uint64_t>(end, 1)),
                  .end = end,
                  .retention = static_cast<pkv_retention>(static_cast<int>(random.below(3)) - 1),
                  .duration_ms = random.below(40)});
}

// The session of this handle may be closed meanwhile.
void give_hint(const Elsewhere& at, pkv_session session, Random& random) {
  pkv_hint given = draw_hint(random);
  const Text whole = text_of(random.below(names));
  if (session != nullptr && random.chance(50)) {
    if (given.action == PKV_HINT_DROP) given.end = PKV_TO_END;
    const pkv_status status = pkv_hint_session(session, &given, nullptr);
    if (status != PKV_STALE_HANDLE && status != PKV_BUSY) check(status, "hint");
  } else if (given.action != PKV_HINT_EXPECT_RETURN) {
    CHECK(pkv_hint_prompt(at.cache, TextArg(whole), &given, nullptr));
  }
}

void run_session(Elsewhere& at, std::atomic<pkv_session>& shared, Random& random) {
  Session session = open(at.cache);
  shared = session;
  const Text whole = text_of(random.below(names));
  uint64_t length = 0, total = 0;
  CHECK(pkv_session_admit(session, whole.size() - 20, whole.data(), 0, &length));
  while (length < whole.size()) {
    length = std::min<uint64_t>(length + random.between(1, 40), whole.size());
    at.extend(session, Text(whole.begin(), whole.begin() + static_cast<int64_t>(length)));
    if (random.chance(80)) continue;
    CHECK(pkv_session_suspend(session));
    CHECK(pkv_session_resume(session, &length, &total));
  }
  at.check(session, whole);
  session.close();
}

TEST(Hints, AreGivenByManyThreadsAtOnce) {
  MemoryStore store;
  pkv_store table = store.table();
  const auto config = made<pkv_store_config>({.store = &table});
  TestClock clock;
  Elsewhere at({.blocks = 40, .store = &config, .clock = clock.hook()});
  std::atomic<pkv_session> shared{nullptr};
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> given{0};
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 3; i++)
    threads.emplace_back([&, i] {
      Random random(i);
      try {
        for (; !stop; given++) {
          give_hint(at, shared, random);
          if (random.chance(10)) clock.advance(1);
        }
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    });
  Random random(9);
  try {
    for (int round = 0; round < rounds; round++) run_session(at, shared, random);
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(given, 1000u);
  settle(at.cache);
  clock.end();
  CHECK(pkv_prefix_clear(at.cache, nullptr, PKV_ALL_SALTS));
  settle(at.cache);
  EXPECT_EQ(0u, pool_stats_of(at.cache).held_blocks);
  CHECK(pkv_cache_validate(at.cache));
}

}  // namespace
}  // namespace cache_test::hints_test
