// Groups that share one memory: one group can use what another does not need. The model has five
// sliding-window layers for each full one, as is common; a block of the sliding group takes five
// times as much as one of the full group.
#include <algorithm>
#include <atomic>
#include <functional>
#include <numeric>
#include <string>
#include <thread>

#include "../support/cache.h"
#include "../support/rows.h"

namespace cache_test::group_memory_test {
namespace {

constexpr uint32_t block_size = 16, window = 64, full = 0, sliding = 1;

// Returns the bytes of a block of the full group.
uint64_t full_block_bytes() { return sizes_of(config_of(Model{1, 1, 1, 16}, 1)).bytes_per_block; }

// A cache whose groups share `pages` pages. A page holds five full blocks or one sliding block.
Cache create_shared(uint64_t pages, pkv_storage storage = PKV_STORAGE_EXTERNAL,
                    uint32_t watermark = 0, bool with_prefix = false) {
  pkv_layer_group groups[2];
  for (pkv_layer_group& group : groups) {
    group = made<pkv_layer_group>();
    group.layers = 1;
    group.query_heads = group.kv_heads = 1;
    group.key_dim = 16;
  }
  groups[sliding].layers = 5;
  groups[sliding].window = window;
  auto prefix = made<pkv_prefix_config>();
  auto config = made<pkv_cache_config>({.group_count = 2,
                                        .groups = groups,
                                        .storage = storage,
                                        .groups_share_memory = 1,
                                        .memory_bytes = pages * 5 * full_block_bytes(),
                                        .watermark_blocks = watermark,
                                        .prefix = with_prefix ? &prefix : nullptr});
  return create(config);
}

uint64_t used(pkv_cache cache, uint32_t group) { return pool_stats_of(cache, group).held_blocks; }

TEST(GroupMemory, WhatOneGroupDoesNotUseAnotherCan) {
  constexpr uint64_t pages = 32;
  Cache cache = create_shared(pages);
  {
    // A long text: the window group needs six blocks at most, and the full group has the rest.
    Session session = open(cache);
    const uint64_t tokens = (pages - 7) * 5 * block_size;
    while (length_of(session) < tokens) grow(cache, session, 16);
    EXPECT_EQ(tokens / block_size, used(cache, full));
    EXPECT_LE(used(cache, sliding), 6u);
    CHECK(pkv_cache_validate(cache));
  }
  {
    // Short texts take the same number of blocks of each group, so the window group has most of the
    // memory.
    std::vector<Session> sessions;
    for (int i = 0; i < 26; i++) grow(cache, sessions.emplace_back(open(cache)), 16);
    EXPECT_EQ(26u, used(cache, full));
    EXPECT_EQ(26u, used(cache, sliding));
    CHECK(pkv_cache_validate(cache));
  }
  EXPECT_EQ(0u, pool_stats_of(cache).held_blocks);
}

TEST(GroupMemory, WhatCanNeverFitIsTooLarge) {
  Cache cache = create_shared(10);
  Session session = open(cache);
  // Of ten pages the window takes at least five blocks at 80 tokens, and five pages are 400 tokens.
  pkv_batch none = nullptr;
  const pkv_session handle = session;
  const uint32_t too_many = 11 * block_size;
  REFUSED(PKV_TOO_LARGE, pkv_batch_begin(cache, 1, &handle, &too_many, &none));
  EXPECT_NE(std::string::npos, std::string(pkv_last_error()).find("blocks")) << pkv_last_error();
  const uint32_t also = 9 * block_size;
  REFUSED(PKV_TOO_LARGE, pkv_batch_begin(cache, 1, &handle, &also, &none));
  EXPECT_NE(std::string::npos, std::string(pkv_last_error()).find("pages")) << pkv_last_error();
  grow(cache, session, 8 * block_size);
}

// Snapshots hold a block of each group in five of the ten pages of a cache, and fill another page.
std::vector<Snapshot> hold_six_pages(pkv_cache cache) {
  std::vector<Snapshot> holders;
  while (holders.size() < 5) {
    const Session session = open(cache);
    grow(cache, session, block_size);
    holders.push_back(freeze(session));
  }
  return holders;
}

// The call lacks blocks of the sliding group: the full group takes a page, and then there are not
// enough. Closing one snapshot fewer than the count says does not help. Closing that many does.
void expect_missing(uint64_t missing, std::vector<Snapshot>& holders,
                    const std::function<pkv_status()>& call) {
  for (; missing > 0; missing--) {
    REFUSED(PKV_OUT_OF_BLOCKS, call());
    EXPECT_EQ(missing, pkv_last_error_details()->blocks_short) << pkv_last_error();
    EXPECT_EQ(sliding, pkv_last_error_details()->group) << pkv_last_error();
    holders.pop_back();
  }
  CHECK(call());
}

TEST(GroupMemory, WhatAStepLacksIsCountedInPages) {
  const Cache cache = create_shared(10);
  for (const bool chooses : {false, true}) {
    SCOPED_TRACE(chooses);
    std::vector<Snapshot> holders = hold_six_pages(cache);
    const Session session = open(cache);
    expect_missing(2, holders, [&] {
      const pkv_session handle = session;
      const uint32_t tokens = 5 * block_size;
      pkv_batch batch = nullptr;
      size_t count = 0;
      const pkv_status status =
          chooses ? pkv_batch_choose_victims(cache, 1, &handle, &tokens, 0, nullptr, &count)
                  : pkv_batch_begin(cache, 1, &handle, &tokens, &batch);
      const Batch begun(batch);
      return status;
    });
  }
}

TEST(GroupMemory, WhatAReservationLacksIsCountedInPages) {
  const Cache cache = create_shared(10);
  for (const bool admits : {false, true}) {
    SCOPED_TRACE(admits);
    std::vector<Snapshot> holders = hold_six_pages(cache);
    const Session session = open(cache);
    const std::vector<int32_t> text(5 * block_size, 1);
    expect_missing(2, holders, [&] {
      uint64_t matched = 0;
      return admits ? pkv_session_admit(session, text.size(), text.data(), text.size(), &matched)
                    : pkv_session_reserve(session, text.size());
    });
  }
}

// For a resume the sliding group needs only the blocks of the window.
TEST(GroupMemory, WhatAResumeOrALoadLacksIsCountedInPages) {
  const Cache cache = create_shared(10);
  Session session = open(cache);
  grow(cache, session, 5 * block_size);
  std::vector<unsigned char> file(1 << 16);
  const pkv_file_item item{session, nullptr, 0};
  const pkv_stream to = buffer_stream(file.data(), file.size());
  uint64_t bytes = 0;
  CHECK(pkv_file_save(cache, 1, &item, nullptr, &to, &bytes));
  CHECK(pkv_session_suspend(session));
  {
    std::vector<Snapshot> holders = hold_six_pages(cache);
    uint64_t length = 0, total = 0;
    expect_missing(1, holders, [&] { return pkv_session_resume(session, &length, &total); });
  }
  session.close();
  std::vector<Snapshot> holders = hold_six_pages(cache);
  expect_missing(2, holders, [&] {
    const pkv_stream from = buffer_stream(file.data(), bytes);
    pkv_session loaded = nullptr;
    size_t count = 0;
    const pkv_status status = pkv_file_load(cache, nullptr, &from, 1, &loaded, nullptr, &count);
    const Session owner(loaded);
    return status;
  });
}

TEST(GroupMemory, MetricsTellOfPages) {
  const Cache cache = create_shared(10);
  const Session session = open(cache);
  grow(cache, session, 6 * block_size);
  size_t size = 0;
  REFUSED(PKV_BUFFER_TOO_SMALL, pkv_cache_format_metrics(cache, 0, nullptr, &size));
  std::string metrics(size, '?');
  CHECK(pkv_cache_format_metrics(cache, size, metrics.data(), &size));
  // Six blocks of the full group take two pages, and each of the window group's six takes one.
  EXPECT_NE(std::string::npos, metrics.find("\npagedkv_pages{state=\"taken\"} 8\n")) << metrics;
  EXPECT_NE(std::string::npos, metrics.find("\npagedkv_pages{state=\"free\"} 2\n")) << metrics;
}

// A scheduler whose sessions grow until the memory is full, and which then suspends the sessions
// that the library names. The step must work afterwards, so the library must predict which pages
// become free.
class Scheduler {
 public:
  Scheduler(pkv_cache cache, uint64_t seed) : cache_(cache), random_(seed) {
    while (sessions_.size() < 12) sessions_.push_back(open(cache_));
  }

