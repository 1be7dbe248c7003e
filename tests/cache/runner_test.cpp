// The caller's threads run the library's tasks instead of its own threads. The results have the
// same bits however the tasks are spread, and a runner that loses a task is reported.
#include "runner.h"

#if __has_include(<tbb/parallel_for.h>)
#include <tbb/parallel_for.h>
#endif

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>

#include "../support/cache.h"
#include "../support/rows.h"
#include "../support/sanitizers.h"

namespace cache_test::runner_test {
namespace {

// A pool of threads that wait for work, like an engine's. It has one run at a time.
class Pool {
 public:
  explicit Pool(uint32_t threads) {
    for (uint32_t worker = 0; worker < threads; worker++)
      threads_.emplace_back([this, worker] { serve(worker); });
  }
  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void run(size_t n, Task task, void* context) {
    const std::lock_guard one_at_a_time(running_);
    std::unique_lock lock(mutex_);
    task_ = task, context_ = context, n_ = n, next_ = 0, busy_ = threads_.size(), round_++;
    changed_.notify_all();
    changed_.wait(lock, [this] { return busy_ == 0; });
  }

 private:
  void serve(uint32_t worker) {
    uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return closed_ || round_ != seen; });
      if (closed_) return;
      seen = round_;
      while (next_ < n_) {
        const size_t i = next_++;
        lock.unlock();
        task_(context_, i, worker);
        lock.lock();
      }
      if (--busy_ == 0) changed_.notify_all();
    }
  }

  std::mutex running_, mutex_;
  std::condition_variable changed_;
  std::vector<std::thread> threads_;
  Task task_ = nullptr;
  void* context_ = nullptr;
  size_t n_ = 0, next_ = 0, busy_ = 0;
  uint64_t round_ = 0;
  bool closed_ = false;
};

const Model model{1, 8, 4, 64, 0, PKV_BF16};
constexpr uint32_t prompt = 700;  // These are enough rows for several tasks, also of writes.

struct Outputs {
  Rows prefill, decode;
  KeysValues stored;
  bool operator==(const Outputs&) const = default;
};

// Runs a long prompt, then a decode step of two sessions.
Outputs outputs_of(pkv_cache cache) {
  Session session = open(cache), other = open(cache);
  Random random(61);
  Outputs outputs{Rows(prompt, 8, 64), Rows(2, 8, 64), {}};
  for (const bool prefill : {true, false}) {
    const size_t rows = prefill ? prompt : 2;
    Batch batch =
        prefill ? begin(cache, {session}, {prompt}) : begin(cache, {session, other}, {1, 1});
    KeysValues written = rows_of(model, rows);
    write(batch, 0, written.k.fill(random), written.v.fill(random));
    Rows q(rows, 8, 64);
    attend(batch, 0, q.fill(random), prefill ? outputs.prefill : outputs.decode);
    commit(batch);
  }
  outputs.stored = materialize(session, 0, model, 0, prompt + 1);
  return outputs;
}

ModelConfig config_with(const pkv_runner* runner) {
  ModelConfig config = config_of(model, 100);
  config.threads = runner == nullptr ? 1 : 0;
  config.runner = runner;
  return config;
}

class Runner : public testing::Test {
 protected:
  void expect_same(Spread run, uint32_t threads) const {
    size_t calls = 0, tasks = 0;
    Spread counted = [&](size_t n, Task task, void* context) {
      calls++, tasks += n;
      run(n, task, context);
    };
    const pkv_runner runner = runner_of(counted, threads);
    Cache cache = create(config_with(&runner));
    EXPECT_TRUE(expected == outputs_of(cache));
    EXPECT_GE(calls, 2u);
    EXPECT_GT(tasks, 2 * calls);
  }
  const Outputs expected = outputs_of(create(config_with(nullptr)));
};

