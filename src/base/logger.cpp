// Formats lines for the caller's logger.
#include "base/logger.h"

#include <cstdarg>
#include <cstdio>

#include "base/memory.h"

namespace pkv {

bool LogInterval::begin() noexcept {
  const int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                          std::chrono::steady_clock::now().time_since_epoch())
                          .count();
  int64_t next = next_.load(std::memory_order_relaxed);
  return now >= next &&
         next_.compare_exchange_strong(next, now + interval_.count(), std::memory_order_relaxed);
}

void Logger::log(pkv_log_level level, const char* format, ...) const noexcept {
  if (!listens()) return;
  char line[256];
  va_list args;
  va_start(args, format);
  std::vsnprintf(line, sizeof line, format, args);
  va_end(args);
  HookScope scope;
  logger_.log(logger_.user, level, line);
}

}  // namespace pkv