  void run(int steps) {
    for (int i = 0; i < steps && !testing::Test::HasFatalFailure(); i++) {
      SCOPED_TRACE(testing::Message() << "step " << i);
      step();
      CHECK(pkv_cache_validate(cache_));
    }
  }
  uint64_t suspended() const { return suspended_; }

 private:
  void step() {
    std::vector<pkv_session> list;
    std::vector<uint32_t> counts;
    for (const Session& session : sessions_) {
      if (info_of(session).suspended != 0 || random_.below(3) > 0) continue;
      list.push_back(session);
      counts.push_back(static_cast<uint32_t>(random_.between(1, random_.below(6) == 0 ? 90 : 3)));
    }
    if (list.empty() || random_.below(12) == 0) return replace_one();
    pkv_batch batch = nullptr;
    pkv_status status = pkv_batch_begin(cache_, list.size(), list.data(), counts.data(), &batch);
    if (status == PKV_OUT_OF_BLOCKS) {
      size_t victims = sessions_.size();
      std::vector<pkv_session> named(victims);
      status = pkv_batch_choose_victims(cache_, list.size(), list.data(), counts.data(), victims,
                                        named.data(), &victims);
      if (status == PKV_OUT_OF_BLOCKS) return replace_one();
      CHECK(status);
      ASSERT_GT(victims, 0u);
      named.resize(victims);
      suspend(named, list, counts);
      status = pkv_batch_begin(cache_, list.size(), list.data(), counts.data(), &batch);
    }
    if (status == PKV_TOO_LARGE || status == PKV_BATCH_TOO_LARGE) return replace_one();
    ASSERT_EQ(PKV_OK, status) << pkv_last_error();
    const std::vector<int32_t> tokens(std::accumulate(counts.begin(), counts.end(), size_t{0}),
                                      static_cast<int32_t>(random_.below(1u << 30)));
    CHECK(pkv_batch_commit(batch, tokens.size(), tokens.data()));
  }

