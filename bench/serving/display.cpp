#include "display.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace pkv::serve {

namespace {

const char* const to_first_line = "\x1b[3A\r";  // of three

bool is_terminal() {
  const char* kind = std::getenv("TERM");
  return isatty(STDERR_FILENO) && kind != nullptr && std::strcmp(kind, "dumb") != 0;
}

size_t columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

// '#' for blocks of sessions, '=' for cached ones, '.' for free ones.
std::string bar(const Moment& now, size_t width) {
  const double all = static_cast<double>(now.used + now.cached + now.free);
  const auto part = [&](uint64_t blocks) {
    return static_cast<size_t>(
        Figures::ratio(static_cast<double>(blocks), all) * static_cast<double>(width) + 0.5);
  };
  const size_t used = part(now.used), held = std::max(used, part(now.used + now.cached));
  return std::string(used, '#') + std::string(held - used, '=') + std::string(width - held, '.');
}

std::string progress(const Server& server) {
  const Figures& f = server.figures();
  const Moment& now = server.now();
  const double done = server.part_done(), left = done > 0 ? f.wall_seconds * (1 - done) / done : 0;
  char text[256];
  std::snprintf(text, sizeof text, "%s: %zu running, %zu waiting, %zu of %zu done, %.0f s left",
                f.setup.name.c_str(), now.running, now.waiting, f.finished, f.requests, left);
  return text;
}

std::string rates(const Server& server) {
  const Figures& f = server.figures();
  char text[128];
  std::snprintf(text, sizeof text, "hits %.1f %%, %.0f tokens/s, %zu preemptions",
                100 * f.hit_rate(), f.tokens_per_second(), f.preemptions);
  return text;
}

std::string pool(const Server& server, size_t width) {
  const Moment& now = server.now();
  char text[128];
  std::snprintf(text, sizeof text, " %llu used (#), %llu cached (=), %llu free",
                static_cast<unsigned long long>(now.used),
                static_cast<unsigned long long>(now.cached),
                static_cast<unsigned long long>(now.free));
  return "blocks [" + bar(now, width > 64 ? width - 56 : 8) + "]" + text;
}

}  // namespace

Display::Display(bool quiet) : quiet_(quiet), terminal_(is_terminal()), last_(Clock::now()) {}

void Display::update(const Server& server) {
  const double since = std::chrono::duration<double>(Clock::now() - last_).count();
  if (quiet_ || since < (terminal_ ? 0.1 : 5.0)) return;
  last_ = Clock::now();
  if (!terminal_) {
    std::fprintf(stderr, "%s; %s\n", progress(server).c_str(), rates(server).c_str());
    return;
  }
  const size_t width = columns() - 1;
  std::string frame = drawn_ ? to_first_line : "";
  for (const std::string& line : {progress(server), pool(server, width), rates(server)})
    frame += line.substr(0, width) + "\x1b[K\n";
  std::fputs(frame.c_str(), stderr);
  drawn_ = true;
}

void Display::clear() {
  if (drawn_) std::fprintf(stderr, "%s\x1b[J", to_first_line);
  drawn_ = false;
}

}  // namespace pkv::serve
