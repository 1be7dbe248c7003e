// Which sanitizer this program is built with. g++ and clang define different macros for it.
#pragma once

namespace pkv::test {

#ifndef __has_feature
#define __has_feature(feature) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
inline constexpr bool address_sanitizer = true;
#else
inline constexpr bool address_sanitizer = false;
#endif

#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
inline constexpr bool thread_sanitizer = true;
#else
inline constexpr bool thread_sanitizer = false;
#endif

// Sanitizers are slow, so tests that also run without one do only a part of their rounds with one.
inline constexpr bool sanitized = address_sanitizer || thread_sanitizer;

// Returns the number of rounds of a random test.
inline constexpr int rounds(int n) { return sanitized ? (n < 10 ? 1 : n / 10) : n; }

}  // namespace pkv::test
