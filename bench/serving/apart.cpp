#include "apart.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>

#include "apart_process.h"
#include "figures.h"

namespace pkv::serve {

namespace {

// The figures of one process, as it sends them.
nlohmann::json message(const ApartFigures& f) {
  return {f.requests, f.tokens, f.sent_bytes, f.first_token_seconds, f.wait_seconds};
}

void append(std::vector<float>& to, const std::vector<float>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

// Reads the figures that a process sends, up to the end of its pipe, and adds them.
void receive(std::FILE* pipe, ApartFigures& f) {
  const auto got = nlohmann::json::parse(pipe, nullptr, false);
  if (!got.is_array()) throw std::runtime_error("a process ended before it sent its figures");
  f.requests += got[0].get<size_t>();
  f.tokens += got[1].get<size_t>();
  f.sent_bytes += got[2].get<uint64_t>();
  append(f.first_token_seconds, got[3]);
  append(f.wait_seconds, got[4]);
}

// A process that plays its part, and the pipe from which its figures are read.
struct Child {
  pid_t process;
  std::FILE* figures;
};

Child start(const std::function<ApartFigures()>& play) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("cannot create a pipe");
  const pid_t process = fork();
  if (process < 0) throw std::runtime_error("cannot start a process");
  if (process > 0) {
    close(ends[1]);
    return {process, fdopen(ends[0], "r")};
  }
  close(ends[0]);
  signal(SIGINT, SIG_DFL);
  try {
    const std::string text = message(play()).dump();
    std::FILE* const pipe = fdopen(ends[1], "w");
    _exit(std::fputs(text.c_str(), pipe) < 0 || std::fclose(pipe) != 0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pkv-serve: a process of the run: %s\n", error.what());
    _exit(1);
  }
}

ApartFigures gather(const std::string& name, const std::vector<Child>& children) {
  ApartFigures figures;
  figures.name = name;
  std::string failed;
  for (const Child& child : children) {
    try {
      if (failed.empty()) receive(child.figures, figures);
    } catch (const std::exception& error) {
      failed = error.what();
    }
    if (!failed.empty()) kill(child.process, SIGTERM);
    std::fclose(child.figures);
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

}  // namespace

std::vector<ApartFigures> run_apart(const Options& options, const Trace& trace) {
  return {run_mixed(options, trace), run_separate(options, trace)};
}

std::string comparison(const std::vector<ApartFigures>& runs) {
  using F = const ApartFigures&;
  Table<ApartFigures> table(runs);
  table.add("", [](F f) { return f.name; });
  table.add("requests", [](F f) { return std::to_string(f.requests); });
  table.add("tokens generated", [](F f) { return std::to_string(f.tokens); });
  table.add_times("time to first token", &ApartFigures::first_token_seconds);
  table.add_times("wait for a later token", &ApartFigures::wait_seconds);
  table.add("longest wait for a later token",
            [](F f) { return duration(percentile(f.wait_seconds, 1)); });
  table.add("keys and values sent, MB", [](F f) { return std::to_string(f.sent_bytes / 1000000); });
  table.add("seconds", [](F f) { return format("%.1f", f.wall_seconds); });
  return table.text();
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
