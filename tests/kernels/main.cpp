// Runs the tests. With --time, or PKV_TIME=1, it times the kernels instead.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "timing.h"

namespace {

bool wants_times(int argc, char** argv) {
  for (int i = 1; i < argc; i++)
    if (std::string_view(argv[i]) == "--time") return true;
  const char* const set = std::getenv("PKV_TIME");
  return set != nullptr && std::string_view(set) == "1";
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (wants_times(argc, argv)) {
    pkv::kernels::test::print_times();
    return EXIT_SUCCESS;
  }
  return RUN_ALL_TESTS();
}
