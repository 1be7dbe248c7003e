#include "trace.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "workloads/kinds.h"

namespace pkv::serve {

namespace {

constexpr uint32_t tokens_per_hash = 512;
constexpr uint64_t longest_text = uint64_t{1} << 24;

// Keeps ids of different origin apart.
enum Origin : uint64_t { from_hash = 1, from_tail, from_answer };

void finish(Request& request, uint64_t number, uint64_t seed) {
  uint64_t told = 0;
  for (const Segment& segment : request.prompt) told += segment.length;
  if (told < request.input)
    request.prompt.push_back(
        {mix(mix(from_tail, seed), number), static_cast<uint32_t>(request.input - told)});
  request.answer = mix(mix(from_answer, seed), number);
  request.tenant = number;
}

[[noreturn]] void bad_line(const std::string& path, size_t line, const std::string& why) {
  throw InputError(path + ", line " + std::to_string(line) + ": " + why);
}

uint32_t length_in(const nlohmann::json& object, const char* key) {
  const auto& value = object.at(key);
  if (!value.is_number_unsigned() || value.get<uint64_t>() == 0 ||
      value.get<uint64_t>() > longest_text)
    throw std::out_of_range(key);
  return value.get<uint32_t>();
}

Request parse_json(const std::string& line) {
  const auto object = nlohmann::json::parse(line);
  Request request;
  request.arrival = object.at("timestamp").get<double>() / 1000;
  if (!std::isfinite(request.arrival) || request.arrival < 0) throw std::out_of_range("timestamp");
  request.input = length_in(object, "input_length");
  request.output = length_in(object, "output_length");
  uint32_t left = request.input;
  if (object.contains("hash_ids"))
    for (const auto& id : object.at("hash_ids")) {
      if (left == 0) throw std::out_of_range("hash_ids");
      const uint32_t length = std::min(left, tokens_per_hash);
      request.prompt.push_back({mix(from_hash, id.get<uint64_t>()), length});
      left -= length;
    }
  request.hashed = request.prompt.size();
  return request;
}

// "2023-11-16 18:15:46.6805900" as seconds.
double parse_time(const std::string& text) {
  int year, month, day, hour, minute, used = 0;
  double second;
  if (std::sscanf(text.c_str(), "%d-%d-%d %d:%d:%lf%n", &year, &month, &day, &hour, &minute,
                  &second, &used) != 6 ||
      static_cast<size_t>(used) != text.size())
    throw std::out_of_range("TIMESTAMP");
  const std::chrono::year_month_day date(std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day)));
  if (!date.ok()) throw std::out_of_range("TIMESTAMP");
  return static_cast<double>(std::chrono::sys_days(date).time_since_epoch().count()) * 86400.0 +
         hour * 3600.0 + minute * 60.0 + second;
}

uint32_t parse_length(std::string_view text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value == 0 ||
      value > longest_text)
    throw std::out_of_range("length");
  return value;
}

Request parse_csv(const std::string& line) {
  const size_t first = line.find(','), second = line.find(',', first + 1);
  if (first == std::string::npos || second == std::string::npos) throw std::out_of_range("columns");
  Request request;
  request.arrival = parse_time(line.substr(0, first));
  request.input = parse_length(std::string_view(line).substr(first + 1, second - first - 1));
  request.output = parse_length(std::string_view(line).substr(second + 1));
  return request;
}

}  // namespace

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15u + b + 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

std::vector<int32_t> text_of(const Request& request) {
  std::vector<int32_t> tokens;
  tokens.reserve(request.length());
  const auto add = [&](const Segment& segment) {
    for (uint32_t i = 0; i < segment.length; i++)
      tokens.push_back(static_cast<int32_t>(mix(segment.id, i) >> 33));
  };
  for (const Segment& segment : request.prompt) add(segment);
  add({request.answer, request.output});
  return tokens;
}

Trace read_trace(const std::string& path, uint64_t seed) {
  std::ifstream file(path);
  if (!file) throw InputError("cannot read " + path);
  const bool csv = path.ends_with(".csv");
  Trace trace{path, {}};
  std::string line;
  for (size_t number = 1; std::getline(file, line); number++) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || (csv && number == 1 && line.starts_with("TIMESTAMP"))) continue;
    try {
      trace.requests.push_back(csv ? parse_csv(line) : parse_json(line));
    } catch (const std::exception&) {
      bad_line(path, number,
               csv ? "expected a time, context tokens and generated tokens (1 to 2^24)"
                   : "expected a JSON object with timestamp (ms), input_length and output_length "
                     "(1 to 2^24), and no more hash_ids "
                     "than 512-token blocks");
    }
    finish(trace.requests.back(), number, seed);
  }
  if (trace.requests.empty()) throw InputError(path + " has no requests");
  order_by_arrival(trace.requests);
  return trace;
}

void order_by_arrival(std::vector<Request>& requests) {
  // By index where times are equal; std::stable_sort of this library's age makes newer compilers
  // warn.
  std::vector<std::pair<double, size_t>> order;
  for (const Request& request : requests) order.emplace_back(request.arrival, order.size());
  std::sort(order.begin(), order.end());
  std::vector<Request> sorted;
  for (const auto& [arrival, index] : order) sorted.push_back(std::move(requests[index]));
  requests = std::move(sorted);
  if (requests.empty()) return;
  const double first = requests.front().arrival;
  for (Request& request : requests) request.arrival -= first;
}

Trace generate(const std::string& workload, size_t requests, uint64_t seed) {
  const Workload* const kind = find_workload(workload);
  if (kind == nullptr) throw InputError("there is no workload " + workload);
  return {"generated " + workload, kind->generate(requests, seed), kind->quota};
}

// Keeps the first or the second half of the requests, by number.
void halve(Trace& trace, unsigned half) {
  if (trace.requests.size() < 2) throw InputError(trace.name + " has no two halves");
  const auto middle =
      trace.requests.begin() + static_cast<std::ptrdiff_t>(trace.requests.size() / 2);
  if (half == 1)
    trace.requests.erase(middle, trace.requests.end());
  else
    trace.requests.erase(trace.requests.begin(), middle);
  trace.name += half == 1 ? ", first half" : ", second half";
  order_by_arrival(trace.requests);
}

Trace make_trace(const Options& options) {
  Trace trace =
      options.trace.empty()
          ? generate(options.workload, options.requests > 0 ? options.requests : 300, options.seed)
          : read_trace(options.trace, options.seed);
  if (options.half > 0) halve(trace, options.half);
  if (options.requests > 0 && options.requests < trace.requests.size())
    trace.requests.resize(options.requests);
  for (Request& request : trace.requests) request.arrival /= options.time_scale;
  return trace;
}

}  // namespace pkv::serve
