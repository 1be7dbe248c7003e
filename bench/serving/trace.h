// The requests that are replayed, with their times, lengths and texts.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "options.h"

namespace pkv::serve {

// Some tokens of a text, computed from the id: equal ids have equal tokens.
struct Segment {
  uint64_t id;
  uint32_t length;
};

constexpr double never_returns = std::numeric_limits<double>::infinity();

struct Request {
  double arrival = 0;  // seconds
  uint32_t input = 0, output = 0;
  std::vector<Segment> prompt;  // input tokens in all
  size_t hashed = 0;            // this many leading segments are hash ids of the trace
  uint64_t answer = 0;          // id of the answer's text
  uint64_t tenant = 0;          // requests of one user have the same
  // Seconds until the text is expected to continue, as an engine may know at the end of the answer;
  // 0 if it does not know.
  double expected_return = 0;

  uint64_t length() const { return uint64_t{input} + output; }
};

struct Trace {
  std::string name;
  std::vector<Request> requests;  // by arrival
  double quota = 0;               // of a tenant, as a part of the cache; 0: tenants share all
};

// Reads --trace or generates. Throws InputError.
Trace make_trace(const Options& options);
Trace read_trace(const std::string& path, uint64_t seed);
Trace generate(const std::string& workload, size_t requests, uint64_t seed);
// Sorts by arrival, and lets the first request arrive at 0.
void order_by_arrival(std::vector<Request>& requests);

// Token ids of prompt and answer.
std::vector<int32_t> text_of(const Request& request);

// A well-mixed function of two numbers (splitmix64, Steele et al. 2014).
uint64_t mix(uint64_t a, uint64_t b);

}  // namespace pkv::serve
