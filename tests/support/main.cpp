// main() of a program that has the tests of several files. Arguments name those whose tests run:
// `test-cache stored prefix_keep` runs those of stored_test.cpp and prefix_keep_test.cpp. Without
// arguments all tests run.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <string_view>

namespace {

// The names of a file's tests, each with a colon behind it, as a filter of GoogleTest has them.
std::string tests_of(std::string_view file) {
  const std::string ending = "/" + std::string(file) + "_test.cpp";
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  std::string names;
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const testing::TestInfo& test = *suite.GetTestInfo(j);
      if (("/" + std::string(test.file())).ends_with(ending))
        names += std::string(suite.name()) + "." + test.name() + ":";
    }
  }
  return names;
}

}  // namespace

int main(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  std::string names;
  for (int i = 1; i < count; ++i) {
    const std::string found = tests_of(arguments[i]);
    if (found.empty()) {
      std::fprintf(stderr, "there are no tests in %s_test.cpp\n", arguments[i]);
      return 2;
    }
    names += found;
  }
  if (!names.empty()) {
    // GTEST_FILTER may leave out some: "-*/scalar:*/neon".
    std::string& filter = testing::GTEST_FLAG(filter);
    if (filter != "*" && !filter.starts_with('-')) {
      std::fprintf(stderr, "give names of files, or a filter that begins with '-'\n");
      return 2;
    }
    filter = names + (filter == "*" ? "" : filter);
  }
  return RUN_ALL_TESTS();
}
