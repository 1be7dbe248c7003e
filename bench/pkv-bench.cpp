// Benchmarks through the C interface. Each reports the counter `ratio`: what was measured over its limit or peer, both taken in this
// run. README.md says what each name means.
#include <cstring>

#include "fixture.h"

namespace pkv::bench {

namespace {
bool is_short = false;
}

bool short_run() { return is_short; }

}  // namespace pkv::bench

// --short: one thing varied at a time, a tenth of a second each, unless other options say so.
int main(int argc, char** argv) {
  std::vector<char*> arguments;
  static char min_time[] = "--benchmark_min_time=0.1";
  for (int i = 0; i < argc; i++) {
    if (std::strcmp(argv[i], "--short") != 0) {
      arguments.push_back(argv[i]);
      continue;
    }
    pkv::bench::is_short = true;
    arguments.insert(arguments.begin() + 1, min_time);
  }
  pkv::bench::register_decode();
  pkv::bench::register_prefill();
  pkv::bench::register_write();
  pkv::bench::register_bookkeeping();
  pkv::bench::register_prefix();
  pkv::bench::register_store();
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
