// Workers on threads of the library's own. Builds without oneTBB use them: the Rust crate that
// carries the sources, and builds for ThreadSanitizer, which does not see into oneTBB.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
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
// within some tens of microseconds, and waking a sleeping thread takes about as long.
constexpr int looks_before_sleep = 100;

// One call of Workers::run(), on the stack of the thread that called it.
struct PoolCall {
  TaskList& tasks;
  std::atomic<unsigned> helpers{0};  // threads of the pool that work on the call now
  // The pool's mutex protects these two.
  unsigned workers = 1;  // worker numbers handed out; 0 is the caller's
  PoolCall* newer = nullptr;
};

class ThreadPool final : public Workers::Arena {
 public:
  explicit ThreadPool(unsigned threads) : max_workers_(threads) {}
  ~ThreadPool() override;

  void run(TaskList& tasks) override;
  void lend_threads(const std::shared_ptr<TaskList>& tasks) override;

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

  const unsigned max_workers_;  // of one call, its caller included
  std::mutex mutex_;
  std::condition_variable work_came_, helper_left_;
  std::atomic<uint64_t> work_count_{0};  // rises with each piece of work; idle threads watch it
  PoolCall* oldest_ = nullptr;
  std::deque<std::shared_ptr<TaskList>> lists_;
  std::vector<std::thread> threads_;
  unsigned sleepers_ = 0;
  bool started_ = false, stopping_ = false;
};

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    work_count_.fetch_add(1, std::memory_order_relaxed);
  }
  work_came_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// Starts the threads at the first call, since many caches never compute. If the system starts fewer
// threads than asked for, those that started do the work.
void ThreadPool::start_threads() {
  if (started_) return;
  started_ = true;
  try {
    threads_.reserve(max_workers_ - 1);
    while (threads_.size() + 1 < max_workers_) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
  } catch (const std::bad_alloc&) {
  }
}

// Wakes as many sleeping threads as can find a task. The caller holds the mutex.
void ThreadPool::wake(size_t tasks) {
  work_count_.fetch_add(1, std::memory_order_relaxed);
  if (tasks >= sleepers_) return work_came_.notify_all();
  for (; tasks > 0; tasks--) work_came_.notify_one();
}

PoolCall* ThreadPool::find_call() const {
  PoolCall* call = oldest_;
  while (call != nullptr && (!call->tasks.has_tasks() || call->workers >= max_workers_))
    call = call->newer;
  return call;
}

void ThreadPool::remove(PoolCall& call) {
  PoolCall** link = &oldest_;
  while (*link != &call) link = &(*link)->newer;
  *link = call.newer;
}

void ThreadPool::run(TaskList& tasks) {
  PoolCall call{.tasks = tasks};
  {
    const std::lock_guard lock(mutex_);
    start_threads();
    PoolCall** link = &oldest_;
    while (*link != nullptr) link = &(*link)->newer;
    *link = &call;
    wake(tasks.n - 1);
  }
  tasks.work(0);
  {
    const std::lock_guard lock(mutex_);
    remove(call);
  }
  for (int i = 0; i < looks_before_sleep && call.helpers != 0; i++) std::this_thread::yield();
  {
    // Helpers that work on the call still need it: the last one wakes this thread when it leaves.
    std::unique_lock lock(mutex_);
    helper_left_.wait(lock, [&] { return call.helpers == 0; });
  }
}

void ThreadPool::lend_threads(const std::shared_ptr<TaskList>& tasks) {
  const std::lock_guard lock(mutex_);
  start_threads();
  const size_t helpers = std::min<size_t>(max_workers_ - 1, tasks->n);
  for (size_t i = 0; i < helpers; i++) lists_.push_back(tasks);
  wake(helpers);
}

void ThreadPool::help(PoolCall& call, std::unique_lock<std::mutex>& lock) {
  const unsigned worker = call.workers++;
  call.helpers++;
  lock.unlock();
  call.tasks.work(worker);
  lock.lock();
  // The call may be gone as soon as the mutex is free.
  if (--call.helpers == 0) helper_left_.notify_all();
}

void ThreadPool::help_with_list(std::unique_lock<std::mutex>& lock) {
  std::shared_ptr<TaskList> tasks = std::move(lists_.front());
  lists_.pop_front();
  lock.unlock();
  tasks->work(0);
  tasks.reset();
  lock.lock();
}

void ThreadPool::wait_for_work(std::unique_lock<std::mutex>& lock) {
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

// The loop of a pool thread.
void ThreadPool::work() {
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

}  // namespace

// As with oneTBB, there are never more threads than CPUs, where they would wait for each other.
unsigned Workers::limit_threads(unsigned threads) {
  return std::min(threads, os::processor_count());
}

std::unique_ptr<Workers::Arena> Workers::make_arena(unsigned threads) {
  return std::make_unique<ThreadPool>(threads);
}

}  // namespace pkv
