// A pool of threads that wait for calls of Workers::run() and help with their tasks.
#include "base/parallel_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace pkv {

namespace {

// How often an idle thread looks for work before it sleeps. The layers of a model follow each other
// within some tens of microseconds, and waking a sleeping thread takes about as long.
constexpr int looks_before_sleep = 100;

// How long threads that the system refused are not tried again.
constexpr std::chrono::seconds pause_after_refusal{1};

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
  ThreadPool(unsigned threads, const Logger* logger) : max_workers_(threads), logger_(logger) {}
  ~ThreadPool() override;

  void run(TaskList& tasks) override;
  void lend_threads(const std::shared_ptr<TaskList>& tasks) override;
  void take_back(const std::shared_ptr<TaskList>& tasks) noexcept override;

 private:
  void start_threads();
  size_t start_missing();
  void wake(size_t tasks);
  void work();
  PoolCall* find_call() const;
  void remove(PoolCall& call);
  bool has_work() const { return stopping_ || find_call() != nullptr || !lists_.empty(); }
  void help(PoolCall& call, std::unique_lock<std::mutex>& lock);
  void help_with_list(std::unique_lock<std::mutex>& lock);
  void wait_for_work(std::unique_lock<std::mutex>& lock);

  const unsigned max_workers_;  // of one call, its caller included
  const Logger* const logger_;
  std::mutex mutex_;
  std::condition_variable work_came_, helper_left_;
  std::atomic<uint64_t> work_count_{0};  // rises with each piece of work; idle threads watch it
  PoolCall* oldest_ = nullptr;
  std::deque<std::shared_ptr<TaskList>> lists_;
  std::vector<std::thread> threads_;
  std::atomic<bool> complete_{false};  // all threads run
  std::chrono::steady_clock::time_point next_start_{};
  bool told_ = false;  // the logger was told that threads are missing
  unsigned sleepers_ = 0;
  bool stopping_ = false;
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

// Starts the threads at the first call, since many caches never compute, and those that the system
// refused at a later one. The caller does not hold the mutex, since the logger may block.
void ThreadPool::start_threads() {
  if (complete_.load(std::memory_order_relaxed)) return;
  const size_t missing = start_missing();
  if (missing != 0 && logger_ != nullptr)
    logger_->log(PKV_LOG_WARNING,
                 "the system refuses threads, perhaps because of a limit of its container: %zu of "
                 "%u are missing; the others do their work, and the library will try again to "
                 "start the missing ones",
                 missing, max_workers_);
}

// Returns how many threads are missing, if the logger is to be told of it.
size_t ThreadPool::start_missing() {
  const std::lock_guard lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (complete_ || now < next_start_) return 0;
  next_start_ = now + pause_after_refusal;
  try {
    threads_.reserve(max_workers_ - 1);
    while (threads_.size() + 1 < max_workers_) threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
  } catch (const std::bad_alloc&) {
  }
  const size_t missing = max_workers_ - 1 - threads_.size();
  complete_ = missing == 0;
  return std::exchange(told_, told_ || missing != 0) ? 0 : missing;
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
  start_threads();
  {
    const std::lock_guard lock(mutex_);
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
  start_threads();
  const std::lock_guard lock(mutex_);
  const size_t helpers = std::min<size_t>(max_workers_ - 1, tasks->n);
  for (size_t i = 0; i < helpers; i++) lists_.push_back(tasks);
  wake(helpers);
}

void ThreadPool::take_back(const std::shared_ptr<TaskList>& tasks) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(lists_, tasks);
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

std::unique_ptr<Workers::Arena> make_thread_pool(unsigned threads, const Logger* logger) {
  return std::make_unique<ThreadPool>(threads, logger);
}

bool can_start_threads(unsigned threads) noexcept {
  std::mutex all_started;
  std::vector<std::thread> started;
  bool can = true;
  {
    const std::lock_guard held(all_started);  // so that all of them exist at once
    try {
      started.reserve(threads);
      while (started.size() < threads)
        started.emplace_back([&all_started] { const std::lock_guard wait(all_started); });
    } catch (const std::system_error&) {
      can = false;
    } catch (const std::bad_alloc&) {
      can = false;
    }
  }
  for (std::thread& thread : started) thread.join();
  return can;
}

}  // namespace pkv
