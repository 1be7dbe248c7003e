// Every thread drives its own sessions in one cache. The results are bit for bit those of one
// thread alone, even where blocks are so few that threads must give some up and begin again.
#include <gtest/gtest.h>

#include <algorithm>

#include "storm.h"

namespace hostile::own_sessions_test {
namespace {

class Shared {
 public:
  Shared(uint64_t blocks, uint32_t threads, pkv_storage storage) {
    ModelConfig config = small_model(blocks);
    config.threads = threads;
    config.storage = storage;
    OK(pkv_cache_create(&config, &cache));
  }
  ~Shared() { pkv_cache_destroy(cache); }
  pkv_cache cache = nullptr;
};

// Makes one step of one session. Returns false if it did not get its blocks.
bool try_step(pkv_cache cache, pkv_session session, uint32_t n, uint64_t seed,
              std::vector<float>& outputs) {
  pkv_batch batch = nullptr;
  const pkv_status status = pkv_batch_begin(cache, 1, &session, &n, &batch);
  if (status == PKV_OUT_OF_BLOCKS) return false;
  expect(PKV_OK, status, "pkv_batch_begin");
  std::vector<float> result(layers * n * q_floats);
  for (uint32_t layer = 0; layer < layers; layer++) {
    const std::vector<float> k = numbers(n * kv_floats, seed + layer),
                             v = numbers(n * kv_floats, seed + layer + 3),
                             q = numbers(n * q_floats, seed + layer + 5);
    const pkv_tensor kt = tensor(k.data()), vt = tensor(v.data()), qt = tensor(q.data()),
                     out = tensor(result.data() + layer * n * q_floats);
    OK(pkv_batch_write(batch, layer, &kt, &vt));
    OK(pkv_batch_attend(batch, layer, nullptr, &qt, &out, nullptr));
  }
  OK(pkv_batch_commit(batch, 0, nullptr));
  outputs.insert(outputs.end(), result.begin(), result.end());
  return true;
}

// Plays operations chosen by the seed: steps, forks that diverge, trims, an abort, snapshots.
// Returns false if blocks ran short; then it has freed everything.
bool live(pkv_cache cache, uint64_t seed, std::vector<float>& outputs) {
  std::mt19937_64 random(seed);
  std::vector<pkv_session> sessions(1);
  pkv_snapshot snapshot = nullptr;
  OK(pkv_session_open(cache, nullptr, &sessions[0]));
  const auto end = [&](bool result) {
    for (const pkv_session session : sessions) OK(pkv_session_close(session));
    OK(pkv_snapshot_close(snapshot));
    return result;
  };
  const auto add = [&](pkv_status status, const pkv_session& session) {
    if (status == PKV_OUT_OF_BLOCKS) return false;
    expect(PKV_OK, status, "a fork");
    sessions.push_back(session);
    return true;
  };
  for (int i = 0; i < 14; i++) {
    const pkv_session session = sessions[random() % sessions.size()];
    const uint64_t length = length_of(session);
    pkv_session child = nullptr;
    switch (random() % 9) {
      case 0:
        if (sessions.size() < 3 && !add(pkv_session_fork(session, &child), child))
          return end(false);
        break;
      case 1:
        OK(pkv_session_trim(session, length - length / 3));
        break;
      case 2: {
        const uint32_t n = 5;
        pkv_batch batch = nullptr;
        const pkv_status status = pkv_batch_begin(cache, 1, &session, &n, &batch);
        if (status == PKV_OUT_OF_BLOCKS) return end(false);
        expect(PKV_OK, status, "pkv_batch_begin");
        OK(pkv_batch_abort(batch));
        break;
      }
      case 3: {
        OK(pkv_snapshot_close(snapshot));
        snapshot = nullptr;
        const pkv_status status = pkv_snapshot_take(session, &snapshot);
        if (status == PKV_OUT_OF_BLOCKS) return end(false);
        expect(PKV_OK, status, "pkv_snapshot_take");
        if (sessions.size() < 3 && !add(pkv_snapshot_fork(snapshot, &child), child))
          return end(false);
        break;
      }
      case 4: {
        OK(pkv_session_suspend(session));
        uint64_t kept = 0, total = 0;
        const pkv_status status = pkv_session_resume(session, &kept, &total);
        if (status == PKV_OUT_OF_BLOCKS) return end(false);
        expect(PKV_OK, status, "pkv_session_resume");
        HOSTILE_CHECK(kept == 0 && total >= length, "a resume told %llu and %llu",
                      static_cast<unsigned long long>(kept),
                      static_cast<unsigned long long>(total));
        break;
      }
      default:
        if (!try_step(cache, session, 1 + static_cast<uint32_t>(random() % 24), random(), outputs))
          return end(false);
    }
  }
  return end(true);
}

constexpr uint64_t lives = 40;

std::vector<std::vector<float>> alone(pkv_storage storage) {
  const Shared one(1024, 1, storage);
  std::vector<std::vector<float>> result(lives);
  for (uint64_t seed = 0; seed < lives; seed++) EXPECT_TRUE(live(one.cache, seed, result[seed]));
  return result;
}

void check_storm(uint64_t blocks, uint32_t threads, pkv_storage storage, bool short_of_blocks) {
  const std::vector<std::vector<float>> expected = alone(storage);
  const Shared shared(blocks, threads, storage);
  std::atomic<uint64_t> done{0}, preempted{0};
  const storm::Clock clock(1000);
  EXPECT_EQ(storm::run(storm::threads(4),
                       [&](unsigned, std::mt19937& random) {
                         while (clock.running()) {
                           const uint64_t seed = random() % lives;
                           std::vector<float> outputs;
                           if (!live(shared.cache, seed, outputs)) {
                             preempted++;
                             continue;
                           }
                           done++;
                           HOSTILE_CHECK(outputs == expected[seed],
                                         "life %llu has other numbers than alone",
                                         static_cast<unsigned long long>(seed));
                         }
                       }),
            "");
  EXPECT_GT(done.load(), 10u);
  if (short_of_blocks && storm::threads(4) >= 4) {
    EXPECT_GT(preempted.load(), 0u);
  }
  EXPECT_EQ(pkv_cache_validate(shared.cache), PKV_OK) << pkv_last_error();
  const pkv_cache_stats stats = stats_of(shared.cache);
  EXPECT_EQ(stats.sessions + stats.snapshots + stats.batches, 0u);
  EXPECT_EQ(pool_stats_of(shared.cache).free_blocks, blocks);
}

TEST(OwnSessions, SameBitsAsAlone) { check_storm(1024, 1, PKV_STORAGE_INTERNAL, false); }
TEST(OwnSessions, SameBitsWhereBlocksAreShort) { check_storm(24, 1, PKV_STORAGE_INTERNAL, true); }
TEST(OwnSessions, SameBitsWithWorkerThreads) { check_storm(64, 2, PKV_STORAGE_INTERNAL, false); }

}  // namespace
}  // namespace hostile::own_sessions_test
