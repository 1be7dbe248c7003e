// Workers on the library's own threads (src/base/parallel_pool.cpp), whatever this library is built
// with. ThreadSanitizer sees all of it here, which it does not of oneTBB.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "../support/sanitizers.h"
#include "base/background_tasks.h"
#include "base/parallel.h"

namespace pkv {
namespace {

// Runs n tasks: each has to run once, on a worker that runs no other task meanwhile.
void run_each_once(Workers& workers, size_t n) {
  std::vector<int> ran(n);
  std::vector<std::atomic<int>> busy(workers.threads());
  std::atomic<int> shared{0};
  workers.for_each(n, [&](size_t i, unsigned worker) {
    if (worker >= busy.size() || busy[worker].fetch_add(1) != 0) shared++;
    ran[i]++;
    if (worker < busy.size()) busy[worker]--;
  });
  EXPECT_EQ(std::vector<int>(n, 1), ran);
  EXPECT_EQ(0, shared.load()) << "tasks shared a worker, or had one that there is not";
}

TEST(Workers, RunEachTaskOnce) {
  Workers workers(4);
  for (int round = 0; round < test::rounds(2000); round++)
    for (const size_t n : {0, 1, 2, 3, 17}) run_each_once(workers, n);
}

TEST(Workers, ServeManyCallersAtOnce) {
  Workers workers(4);
  std::vector<std::jthread> callers;
  for (size_t caller = 1; caller <= 6; caller++)
    callers.emplace_back([&workers, caller] {
      for (int round = 0; round < test::rounds(1000); round++) run_each_once(workers, 3 * caller);
    });
}

TEST(Workers, RunTasksOfTasks) {
  Workers workers(4);
  std::atomic<int> ran{0};
  for (int round = 0; round < test::rounds(200); round++)
    workers.for_each(
        5, [&](size_t, unsigned) { workers.for_each(7, [&](size_t, unsigned) { ran++; }); });
  EXPECT_EQ(35 * test::rounds(200), ran.load());
}

TEST(Workers, ThrowWhatATaskThrew) {
  Workers workers(4);
  for (int round = 0; round < test::rounds(500); round++) {
    const auto fail_one = [](size_t i, unsigned) {
      if (i == 3) throw std::runtime_error("task 3");
    };
    EXPECT_THROW(workers.for_each(9, fail_one), std::runtime_error);
    run_each_once(workers, 5);
  }
}

TEST(Workers, LendThreadsToBackgroundTasks) {
  Workers workers(4);
  for (int round = 0; round < test::rounds(500); round++) {
    std::vector<int> ran(20);
    const auto task = [&](size_t i) { ran[i]++; };
    {
      BackgroundTasks tasks(workers, ran.size(), task);
      run_each_once(workers, 4);
      if (round % 2 == 0) tasks.finish();
    }
    for (const int times : ran) {
      EXPECT_LE(times, 1);
      EXPECT_GE(times, round % 2 == 0 ? 1 : 0);
    }
  }
}

TEST(Workers, BeginAndEndAtAnyTime) {
  for (int round = 0; round < test::rounds(300); round++) {
    Workers workers(1 + round % 4);
    if (round % 3 != 0) run_each_once(workers, 3);
  }
}

// The child has none of the threads, and some of them may have held the mutex at the fork.
TEST(Workers, WorkInAForkedChild) {
  if (test::thread_sanitizer) GTEST_SKIP() << "ThreadSanitizer ends a child that makes threads";
  auto workers = std::make_unique<Workers>(4);
  run_each_once(*workers, 8);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::atomic<int> ran{0};
    workers->for_each(8, [&](size_t, unsigned) { ran++; });
    workers.reset();
    Workers own(2);
    own.for_each(8, [&](size_t, unsigned) { ran++; });
    _exit(ran == 16 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_EQ(0, status);
  run_each_once(*workers, 8);
}

}  // namespace
}  // namespace pkv
