// Shared by tests with many threads: their time and number of threads, threads whose first failure
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

namespace storm {

// Returns the seconds of one run: PKV_STORM_SECONDS, or 3.
inline std::chrono::duration<double> duration() {
  const char* const text = std::getenv("PKV_STORM_SECONDS");
  return std::chrono::duration<double>(text != nullptr ? std::atof(text) : 3);
}

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

class Clock {
 public:
  explicit Clock(std::chrono::duration<double> time = duration())
      : end_(std::chrono::steady_clock::now() +
             std::chrono::duration_cast<std::chrono::steady_clock::duration>(time)) {}
  bool running() const { return std::chrono::steady_clock::now() < end_; }

 private:
  const std::chrono::steady_clock::time_point end_;
};

// Runs body(thread number, its random numbers) in `threads` threads. Returns the first failure or
// "".
inline std::string run(unsigned threads, const std::function<void(unsigned, std::mt19937&)>& body) {
  std::mutex mutex;
  std::string failed;
  std::vector<std::thread> running;
  for (unsigned thread = 0; thread < threads; thread++)
    running.emplace_back([&, thread] {
      std::mt19937 random(thread + 1);
      try {
        body(thread, random);
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        if (failed.empty()) failed = error.what();
      }
      all_operations.sum += hostile::operations;
    });
  for (std::thread& each : running) each.join();
  return failed;
}

}  // namespace storm
