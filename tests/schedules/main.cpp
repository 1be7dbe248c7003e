// A model checker for the block allocator: see README.md.
//
//   schedules                   checks itself, then every small case
//   schedules --long SECONDS    the long cases; each is cut off after SECONDS and says so
//   schedules --hunt [SECONDS]  the small cases up to the first finding, then random ones for so
//                               long (0: none)
//   schedules --case NAME       one case
//   schedules --random SECONDS [SEED]
//   schedules --seed SEED       one random execution, told
// This macro makes longjmp take a switch of stacks for an error.
#undef _FORTIFY_SOURCE

#include <chrono>
#include <cstdlib>

#include "cases.h"
#include "explorer.h"
#include "litmus.h"
#include "random_case.h"

namespace schedules {
namespace {

double seconds() {
  static const auto start = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Returns the value as a type that printf knows, whatever the width of uint64_t.
unsigned long long number(uint64_t value) { return value; }

void print_story(const Case& played) {
  std::printf("  blocks %u, shards %u, first generation %u\n  setup: %s\n", played.blocks,
              played.shards, played.first_generation, played.setup);
  std::printf("  threads: %s\n", played.threads);
  for (const std::string& line : scheduler.story()) std::printf("    %s\n", line.c_str());
  std::fflush(stdout);
}

// Explores every execution of the case. Returns false if one has a finding.
bool explore(const Case& played, double limit = 1e9) {
  const double begin = seconds();
  PoolPlay play(played);
  Explorer explorer;
  uint64_t executions = 0;
  do {
    explorer.begin();
    executions++;
    if (play.play(explorer) != Outcome::finding) continue;
    std::printf("FINDING in case \"%s\" after %llu executions: %s\n", played.name,
                number(executions), scheduler.finding());
    scheduler.tell(true);
    explorer.begin();
    play.play(explorer);
    scheduler.tell(false);
    print_story(played);
    return false;
  } while (explorer.advance() && seconds() - begin < limit);
  std::printf("%-40s %10llu executions  %6zu histories  %7.2f s%s\n", played.name,
              number(executions), play.histories().size(), seconds() - begin,
              seconds() - begin < limit ? "" : "  CUT OFF");
  std::fflush(stdout);
  return true;
}

bool explore_small(bool stop_at_first) {
  bool good = true;
  for (const Case& small : cases)
    if (!small.is_long && (good || !stop_at_first)) good &= explore(small);
  return good;
}

// Plays one random execution.
bool play_seed(uint64_t seed, bool told) {
  const RandomCase random(seed);
  const Case& played = random.get();
  PoolPlay play(played);
  RandomSchedule schedule(seed);
  scheduler.tell(told);
  const Outcome outcome = play.play(schedule);
  scheduler.tell(false);
  if (told) print_story(played);
  return outcome != Outcome::finding;
}

bool play_random(double limit, uint64_t first_seed) {
  const double begin = seconds();
  uint64_t seed = first_seed;
  for (; seconds() - begin < limit; seed++) {
    if (play_seed(seed, false)) continue;
    std::printf("FINDING in case \"random\" after %llu executions: %s\n",
                number(seed - first_seed + 1), scheduler.finding());
    play_seed(seed, true);
    std::printf("  again: schedules --seed %llu\n", number(seed));
    return false;
  }
  std::printf("%-40s %10llu executions  seeds %llu to %llu  %.0f s\n", "random",
              number(seed - first_seed), number(first_seed), number(seed - 1), seconds() - begin);
  return true;
}

// Small cases have the same histories with and without reduction, so what the explorer leaves out
// adds nothing.
bool same_histories_unreduced(const Case& played) {
  std::unordered_set<std::string> histories[2];
  for (const bool reduced : {false, true}) {
    PoolPlay play(played);
    Explorer explorer(reduced);
    do {
      explorer.begin();
      if (play.play(explorer) == Outcome::finding) return true;  // The case itself reports this.
    } while (explorer.advance());
    histories[reduced] = play.histories();
  }
  return histories[0] == histories[1];
}

bool check_checker() {
  bool good = true;
  for (const Litmus& program : litmus_programs())
    for (const bool reduced : {false, true}) {
      const std::string outcomes = LitmusRun::outcomes(program, reduced);
      if (outcomes == program.outcomes) continue;
      good = false;
      std::printf("the checker is wrong about \"%s\"%s: %s\n", program.name,
                  reduced ? "" : ", not reduced", outcomes.c_str());
    }
  for (const Case& small : cases) {
    if (!small.compare_unreduced || same_histories_unreduced(small)) continue;
    good = false;
    std::printf("the reduction leaves out histories of \"%s\"\n", small.name);
  }
  return good;
}

int run(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const std::string argument = argc > 2 ? argv[2] : "";
  bool good = true;
  if (mode.empty()) {
    good = check_checker();
    good &= explore_small(false);
  } else if (mode == "--long" && argc > 2) {
    for (const Case& small : cases)
      if (small.is_long) good &= explore(small, std::stod(argument));
  } else if (mode == "--hunt") {
    good = explore_small(true) && (argument.empty() || play_random(std::stod(argument), 1));
  } else if (mode == "--case") {
    for (const Case& small : cases)
      if (argument == small.name) good &= explore(small);
  } else if (mode == "--random" && argc > 2) {
    const auto now = std::chrono::system_clock::now().time_since_epoch().count();
    good = play_random(std::stod(argument),
                       argc > 3 ? std::stoull(argv[3]) : static_cast<uint64_t>(now));
  } else if (mode == "--seed" && argc > 2) {
    good = play_seed(std::stoull(argument), true);
    std::printf("%s\n", good ? "no finding" : scheduler.finding());
  } else {
    std::fprintf(stderr, "unknown: %s\n", mode.c_str());
    return 2;
  }
  return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace schedules

int main(int argc, char** argv) { return schedules::run(argc, argv); }
