// Workers on a oneTBB arena.
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/parallel_pool.h"

namespace pkv {

namespace {

constinit os::FirstProcess tbb_user;

// A list that threads of an arena may help with.
struct Lent {
  const Workers::Arena* arena;
  std::shared_ptr<TaskList> tasks;
};

// Those of all arenas. oneTBB keeps a task that it has not run when the arena ends, perhaps until
// the process ends. So the tasks that it gets own nothing and never look into their arena, but
// here. These are never destroyed, since a thread of oneTBB may look when the process ends.
union LentLists {
  struct {
    std::mutex mutex;
    std::vector<Lent> lists;
  } all{};
  constexpr LentLists() {}
  ~LentLists() {}
};

constinit LentLists lent;

void help(const Workers::Arena* arena) {
  std::shared_ptr<TaskList> tasks;
  {
    const std::lock_guard lock(lent.all.mutex);
    for (const Lent& list : lent.all.lists)
      if (list.arena == arena && list.tasks->has_tasks()) tasks = list.tasks;
  }
  if (tasks) tasks->work(0);
}

// oneTBB starts its threads when it has work for them, some of them in threads that it started
// before. If the system refuses one, the caller gets an exception, or the process ends, and oneTBB
// never tries that thread again. So as many threads are first started on trial, and then oneTBB
// gets work that does nothing. If either fails, the library's own threads are used instead.
class TbbArena final : public Workers::Arena {
 public:
  // The arena is initialized here and not by its first execute(): if memory is refused there,
  // oneTBB leaves the arena locked forever.
  TbbArena(unsigned threads, const Logger* logger)
      : threads_(threads), logger_(logger), arena_(static_cast<int>(threads)) {
    arena_.initialize();
  }

  void run(TaskList& tasks) override {
    if (Arena* const own = find_own_threads(); own != nullptr) return own->run(tasks);
    loop(tasks.n, [&](size_t i) {
      tasks.run(i, static_cast<uint32_t>(tbb::this_task_arena::current_thread_index()));
    });
  }

  void lend_threads(const std::shared_ptr<TaskList>& tasks) override {
    if (Arena* const own = find_own_threads(); own != nullptr) return own->lend_threads(tasks);
    {
      const std::lock_guard lock(lent.all.mutex);
      lent.all.lists.push_back({this, tasks});
    }
    for (size_t i = 1; i < std::min<size_t>(threads_, tasks->n + 1); i++)
      arena_.enqueue([this] { help(this); });
  }

  void take_back(const std::shared_ptr<TaskList>& tasks) noexcept override {
    if (decided_.load(std::memory_order_acquire) && own_) return own_->take_back(tasks);
    const std::lock_guard lock(lent.all.mutex);
    std::erase_if(lent.all.lists, [&](const Lent& list) { return list.tasks == tasks; });
  }

 private:
  // The loop is isolated, so that a caller that is itself a task of oneTBB does not pick up its own
  // outer tasks while it waits here.
  template <class Body>
  void loop(size_t n, const Body& body) {
    arena_.execute([&] {
      tbb::this_task_arena::isolate(
          [&] { tbb::parallel_for(size_t{0}, n, body, tbb::simple_partitioner()); });
    });
  }

  bool start_threads() noexcept {
    try {
      if (!can_start_threads(threads_ - 1)) return false;
      loop(threads_, [](size_t) {});
      return true;
    } catch (...) {
      return false;
    }
  }

  // Returns NULL if oneTBB has its threads.
  Arena* find_own_threads() {
    if (decided_.load(std::memory_order_acquire)) return own_.get();
    const std::lock_guard lock(mutex_);
    if (!decided_) {
      if (!start_threads()) own_ = make_thread_pool(threads_, logger_);
      decided_.store(true, std::memory_order_release);
    }
    return own_.get();
  }

  const unsigned threads_;
  const Logger* const logger_;
  tbb::task_arena arena_;
  std::mutex mutex_;
  std::atomic<bool> decided_{false};
  std::unique_ptr<Arena> own_;
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

std::unique_ptr<Workers::Arena> Workers::make_arena(unsigned threads, const Logger* logger) {
  return tbb_user.claim() ? std::make_unique<TbbArena>(threads, logger) : nullptr;
}

}  // namespace pkv