  void suspend(const std::vector<pkv_session>& named, std::vector<pkv_session>& list,
               std::vector<uint32_t>& counts) {
    for (const pkv_session victim : named) {
      CHECK(pkv_session_suspend(victim));
      suspended_++;
      const auto at = std::find(list.begin(), list.end(), victim);
      if (at == list.end()) continue;
      counts.erase(counts.begin() + (at - list.begin()));
      list.erase(at);
    }
  }

  void replace_one() { sessions_[random_.below(sessions_.size())] = open(cache_); }

  pkv_cache cache_;
  Random random_;
  std::vector<Session> sessions_;
  uint64_t suspended_ = 0;
};

TEST(GroupMemory, AStepWorksOnceTheNamedSessionsAreSuspended) {
  uint64_t suspended = 0;
  for (const bool with_prefix : {false, true})
    for (uint64_t seed = 1; seed <= 10; seed++) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", prefix index " << with_prefix);
      Cache cache =
          create_shared(30, PKV_STORAGE_EXTERNAL, static_cast<uint32_t>(seed % 3), with_prefix);
      Scheduler scheduler(cache, seed);
      scheduler.run(300);
      if (HasFatalFailure()) return;
      suspended += scheduler.suspended();
    }
  EXPECT_GT(suspended, 200u);
}

// Blocks of cached texts in one group make room for the other group.
TEST(GroupMemory, CachedBlocksOfOneGroupGiveWayToAnother) {
  Cache cache = create_shared(32, PKV_STORAGE_EXTERNAL, 0, true);
  for (int32_t text = 0; text < 20; text++) {
    Session session = open(cache);
    Batch batch = begin(cache, {session}, {32});
    std::vector<int32_t> tokens(32, text);
    CHECK(pkv_batch_commit(batch, 32, tokens.data()));
    batch.forget();
  }
  EXPECT_GT(used(cache, sliding), 20u) << "cached";
  Session session = open(cache);
  for (int i = 0; i < 25 * 5; i++) grow(cache, session, block_size);
  EXPECT_EQ(25u * 5, block_table(session, full).size());
  CHECK(pkv_cache_validate(cache));
}

// Threads open, grow and close sessions of their own; pages move between the groups all the time. A
// step may be refused, as always when blocks are short.
TEST(GroupMemory, ManyThreadsMovePages) {
  Cache cache = create_shared(24);
  std::atomic<uint64_t> steps{0}, refused{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; t++)
    threads.emplace_back([&, t] {
      Random random(t);
      for (int text = 0; text < 60; text++) {
        Session session = open(cache);
        const auto length = random.between(1, random.below(4) == 0 ? 600 : 40);
        while (length_of(session) < length) {
          const pkv_session handle = session;
          const uint32_t n = 20;
          pkv_batch batch = nullptr;
          const pkv_status status = pkv_batch_begin(cache, 1, &handle, &n, &batch);
          if (status != PKV_OK) {
            EXPECT_EQ(PKV_OUT_OF_BLOCKS, status);
            refused++;
            break;
          }
          steps++;
          CHECK(pkv_batch_commit(batch, 0, nullptr));
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(pkv_cache_validate(cache));
  EXPECT_EQ(0u, pool_stats_of(cache).held_blocks);
  EXPECT_GT(steps, 300u);
  // Either group can take all of it again.
  Session session = open(cache);
  for (int i = 0; i < 18 * 5; i++) grow(cache, session, block_size);
}

}  // namespace
}  // namespace cache_test::group_memory_test
