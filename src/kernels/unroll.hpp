// Loops whose body is repeated in the code as often as it runs, so that arrays of vectors that it
// indexes can be registers.
#pragma once

// Before a loop of at most 16 rounds. It is a macro because a function that takes the body as a
// lambda gives other machine code: GCC then decides otherwise what else it inlines and keeps in
// registers.
#define PKV_UNROLL _Pragma("GCC unroll 16")
