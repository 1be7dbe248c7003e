#include "base/parallel.h"

#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>

#include "base/made_once.h"
#include "base/os.h"
#include "base/parallel_tasks.h"

namespace pkv {

namespace {

// oneTBB has threads of its own, which a forked child does not have, and locks, which they may have
// held: what was begun in one process is of no use in its children. 1 + the epoch in which this
// process or one that it was forked from began; 0: none did.
constinit std::atomic<uint64_t> begun_in{0};

bool begin_tbb() {
  const uint64_t now = os::fork_epoch() + 1;
  uint64_t before = 0;
  return begun_in.compare_exchange_strong(before, now, std::memory_order_relaxed) || before == now;
}

}  // namespace

struct Workers::Arena {
  // Initialized at once: where memory is refused to a first execute(), oneTBB would leave the arena
  // locked for ever.
  explicit Arena(unsigned threads) : arena(static_cast<int>(threads)), epoch(os::fork_epoch()) {
    arena.initialize();
  }
  tbb::task_arena arena;
  const uint64_t epoch;
};

namespace {

// oneTBB runs no more threads than this in the process, and prints a warning when it is asked for
// more.
unsigned usable(unsigned threads) {
  if (threads <= 1 || !begin_tbb()) return threads;
  const size_t limit =
      tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
  return static_cast<unsigned>(std::clamp<size_t>(limit, 1, threads));
}

}  // namespace

Workers::Workers(unsigned threads, const pkv_runner& runner)
    : runner_(runner),
      threads_(runner.run == nullptr ? usable(threads) : threads),
      arena_(runner.run == nullptr && threads_ > 1 && begin_tbb()
                 ? std::make_unique<Arena>(threads_)
                 : nullptr) {}

Workers::~Workers() {
  // In a forked child the arena's threads do not exist and its locks may be held for ever: leave
  // it.
  if (arena_ && arena_->epoch != os::fork_epoch()) arena_.release();
}

void Workers::run(size_t n, Call task, const void* context) {
  if (runner_.run != nullptr && n > 1) return run_by_caller(n, task, context);
  if (threads_ <= 1 || n <= 1) {
    for (size_t i = 0; i < n; i++) task(context, i, 0);
    return;
  }
  if (!arena_ || arena_->epoch != os::fork_epoch()) return run_on_new_threads(n, task, context);
  // Isolated, so that a caller that is itself a TBB task never picks up its own outer tasks while
  // it waits here.
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

void Workers::help(const std::shared_ptr<Tasks>& tasks) noexcept {
  if (!arena_ || arena_->epoch != os::fork_epoch()) return;
  try {
    for (size_t i = 1; i < std::min<size_t>(threads_, tasks->n + 1); i++)
      arena_->arena.enqueue([tasks] { tasks->work(); });
  } catch (...) {
    // No memory: whoever waits for the tasks runs them.
  }
}

Workers& default_workers() {
  static constinit std::atomic<Workers*> place{nullptr};
  return made_once(place, [] { return std::make_unique<Workers>(os::processor_count()); });
}

}  // namespace pkv
