// Every function that the headers declare has a row in the matrix.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "matrix.h"

namespace hostile {
namespace {

std::set<std::string> declared() {
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(HEADERS)) {
    std::stringstream text;
    text << std::ifstream(file.path()).rdbuf();
    const std::string source = text.str();
    const std::regex declaration("PKV_API\\s[^(;]*?(pkv_\\w+)\\s*\\(");
    for (std::sregex_iterator at(source.begin(), source.end(), declaration), end; at != end; ++at) names.insert((*at)[1]);
  }
  return names;
}

TEST(Coverage, EveryDeclaredFunctionHasARow) {
  const std::set<std::string> names = declared();
  ASSERT_GT(names.size(), 50u) << "the headers were not read";
  std::set<std::string> rows;
  for (const Function& function : all_rows()) EXPECT_TRUE(rows.insert(function.name).second) << function.name << " has two rows";
  for (const std::string& name : names) EXPECT_TRUE(rows.contains(name)) << name << " has no row in the matrix";
  for (const std::string& row : rows) EXPECT_TRUE(names.contains(row)) << row << " is in no header";
}

TEST(Coverage, NamesOfUnknownValues) {
  EXPECT_STREQ(pkv_status_string(static_cast<pkv_status>(114)), "PKV_UNKNOWN_STATUS");
  EXPECT_STREQ(pkv_isa_name(static_cast<pkv_isa>(8)), "unknown");
  EXPECT_NE(pkv_last_error(), nullptr);
}

}  // namespace
}  // namespace hostile
