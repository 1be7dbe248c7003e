// What g++ has to be told about loops.
#pragma once

// Unrolls a loop fully, so that arrays of vectors that it indexes can be registers. Use it before a
// loop of at most 16 rounds. It is a macro because a function that takes the body as a lambda
// changes the machine code: GCC then makes other choices about inlining and registers.
#define PKV_UNROLL _Pragma("GCC unroll 16")

namespace pkv::kernels {

// Returns a pointer of which the compiler does not know that it is the same in each round of a
// loop. Otherwise g++ 12 moves numbers that are broadcast from there out of the loop, as vectors in
// memory.
template <class T>
[[gnu::always_inline]] static inline const T* reloaded(const T* pointer) {
  __asm__("" : "+r"(pointer));
  return pointer;
}

}  // namespace pkv::kernels
