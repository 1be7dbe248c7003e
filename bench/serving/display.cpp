#include "display.h"

#include <unistd.h>

#include <cstdio>

namespace pkv::serve {

static std::string progress(const Server& server) {
  const Figures& f = server.figures();
  const double done = server.part_done(), left = done > 0 ? f.wall_seconds * (1 - done) / done : 0;
  return format("%s: %zu of %zu done, %zu running, %zu waiting; hits %.1f %%, %.0f s left",
                f.setup.name.c_str(), f.finished, f.requests, server.running(), server.waiting(),
                100 * f.hit_rate(), left);
}

Display::Display(bool quiet)
    : quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0), last_(Clock::now()) {}

void Display::update(const Server& server) {
  const double since = std::chrono::duration<double>(Clock::now() - last_).count();
  if (quiet_ || since < (terminal_ ? 0.1 : 5.0)) return;
  last_ = Clock::now();
  std::fprintf(stderr, terminal_ ? "\r%-79.79s" : "%s\n", progress(server).c_str());
  drawn_ = terminal_;
}

void Display::clear() {
  if (drawn_) std::fprintf(stderr, "\r%79s\r", "");
  drawn_ = false;
}

}  // namespace pkv::serve
