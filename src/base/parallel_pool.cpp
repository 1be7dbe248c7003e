// Workers on threads of the library's own, which stay from call to call. This file replaces
// parallel.cpp in a build without oneTBB, such as the one of the Rust crate that carries the
// sources.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/os.h"
#include "base/parallel.h"

namespace pkv {

namespace {

// How often an idle thread looks for work before it sleeps. The layers of a model follow each other
// within some tens of microseconds, and waking a thread that sleeps takes as long as that.
constexpr int looks_before_sleep = 100;

// One call of Workers::run(), on the stack of the thread that called it. After a task failed no
// further one is begun.
struct PoolCall {
  const size_t n;
  const TaskFunction task;
  const void* const context;
  std::atomic<size_t> next{0};
  std::atomic<unsigned> helpers{0};  // threads of the pool that work on the call now
  std::atomic_flag failed{};
  std::exception_ptr error{};
  // The pool's mutex protects these two.
  unsigned workers = 1;  // numbers of workers that were given out; 0 is the caller's
  PoolCall* newer = nullptr;

  bool has_tasks() const { return next.load(std::memory_order_relaxed) < n; }

  void run(unsigned worker) noexcept {
    for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) {
      try {
        task(context, i, worker);
      } catch (...) {
        if (!failed.test_and_set()) error = std::current_exception();
        next.store(n, std::memory_order_relaxed);
      }
    }
  }
};

}  // namespace

struct Workers::Arena {
  explicit Arena(unsigned threads) : max_workers(threads), epoch(os::fork_epoch()) {}
  ~Arena();

  void run(size_t n, TaskFunction task, const void* context);
  void lend(const std::shared_ptr<TaskList>& tasks);

  const unsigned max_workers;  // of one call, with the thread that makes it
  const uint64_t epoch;

 private:
  void start_threads();
  void wake(size_t tasks);
  void work();
  PoolCall* find_call() const;
  void remove(PoolCall& call);
  bool has_work() const { return stopping_ || find_call() != nullptr || !lists_.empty(); }
  void help(PoolCall& call, std::unique_lock<std::mutex>& lock);
  void help_with_list(std::unique_lock<std::mutex>& lock);
  void wait_for_work(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable work_came_, helper_left_;
  std::atomic<uint64_t> work_count_{0};  // rises with each piece of work; idle threads watch it
  PoolCall* oldest_ = nullptr;
  std::deque<std::shared_ptr<TaskList>> lists_;
  std::vector<std::thread> threads_;
  unsigned sleepers_ = 0;
  bool started_ = false, stopping_ = false;
};

Workers::Arena::~Arena() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    work_count_.fetch_add(1, std::memory_order_relaxed);
  }
  work_came_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// Starts the threads at the first call, since many a cache never computes. If the system gives
// fewer threads than asked for, those that began do the work.
void Workers::Arena::start_threads() {
  if (started_) return;
  started_ = true;
  try {
    threads_.reserve(max_workers - 1);
    while (threads_.size() + 1 < max_workers) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
  } catch (const std::bad_alloc&) {
  }
}

// Wakes as many sleeping threads as can find a task. The mutex is held.
void Workers::Arena::wake(size_t tasks) {
  work_count_.fetch_add(1, std::memory_order_relaxed);
  if (tasks >= sleepers_) return work_came_.notify_all();
  for (; tasks > 0; tasks--) work_came_.notify_one();
}

PoolCall* Workers::Arena::find_call() const {
  PoolCall* call = oldest_;
  while (call != nullptr && (!call->has_tasks() || call->workers >= max_workers))
    call = call->newer;
  return call;
}

void Workers::Arena::remove(PoolCall& call) {
  PoolCall** link = &oldest_;
  while (*link != &call) link = &(*link)->newer;
  *link = call.newer;
}

