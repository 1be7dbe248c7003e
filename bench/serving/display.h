// Shows a run's progress on stderr: a line that is redrawn on a terminal, elsewhere a line every
// five seconds.
#pragma once

#include <chrono>

#include "server.h"

namespace pkv::serve {

class Display {
 public:
  explicit Display(bool quiet);
  void update(const Server& server);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  const bool quiet_, terminal_;
  Clock::time_point last_;
  bool drawn_ = false;
};

}  // namespace pkv::serve
