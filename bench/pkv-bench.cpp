// Benchmarks through the C interface. Each reports the counter `ratio`: the measured speed over
// that of its limit or peer, in the same run. README.md says what each name means.
#include <cstring>

#include "fixture.h"

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--choose") == 0) return pkv::bench::choose();
  return pkv::bench::run(argc, argv, [] {
    pkv::bench::register_decode();
    pkv::bench::register_chosen_blocks();
    pkv::bench::register_slow_tier();
    pkv::bench::register_prefill();
    pkv::bench::register_balance();
    pkv::bench::register_write();
    pkv::bench::register_rotation();
    pkv::bench::register_bookkeeping();
    pkv::bench::register_prefix();
    pkv::bench::register_index();
    pkv::bench::register_group_memory();
    pkv::bench::register_store();
  });
}
