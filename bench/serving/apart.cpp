#include "apart.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>

#include "apart_process.h"
#include "figures.h"

namespace pkv::serve {

namespace {

void read_all(int file, void* out, size_t size) {
  auto* at = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t got = read(file, at, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw std::runtime_error("a process ended before it told its figures");
    at += got;
    size -= static_cast<size_t>(got);
  }
}

void write_all(int file, const void* data, size_t size) {
  auto* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t put = write(file, at, size);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) _exit(1);
    at += put;
    size -= static_cast<size_t>(put);
  }
}

void tell(int file, const ApartFigures& f) {
  const uint64_t head[] = {f.requests, f.tokens, f.sent_bytes, f.first_token_seconds.size(),
                           f.wait_seconds.size()};
  write_all(file, head, sizeof head);
  write_all(file, f.first_token_seconds.data(), f.first_token_seconds.size() * sizeof(float));
  write_all(file, f.wait_seconds.data(), f.wait_seconds.size() * sizeof(float));
}

void hear(int file, ApartFigures& f) {
  uint64_t head[5];
  read_all(file, head, sizeof head);
  f.requests += head[0], f.tokens += head[1], f.sent_bytes += head[2];
  const size_t firsts = f.first_token_seconds.size(), waits = f.wait_seconds.size();
  f.first_token_seconds.resize(firsts + head[3]);
  f.wait_seconds.resize(waits + head[4]);
  read_all(file, f.first_token_seconds.data() + firsts, head[3] * sizeof(float));
  read_all(file, f.wait_seconds.data() + waits, head[4] * sizeof(float));
}

// A process that plays its part and tells its figures, and the end of the pipe that hears them.
struct Child {
  pid_t process = 0;
  int figures = -1;
};

Child start(const std::function<ApartFigures()>& play) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe can be made");
  const pid_t process = fork();
  if (process < 0) throw std::runtime_error("no process can be started");
  if (process > 0) {
    close(ends[1]);
    return {process, ends[0]};
  }
  close(ends[0]);
  signal(SIGINT, SIG_DFL);
  try {
    tell(ends[1], play());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pkv-serve: a process of the run: %s\n", error.what());
    _exit(1);
  }
  _exit(0);
}

ApartFigures gather(const std::string& name, const std::vector<Child>& children) {
  ApartFigures figures;
  figures.name = name;
  std::string failed;
  for (const Child& child : children) {
    try {
      if (failed.empty()) hear(child.figures, figures);
    } catch (const std::exception& error) {
      failed = error.what();
    }
    if (!failed.empty()) kill(child.process, SIGTERM);
    close(child.figures);
  }
  for (const Child& child : children) {
    int status = 0;
    waitpid(child.process, &status, 0);
    if (status != 0 && failed.empty()) failed = "a process of the run failed";
  }
  if (!failed.empty()) throw std::runtime_error(failed);
  return figures;
}

using Clock = std::chrono::steady_clock;

// All processes of a run begin at the same moment, when they have their memory.
Clock::time_point soon() { return Clock::now() + std::chrono::milliseconds(1000); }

ApartFigures timed(const std::string& name, const std::vector<Child>& children,
                   Clock::time_point begin) {
  ApartFigures figures = gather(name, children);
  figures.wall_seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return figures;
}

ApartFigures run_mixed(const Options& options, const Trace& trace) {
  const size_t count = options.prefill + options.decode;
  const auto begin = soon();
  std::vector<Child> children;
  for (size_t i = 0; i < count; i++)
    children.push_back(start([&] { return play_decode(options, trace, {i, count}, {}, begin); }));
  return timed(std::to_string(count) + " that do both", children, begin);
}

ApartFigures run_separate(const Options& options, const Trace& trace) {
  // sockets[p][d]: the two ends of the connection of a prefill process with a decode process.
  std::vector<std::vector<std::pair<int, int>>> sockets(options.prefill);
  for (auto& row : sockets)
    for (size_t d = 0; d < options.decode; d++) row.push_back(loopback_pair());
  const auto begin = soon();
  std::vector<Child> children;
  // A process that inherits the end of another one would keep that connection open after its death.
  const auto keep = [&](size_t p, size_t d) {
    for (size_t i = 0; i < sockets.size(); i++)
      for (size_t j = 0; j < sockets[i].size(); j++) {
        if (i != p) close(sockets[i][j].first);
        if (j != d) close(sockets[i][j].second);
      }
  };
  for (size_t d = 0; d < options.decode; d++)
    children.push_back(start([&, d] {
      keep(options.prefill, d);
      std::vector<int> mine;
      for (auto& row : sockets) mine.push_back(row[d].second);
      return play_decode(options, trace, {d, options.decode}, mine, begin);
    }));
  for (size_t p = 0; p < options.prefill; p++)
    children.push_back(start([&, p] {
      keep(p, options.decode);
      std::vector<int> mine;
      for (auto& pair : sockets[p]) mine.push_back(pair.first);
      return play_prefill(options, trace, mine);
    }));
  keep(options.prefill, options.decode);
  return timed(
      std::to_string(options.prefill) + " prefill, " + std::to_string(options.decode) + " decode",
      children, begin);
}

std::string cell(const std::string& text) {
  return std::string(text.size() < 24 ? 24 - text.size() : 1, ' ') + text;
}

std::string milliseconds(const std::vector<float>& values, double part) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ms", 1000 * percentile(values, part));
  return text;
}

}  // namespace

std::vector<ApartFigures> run_apart(const Options& options, const Trace& trace) {
  return {run_mixed(options, trace), run_separate(options, trace)};
}

std::string comparison(const std::vector<ApartFigures>& runs) {
  std::string text(34, ' ');
  const auto row = [&](const char* name,
                       const std::function<std::string(const ApartFigures&)>& value) {
    text += "  " + std::string(name) + std::string(32 - std::strlen(name), ' ');
    for (const ApartFigures& run : runs) text += cell(value(run));
    text += '\n';
  };
  for (const ApartFigures& run : runs) text += cell(run.name);
  text += '\n';
  const auto time = [&](const char* name, auto values, double part) {
    row(name, [&](const ApartFigures& f) { return milliseconds(f.*values, part); });
  };
  row("requests", [](const ApartFigures& f) { return std::to_string(f.requests); });
  row("tokens generated", [](const ApartFigures& f) { return std::to_string(f.tokens); });
  time("time to first token p50", &ApartFigures::first_token_seconds, 0.5);
  time("time to first token p99", &ApartFigures::first_token_seconds, 0.99);
  time("wait for a later token p50", &ApartFigures::wait_seconds, 0.5);
  time("wait for a later token p99", &ApartFigures::wait_seconds, 0.99);
  time("longest wait for a later token", &ApartFigures::wait_seconds, 1);
  row("keys and values sent, MB",
      [](const ApartFigures& f) { return std::to_string(f.sent_bytes / 1000000); });
  row("seconds", [](const ApartFigures& f) { return std::to_string(f.wall_seconds); });
  return text;
}

nlohmann::json to_json(const ApartFigures& f) {
  const auto times = [](const std::vector<float>& values) {
    return nlohmann::json{{"p50", percentile(values, 0.5)},
                          {"p99", percentile(values, 0.99)},
                          {"longest", percentile(values, 1)},
                          {"count", values.size()}};
  };
  return {{"name", f.name},
          {"finished", f.requests},
          {"generated_tokens", f.tokens},
          {"sent_bytes", f.sent_bytes},
          {"seconds", f.wall_seconds},
          {"first_token_seconds", times(f.first_token_seconds)},
          {"wait_seconds", times(f.wait_seconds)}};
}

}  // namespace pkv::serve
