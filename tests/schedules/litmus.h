// Tests the checker: well-known small programs have exactly the outcomes that the memory model
// allows, with and without reduction.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>

#include "explorer.h"
#include "memory.h"

namespace schedules {

struct Shared {
  ScheduledAtomics::atomic<uint64_t> x, y;
  Cell cell;
  uint64_t read[4] = {};
};

struct Litmus {
  const char* name;
  int threads;
  void (*body)(Shared& shared, int thread);
  // In ascending order. An outcome is what was read, or the first letters of a finding.
  const char* outcomes;
};

inline std::span<const Litmus> litmus_programs() {
  static constexpr auto relaxed = std::memory_order_relaxed, acquire = std::memory_order_acquire,
                        release = std::memory_order_release, acq_rel = std::memory_order_acq_rel,
                        seq_cst = std::memory_order_seq_cst;
  static constexpr Litmus programs[] = {
      {"message passing, relaxed", 2,
       [](Shared& s, int thread) {
         if (thread == 1) s.x.store(1, relaxed), s.y.store(1, relaxed);
         if (thread == 2) s.read[0] = s.y.load(relaxed), s.read[1] = s.x.load(relaxed);
       },
       "0000 0100 1000 1100"},
      {"message passing, release and acquire", 2,
       [](Shared& s, int thread) {
         if (thread == 1) s.x.store(1, relaxed), s.y.store(1, release);
         if (thread == 2) s.read[0] = s.y.load(acquire), s.read[1] = s.x.load(relaxed);
       },
       "0000 0100 1100"},
      {"store buffering, release and acquire", 2,
       [](Shared& s, int thread) {
         if (thread == 1) s.x.store(1, release), s.read[0] = s.y.load(acquire);
         if (thread == 2) s.y.store(1, release), s.read[1] = s.x.load(acquire);
       },
       "0000 0100 1000 1100"},
      {"store buffering, sequentially consistent", 2,
       [](Shared& s, int thread) {
         if (thread == 1) s.x.store(1, seq_cst), s.read[0] = s.y.load(seq_cst);
         if (thread == 2) s.y.store(1, seq_cst), s.read[1] = s.x.load(seq_cst);
       },
       "0100 1000 1100"},
      {"reads of one location do not go back", 2,
       [](Shared& s, int thread) {
         if (thread == 1) s.x.store(1, relaxed), s.x.store(2, relaxed);
         if (thread == 2) s.read[0] = s.x.load(relaxed), s.read[1] = s.x.load(relaxed);
       },
       "0000 0100 0200 1100 1200 2200"},
      {"reads of a third thread do not go back either", 3,
       [](Shared& s, int thread) {
         if (thread == 1) s.x.store(1, relaxed);
         if (thread == 2) s.read[0] = s.x.load(relaxed), s.y.store(1, release);
         if (thread == 3) s.read[1] = s.y.load(acquire), s.read[2] = s.x.load(relaxed);
       },
       "0000 0010 0100 0110 1000 1010 1110"},
      {"independent reads of independent writes", 4,
       [](Shared& s, int thread) {
         if (thread == 1) s.x.store(1, release);
         if (thread == 2) s.y.store(1, release);
         if (thread == 3) s.read[0] = s.x.load(acquire) + 2 * s.y.load(acquire);
         if (thread == 4) s.read[1] = s.y.load(acquire) + 2 * s.x.load(acquire);
       },
       "0000 0100 0200 0300 1000 1100 1200 1300 2000 2100 2200 2300 3000 3100 3200 3300"},
      {"the same, sequentially consistent", 4,
       [](Shared& s, int thread) {
         if (thread == 1) s.x.store(1, seq_cst);
         if (thread == 2) s.y.store(1, seq_cst);
         if (thread == 3) s.read[0] = s.x.load(seq_cst), s.read[0] += 2 * s.y.load(seq_cst);
         if (thread == 4) s.read[1] = s.y.load(seq_cst), s.read[1] += 2 * s.x.load(seq_cst);
       },
       "0000 0100 0200 0300 1000 1200 1300 2000 2100 2200 2300 3000 3100 3200 3300"},
      {"a swap continues a release sequence", 3,
       [](Shared& s, int thread) {
         if (thread == 1) s.x.store(1, relaxed), s.y.store(1, release);
         if (thread == 2) s.y.fetch_add(1, relaxed);
         if (thread == 3)
           s.read[0] = s.y.load(acquire), s.read[1] = s.read[0] == 2 ? s.x.load(relaxed) : 1;
       },
       "0100 1100 2100"},
      {"a plain store ends it", 2,
       [](Shared& s, int thread) {
         if (thread == 1) s.x.store(1, relaxed), s.y.store(1, release), s.y.store(2, relaxed);
         if (thread == 2)
           s.read[0] = s.y.load(acquire), s.read[1] = s.read[0] == 2 ? s.x.load(relaxed) : 1;
       },
       "0100 1100 2000 2100"},
      {"swaps lose no addition", 3,
       [](Shared& s, int) {
         uint64_t seen = s.x.load(relaxed);
         while (!s.x.compare_exchange_weak(seen, seen + 1, relaxed, relaxed)) {
         }
         s.read[0] = std::max(s.read[0], seen);
       },
       "2000"},
      {"loads and stores do", 2,
       [](Shared& s, int thread) {
         const uint64_t seen = s.x.load(relaxed);
         s.x.store(seen + 1, relaxed);
         s.read[thread - 1] = seen;
       },
       "0000 0100 1000"},
      {"plain data without order", 2,
       [](Shared& s, int thread) {
         if (thread == 1) s.cell.write("writes"), s.y.store(1, relaxed);
         if (thread == 2 && s.y.load(acquire) == 1) s.cell.read("reads what");
       },
       "0000 data"},
      {"plain data handed over", 3,
       [](Shared& s, int thread) {
         if (thread == 1) s.cell.write("writes"), s.y.fetch_add(1, acq_rel);
         if (thread == 2) s.y.fetch_add(1, acq_rel);
         if (thread == 3 && s.y.load(acquire) == 2) s.cell.write("writes");
       },
       "0000"},
      {"plain data read while it is written", 2,
       [](Shared& s, int thread) {
         if (thread == 1) s.cell.read("reads what"), s.y.store(1, relaxed);
         if (thread == 2 && s.y.load(relaxed) == 1) s.cell.write("writes");
       },
       "0000 data"},
      {"a thread that waits for another", 2,
       [](Shared& s, int thread) {
         if (thread == 1) s.x.store(1, relaxed), s.x.store(0, relaxed);
         if (thread == 2)
           while (s.x.load(relaxed) == 1) {
           }
       },
       "0000 thre"},
      // These are limits of the checker's model: C++ allows the outcome "1100" in both.
      {"load buffering is not shown", 2,
       [](Shared& s, int thread) {
         if (thread == 1) s.read[0] = s.x.load(relaxed), s.y.store(1, relaxed);
         if (thread == 2) s.read[1] = s.y.load(relaxed), s.x.store(1, relaxed);
       },
       "0000 0100 1000"},
      {"stores enter modification order as they are executed", 2,
       [](Shared& s, int thread) {
         if (thread == 1)
           s.x.store(1, relaxed), s.y.store(2, relaxed), s.read[0] = s.y.load(relaxed) == 1;
         if (thread == 2)
           s.y.store(1, relaxed), s.x.store(2, relaxed), s.read[1] = s.x.load(relaxed) == 1;
       },
       "0000 0100 1000"},
  };
  return programs;
}

class LitmusRun {
 public:
  // Returns all outcomes of the program.
  static std::string outcomes(const Litmus& program, bool reduced) {
    std::set<std::string> found;
    Explorer explorer(reduced);
    std::optional<Shared> shared;
    memory.watch_loads = nullptr;
    memory.max_weak_failures = 1;
    do {
      explorer.begin();
      memory.begin();
      shared.emplace();
      memory.fork(program.threads);
      program_ = &program;
      shared_ = &*shared;
      const Outcome outcome = scheduler.run(
          program.threads, 20, [](int thread) { program_->body(*shared_, thread); }, explorer);
      if (outcome == Outcome::finding) found.insert(std::string(scheduler.finding()).substr(0, 4));
      if (outcome != Outcome::finished) continue;
      std::string text;
      for (uint64_t value : shared->read) text += std::to_string(value);
      found.insert(text);
    } while (explorer.advance());
    std::string text;
    for (const std::string& outcome : found) text += (text.empty() ? "" : " ") + outcome;
    return text;
  }

 private:
  inline static const Litmus* program_ = nullptr;
  inline static Shared* shared_ = nullptr;
};

}  // namespace schedules
