// Lines for the caller's logger.
#pragma once

#include <pagedkv/common.h>

#include <atomic>
#include <chrono>

namespace pkv {

// Says at most one line in so many seconds, whichever threads try at once.
class LogInterval {
 public:
  explicit LogInterval(std::chrono::seconds seconds) : interval_(seconds) {}
  // Returns true if a line may be said now, and starts the next interval.
  bool begin() noexcept;

 private:
  const std::chrono::nanoseconds interval_;
  std::atomic<int64_t> next_{INT64_MIN};  // nanoseconds of the steady clock
};

// Calls the caller's logger, if there is one. Any thread may do so.
class Logger {
 public:
  // `logger` may be NULL: then nothing is said.
  explicit Logger(const pkv_logger* logger) : logger_(logger != nullptr ? *logger : pkv_logger{}) {}
  bool listens() const { return logger_.log != nullptr; }
  // Says one printf-formatted line of at most 255 characters.
  void log(pkv_log_level level, const char* format, ...) const noexcept
      __attribute__((format(printf, 3, 4)));

 private:
  const pkv_logger logger_;
};

}  // namespace pkv
