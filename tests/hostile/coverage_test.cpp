// Checks that every function that the headers declare has a row in the matrix.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "matrix.h"

namespace hostile::coverage_test {
namespace {

std::string text_of(const std::filesystem::path& header) {
  std::stringstream text;
  text << std::ifstream(header).rdbuf();
  return text.str();
}

#ifdef WITH_REDIS
const char* const exported = "PKV_(?:REDIS_)?API";
#else
const char* const exported = "PKV_API";
#endif

// The functions of all libraries.
std::set<std::string> declared() {
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(HEADERS)) {
    const std::string source = text_of(file.path());
    const std::regex declaration(std::string(exported) + "\\s[^(;]*?(pkv_\\w+)\\s*\\(");
    for (std::sregex_iterator at(source.begin(), source.end(), declaration), end; at != end; ++at)
      names.insert((*at)[1]);
  }
  return names;
}

TEST(Coverage, EveryDeclaredFunctionHasARow) {
  const std::set<std::string> names = declared();
  ASSERT_GT(names.size(), 50u) << "the headers were not read";
  std::set<std::string> rows;
  for (const Function& function : all_rows())
    EXPECT_TRUE(rows.insert(function.name).second) << function.name << " has two rows";
  for (const std::string& name : names)
    EXPECT_TRUE(rows.contains(name)) << name << " has no row in the matrix";
  for (const std::string& row : rows) EXPECT_TRUE(names.contains(row)) << row << " is in no header";
}

TEST(Coverage, EveryStatusHasItsName) {
  const std::string source = text_of(std::filesystem::path(HEADERS) / "common.h");
  const size_t begin = source.find("PKV_OK = 0"), end = source.find("} pkv_status;");
  ASSERT_TRUE(begin < end && end != std::string::npos) << "the header was not read";
  const std::string statuses = source.substr(begin, end - begin);
  const std::regex enumerator("(PKV_\\w+) = (\\d+)");
  size_t count = 0;
  for (std::sregex_iterator at(statuses.begin(), statuses.end(), enumerator), last; at != last;
       ++at, count++)
    EXPECT_EQ((*at)[1], pkv_status_name(static_cast<pkv_status>(std::stoi((*at)[2]))));
  EXPECT_GE(count, 25u);
}

TEST(Coverage, NamesOfUnknownValues) {
  EXPECT_STREQ(pkv_status_name(static_cast<pkv_status>(118)), "PKV_UNKNOWN_STATUS");
  EXPECT_STREQ(pkv_isa_name(pkv::test::unknown_isa), "unknown");
  EXPECT_NE(pkv_last_error(), nullptr);
}

}  // namespace
}  // namespace hostile::coverage_test
