// Times the kernels on one core.
#pragma once

namespace pkv::kernels::test {

// Prints the times of a decode and a prefill for each instruction set and stored dtype.
void print_times();

}  // namespace pkv::kernels::test