TEST_F(Runner, InTurnAndInReverse) {
  expect_same(
      [](size_t n, Task task, void* context) {
        for (size_t i = 0; i < n; i++) task(context, i, 0);
      },
      1);
  expect_same(
      [](size_t n, Task task, void* context) {
        for (size_t i = n; i-- > 0;) task(context, i, static_cast<uint32_t>(i % 5));
      },
      5);
}

TEST_F(Runner, APoolOfThreads) {
  for (const uint32_t threads : {1u, 2u, 3u, 4u, 8u, 16u, 64u}) {
    Pool pool(threads);
    expect_same([&](size_t n, Task task, void* context) { pool.run(n, task, context); }, threads);
  }
}

// Each run starts its own threads with a fixed share each, as an OpenMP loop does.
TEST_F(Runner, ThreadsOfEachRunWithFixedShares) {
  expect_same(
      [](size_t n, Task task, void* context) {
        std::vector<std::thread> threads;
        for (uint32_t worker = 0; worker < 3; worker++)
          threads.emplace_back([=] {
            for (size_t i = worker; i < n; i += 3) task(context, i, worker);
          });
        for (std::thread& thread : threads) thread.join();
      },
      3);
}

// Caches are used from inside the caller's own parallel loops, with its runner and with the
// library's threads.
TEST_F(Runner, FromInsideParallelLoops) {
  Pool pool(3);
  Spread run = [&](size_t n, Task task, void* context) { pool.run(n, task, context); };
  const pkv_runner runner = runner_of(run, 3);
  std::atomic<int> wrong{0};
  const auto use = [&](const pkv_runner* of) {
    Cache cache = create(config_with(of));
    wrong += !(expected == outputs_of(cache));
  };
#if __has_include(<tbb/parallel_for.h>)
  // oneTBB is not built with ThreadSanitizer, which therefore reports the hand-over of the loop's
  // body as a race.
  if (!pkv::test::thread_sanitizer)
    tbb::parallel_for(0, 4, [&](int i) { use(i % 2 == 0 ? &runner : nullptr); });
#endif
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++) threads.emplace_back(use, i % 2 == 0 ? &runner : nullptr);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(0, wrong);
}

// A task that is left out, runs twice or gets a worker that does not exist is reported, and the
// cache is as good as before.
TEST_F(Runner, OneThatErrsIsTold) {
  const std::vector<Spread> errors = {
      [](size_t n, Task task, void* context) {
        for (size_t i = 0; i + 1 < n; i++) task(context, i, 0);
      },
      [](size_t, Task, void*) {},
      [](size_t n, Task task, void* context) {
        for (size_t i = 0; i < n; i++) task(context, i, i == 1 ? 7 : 0);
      },
      [](size_t n, Task task, void* context) {
        for (size_t i = 0; i < n; i++) task(context, i, 0);
        task(context, 0, 0);
      },
      [](size_t n, Task task, void* context) {
        for (size_t i = 1; i <= n; i++) task(context, i, 0);
      },
      // The runner ends as many tasks as there are, but one ran twice and one never did.
      [](size_t n, Task task, void* context) {
        for (size_t i = 0; i + 1 < n; i++) task(context, i, 0);
        task(context, 0, 0);
      },
      // Here the sum of the task numbers that ran is right as well.
      [](size_t n, Task task, void* context) {
        for (const size_t i : {0u, 0u, 3u, 3u}) task(context, i, 0);
        for (size_t i = 4; i < n; i++) task(context, i, 0);
      }};
  for (size_t e = 0; e < errors.size(); e++) {
    SCOPED_TRACE(e);
    bool errs = false;
    Spread run = [&](size_t n, Task task, void* context) {
      if (errs) return errors[e](n, task, context);
      for (size_t i = 0; i < n; i++) task(context, i, 0);
    };
    const pkv_runner runner = runner_of(run, 2);
    Cache cache = create(config_with(&runner));
    Session session = open(cache);
    Random random(62);
    KeysValues rows = rows_of(model, prompt);
    const pkv_tensor k = rows.k.fill(random).tensor(), v = rows.v.fill(random).tensor();
    Rows q(prompt, 8, 64), out(prompt, 8, 64);
    const pkv_tensor queries = q.fill(random).tensor(), outputs = out.tensor();
    Batch batch = begin(cache, {session}, {prompt});
    errs = true;
    REFUSED(PKV_INVALID_ARGUMENT, pkv_batch_write(batch, 0, &k, &v));
    REFUSED(PKV_INCOMPLETE, pkv_batch_attend(batch, 0, nullptr, &queries, &outputs, nullptr));
    errs = false;
    CHECK(pkv_batch_write(batch, 0, &k, &v));
    errs = true;
    REFUSED(PKV_INVALID_ARGUMENT, pkv_batch_attend(batch, 0, nullptr, &queries, &outputs, nullptr));
    REFUSED(PKV_INVALID_ARGUMENT, pkv_batch_write(batch, 0, &k, &v));
    errs = false;
    REFUSED(PKV_INCOMPLETE, pkv_batch_attend(batch, 0, nullptr, &queries, &outputs, nullptr));
    batch.close();
    session.close();
    EXPECT_TRUE(expected == outputs_of(cache));
    CHECK(pkv_cache_validate(cache));
  }
}

