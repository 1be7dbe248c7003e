// The length and the first seed of a random test. A test has a short form, and a long one on
// demand.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace pkv::test {

// Returns the number in a variable of the environment, or `otherwise`.
inline uint64_t number_in(const char* variable, uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

// PKV_SEED is the first seed, PKV_ROUNDS the number of seeds.
inline uint64_t first_seed() { return number_in("PKV_SEED", 1); }
inline uint64_t rounds(uint64_t otherwise) { return number_in("PKV_ROUNDS", otherwise); }

}  // namespace pkv::test
