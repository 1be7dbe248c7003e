// Calls over the host's memory: threads, instruction sets, runners, the caller's allocator, and
// many threads at once.
#ifndef _WIN32
#include <sys/wait.h>
#include <unistd.h>
#endif

#include <atomic>
#include <functional>
#include <thread>

#include "host.h"
#include "runner.h"

// The number of parallel regions that began in this process.
std::atomic<unsigned> regions{0};

// The function of OpenMP that the library looks up in the process.
extern "C" {
[[gnu::visibility("default")]] int omp_get_max_threads() { return 3; }
[[gnu::visibility("default")]] void GOMP_parallel(void (*work)(void*), void* data, unsigned threads,
                                                  unsigned) {
  regions++;
  std::vector<std::thread> others;
  for (unsigned i = 1; i < threads; i++) others.emplace_back(work, data);
  work(data);
  for (std::thread& other : others) other.join();
}
}

namespace cache_test::compute_test {
namespace {

const Model model{1, 8, 4, 64, 0, PKV_BF16};

pkv_compute_info info_of(pkv_compute compute) {
  auto info = made<pkv_compute_info>();
  CHECK(pkv_compute_get_info(compute, &info));
  return info;
}

// Rows and sequences of a host, and the calls of one step.
class Step {
 public:
  explicit Step(uint64_t seed) : random_(seed) {
    written_.k.fill(random_);
    written_.v.fill(random_);
    q_.fill(random_);
  }

  pkv_status write(pkv_compute compute) {
    const pkv_kv_sequences sequences = host_.get();
    const pkv_tensor k = written_.k.tensor(), v = written_.v.tensor();
    return pkv_kv_write(compute, &memory_.view, &sequences, &k, &v);
  }
  pkv_status attend(pkv_compute compute, Rows& out) {
    const pkv_kv_sequences sequences = host_.get();
    const pkv_tensor q = q_.tensor(), o = out.tensor();
    return pkv_kv_attend(compute, &memory_.view, &sequences, nullptr, &q, &o, nullptr);
  }
  Rows run(pkv_compute compute) {
    Rows out(rows, 8, 64);
    CHECK(write(compute));
    CHECK(attend(compute, out));
    return out;
  }

  static constexpr uint32_t rows = 702;