// There are more tasks than the library hands out at once, so it calls the runner again for the
// rest.
TEST_F(Runner, ManyTasks) {
  constexpr uint32_t sessions = 2500;
  const Model small{1, 2, 2, 16};
  std::vector<size_t> calls;
  const auto outputs = [&](const pkv_runner* runner) {
    ModelConfig config = config_of(small, 2 * sessions);
    config.threads = runner == nullptr ? 1 : 0;
    config.runner = runner;
    Cache cache = create(config);
    std::vector<Session> owned;
    std::vector<pkv_session> handles;
    for (uint32_t i = 0; i < sessions; i++) handles.push_back(owned.emplace_back(open(cache)));
    Random random(63);
    Batch batch = begin(cache, handles, std::vector<uint32_t>(sessions, 20));
    KeysValues rows = rows_of(small, 20 * sessions);
    write(batch, 0, rows.k.fill(random), rows.v.fill(random));
    Rows q(20 * sessions, 2, 16), out(20 * sessions, 2, 16);
    attend(batch, 0, q.fill(random), out);
    calls.clear();
    attend(batch, 0, q, out);
    commit(batch);
    return out;
  };
  const Rows wanted = outputs(nullptr);
  Spread run = [&](size_t n, Task task, void* context) {
    calls.push_back(n);
    for (size_t i = 0; i < n; i++) task(context, i, 0);
  };
  const pkv_runner runner = runner_of(run, 1);
  EXPECT_TRUE(wanted == outputs(&runner));
  EXPECT_EQ(4096u, calls.at(0)) << "the first of the calls of one attend";
  EXPECT_EQ(2u * sessions - 4096, calls.at(1));
}

TEST_F(Runner, MayNotCallTheLibraryBack) {
  pkv_cache inside = nullptr;
  pkv_status status = PKV_OK;
  Spread run = [&](size_t n, Task task, void* context) {
    status = pkv_cache_validate(inside);
    for (size_t i = 0; i < n; i++) task(context, i, 0);
  };
  const pkv_runner runner = runner_of(run, 1);
  Cache cache = create(config_with(&runner));
  inside = cache;
  EXPECT_TRUE(expected == outputs_of(cache));
  EXPECT_EQ(PKV_REENTRANT, status);
}

// tests/cache/compute_test.cpp has one.
TEST(OpenMPRunner, NeedsAnOpenMPLibraryInTheProcess) {
  pkv_runner runner{};
  REFUSED(PKV_UNSUPPORTED, pkv_openmp_runner(&runner));
  EXPECT_NE(nullptr, std::strstr(pkv_last_error(), "GOMP_parallel")) << pkv_last_error();
}

}  // namespace
}  // namespace cache_test::runner_test
