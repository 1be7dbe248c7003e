// A logger that keeps its lines.
#pragma once

#include <pagedkv/common.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace cache_test {

class Lines {
 public:
  const pkv_logger* logger() const { return &logger_; }
  // Returns how many lines of a level contain a text.
  size_t count(pkv_log_level level, const std::string& part) const {
    const std::lock_guard lock(mutex_);
    return static_cast<size_t>(std::count_if(lines_.begin(), lines_.end(), [&](const auto& line) {
      return line.first == level && line.second.find(part) != std::string::npos;
    }));
  }

 private:
  static void log(void* user, pkv_log_level level, const char* message) {
    auto& self = *static_cast<Lines*>(user);
    const std::lock_guard lock(self.mutex_);
    self.lines_.emplace_back(level, message);
  }

  const pkv_logger logger_{log, this};
  mutable std::mutex mutex_;
  std::vector<std::pair<pkv_log_level, std::string>> lines_;
};

}  // namespace cache_test
