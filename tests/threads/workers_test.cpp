// Workers on the library's own threads (src/base/parallel_own.cpp), which ThreadSanitizer can
// check, and, in another program, on those of oneTBB.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../support/memory.h"
#include "../support/sanitizers.h"
#include "base/background_tasks.h"
#include "base/parallel.h"

namespace pkv::workers_test {
namespace {

// Runs n tasks: each must run once, on a worker that runs no other task meanwhile.
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

// Waits until as many threads are here at once, and returns false if they do not come.
bool meet(std::atomic<int>& here, int threads) {
  here++;
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (here < threads && std::chrono::steady_clock::now() < patience) std::this_thread::yield();
  return here >= threads;
}

// Every thread gets a task, asleep or not: each task waits for the others.
TEST(Workers, RunTasksSideBySide) {
  Workers workers(4);
  const int threads = static_cast<int>(workers.threads());
  for (const int pause : {0, 0, 0, 100}) {  // After milliseconds, the threads are asleep.
    std::this_thread::sleep_for(std::chrono::milliseconds(pause));
    std::atomic<int> here{0};
    std::atomic<bool> met{true};
    workers.for_each(static_cast<size_t>(threads), [&](size_t, unsigned) {
      if (!meet(here, threads)) met = false;
    });
    EXPECT_TRUE(met);
  }
}

// Two calls have tasks that wait for each other, and then there is a third call.
TEST(Workers, HelpTheCallThatHasTasksLeft) {
  Workers workers(4);
  const int threads = static_cast<int>(workers.threads());
  std::atomic<int> here{0};
  std::vector<std::jthread> callers;
  for (int caller = 0; caller < 2; caller++)
    callers.emplace_back([&] {
      workers.for_each(2, [&](size_t, unsigned) { EXPECT_TRUE(meet(here, threads > 1 ? 3 : 1)); });
    });
  run_each_once(workers, 50);
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
    const auto fail_all = [](size_t, unsigned) { throw std::runtime_error("every task"); };
    EXPECT_THROW(workers.for_each(9, fail_one), std::runtime_error);
    EXPECT_THROW(workers.for_each(9, fail_all), std::runtime_error);
    run_each_once(workers, 5);
  }
}

// The call throws one of the two exceptions.
TEST(Workers, ThrowOnceWhereTwoTasksThrowAtOnce) {
  Workers workers(4);
  const int threads = std::min(2, static_cast<int>(workers.threads()));
  for (int round = 0; round < test::rounds(500); round++) {
    std::atomic<int> here{0};
    const auto fail_together = [&](size_t, unsigned) {
      meet(here, threads);
      throw std::runtime_error("both");
    };
    EXPECT_THROW(workers.for_each(2, fail_together), std::runtime_error);
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

// No thread comes to help before the tasks and their workers have ended, as on a busy machine.
TEST(Workers, KeepNoMemoryOfTasksThatNobodyHelpedWith) {
  Workers others(1000), workers(2);
  std::atomic<int> here{0};
  std::atomic<bool> go_on{false};
  std::jthread busy([&] {
    others.for_each(others.threads(), [&](size_t, unsigned) {
      here++;
      while (!go_on) std::this_thread::yield();
    });
  });
  while (here < static_cast<int>(others.threads())) std::this_thread::yield();
  const auto work = [&] {
    BackgroundTasks tasks(workers, 4, [](size_t) {});
    tasks.finish();
  };
  work();  // The first one may start threads.
  const int64_t before = memory::news;
  for (int i = 0; i < 10; i++) work();
  // A thread that does help may look for a last task now.
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (memory::news != before && std::chrono::steady_clock::now() < patience)
    std::this_thread::yield();
  EXPECT_EQ(before, memory::news);
  go_on = true;
}

// The thread that began the tasks is in one of them, and a thread of the workers in the other.
TEST(Workers, RunBackgroundTasksSideBySide) {
  Workers workers(4);
  const int threads = std::min(2, static_cast<int>(workers.threads()));
  for (const int pause : {0, 100}) {  // After milliseconds, the threads are asleep.
    std::this_thread::sleep_for(std::chrono::milliseconds(pause));
    std::atomic<int> here{0};
    const auto task = [&](size_t) { EXPECT_TRUE(meet(here, threads)); };
    BackgroundTasks tasks(workers, 2, task);
    tasks.finish();
  }
}

// A caller's runner gets no exceptions: the call throws them.
TEST(Workers, ThrowWhatATaskOfARunnerThrew) {
  const pkv_runner in_order = {
      [](void*, size_t n, void (*task)(void*, size_t, uint32_t), void* context) {
        for (size_t i = 0; i < n; i++) task(context, i, 0);
      },
      nullptr, 2, 0};
  Workers workers(2, in_order);
  run_each_once(workers, 5);
  const auto fail_two = [](size_t i, unsigned) {
    if (i >= 3) throw std::runtime_error("task " + std::to_string(i));
  };
  try {
    workers.for_each(5, fail_two);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ("task 3", error.what()) << "the first one counts";
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
    try {
      workers->for_each(8, [](size_t, unsigned) { throw std::runtime_error("in the child"); });
    } catch (const std::runtime_error&) {
      ran++;
    }
    BackgroundTasks tasks(*workers, 8, [](size_t) {});  // No other thread can help.
    tasks.finish();
    workers.reset();
    Workers own(2);
    own.for_each(8, [&](size_t, unsigned) { ran++; });
    _exit(ran == 17 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_EQ(0, status);
  run_each_once(*workers, 8);
}

}  // namespace
}  // namespace pkv::workers_test
