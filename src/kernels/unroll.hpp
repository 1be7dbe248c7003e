// Loops that are fully unrolled, so that arrays of vectors that they index can be registers.
#pragma once

// Use it before a loop of at most 16 rounds. It is a macro because a function that takes the body
// as a lambda changes the machine code: GCC then makes other choices about inlining and registers.
#define PKV_UNROLL _Pragma("GCC unroll 16")
