// Runs virtual threads one access at a time. A strategy chooses which thread goes next, and which
// of the outcomes that the memory model allows an access has. The same choices give the same
// execution.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <string>
#include <vector>

#include "clock.h"
#include "fiber.h"

namespace schedules {

// What a thread is about to do. A swap that may fail counts as a write until it has failed.
struct Access {
  uint32_t location = 0;
  bool writes = false;
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  // Returns one of the threads of the mask `runnable`, or -1 if this execution can stop.
  // `pending` is what each of them would do.
  virtual int next(unsigned runnable, const Access* pending, int current) = 0;
  // Returns one of n outcomes. 0 is what a machine without weak memory does.
  virtual uint32_t choose(uint32_t n) = 0;
  // Says that the thread chosen last has made its access.
  virtual void done(int thread, const Access& access) = 0;
};

enum class Outcome { finished, abandoned, finding };

class Scheduler {
 public:
  // Runs body(1) to body(threads) to their ends, each of at most max_steps accesses.
  Outcome run(int threads, uint32_t max_steps, Fiber::Body body, Strategy& strategy) {
    threads_ = threads;
    max_steps_ = max_steps;
    strategy_ = &strategy;
    body_ = body;
    runnable_ = 0;
    unstarted_ = 1;
    outcome_ = Outcome::finished;
    for (int thread = 1; thread <= threads; thread++) {
      fibers_[thread].restart(enter, thread);
      steps_[thread] = 0;
    }
    running_ = true;
    start_next();
    running_ = false;
    current_ = 0;
    return outcome_;
  }

  int current() const { return current_; }
  bool running() const { return running_; }
  uint32_t steps(int thread) const { return steps_[thread]; }

  // Is called before each access of a thread and returns when it is this thread's turn.
  void step(const Access& access) {
    const int thread = current_;
    pending_[thread] = access;
    if (++steps_[thread] > max_steps_)
      found("thread %d did not finish within %u accesses of its own: others hold it up", thread,
            max_steps_);
    if (unstarted_ <= threads_)
      start_next();
    else
      hand_over();
  }
  void stepped(const Access& access) { strategy_->done(current_, access); }
  uint32_t choose(uint32_t n) { return n < 2 ? 0 : strategy_->choose(n); }

  // Ends the execution with a finding. Returns only where no threads run.
  __attribute__((format(printf, 2, 3))) void found(const char* format, ...) {
    if (outcome_ != Outcome::finding) {
      va_list arguments;
      va_start(arguments, format);
      std::vsnprintf(finding_, sizeof finding_, format, arguments);
      va_end(arguments);
    }
    outcome_ = Outcome::finding;
    if (running_) leave();
  }
  Outcome outcome() const { return outcome_; }
  const char* finding() const { return finding_; }

  // Switches the report of an execution on or off. Writing it takes time.
  void tell(bool whether) {
    telling_ = whether;
    if (whether) story_.clear();
  }
  bool telling() const { return telling_; }
  void note(const std::string& line) {
    story_.push_back("thread " + std::to_string(current_) + "  " + line);
  }
  const std::vector<std::string>& story() const { return story_; }

 private:
  static void enter(int thread);

  // Each thread first runs to the place before its first access, so that its first access is known.
  void start_next() {
    const int from = current_;
    if (unstarted_ > threads_) return hand_over();
    current_ = unstarted_++;
    runnable_ |= 1u << current_;
    Fiber::switch_to(fibers_[from], fibers_[current_]);
  }

  void hand_over() {
    const int from = current_;
    if (runnable_ == 0) leave();
    const int next = strategy_->next(runnable_, pending_, from);
    if (next < 0) {
      outcome_ = Outcome::abandoned;
      leave();
    }
    if (next == from) return;
    current_ = next;
    Fiber::switch_to(fibers_[from], fibers_[next]);
  }

  void leave() { Fiber::switch_to(fibers_[current_], fibers_[0]); }

  void finish() {
    runnable_ &= ~(1u << current_);
    start_next();
  }

  Fiber fibers_[max_threads];
  Access pending_[max_threads];
  uint32_t steps_[max_threads] = {};
  int threads_ = 0, current_ = 0, unstarted_ = 1;
  unsigned runnable_ = 0;
  uint32_t max_steps_ = 0;
  bool running_ = false, telling_ = false;
  Strategy* strategy_ = nullptr;
  Fiber::Body body_ = nullptr;
  Outcome outcome_ = Outcome::finished;
  char finding_[512] = {};
  std::vector<std::string> story_;
};

inline Scheduler scheduler;

inline void Scheduler::enter(int thread) {
  scheduler.body_(thread);
  scheduler.finish();
}

}  // namespace schedules
