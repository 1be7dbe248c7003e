// Threads compete for the same handles. The second call gets BUSY or STALE_HANDLE, and in the end
// the cache is valid.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "storm.h"

namespace hostile::fights_test {
namespace {

void check_one_of(std::initializer_list<pkv_status> allowed, pkv_status got, const char* what) {
  operations++;
  HOSTILE_CHECK(std::find(allowed.begin(), allowed.end(), got) != allowed.end(), "%s gave %s: %s",
                what, pkv_status_name(got), pkv_last_error());
}

// Handles that all threads take, use, close and replace.
struct Arena {
  explicit Arena(uint32_t threads, uint64_t blocks = 96) {
    ModelConfig config = small_model(blocks);
    config.threads = threads;
    OK(pkv_cache_create(&config, &cache));
    for (auto& each : sessions) {
      pkv_session session = nullptr;
      OK(pkv_session_open(cache, nullptr, &session));
      each = session;
    }
  }
  pkv_cache cache = nullptr;
  std::array<std::atomic<pkv_session>, 4> sessions{};
  std::array<std::atomic<pkv_batch>, 2> batches{};
  std::array<std::atomic<pkv_snapshot>, 2> snapshots{};
};

#define FIGHT(call, ...)                                                                       \
  check_one_of({PKV_OK, PKV_BUSY, PKV_STALE_HANDLE, PKV_SUSPENDED __VA_OPT__(, ) __VA_ARGS__}, \
               status = (call), #call)

class Fighter {
  template <class Slots>
  auto some(Slots& slots) {
    return slots[random_() % slots.size()].load();
  }

 public:
  Fighter(Arena& arena, std::mt19937& random) : arena_(arena), random_(random) {}

  void act() {
    pkv_status status;
    const pkv_session session = some(arena_.sessions), second = some(arena_.sessions);
    const pkv_batch batch = some(arena_.batches);
    const pkv_snapshot snapshot = some(arena_.snapshots);
    switch (random_() % 19) {
      case 0:
        return begin({session, second});
      case 1:
        return begin({session});
      case 2:
        return write_and_attend(batch);
      case 3:
        FIGHT(pkv_batch_commit(batch, 0, nullptr), PKV_INVALID_ARGUMENT, PKV_INCOMPLETE);
        return;
      case 4:
        FIGHT(pkv_batch_abort(batch));
        return;
      case 5:
        FIGHT(pkv_session_trim(session, random_() % 20), PKV_OUT_OF_RANGE);
        return;
      case 6:
        return fork(session);
      case 7:
        return replace(session);
      case 8:
        return take(session);
      case 9:
        return open(snapshot);
      case 10:
        FIGHT(pkv_snapshot_close(snapshot));
        return;
      case 11:
        return append(session);
      case 12:
        FIGHT(pkv_session_reserve(session, random_() % 60), PKV_OUT_OF_BLOCKS);
        return;
      case 13:
        FIGHT(pkv_session_suspend(session));
        return;
      case 14:
        return resume(session);
      case 15:
        return choose_victims(session, second);
      default:
        return read(session, batch);
    }
  }

 private:
  void begin(std::vector<pkv_session> sessions) {
    pkv_status status;
    pkv_batch batch = nullptr;
    const std::vector<uint32_t> tokens(sessions.size(), 1 + static_cast<uint32_t>(random_() % 6));
    FIGHT(pkv_batch_begin(arena_.cache, sessions.size(), sessions.data(), tokens.data(), &batch),
          PKV_OUT_OF_BLOCKS, PKV_INVALID_ARGUMENT);
    if (status != PKV_OK) return;
    FIGHT(pkv_batch_abort(arena_.batches[random_() % arena_.batches.size()].exchange(batch)));
  }

  void write_and_attend(pkv_batch batch) {
    pkv_status status;
    size_t rows = 0;
    FIGHT(pkv_batch_get_slot_mapping(batch, 0, 0, nullptr, &rows), PKV_BUFFER_TOO_SMALL,
          PKV_INVALID_ARGUMENT);
    if (status != PKV_BUFFER_TOO_SMALL) return;
    std::vector<float> data(rows * q_floats, 0.5f), outputs(rows * q_floats);
    const pkv_tensor in = tensor(data.data()), out = tensor(outputs.data());
    for (uint32_t layer = 0; layer < layers; layer++)
      FIGHT(pkv_batch_write(batch, layer, &in, &in));
    FIGHT(pkv_batch_attend(batch, 1, nullptr, &in, &out, nullptr), PKV_INCOMPLETE);
  }

  void resume(pkv_session session) {
    pkv_status status;
    uint64_t length = 0, total = 0;
    FIGHT(pkv_session_resume(session, &length, &total), PKV_OUT_OF_BLOCKS);
  }

  void choose_victims(pkv_session session, pkv_session second) {
    pkv_status status;
    const pkv_session sessions[2] = {session, second};
    const uint32_t tokens[2] = {300, 1};
    pkv_session victims[8];
    size_t count = 0;
    FIGHT(pkv_batch_choose_victims(arena_.cache, 2, sessions, tokens, 8, victims, &count),
          PKV_OUT_OF_BLOCKS, PKV_BUFFER_TOO_SMALL, PKV_INVALID_ARGUMENT);
    if (status == PKV_OK && count > 0) FIGHT(pkv_session_suspend(victims[0]));
  }

  void fork(pkv_session session) {
    pkv_status status;
    pkv_session child = nullptr;
    FIGHT(pkv_session_fork(session, &child));
    if (status == PKV_OK) put(child);
  }

  // Puts a session into a place and closes the old one. If another thread has the old one in a
  // batch by now, it is closed later.
  void put(pkv_session session) {
    pkv_status status;
    const pkv_session old = arena_.sessions[random_() % arena_.sessions.size()].exchange(session);
    do {
      FIGHT(pkv_session_close(old));
      if (status == PKV_BUSY) FIGHT(pkv_batch_abort(some(arena_.batches)));
    } while (status == PKV_BUSY && random_() % 8 != 0);
  }

  void replace(pkv_session session) {
    pkv_status status;
    FIGHT(pkv_session_close(session));
    pkv_session fresh = nullptr;
    FIGHT(pkv_session_open(arena_.cache, nullptr, &fresh));
    if (status == PKV_OK) put(fresh);
  }

  void take(pkv_session session) {
    pkv_status status;
    pkv_snapshot snapshot = nullptr;
    FIGHT(pkv_snapshot_take(session, &snapshot));
    if (status == PKV_OK) put(snapshot);
  }

  void put(pkv_snapshot snapshot) {
    pkv_status status;
    const pkv_snapshot old =
        arena_.snapshots[random_() % arena_.snapshots.size()].exchange(snapshot);
    do FIGHT(pkv_snapshot_close(old));
    while (status == PKV_BUSY);
  }

  void open(pkv_snapshot snapshot) {
    pkv_status status;
    pkv_session session = nullptr;
    FIGHT(pkv_snapshot_fork(snapshot, &session), PKV_INVALID_ARGUMENT);
    if (status == PKV_OK) put(session);
  }

  void append(pkv_session session) {
    pkv_status status;
    const std::vector<float> data(kv_floats, 0.25f);
    const pkv_tensor row = tensor(data.data());
    FIGHT(::append(arena_.cache, session, 1, layers, &row, &row), PKV_OUT_OF_BLOCKS);
  }

  void read(pkv_session session, pkv_batch batch) {
    pkv_status status;
    uint64_t length = 0;
    size_t count = 0;
    std::array<uint32_t, 128> ids;
    std::array<int64_t, 256> slots;
    auto stats = made<pkv_cache_stats>();
    FIGHT(pkv_session_get_length(session, &length));
    FIGHT(pkv_session_get_block_table(session, 0, ids.size(), ids.data(), &count));
    FIGHT(pkv_batch_get_slot_mapping(batch, 0, slots.size(), slots.data(), &count),
          PKV_INVALID_ARGUMENT);
    FIGHT(pkv_cache_get_stats(arena_.cache, &stats));
  }

  Arena& arena_;
  std::mt19937& random_;
};

void check_fight(uint32_t threads) {
  Arena arena(threads);
  const storm::Clock clock(60'000);
  EXPECT_EQ(storm::run(storm::threads(6),
                       [&](unsigned, std::mt19937& random) {
                         Fighter fighter(arena, random);
                         while (clock.running()) fighter.act();
                       }),
            "");
  EXPECT_EQ(pkv_cache_validate(arena.cache), PKV_OK) << pkv_last_error();
  EXPECT_EQ(pkv_cache_destroy(arena.cache), PKV_OK) << pkv_last_error();
  for (const auto& session : arena.sessions)
    EXPECT_EQ(pkv_session_close(session), PKV_STALE_HANDLE);
}

TEST(Fights, OverTheSameHandles) { check_fight(1); }
TEST(Fights, OverTheSameHandlesWithWorkerThreads) { check_fight(2); }

// One thread destroys the cache while others use it. The cache is freed when no call is inside it,
// and from then on all handles are stale.
void check_destroy(uint32_t threads) {
  const storm::Clock clock(4);
  uint64_t destroyed = 0;
  while (clock.running()) {
    Arena arena(threads);
    std::atomic<bool> gone{false};
    EXPECT_EQ(storm::run(4,
                         [&](unsigned thread, std::mt19937& random) {
                           random.seed(static_cast<uint32_t>(destroyed * 4 + thread));
                           if (thread == 0) {
                             for (int i = 0; i < 50; i++) std::this_thread::yield();
                             for (;;) {
                               const pkv_status status = pkv_cache_destroy(arena.cache);
                               check_one_of({PKV_OK, PKV_BUSY}, status, "pkv_cache_destroy");
                               if (status == PKV_OK) break;
                             }
                             gone = true;
                             return;
                           }
                           Fighter fighter(arena, random);
                           while (!gone) fighter.act();
                         }),
              "");
    destroyed++;
    uint64_t length = 0;
    EXPECT_EQ(pkv_cache_destroy(arena.cache), PKV_STALE_HANDLE);
    for (const auto& session : arena.sessions)
      EXPECT_EQ(pkv_session_get_length(session, &length), PKV_STALE_HANDLE);
  }
  EXPECT_GT(destroyed, 0u);
}

TEST(Fights, DestroyWhileOthersCall) { check_destroy(1); }

// Threads open and close sessions. A handle leads to the object of the thread that opened it,
// which is recognised by its length, or to nothing.
TEST(Fights, HandlesNeverLeadToAnothersObject) {
  ModelConfig config = small_model(64);
  config.storage = PKV_STORAGE_EXTERNAL;
  pkv_cache cache = nullptr;
  OK(pkv_cache_create(&config, &cache));
  const storm::Clock clock(30'000);
  EXPECT_EQ(storm::run(storm::threads(8),
                       [&](unsigned thread, std::mt19937& random) {
                         std::vector<pkv_session> closed;
                         const uint32_t mine = thread + 1;
                         while (clock.running()) {
                           pkv_session session = nullptr;
                           pkv_batch batch = nullptr;
                           uint64_t length = 0;
                           OK(pkv_session_open(cache, nullptr, &session));
                           OK(pkv_batch_begin(cache, 1, &session, &mine, &batch));
                           OK(pkv_batch_commit(batch, 0, nullptr));
                           WANT(PKV_STALE_HANDLE, pkv_batch_abort(batch));
                           HOSTILE_CHECK(length_of(session) == mine,
                                         "the handle of thread %u leads to %llu tokens", thread,
                                         static_cast<unsigned long long>(length_of(session)));
                           OK(pkv_session_close(session));
                           WANT(PKV_STALE_HANDLE, pkv_session_get_length(session, &length));
                           closed.push_back(session);
                           WANT(PKV_STALE_HANDLE,
                                pkv_session_close(closed[random() % closed.size()]));
                         }
                       }),
            "");
  EXPECT_EQ(pkv_cache_validate(cache), PKV_OK) << pkv_last_error();
  EXPECT_EQ(pool_stats_of(cache).held_blocks, 0u);
  EXPECT_EQ(pkv_cache_destroy(cache), PKV_OK);
}

// A pool through the C interface: no other thread gets a block that one thread holds, so the holder
// writes to it without further synchronisation.
TEST(Fights, Pool) {
  auto config = made<pkv_pool_config>({.blocks = 500});
  pkv_pool pool = nullptr;
  OK(pkv_pool_create(&config, &pool));
  // Plain memory: the pool must order one owner's writes before the next one's.
  std::vector<unsigned> owner(config.blocks);
  const storm::Clock clock(40'000);
  EXPECT_EQ(storm::run(storm::threads(8),
                       [&](unsigned thread, std::mt19937& random) {
                         std::vector<pkv_block_ref> held;
                         while (clock.running()) {
                           const size_t n = random() % 90;
                           std::vector<pkv_block_ref> blocks(n);
                           const pkv_status status = pkv_pool_alloc(pool, n, blocks.data());
                           check_one_of({PKV_OK, PKV_OUT_OF_BLOCKS}, status, "pkv_pool_alloc");
                           if (status != PKV_OK) {
                             OK(pkv_pool_release(pool, held.size(), held.data()));
                             held.clear();
                             continue;
                           }
                           for (const pkv_block_ref block : blocks)
                             owner[PKV_BLOCK_ID(block)] = thread;
                           held.insert(held.end(), blocks.begin(), blocks.end());
                           OK(pkv_pool_retain(pool, blocks.size(), blocks.data()));
                           OK(pkv_pool_release(pool, blocks.size(), blocks.data()));
                           operations += 2 * blocks.size();
                           std::shuffle(held.begin(), held.end(), random);
                           const size_t keep =
                               held.size() - std::min<size_t>(held.size(), random() % 100);
                           for (const pkv_block_ref block : held)
                             HOSTILE_CHECK(owner[PKV_BLOCK_ID(block)] == thread,
                                           "block %u of thread %u was given to another",
                                           PKV_BLOCK_ID(block), thread);
                           OK(pkv_pool_release(pool, held.size() - keep, held.data() + keep));
                           operations += held.size() - keep;
                           if (keep < held.size())
                             WANT(PKV_NOT_HELD, pkv_pool_retain(pool, 1, &held[keep]));
                           held.resize(keep);
                         }
                         OK(pkv_pool_release(pool, held.size(), held.data()));
                       }),
            "");
  EXPECT_EQ(pkv_pool_validate(pool), PKV_OK) << pkv_last_error();
  auto stats = made<pkv_pool_stats>();
  EXPECT_EQ(pkv_pool_get_stats(pool, &stats), PKV_OK);
  EXPECT_EQ(stats.free_blocks, 500u);
  EXPECT_EQ(pkv_pool_destroy(pool), PKV_OK);
}

}  // namespace
}  // namespace hostile::fights_test
