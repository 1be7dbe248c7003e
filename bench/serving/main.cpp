// pkv-serve: replays a trace of requests and prints the figures of the run.
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "display.h"
#include "policies/table.h"
#include "workloads/kinds.h"

namespace pkv::serve {

namespace {

volatile std::sig_atomic_t stopped = 0;

// A second Ctrl-C ends the program at once.
void stop_on_interrupt() {
  struct sigaction action{};
  action.sa_handler = [](int) { stopped = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
}

std::vector<Setup> setups_of(const Options& options) {
  if (!options.compare) return {options.setup};
  return {{"prefix on", true, Reserve::none},
          {"prefix off", false, Reserve::none},
          {"reserved, oracle", false, Reserve::oracle},
          {"reserved, longest", false, Reserve::longest}};
}

// Opens a file. It is called before the work, so that a bad name is reported at once.
std::ofstream writable(const std::filesystem::path& path) {
  std::ofstream file(path);
  if (!file) throw InputError("cannot write " + path.string());
  return file;
}

nlohmann::json report(const Trace& trace, const std::vector<Figures>& runs) {
  uint64_t input = 0, output = 0;
  for (const Request& request : trace.requests) input += request.input, output += request.output;
  nlohmann::json result{{"trace", std::filesystem::path(trace.name).filename().string()},
                        {"requests", trace.requests.size()},
                        {"input_tokens", input},
                        {"output_tokens", output}};
  for (const Figures& run : runs) result["runs"].push_back(to_json(run));
  return result;
}

// The files that the user asked for.
struct Outputs {
  explicit Outputs(const Options& options) {
    if (!options.json.empty()) json = writable(options.json);
    if (options.pictures.empty()) return;
    std::error_code error;
    std::filesystem::create_directories(options.pictures, error);
    drawn = writable(std::filesystem::path(options.pictures) /
                     (options.compare_policies ? "policies.json" : "serve.json"));
  }
  void write(const nlohmann::json& result) {
    if (json.is_open()) json << result << '\n';
    if (drawn.is_open()) drawn << result << '\n';
  }

  std::ofstream json, drawn;
};

// One table for each workload.
int compare_policies(const Options& options) {
  Outputs outputs(options);
  stop_on_interrupt();
  std::vector<std::string> names;
  if (options.trace.empty() && options.workload == "all")
    for (const Workload& each : workloads()) names.push_back(each.name);
  else
    names.push_back(options.workload);
  nlohmann::json result{{"comparisons", nlohmann::json::array()}};
  for (const std::string& name : names) {
    if (stopped) break;
    Options one = options;
    one.workload = name;
    if (one.trace.empty() && one.requests == 0) one.requests = find_workload(name)->requests;
    result["comparisons"].push_back(compare_policies(make_trace(one), options.capacities, [&] {
      if (!options.quiet) std::fputc('.', stderr);
    }));
    if (!options.quiet) std::fputc('\n', stderr);
    std::fputs(policy_table(result["comparisons"].back()).c_str(), stdout);
    std::fflush(stdout);
  }
  outputs.write(result);
  return stopped ? 130 : 0;
}

int serve(const Options& options) {
  Outputs outputs(options);
  const Trace trace = make_trace(options);
  stop_on_interrupt();
  Display display(options.quiet);
  std::vector<Figures> runs;
  for (const Setup& setup : setups_of(options)) {
    if (stopped && !runs.empty()) break;
    Server server(options, setup, trace);
    runs.push_back(server.run([&](const Server& now) {
      display.update(now);
      return !stopped;
    }));
    display.clear();
  }
  std::fputs(comparison(runs).c_str(), stdout);
  nlohmann::json result = report(trace, runs);
  if (outputs.drawn.is_open() && !stopped) result["hits"] = hits_by_capacity(trace);
  outputs.write(result);
  return stopped ? 130 : 0;
}

}  // namespace

}  // namespace pkv::serve

int main(int argc, char** argv) {
  using namespace pkv::serve;
  try {
    Options options;
    if (!parse(argc, argv, options)) return 0;
    return options.compare_policies ? compare_policies(options) : serve(options);
  } catch (const InputError& error) {
    std::fprintf(stderr, "pkv-serve: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pkv-serve: %s\n", error.what());
    return 1;
  }
}
