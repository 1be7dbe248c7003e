// Plays random operations (world_play.h) for a given time:
//
//   play MINUTES [KIND [SEED]]    MINUTES of each kind, or of one, from a seed on
//
// Prints its progress, and the seed of a play that found a fault; the same seed finds it again.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "world_play.h"

namespace world {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int operations_per_play = 400;

// Returns whether a play found no fault.
bool play(const SmallCache& kind, uint64_t seed, uint64_t& operations) {
  WorldPlay play(kind, Random(seed));
  for (int i = 0; i < operations_per_play; i++, operations++) {
    play.operate();
    if (!testing::Test::HasFailure()) continue;
    std::printf("%s: seed %llu found a fault at operation %d\n", kind.name,
                (unsigned long long)seed, i);
    return false;
  }
  play.finish();
  if (testing::Test::HasFailure())
    std::printf("%s: seed %llu found a fault at its end\n", kind.name, (unsigned long long)seed);
  return !testing::Test::HasFailure();
}

bool play_for(const SmallCache& kind, std::chrono::duration<double> time, uint64_t seed) {
  const Clock::time_point begun = Clock::now();
  Clock::time_point told = begun;
  uint64_t operations = 0, plays = 0;
  const auto tell = [&] {
    const std::chrono::duration<double, std::ratio<60>> minutes = Clock::now() - begun;
    std::printf("%s: %.1f min, %llu plays, %llu operations\n", kind.name, minutes.count(),
                (unsigned long long)plays, (unsigned long long)operations);
    std::fflush(stdout);
  };
  for (; Clock::now() - begun < time; plays++) {
    if (!play(kind, seed + plays, operations)) return false;
    if (Clock::now() - told < std::chrono::seconds(30)) continue;
    told = Clock::now();
    tell();
  }
  tell();
  return true;
}

}  // namespace
}  // namespace world

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc < 2 || std::atof(argv[1]) <= 0) {
    std::fprintf(stderr, "usage: play MINUTES [KIND [SEED]], of the kinds");
    for (const cache_test::SmallCache& kind : world::kinds())
      std::fprintf(stderr, " %s", kind.name);
    std::fprintf(stderr, "\n");
    return 2;
  }
  const std::string wanted = argc > 2 ? argv[2] : "";
  const uint64_t seed = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1;
  bool found = false;
  for (const cache_test::SmallCache& kind : world::kinds()) {
    if (!wanted.empty() && wanted != kind.name) continue;
    found = true;
    if (!world::play_for(kind, std::chrono::duration<double>(60 * std::atof(argv[1])), seed))
      return 1;
  }
  if (!found) std::fprintf(stderr, "there is no kind %s\n", wanted.c_str());
  world::WorldPlay::print_counts();
  return found ? 0 : 2;
}
