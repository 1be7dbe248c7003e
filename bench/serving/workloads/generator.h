// Shared by the generators of requests: random numbers, and texts that share prefixes.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "../trace.h"

namespace pkv::serve {

// Random numbers that are the same with every standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed) {}
  double uniform() { return (static_cast<double>(mix(seed_, count_++) >> 11) + 0.5) * 0x1p-53; }
  bool chance(double probability) { return uniform() < probability; }
  double exponential(double mean) { return -mean * std::log(uniform()); }
  double log_normal(double median, double sigma) {
    const double normal = std::sqrt(-2 * std::log(uniform())) *
                          std::cos(2 * M_PI * uniform());  // Box and Muller 1958
    return median * std::exp(sigma * normal);
  }
  uint32_t length(double median, double sigma, double most) {
    return static_cast<uint32_t>(std::clamp(log_normal(median, sigma), 1.0, most));
  }

 private:
  const uint64_t seed_;
  uint64_t count_ = 0;
};

// Numbers below n, of which number i is chosen in proportion to 1 / (i + 1)^exponent.
class Zipf {
 public:
  Zipf(size_t n, double exponent) {
    double sum = 0;
    for (size_t i = 0; i < n; i++)
      sums_.push_back(sum += std::pow(static_cast<double>(i + 1), -exponent));
  }
  size_t operator()(Random& random) const {
    const auto at = std::upper_bound(sums_.begin(), sums_.end(), random.uniform() * sums_.back());
    return std::min(static_cast<size_t>(at - sums_.begin()), sums_.size() - 1);
  }

 private:
  std::vector<double> sums_;
};

constexpr double longest_message = 8192;

struct Chats {
  uint32_t system_tokens = 512;
  double single = 0.2;         // the part of users who ask once, without the system prompt
  double thinking = 20;        // seconds on average before the next turn
  double another_turn = 0.75;  // probability
  double seconds_apart = 0.2;  // of users, on average
};

// A request with an answer of a random length.
Request ask(double arrival, std::vector<Segment> prompt, uint64_t user, Random& random,
            double answer_median = 120, double answer_sigma = 0.7);
// Adds all requests of a user of a chat service.
void add_user(std::vector<Request>& requests, double arrival, uint64_t user, uint64_t system,
              const Chats& chats, Random& random);
// Calls add(requests, arrival, number) for one user, task or batch after the other, `seconds_apart`
// on average, until the first `count` requests are known. Returns those.
template <class Add>
std::vector<Request> generate_until(size_t count, double seconds_apart, Random& random,
                                    const Add& add) {
  std::vector<Request> requests;
  double arrival = 0;
  for (uint64_t number = 1; requests.size() < 2 * count + 64;
       number++, arrival += random.exponential(seconds_apart))
    add(requests, arrival, number);
  order_by_arrival(requests);
  requests.resize(count);
  return requests;
}

// Two of the kinds. Requests are ordered by arrival, the first of them at 0.
std::vector<Request> generate_chats(size_t count, uint64_t seed);
std::vector<Request> generate_agents(size_t count, uint64_t seed);

}  // namespace pkv::serve
