// Shared by tests with many threads: their ends and numbers of threads, threads whose first failure
// is reported, and counts of operations.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../hostile/support.h"
#include "../support/sanitizers.h"

namespace storm {

// Returns the threads of one run: PKV_STORM_THREADS, or what the test has otherwise.
inline unsigned threads(unsigned otherwise) {
  const char* const text = std::getenv("PKV_STORM_THREADS");
  return text != nullptr ? static_cast<unsigned>(std::atoi(text)) : otherwise;
}

// The operations of all storms of this program, which `bash tests/storm` adds up: a call whose
// answer was checked is one, and each block of a list that the pool took or gave is one.
struct Operations {
  ~Operations() {
    if (sum > 0) std::printf("%llu operations in storms\n", static_cast<unsigned long long>(sum));
  }
  std::atomic<uint64_t> sum{0};
};
inline Operations all_operations;

// Whether a thread of this storm has failed.
inline std::atomic<bool> somebody_failed{false};

// The end of a storm, also at the first failure. It comes after a number of rounds of all threads
// together, so that a storm does the same on each machine. With PKV_STORM_SECONDS, or in 3 s under
// a sanitizer, which may make a round ten times as long, it comes after that time.
class Clock {
 public:
  explicit Clock(uint64_t rounds) : rounds_(rounds) {
    const char* const text = std::getenv("PKV_STORM_SECONDS");
    timed_ = text != nullptr || pkv::test::sanitized;
    const std::chrono::duration<double> time(text != nullptr ? std::atof(text) : 3);
    end_ = Time::now() + std::chrono::duration_cast<Time::duration>(time);
  }
  // Begins a round, unless this is the end. Threads that make no rounds wait until it is over().
  bool running() const {
    if (!timed_) begun_.fetch_add(1, std::memory_order_relaxed);
    return !over();
  }
  bool over() const {
    return somebody_failed.load(std::memory_order_relaxed) ||
           (timed_ ? Time::now() >= end_ : begun_.load(std::memory_order_relaxed) > rounds_);
  }

 private:
  using Time = std::chrono::steady_clock;
  const uint64_t rounds_;
  bool timed_;
  Time::time_point end_;
  mutable std::atomic<uint64_t> begun_{0};
};

// Runs body(thread number, its random numbers) in `threads` threads. Returns the first failure or
// "".
inline std::string run(unsigned threads, const std::function<void(unsigned, std::mt19937&)>& body) {
  std::mutex mutex;
  std::string failed;
  std::vector<std::thread> running;
  somebody_failed = false;
  for (unsigned thread = 0; thread < threads; thread++)
    running.emplace_back([&, thread] {
      std::mt19937 random(thread + 1);
      try {
        body(thread, random);
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        if (failed.empty()) failed = error.what();
        somebody_failed = true;
      }
      all_operations.sum += hostile::operations;
    });
  for (std::thread& each : running) each.join();
  return failed;
}

}  // namespace storm
