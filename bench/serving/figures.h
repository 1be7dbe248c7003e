// The figures of a run.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "options.h"

namespace pkv::serve {

struct Figures {
  Setup setup;
  bool interrupted = false;
  size_t requests = 0, finished = 0, steps = 0, preemptions = 0;
  uint64_t prefill_tokens = 0, decode_tokens = 0;  // computed
  uint64_t recomputed_tokens = 0;                  // of those, computed again after a preemption
  uint64_t lookup_tokens = 0, matched_tokens = 0;  // of prompts, when they were admitted
  double seconds = 0, wall_seconds = 0;
  std::vector<float> step_seconds, first_token_seconds, request_seconds;

  uint64_t blocks = 0, bytes_per_block = 0, peak_used = 0, copied_blocks = 0;
  size_t peak_running = 0;
  double busy_seconds = 0, running_integral = 0;  // of simulated time, with something to do
  double filled_slots = 0, reserved_slots = 0;    // summed over moments

  double hit_rate() const {
    return ratio(static_cast<double>(matched_tokens), static_cast<double>(lookup_tokens));
  }
  double utilization() const { return ratio(filled_slots, reserved_slots); }
  double mean_running() const { return ratio(running_integral, busy_seconds); }
  double tokens_per_second() const { return ratio(static_cast<double>(decode_tokens), seconds); }

  static double ratio(double a, double b) { return b > 0 ? a / b : 0; }
};

// Interpolates between the two nearest values; 0 if there are none.
double percentile(std::vector<float> values, double part);

std::string format(const char* text, ...) __attribute__((format(printf, 1, 2)));
std::string duration(double seconds);

// A table with a line for each figure and a column for each run.
template <class Run>
class Table {
 public:
  explicit Table(const std::vector<Run>& runs) : runs_(runs) {}
  void add(const char* name, const std::function<std::string(const Run&)>& value) {
    text_ += format("%-32s", name);
    for (const Run& run : runs_) text_ += format("  %22s", value(run).c_str());
    text_ += '\n';
  }
  // p50 and p99 of the seconds of something.
  template <class Values>
  void add_times(const std::string& name, const Values& values) {
    for (const double part : {0.5, 0.99})
      add(format("%s, p%.0f", name.c_str(), part * 100).c_str(),
          [&](const Run& run) { return duration(percentile(run.*values, part)); });
  }
  const std::string& text() const { return text_; }

 private:
  const std::vector<Run>& runs_;
  std::string text_;
};

std::string comparison(const std::vector<Figures>& runs);
nlohmann::json to_json(const Figures& figures);

}  // namespace pkv::serve