 private:
  Random random_;
  HostMemory memory_{model, PKV_LAYOUT_PACKED, 16, 130};
  HostSequences host_{memory_, 8, {400, 1, 300, 1}, {400, 500, 300, 600}, random_};
  KeysValues written_ = rows_of(model, rows);
  Rows q_{rows, 8, 64};
};

TEST(Compute, HasTheThreadsAndTheInstructionSetOfItsConfig) {
  for (const pkv_isa isa : supported_isas()) EXPECT_EQ(isa, info_of(make_compute(1, isa)).isa);
  EXPECT_EQ(1u, info_of(make_compute(1)).threads);
  EXPECT_EQ(std::thread::hardware_concurrency(), info_of(nullptr).threads);
  const Cache cache = create(config_of(model, 4));
  auto of_cache = made<pkv_cache_info>();
  CHECK(pkv_cache_get_info(cache, &of_cache));
  EXPECT_EQ(of_cache.isa, info_of(nullptr).isa);
  pkv_compute compute = nullptr;
  CHECK(pkv_compute_create(nullptr, &compute));
  EXPECT_EQ(info_of(nullptr).threads, info_of(compute).threads);
  CHECK(pkv_compute_destroy(compute));
  REFUSED(PKV_STALE_HANDLE, pkv_compute_destroy(compute));
  REFUSED(PKV_STALE_HANDLE, Step(1).write(compute));
}

TEST(Compute, ResultsDoNotDependOnThreads) {
  const Rows expected = Step(2).run(make_compute(1));
  for (const uint32_t threads : {2u, 3u, 0u})
    EXPECT_TRUE(expected == Step(2).run(make_compute(threads))) << threads << " threads";
  EXPECT_TRUE(expected == Step(2).run(nullptr));
}

TEST(Compute, IsUsedByManyThreadsAtOnce) {
  const Compute compute = make_compute(2);
  std::vector<Rows> expected;
  for (uint64_t seed = 0; seed < 8; seed++) expected.push_back(Step(seed).run(nullptr));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 8; seed++)
    threads.emplace_back([&, seed] {
      Step step(seed);
      for (int i = 0; i < 4; i++) wrong += !(step.run(compute) == expected[seed]);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(0, wrong);
}

// Working memory comes from the caller's allocator, is kept for the next call, and comes back.
TEST(Compute, KeepsMemoryOfTheCallersAllocator) {
  struct Count {
    std::atomic<int> calls{0}, live{0};
  } count;
  const pkv_allocator allocator{[](void* user, size_t size, size_t alignment) -> void* {
                                  static_cast<Count*>(user)->calls++;
                                  static_cast<Count*>(user)->live++;
                                  return ::operator new(size, std::align_val_t(alignment));
                                },
                                [](void* user, void* memory, size_t size, size_t alignment) {
                                  static_cast<Count*>(user)->live--;
                                  ::operator delete(memory, size, std::align_val_t(alignment));
                                },
                                &count};
  auto config = made<pkv_compute_config>({.allocator = &allocator});
  Compute compute = make_compute(config);
  Step step(3);
  step.run(compute);
  const int calls = count.calls;
  EXPECT_GT(calls, 0);
  step.run(compute);
  EXPECT_EQ(calls, count.calls) << "the second call found the memory of the first";
  compute.close();
  EXPECT_EQ(0, count.live);
}

TEST(Compute, RunsOnTheCallersThreads) {
  const Rows expected = Step(4).run(nullptr);
  size_t tasks = 0;
  Spread run = [&](size_t n, Task task, void* context) {
    tasks += n;
    for (size_t i = n; i-- > 0;) task(context, i, static_cast<uint32_t>(i % 5));
  };
  const pkv_runner runner = runner_of(run, 5);
  auto config = made<pkv_compute_config>({.runner = &runner});
  const Compute compute = make_compute(config);
  EXPECT_EQ(5u, info_of(compute).threads);
  EXPECT_TRUE(expected == Step(4).run(compute));
  EXPECT_GT(tasks, 2u);
}

TEST(Compute, RunsOnTheThreadsOfOpenMP) {
  pkv_runner runner{};
  CHECK(pkv_openmp_runner(&runner));
  auto config = made<pkv_compute_config>({.runner = &runner});
  const Compute compute = make_compute(config);
  EXPECT_EQ(3u, info_of(compute).threads);
  const Rows expected = Step(6).run(nullptr);
  EXPECT_TRUE(expected == Step(6).run(compute));
  EXPECT_GT(regions, 0u);
  // One task needs no region.
  regions = 0;
  size_t ran = 0;
  runner.run(
      runner.user, 1, [](void* count, size_t, uint32_t) { ++*static_cast<size_t*>(count); }, &ran);
  EXPECT_EQ(1u, ran);
  EXPECT_EQ(0u, regions);
#ifndef _WIN32
  // A child does not have these threads, and libgomp would wait for them.
  const pid_t child = ::fork();
  if (child == 0) {
    regions = 0;
    const bool same = Step(6).run(make_compute(config)) == expected;
    _exit(!same ? 1 : regions > 0 ? 2 : 0);
  }
  int status = -1;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_EQ(0, WEXITSTATUS(status)) << "1: other results, 2: a parallel region began";
  EXPECT_FALSE(WIFSIGNALED(status));
#endif
}

// A runner that runs no task, leaves one out or runs one twice is reported, and so is one that
// calls the library.
TEST(Compute, ARunnerThatErrsIsTold) {
  const std::vector<Spread> errors = {[](size_t, Task, void*) {},
                                      [](size_t n, Task task, void* context) {
                                        for (size_t i = 0; i + 1 < n; i++) task(context, i, 0);
                                      },
                                      [](size_t n, Task task, void* context) {
                                        for (size_t i = 0; i < n; i++) task(context, i, 0);
                                        task(context, 0, 0);
                                      },
                                      [](size_t n, Task task, void* context) {
                                        for (size_t i = 0; i < n; i++) task(context, i, 2);
                                      }};
  const Rows expected = Step(5).run(nullptr);
  for (const Spread& error : errors) {
    bool errs = true;
    pkv_status inside = PKV_OK;
    Spread run = [&](size_t n, Task task, void* context) {
      inside = pkv_compute_destroy(nullptr);
      if (errs) return error(n, task, context);
      for (size_t i = 0; i < n; i++) task(context, i, 1);
    };
    const pkv_runner runner = runner_of(run, 2);
    auto config = made<pkv_compute_config>({.runner = &runner});
    const Compute compute = make_compute(config);
    Step step(5);
    Rows out(Step::rows, 8, 64);
    REFUSED(PKV_INVALID_ARGUMENT, step.write(compute));
    REFUSED(PKV_INVALID_ARGUMENT, step.attend(compute, out));
    EXPECT_EQ(PKV_REENTRANT, inside);
    errs = false;
    EXPECT_TRUE(expected == step.run(compute)) << "it is as good as before";
  }
}

}  // namespace
}  // namespace cache_test::compute_test
