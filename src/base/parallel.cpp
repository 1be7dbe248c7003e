// Workers: which threads run the tasks of a call, and the drivers that need no threads that stay:
// a caller's runner, and threads that end with the call.
#include "base/parallel.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "base/memory.h"
#include "base/status.h"

namespace pkv {

namespace {

// Tasks of one call of a runner. A bit per task says that it was begun, so that a task does not run
// twice, perhaps at the same time, if a faulty runner asks for it twice. The bits lie on the stack:
// memory that is refused in the middle of a step would leave half of the step undone.
struct RunnerCall {
  static constexpr size_t max_tasks = 4096;

  TaskList& tasks;
  size_t first, n;  // tasks [first, first + n); the runner counts from 0
  unsigned threads;
  std::array<std::atomic<uint64_t>, max_tasks / 64> begun{};
  std::atomic<size_t> done{0};
  std::atomic<bool> misused{false};  // the runner asked for a task that it must not run

  void run(size_t i, unsigned worker) noexcept {
    if (i >= n || worker >= threads || !begin(i)) {
      misused.store(true, std::memory_order_relaxed);
      return;
    }
    tasks.run(first + i, worker);
    done.fetch_add(1);
  }

  // Marks a task as begun. Returns false if it was begun before.
  bool begin(size_t i) noexcept {
    const uint64_t bit = uint64_t{1} << i % 64;
    return (begun[i / 64].fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
  }
};

// No exception passes through the stack frames of the runner: the list keeps the first one.
void run_by_caller(TaskList& tasks, const pkv_runner& runner) {
  for (size_t first = 0; first < tasks.n; first += RunnerCall::max_tasks) {
    const size_t n = std::min(tasks.n - first, RunnerCall::max_tasks);
    RunnerCall call{tasks, first, n, runner.threads};
    {
      HookScope scope;
      runner.run(
          runner.user, n,
          [](void* self, size_t i, uint32_t worker) {
            static_cast<RunnerCall*>(self)->run(i, worker);
          },
          &call);
    }
    tasks.rethrow();
    if (call.done != n || call.misused)
      fail(PKV_INVALID_ARGUMENT, "the runner ran %zu tasks of %zu%s", call.done.load(), n,
           call.misused ? ", and asked for a task twice, or for a task or a worker that does "
                          "not exist"
                        : "");
  }
}

// Serves a forked child, which has none of the threads that its parent began.
void run_on_new_threads(TaskList& tasks, unsigned max_workers) {
  std::vector<std::thread> threads;
  try {
    for (unsigned worker = 1; worker < std::min<size_t>(max_workers, tasks.n); worker++)
      threads.emplace_back([&tasks, worker] { tasks.work(worker); });
  } catch (const std::system_error&) {
    // The system gives no more threads: those that began do all the work.
  } catch (const std::bad_alloc&) {
  }
  tasks.work(0);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

Workers::Workers(unsigned threads, const pkv_runner& runner, const Logger* logger)
    : runner_(runner),
      threads_(runner.run == nullptr ? limit_threads(threads) : threads),
      arena_(runner.run == nullptr && threads_ > 1 ? make_arena(threads_, logger) : nullptr) {}

Workers::~Workers() {
  // In a forked child the arena is leaked: its threads do not exist there, and its locks may stay
  // held forever.
  if (arena_ && !arena_->has_its_threads()) arena_.release();
}

void Workers::run(size_t n, TaskFunction task, void* context) {
  TaskList tasks{task, context, n};
  if (n <= 1 || (threads_ <= 1 && runner_.run == nullptr))
    tasks.work(0);
  else if (runner_.run != nullptr)
    run_by_caller(tasks, runner_);
  else if (arena_ && arena_->has_its_threads())
    arena_->run(tasks);
  else
    run_on_new_threads(tasks, threads_);
  tasks.rethrow();
}

void Workers::lend_threads(const std::shared_ptr<TaskList>& tasks) noexcept {
  if (!arena_ || !arena_->has_its_threads()) return;
  try {
    arena_->lend_threads(tasks);
  } catch (...) {
    // No memory: the thread that waits for the tasks runs them.
  }
}

void Workers::take_back(const std::shared_ptr<TaskList>& tasks) noexcept {
  if (arena_ && arena_->has_its_threads()) arena_->take_back(tasks);
}

}  // namespace pkv
