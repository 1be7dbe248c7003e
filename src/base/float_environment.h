// The floating-point environment in which the library computes. Each thread has its own, and hosts
// change it: to flush subnormal numbers to zero, to change the rounding direction, to trap.
#pragma once

#include <stdint.h>

namespace pkv {

// Gives this thread the default IEEE 754 environment while it lives, so that the bits of a result
// depend neither on the thread that computes it nor on what a host has set in its threads. A thread
// that was in the default environment keeps the exception flags that were raised; any other thread
// gets its environment back as it was.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() : before_(get()) {
    if (!is_default(before_)) set(default_control);
  }
  ~DefaultFloatEnvironment() {
    if (!is_default(before_)) set(before_);
  }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
#if defined(__x86_64__)
  // MXCSR: all exceptions masked; the lowest bits say which were raised.
  static constexpr uint32_t default_control = 0x1F80, raised = 0x3F;
  static bool is_default(uint32_t control) { return (control & ~raised) == default_control; }
  static uint32_t get() {
    uint32_t control;
    __asm__ volatile("stmxcsr %0" : "=m"(control)::"memory");
    return control;
  }
  static void set(uint32_t control) { __asm__ volatile("ldmxcsr %0" ::"m"(control) : "memory"); }
#elif defined(__aarch64__)
  // FPCR. What was raised is in another register.
  static constexpr uint64_t default_control = 0;
  static bool is_default(uint64_t control) { return control == default_control; }
  static uint64_t get() {
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control)::"memory");
    return control;
  }
  static void set(uint64_t control) { __asm__ volatile("msr fpcr, %0" ::"r"(control) : "memory"); }
#else
  static constexpr int default_control = 0;
  static bool is_default(int) { return true; }
  static int get() { return default_control; }
  static void set(int) {}
#endif

  const decltype(get()) before_;
};

}  // namespace pkv