void Workers::Arena::run(size_t n, TaskFunction task, const void* context) {
  PoolCall call{.n = n, .task = task, .context = context};
  {
    const std::lock_guard lock(mutex_);
    start_threads();
    PoolCall** link = &oldest_;
    while (*link != nullptr) link = &(*link)->newer;
    *link = &call;
    wake(n - 1);
  }
  call.run(0);
  {
    const std::lock_guard lock(mutex_);
    remove(call);
  }
  for (int i = 0; i < looks_before_sleep && call.helpers != 0; i++) std::this_thread::yield();
  {
    // Also if no helper is left: the last one may hold the mutex_ still, in a line with `call`.
    std::unique_lock lock(mutex_);
    helper_left_.wait(lock, [&] { return call.helpers == 0; });
  }
  if (call.error) std::rethrow_exception(call.error);
}

void Workers::Arena::lend(const std::shared_ptr<TaskList>& tasks) {
  const std::lock_guard lock(mutex_);
  start_threads();
  const size_t helpers = std::min<size_t>(max_workers - 1, tasks->n);
  for (size_t i = 0; i < helpers; i++) lists_.push_back(tasks);
  wake(helpers);
}

void Workers::Arena::help(PoolCall& call, std::unique_lock<std::mutex>& lock) {
  const unsigned worker = call.workers++;
  call.helpers++;
  lock.unlock();
  call.run(worker);
  lock.lock();
  // The call may be gone as soon as the mutex is free.
  if (--call.helpers == 0) helper_left_.notify_all();
}

void Workers::Arena::help_with_list(std::unique_lock<std::mutex>& lock) {
  std::shared_ptr<TaskList> tasks = std::move(lists_.front());
  lists_.pop_front();
  lock.unlock();
  tasks->work();
  tasks.reset();
  lock.lock();
}

void Workers::Arena::wait_for_work(std::unique_lock<std::mutex>& lock) {
  const uint64_t seen = work_count_.load(std::memory_order_relaxed);
  lock.unlock();
  for (int i = 0; i < looks_before_sleep; i++) {
    if (work_count_.load(std::memory_order_relaxed) != seen) break;
    std::this_thread::yield();
  }
  lock.lock();
  sleepers_++;
  work_came_.wait(lock, [this] { return has_work(); });
  sleepers_--;
}

// What a thread of the pool does all its life.
void Workers::Arena::work() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (PoolCall* call = find_call(); call != nullptr) {
      help(*call, lock);
    } else if (!lists_.empty()) {
      help_with_list(lock);
    } else {
      wait_for_work(lock);
    }
  }
}

// As with oneTBB, there are never more threads than processors, where they would wait for each
// other.
Workers::Workers(unsigned threads, const pkv_runner& runner)
    : runner_(runner),
      threads_(runner.run == nullptr ? std::min(threads, os::processor_count()) : threads),
      arena_(runner.run == nullptr && threads_ > 1 ? std::make_unique<Arena>(threads_) : nullptr) {}

Workers::~Workers() {
  // A forked child does not have the threads of the arena, which may have held its mutex: the arena
  // is leaked there.
  if (arena_ && arena_->epoch != os::fork_epoch()) arena_.release();
}

void Workers::run(size_t n, TaskFunction task, const void* context) {
  if (runner_.run != nullptr && n > 1) return run_by_caller(n, task, context);
  if (threads_ <= 1 || n <= 1) {
    for (size_t i = 0; i < n; i++) task(context, i, 0);
    return;
  }
  if (!arena_ || arena_->epoch != os::fork_epoch()) return run_on_new_threads(n, task, context);
  arena_->run(n, task, context);
}

void Workers::lend_threads(const std::shared_ptr<TaskList>& tasks) noexcept {
  if (!arena_ || arena_->epoch != os::fork_epoch()) return;
  try {
    arena_->lend(tasks);
  } catch (...) {
    // Memory was refused: the thread that waits for the tasks runs them.
  }
}

}  // namespace pkv
