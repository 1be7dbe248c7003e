// Prints the limits of the CPUs, for bench/peers: print-peaks THREADS.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "peaks.h"

namespace {

// Returns the best of several measurements, because other load slows a shared machine down.
template <class Measure>
double best(const Measure& measure) {
  double found = 0;
  for (int i = 0; i < 10; i++) found = std::max(found, measure());
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace pkv::bench;
  const int given = argc > 1 ? std::atoi(argv[1]) : 0;
  const unsigned threads = given > 0 ? static_cast<unsigned>(given) : processors();
  const double read =
      best([&] { return double(largest_read) / read_seconds(largest_read, 1, threads); });
  std::printf("{\"read\": %.4g, \"f32\": %.4g, \"f16\": %.4g, \"bf16\": %.4g, \"matrix\": %.4g}\n",
              read, best([&] { return fma_rate(threads); }),
              best([&] { return fp16_rate(threads); }), best([&] { return bf16_rate(threads); }),
              best([&] { return matrix_unit_rate(threads); }));
}
