// Workers on a oneTBB arena.
#include "base/parallel.h"

#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>

#include "base/first_process.h"
#include "base/os.h"

namespace pkv {

namespace {

constinit FirstProcess tbb_user;

}  // namespace

struct Workers::Arena {
  // The arena is initialized here and not by its first execute(): if memory is refused there,
  // oneTBB leaves the arena locked for ever.
  explicit Arena(unsigned threads) : arena(static_cast<int>(threads)), epoch(os::fork_epoch()) {
    arena.initialize();
  }
  tbb::task_arena arena;
  const uint64_t epoch;
};

namespace {

// Limits the number of threads to what oneTBB runs in this process; it prints a warning when it is
// asked for more.
unsigned limit_threads(unsigned threads) {
  if (threads <= 1 || !tbb_user.claim()) return threads;
  const size_t limit =
      tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
  return static_cast<unsigned>(std::clamp<size_t>(limit, 1, threads));
}

}  // namespace

Workers::Workers(unsigned threads, const pkv_runner& runner)
    : runner_(runner),
      threads_(runner.run == nullptr ? limit_threads(threads) : threads),
      arena_(runner.run == nullptr && threads_ > 1 && tbb_user.claim()
                 ? std::make_unique<Arena>(threads_)
                 : nullptr) {}

Workers::~Workers() {
  // In a forked child the arena is leaked: its threads do not exist there, and its locks may be
  // held for ever.
  if (arena_ && arena_->epoch != os::fork_epoch()) arena_.release();
}

void Workers::run(size_t n, TaskFunction task, const void* context) {
  if (runner_.run != nullptr && n > 1) return run_by_caller(n, task, context);
  if (threads_ <= 1 || n <= 1) {
    for (size_t i = 0; i < n; i++) task(context, i, 0);
    return;
  }
  if (!arena_ || arena_->epoch != os::fork_epoch()) return run_on_new_threads(n, task, context);
  // The loop is isolated, so that a caller that is itself a task of oneTBB does not pick up its own
  // outer tasks while it waits here.
  arena_->arena.execute([&] {
    tbb::this_task_arena::isolate([&] {
      tbb::parallel_for(
          size_t{0}, n,
          [&](size_t i) {
            task(context, i, static_cast<unsigned>(tbb::this_task_arena::current_thread_index()));
          },
          tbb::simple_partitioner());
    });
  });
}

void Workers::lend_threads(const std::shared_ptr<TaskList>& tasks) noexcept {
  if (!arena_ || arena_->epoch != os::fork_epoch()) return;
  try {
    for (size_t i = 1; i < std::min<size_t>(threads_, tasks->n + 1); i++)
      arena_->arena.enqueue([tasks] { tasks->work(); });
  } catch (...) {
    // Memory was refused: the thread that waits for the tasks runs them.
  }
}

}  // namespace pkv
