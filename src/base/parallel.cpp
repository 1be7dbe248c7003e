#include "base/parallel.h"

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include "base/os.h"

namespace pkv {

struct Workers::Arena {
  explicit Arena(unsigned threads) : arena(static_cast<int>(threads)), epoch(os::fork_epoch()) {}
  tbb::task_arena arena;
  const uint64_t epoch;
};

Workers::Workers(unsigned threads) : threads_(threads), arena_(threads > 1 ? std::make_unique<Arena>(threads) : nullptr) {}

Workers::~Workers() {
  // In a forked child the arena's threads do not exist and its locks may be held for ever: leave it.
  if (arena_ && arena_->epoch != os::fork_epoch()) arena_.release();
}

void Workers::run(size_t n, void (*task)(const void*, size_t, unsigned), const void* context) {
  if (!arena_ || n <= 1) {
    for (size_t i = 0; i < n; i++) task(context, i, 0);
    return;
  }
  // Isolated, so that a caller that is itself a TBB task never picks up its own outer tasks while it waits here.
  arena_->arena.execute([&] {
    tbb::this_task_arena::isolate([&] {
      tbb::parallel_for(
          size_t{0}, n,
          [&](size_t i) { task(context, i, static_cast<unsigned>(tbb::this_task_arena::current_thread_index())); },
          tbb::simple_partitioner());
    });
  });
}

Workers& default_workers() {
  static Workers* const workers = new Workers(os::processor_count());
  return *workers;
}

}  // namespace pkv
