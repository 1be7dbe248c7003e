#include "figures.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>

namespace pkv::serve {

namespace {

std::string format(const char* text, ...) __attribute__((format(printf, 1, 2)));
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

std::string bytes(double count) {
  const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  for (; count >= 1000 && unit < 4; unit++) count /= 1000;
  return format("%.*f %s", count < 10 && unit > 0 ? 1 : 0, count, units[unit]);
}

std::string percent(double part) { return format("%.1f %%", part * 100); }

double peak_bytes(const Figures& f) { return static_cast<double>(f.peak_used * f.bytes_per_block); }

std::string both(const std::vector<float>& values) {
  return duration(percentile(values, 0.5)) + ", " + duration(percentile(values, 0.99));
}

}  // namespace

void Figures::observe(const Moment& moment) {
  peak_used = std::max(peak_used, moment.used);
  filled_slots += static_cast<double>(moment.slots_filled);
  reserved_slots += static_cast<double>(moment.slots_reserved);
  if (++skipped_ < stride_) return;
  skipped_ = 0;
  moments.push_back(moment);
  if (moments.size() < 4096) return;
  for (size_t i = 0; i < moments.size() / 2; i++) moments[i] = moments[2 * i + 1];
  moments.resize(moments.size() / 2);
  stride_ *= 2;
}

double percentile(std::vector<float> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double place = part * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (values[above] - values[below]) * (place - static_cast<double>(below));
}

std::string summary(const Figures& f) {
  std::string text =
      format("%s%s: %zu of %zu requests finished in %s (simulated; %s of work here)\n",
             f.setup.name.c_str(), f.interrupted ? ", interrupted" : "", f.finished, f.requests,
             duration(f.seconds).c_str(), duration(f.wall_seconds).c_str());
  const auto row = [&](const char* name, const std::string& value) {
    text += format("  %-32s %s\n", name, value.c_str());
  };
  row("step time p50, p99", both(f.step_seconds) + format(" over %zu steps", f.steps));
  row("time to first token p50, p99", both(f.first_token_seconds));
  row("request time p50, p99", both(f.request_seconds));
  row("tokens generated",
      format("%llu, %.0f per second", static_cast<unsigned long long>(f.decode_tokens),
             f.tokens_per_second()));
  row("tokens prefilled", format("%llu, of these again after a preemption %llu",
                                 static_cast<unsigned long long>(f.prefill_tokens),
                                 static_cast<unsigned long long>(f.recomputed_tokens)));
  row("prompt tokens found cached", f.setup.prefix ? percent(f.hit_rate()) : "prefix reuse is off");
  row("sessions at once: mean, peak", format("%.1f, %zu", f.mean_running(), f.peak_running));
  row("preemptions", format("%zu", f.preemptions));
  row("slots filled of those reserved", percent(f.utilization()));
  row("peak memory of sessions",
      bytes(peak_bytes(f)) + format(", %llu of %llu blocks",
                                    static_cast<unsigned long long>(f.peak_used),
                                    static_cast<unsigned long long>(f.blocks)));
  return text;
}

std::string comparison(const std::vector<Figures>& runs) {
  std::string text;
  const auto row = [&](const char* name, auto&& value) {
    text += format("%-30s", name);
    for (const Figures& f : runs) text += format("  %20s", std::string(value(f)).c_str());
    text += '\n';
  };
  const Figures &last = runs.back(), &second = runs[std::min<size_t>(1, runs.size() - 1)];
  const auto times = [](double a, double b) {
    return b > 0 ? format("%.2f x", a / b) : std::string("-");
  };
  row("", [](const Figures& f) { return f.setup.name + (f.interrupted ? " *" : ""); });
  row("requests finished",
      [](const Figures& f) { return format("%zu of %zu", f.finished, f.requests); });
  row("sessions at once, mean", [](const Figures& f) { return format("%.1f", f.mean_running()); });
  row("sessions at once, peak", [](const Figures& f) { return format("%zu", f.peak_running); });
  row("  times the last column", [&](const Figures& f) {
    return times(static_cast<double>(f.peak_running), static_cast<double>(last.peak_running));
  });
  row("first token, p50",
      [](const Figures& f) { return duration(percentile(f.first_token_seconds, 0.5)); });
  row("first token, p99",
      [](const Figures& f) { return duration(percentile(f.first_token_seconds, 0.99)); });
  row("  sooner than second column", [&](const Figures& f) {
    return times(percentile(second.first_token_seconds, 0.5),
                 percentile(f.first_token_seconds, 0.5));
  });
  row("request, p50",
      [](const Figures& f) { return duration(percentile(f.request_seconds, 0.5)); });
  row("tokens per second", [](const Figures& f) { return format("%.0f", f.tokens_per_second()); });
  row("prompt tokens found cached",
      [](const Figures& f) { return f.setup.prefix ? percent(f.hit_rate()) : "-"; });
  row("tokens prefilled", [](const Figures& f) {
    return format("%llu", static_cast<unsigned long long>(f.prefill_tokens));
  });
  row("preemptions", [](const Figures& f) { return format("%zu", f.preemptions); });
  row("slots filled of reserved", [](const Figures& f) { return percent(f.utilization()); });
  row("peak memory of sessions", [](const Figures& f) { return bytes(peak_bytes(f)); });
  row("simulated time", [](const Figures& f) { return duration(f.seconds); });
  for (const Figures& f : runs)
    if (f.interrupted) return text + "* interrupted\n";
  return text;
}

nlohmann::json to_json(const Figures& f) {
  nlohmann::json moments = nlohmann::json::array();
  for (const Moment& m : f.moments)
    moments.push_back(
        {m.time, m.running, m.waiting, m.used, m.cached, m.free, m.slots_filled, m.slots_reserved});
  const auto spread = [](const std::vector<float>& values) {
    return nlohmann::json{{"p50", percentile(values, 0.5)}, {"p99", percentile(values, 0.99)}};
  };
  return {
      {"name", f.setup.name},
      {"kind", f.setup.kind == Kind::paged ? "paged" : "contiguous"},
      {"prefix", f.setup.prefix},
      {"interrupted", f.interrupted},
      {"requests", f.requests},
      {"finished", f.finished},
      {"steps", f.steps},
      {"preemptions", f.preemptions},
      {"generated_tokens", f.decode_tokens},
      {"prefill_tokens", f.prefill_tokens},
      {"recomputed_tokens", f.recomputed_tokens},
      {"asked_tokens", f.asked_tokens},
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
      {"moment_columns",
       {"time", "running", "waiting", "used", "cached", "free", "slots_filled", "slots_reserved"}},
      {"moments", std::move(moments)}};
}

}  // namespace pkv::serve
