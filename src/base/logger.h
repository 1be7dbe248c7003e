// Lines for the caller's logger.
#pragma once

#include <pagedkv/common.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>

#include "base/printf.h"

namespace pkv {

// Lets at most one line through per interval, however many threads log at once.
class LogInterval {
 public:
  explicit LogInterval(std::chrono::seconds seconds) : interval_(seconds) {}
  // Returns true if a line may be logged now, and starts the next interval.
  bool begin() noexcept;

 private:
  const std::chrono::nanoseconds interval_;
  std::atomic<int64_t> next_{INT64_MIN};  // nanoseconds of the steady clock
};

// Calls the caller's logger, if there is one. Any thread may do so.
class Logger {
 public:
  // If `logger` is NULL, nothing is logged.
  explicit Logger(const pkv_logger* logger) : logger_(logger != nullptr ? *logger : pkv_logger{}) {}
  bool listens() const { return logger_.log != nullptr; }
  // Logs one printf-formatted line of at most 255 characters.
  [[PKV_PRINTF(3, 4)]] void log(pkv_log_level level, const char* format, ...) const noexcept;

 private:
  friend class DelayedLines;
  void say(pkv_log_level level, const char* line) const noexcept;

  const pkv_logger logger_;
};

// Holds back the lines that this thread logs while it lives, and logs them at its end. A thread
// makes one before it takes a lock that steps wait for, since a logger may block.
class DelayedLines {
 public:
  DelayedLines();
  ~DelayedLines();
  DelayedLines(const DelayedLines&) = delete;
  DelayedLines& operator=(const DelayedLines&) = delete;

 private:
  friend class Logger;
  struct Line {
    const Logger* logger;
    pkv_log_level level;
    char text[256];
  };

  size_t count_ = 0;
  std::array<Line, 2> lines_;  // a third line is logged at once
};

}  // namespace pkv
