// The lock that look-ups in the prefix index share.
#include <gtest/gtest.h>
#ifndef _WIN32
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#endif

#include "base/read_write_lock.h"
#include "storm.h"

namespace hostile::read_write_lock_test {
namespace {

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
}  // namespace hostile::read_write_lock_test
