#include "figures.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>

namespace pkv::serve {

std::string format(const char* text, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, text);
  std::vsnprintf(line, sizeof line, text, arguments);
  va_end(arguments);
  return line;
}

std::string duration(double seconds) {
  if (seconds < 1e-3) return format("%.0f us", seconds * 1e6);
  if (seconds < 1) return format("%.1f ms", seconds * 1e3);
  if (seconds < 600) return format("%.2f s", seconds);
  return format("%.1f min", seconds / 60);
}

namespace {

std::string bytes(double count) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  for (; count >= 1000 && unit < 4; unit++) count /= 1000;
  return format("%.*f %s", count < 10 && unit > 0 ? 1 : 0, count, units[unit]);
}

std::string percent(double part) { return format("%.1f %%", part * 100); }

std::string times(double a, double b) { return b > 0 ? format("%.2f x", a / b) : "-"; }

}  // namespace

double percentile(std::vector<float> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double place = part * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (values[above] - values[below]) * (place - static_cast<double>(below));
}

std::string comparison(const std::vector<Figures>& runs) {
  using F = const Figures&;
  Table<Figures> table(runs);
  const Figures &last = runs.back(), &second = runs[std::min<size_t>(1, runs.size() - 1)];
  table.add("", [](F f) { return f.setup.name; });
  table.add("finished", [](F f) { return format("%zu of %zu requests", f.finished, f.requests); });
  table.add("sessions at once, mean", [](F f) { return format("%.1f", f.mean_running()); });
  table.add("sessions at once, peak", [](F f) { return std::to_string(f.peak_running); });
  if (runs.size() > 1)
    table.add("  times the last column", [&](F f) {
      return times(static_cast<double>(f.peak_running), static_cast<double>(last.peak_running));
    });
  table.add_times("first token", &Figures::first_token_seconds);
  if (runs.size() > 1)
    table.add("  sooner than second column", [&](F f) {
      return times(percentile(second.first_token_seconds, 0.5),
                   percentile(f.first_token_seconds, 0.5));
    });
  table.add_times("request", &Figures::request_seconds);
  table.add_times("step", &Figures::step_seconds);
  table.add("steps", [](F f) { return std::to_string(f.steps); });
  table.add("tokens generated", [](F f) { return std::to_string(f.decode_tokens); });
  table.add("tokens per second", [](F f) { return format("%.0f", f.tokens_per_second()); });
  table.add("prompt tokens found cached",
            [](F f) { return f.setup.prefix ? percent(f.hit_rate()) : "-"; });
  table.add("tokens prefilled", [](F f) { return std::to_string(f.prefill_tokens); });
  table.add("  again after a preemption", [](F f) { return std::to_string(f.recomputed_tokens); });
  table.add("preemptions", [](F f) { return std::to_string(f.preemptions); });
  table.add("slots filled of reserved", [](F f) { return percent(f.utilization()); });
  table.add("peak memory of sessions",
            [](F f) { return bytes(static_cast<double>(f.peak_used * f.bytes_per_block)); });
  table.add("  of all blocks", [](F f) {
    return percent(Figures::ratio(static_cast<double>(f.peak_used), static_cast<double>(f.blocks)));
  });
  table.add("simulated time", [](F f) { return duration(f.seconds); });
  if (runs.size() == 1)
    table.add("time of this program", [](F f) { return duration(f.wall_seconds); });
  for (const Figures& f : runs)
    if (f.interrupted) return table.text() + f.setup.name + " was interrupted\n";
  return table.text();
}

nlohmann::json to_json(const Figures& f) {
  const auto spread = [](const std::vector<float>& values) {
    return nlohmann::json{{"p50", percentile(values, 0.5)}, {"p99", percentile(values, 0.99)}};
  };
  return {
      {"name", f.setup.name},
      {"prefix", f.setup.prefix},
      {"interrupted", f.interrupted},
      {"requests", f.requests},
      {"finished", f.finished},
      {"steps", f.steps},
      {"preemptions", f.preemptions},
      {"generated_tokens", f.decode_tokens},
      {"prefill_tokens", f.prefill_tokens},
      {"recomputed_tokens", f.recomputed_tokens},
      {"lookup_tokens", f.lookup_tokens},
      {"matched_tokens", f.matched_tokens},
      {"hit_rate", f.hit_rate()},
      {"utilization", f.utilization()},
      {"seconds", f.seconds},
      {"wall_seconds", f.wall_seconds},
      {"tokens_per_second", f.tokens_per_second()},
      {"step_seconds", spread(f.step_seconds)},
      {"first_token_seconds", spread(f.first_token_seconds)},
      {"request_seconds", spread(f.request_seconds)},
      {"first_tokens", f.first_token_seconds},
      {"mean_running", f.mean_running()},
      {"peak_running", f.peak_running},
      {"blocks", f.blocks},
      {"bytes_per_block", f.bytes_per_block},
      {"peak_blocks", f.peak_used},
      {"peak_bytes", f.peak_used * f.bytes_per_block},
      {"copied_blocks", f.copied_blocks},
  };
}

}  // namespace pkv::serve
