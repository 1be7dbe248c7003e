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

namespace {
thread_local DelayedLines* delayed = nullptr;
}  // namespace

void Logger::log(pkv_log_level level, const char* format, ...) const noexcept {
  if (!listens()) return;
  DelayedLines::Line line{this, level, {}};
  va_list args;
  va_start(args, format);
  std::vsnprintf(line.text, sizeof line.text, format, args);
  va_end(args);
  if (delayed != nullptr && delayed->count_ < delayed->lines_.size())
    delayed->lines_[delayed->count_++] = line;
  else
    say(level, line.text);
}

void Logger::say(pkv_log_level level, const char* line) const noexcept {
  HookScope scope;
  logger_.log(logger_.user, level, line);
}

DelayedLines::DelayedLines() { delayed = this; }

DelayedLines::~DelayedLines() {
  delayed = nullptr;
  for (size_t i = 0; i < count_; i++) lines_[i].logger->say(lines_[i].level, lines_[i].text);
}

}  // namespace pkv
