// Times of the kernels on one core.
#pragma once

namespace pkv::kernels::test {

// For each instruction set and stored type: a decode and a prefill.
void print_times();

}  // namespace pkv::kernels::test
