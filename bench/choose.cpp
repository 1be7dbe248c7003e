// pkv-bench --choose: checks whether PKV_ISA_AUTO selects the fastest instruction set of this CPU,
// for each dtype and kind of step.
#include <algorithm>
#include <memory>

#include "../tests/support/isa.h"
#include "fixture.h"
#include "peaks.h"

namespace pkv::bench {

namespace {

struct Shape {
  const char* name;
  uint32_t sessions, tokens, group, new_tokens;
};

constexpr Shape shapes[] = {
    {"decode, 1 row per KV head", 8, 2048, 1, 1},
    {"decode, 4 rows", 8, 2048, 4, 1},
    {"decode, 8 rows", 8, 2048, 8, 1},
    {"tree of 8 tokens, 32 rows", 1, 4096, 4, 8},
    {"prompt of 512, 2048 rows", 1, 2048, 4, 512},
};

// Two tables that differ by less count as equally fast.
constexpr double tolerance = 0.03;
constexpr int min_rounds = 15, max_rounds = 60;

std::vector<pkv_isa> instruction_sets() {
  std::vector<pkv_isa> found;
  for (int isa = PKV_ISA_AUTO + 1;
       std::string(pkv_isa_name(static_cast<pkv_isa>(isa))) != "unknown"; isa++) {
    // Plain C++ and SSE2 are for CPUs that have nothing else.
    if (isa != PKV_ISA_SCALAR && isa != PKV_ISA_SSE2 &&
        pkv::test::isa_supported(static_cast<pkv_isa>(isa)))
      found.push_back(static_cast<pkv_isa>(isa));
  }
  return found;
}

// One shape with one instruction set.
class Candidate {
 public:
  Candidate(const Geometry& geometry, uint32_t new_tokens)
      : filled_(geometry), step_(geometry, filled_, new_tokens) {}

  // Seconds per call, measured over as many calls as take 10 ms.
  void measure() {
    const auto begin = Clock::now();
    unsigned calls = 0;
    do {
      step_.attend();
      calls++;
    } while (seconds_since(begin) < 0.01);
    best_ = std::min(best_, seconds_since(begin) / calls);
  }
  double best() const { return best_; }

 private:
  Filled filled_;
  Step step_;
  double best_ = 1e9;
};

// Returns false if a candidate is faster than the first one, the automatic choice, by more than the
// tolerance.
bool is_best(const std::vector<std::unique_ptr<Candidate>>& candidates) {
  return std::all_of(candidates.begin(), candidates.end(), [&](const auto& candidate) {
    return candidates[0]->best() <= candidate->best() * (1 + tolerance);
  });
}

// Prints the speed of each instruction set over that of the automatic choice. Returns false if one
// is faster by more than the tolerance.
bool compare(const Shape& shape, pkv_dtype dtype, const std::vector<pkv_isa>& sets) {
  std::vector<std::unique_ptr<Candidate>> candidates;
  Geometry geometry{.dtype = dtype,
                    .group = shape.group,
                    .sessions = shape.sessions,
                    .tokens = shape.tokens - shape.new_tokens,
                    .extra = shape.new_tokens + 16};
  const auto add = [&](pkv_isa isa) {
    geometry.isa = isa;
    candidates.push_back(std::make_unique<Candidate>(geometry, shape.new_tokens));
  };
  add(PKV_ISA_AUTO);
  for (const pkv_isa isa : sets) add(isa);
  // If one seems faster, more rounds show whether the others were only disturbed.
  for (int round = 0; round < min_rounds || (round < max_rounds && !is_best(candidates)); round++)
    for (const auto& candidate : candidates) candidate->measure();

  const double chosen = candidates[0]->best();
  std::printf("%-28s %-9s %9.1f", shape.name, dtype_name(dtype), chosen * 1e6);
  for (size_t i = 0; i < sets.size(); i++)
    std::printf(" %11.2f", chosen / candidates[i + 1]->best());
  std::printf("%s\n", is_best(candidates) ? "" : "  <");
  std::fflush(stdout);
  return is_best(candidates);
}

}  // namespace

int choose() {
  const std::vector<pkv_isa> sets = instruction_sets();
  std::printf("%-28s %-9s %9s", "", "dtype", "auto, us");
  for (const pkv_isa isa : sets) std::printf(" %11s", pkv_isa_name(isa));
  std::printf("\n");
  int slower = 0;
  for (const Shape& shape : shapes)
    for (const pkv_dtype dtype : all_dtypes) slower += compare(shape, dtype, sets) ? 0 : 1;
  std::printf(
      "Speed over that of PKV_ISA_AUTO, the best of %d to %d turns. In %d rows another instruction "
      "set is more than %.0f %% faster.\n",
      min_rounds, max_rounds, slower, tolerance * 100);
  return slower == 0 ? 0 : 1;
}

}  // namespace pkv::bench
