// Workers on a oneTBB arena.
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>

#include "base/parallel.h"

namespace pkv {

namespace {

constinit os::FirstProcess tbb_user;

class TbbArena final : public Workers::Arena {
 public:
  // The arena is initialized here and not by its first execute(): if memory is refused there,
  // oneTBB leaves the arena locked forever.
  explicit TbbArena(unsigned threads) : arena_(static_cast<int>(threads)) { arena_.initialize(); }

  // The loop is isolated, so that a caller that is itself a task of oneTBB does not pick up its own
  // outer tasks while it waits here.
  void run(TaskList& tasks) override {
    arena_.execute([&] {
      tbb::this_task_arena::isolate([&] {
        tbb::parallel_for(
            size_t{0}, tasks.n,
            [&](size_t i) {
              tasks.run(i, static_cast<uint32_t>(tbb::this_task_arena::current_thread_index()));
            },
            tbb::simple_partitioner());
      });
    });
  }

  void lend_threads(const std::shared_ptr<TaskList>& tasks) override {
    const size_t threads = static_cast<size_t>(arena_.max_concurrency());
    for (size_t i = 1; i < std::min(threads, tasks->n + 1); i++)
      arena_.enqueue([tasks] { tasks->work(0); });
  }

 private:
  tbb::task_arena arena_;
};

}  // namespace

// Limits the number of threads to what oneTBB runs in this process; it prints a warning if it is
// asked for more.
unsigned Workers::limit_threads(unsigned threads) {
  if (threads <= 1 || !tbb_user.claim()) return threads;
  const size_t limit =
      tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
  return static_cast<unsigned>(std::clamp<size_t>(limit, 1, threads));
}

std::unique_ptr<Workers::Arena> Workers::make_arena(unsigned threads) {
  return tbb_user.claim() ? std::make_unique<TbbArena>(threads) : nullptr;
}

}  // namespace pkv
