// Threads look up the same texts in one prefix index, extend them and make it evict. Whatever is
// evicted between finding and claiming a text, a session holds the keys and values of its own text.
#include <gtest/gtest.h>
#ifndef _WIN32
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#endif

#include "base/read_write_lock.h"
#include "storm.h"
#include "texts.h"

namespace hostile::look_ups_test {
namespace {

void check_holds(pkv_session session, const std::vector<int32_t>& text, size_t n) {
  std::vector<float> k(n * kv_floats), v(n * kv_floats);
  const pkv_tensor kt = tensor(k.data()), vt = tensor(v.data());
  for (uint32_t layer = 0; layer < layers; layer++) {
    OK(pkv_session_read(session, layer, 0, n, &kt, &vt));
    HOSTILE_CHECK(k == rows_of(text, 0, n, kv_floats) && v == k,
                  "%zu tokens are not those of the text", n);
  }
}

// Matches a text and computes the rest of it. Returns how many tokens were found.
uint64_t live(pkv_cache cache, const std::vector<int32_t>& text) {
  pkv_session session = nullptr;
  OK(pkv_session_open(cache, nullptr, &session));
  uint64_t matched = 0;
  OK(pkv_session_admit(session, text.size(), text.data(), 0, &matched));
  if (matched > 0) check_holds(session, text, matched);
  const auto rest = static_cast<uint32_t>(text.size() - matched);
  pkv_batch batch = nullptr;
  const pkv_status begun = pkv_batch_begin(cache, 1, &session, &rest, &batch);
  if (begun != PKV_OUT_OF_BLOCKS) {
    expect(PKV_OK, begun, "pkv_batch_begin");
    const std::vector<float> rows = rows_of(text, matched, text.size(), kv_floats);
    const pkv_tensor kv = tensor(rows.data());
    for (uint32_t layer = 0; layer < layers; layer++) OK(pkv_batch_write(batch, layer, &kv, &kv));
    OK(pkv_batch_commit(batch, rest, text.data() + matched));
    check_holds(session, text, text.size());
  }
  OK(pkv_session_close(session));
  return matched;
}

TEST(LookUps, HoldTheirOwnTextWhileOthersEvict) {
  auto prefix = made<pkv_prefix_config>();
  ModelConfig config = small_model(60);
  config.threads = 1;
  config.prefix = &prefix;
  pkv_cache cache = nullptr;
  OK(pkv_cache_create(&config, &cache));
  std::atomic<uint64_t> matched = 0;
  const storm::Clock clock(2000);
  const std::string failed = storm::run(storm::threads(4), [&](unsigned, std::mt19937& random) {
    while (clock.running()) {
      const std::vector<int32_t> text = draw_text(random, 60 + random() % 100, 4);
      uint64_t cached = 0;
      OK(pkv_prefix_probe(cache, TextArg(text), &cached));
      HOSTILE_CHECK(cached <= text.size(), "%llu tokens are cached", (unsigned long long)cached);
      matched += live(cache, text);
    }
  });
  EXPECT_EQ("", failed);
  EXPECT_LT(0u, matched.load());
  EXPECT_EQ(PKV_OK, pkv_cache_validate(cache)) << pkv_last_error();
  const pkv_cache_stats stats = stats_of(cache);
  EXPECT_EQ(stats.blocks, stats.free_blocks + stats.evictable_blocks);
  pkv_prefix_stats figures{};
  figures.struct_size = sizeof figures;
  OK(pkv_prefix_get_stats(cache, nullptr, PKV_ALL_SALTS, &figures));
  EXPECT_LT(0u, figures.evicted_blocks);
  EXPECT_EQ(figures.matched_tokens, matched.load());
  OK(pkv_cache_destroy(cache));
}

// Some hold the lock so long that waiting threads sleep.
TEST(ReadWriteLock, LetsReadersInTogetherAndWritersAlone) {
  pkv::ReadWriteLock lock;
  std::atomic<int> readers = 0, most_readers = 0;
  int64_t written = 0;  // by writers alone
  std::atomic<int64_t> writes = 0;
  const storm::Clock clock(50'000);
  const std::string failed = storm::run(storm::threads(6), [&](unsigned, std::mt19937& random) {
    while (clock.running()) {
      const auto work = std::chrono::microseconds(random() % 50 == 0 ? 3000 : random() % 20);
      if (random() % 4 != 0) {
        lock.lock_shared();
        const int64_t before = written;
        const int inside = ++readers;
        for (int most = most_readers; most < inside;)
          if (most_readers.compare_exchange_weak(most, inside)) break;
        if (random() % 8 == 0) std::this_thread::sleep_for(work);
        const bool same = before == written;
        readers--;
        lock.unlock_shared();
        HOSTILE_CHECK(same, "a writer was in with readers");
      } else {
        if (random() % 2 == 0) {
          if (!lock.try_lock()) continue;
        } else {
          lock.lock();
        }
        const bool alone = readers == 0;
        written++;
        if (random() % 8 == 0) std::this_thread::sleep_for(work);
        lock.unlock();
        writes++;
        HOSTILE_CHECK(alone, "readers were in with a writer");
      }
    }
  });
  EXPECT_EQ("", failed);
  EXPECT_EQ(writes.load(), written);
  EXPECT_LT(1, most_readers.load());
  EXPECT_TRUE(lock.try_lock());
}

#ifndef _WIN32  // A signal stops a thread there.

std::atomic<bool> writer_stands{false}, writer_may_go{false};

void stand_still(int) {
  writer_stands = true;
  while (!writer_may_go) poll(nullptr, 0, 1);
}

// A waiting writer that does not get to run: with real-time priorities, the readers that wait for
// it keep the CPU.
TEST(ReadWriteLock, AReaderDoesNotWaitForAWriterThatNeverComes) {
  pkv::ReadWriteLock lock;
  lock.lock_shared();
  std::thread writer([&] {
    lock.lock();
    lock.unlock();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // it sleeps in the lock
  signal(SIGUSR1, stand_still);
  pthread_kill(writer.native_handle(), SIGUSR1);
  while (!writer_stands) std::this_thread::yield();
  lock.unlock_shared();
  std::atomic<bool> entered = false;
  std::thread reader([&] {
    lock.lock_shared();
    entered = true;
    lock.unlock_shared();
  });
  for (int i = 0; i < 1000 && !entered; i++)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(entered);
  writer_may_go = true;
  writer.join();
  reader.join();
  EXPECT_TRUE(lock.try_lock());
}

#endif

}  // namespace
}  // namespace hostile::look_ups_test
