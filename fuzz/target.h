// The entry of a fuzz target: libFuzzer calls it, or replay.cpp with the files of a corpus. A
// failed expectation ends the process by abort(), which libFuzzer treats as a crash, so it keeps
// the input.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

inline bool stop_at_failures() {
  testing::GTEST_FLAG(throw_on_failure) = true;  // which is not caught
  return true;
}

#define FUZZ_TARGET(...)                                                     \
  static void run_target(__VA_ARGS__);                                       \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) { \
    static const bool ready = stop_at_failures();                            \
    if (ready) run_target(input, size);                                      \
    return 0;                                                                \
  }                                                                          \
  static void run_target(__VA_ARGS__)
