// Settings of random tests from the environment: PKV_SEED, the first seed, and PKV_ROUNDS, the
// number of seeds. A test has a short form, and a long one on demand.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace pkv::test {

// Returns the number in a variable of the environment, or `otherwise`.
inline uint64_t number_in(const char* variable, uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace pkv::test
