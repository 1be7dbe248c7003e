// Compares the statuses that the headers list for each function with those that the rows of the
// matrix, and all tests in C++, expect of it. A row or a test that expects a wrong status fails by
// itself, so these are what the library returns.
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "matrix.h"

namespace hostile::statuses_test {
namespace {

using Statuses = std::map<std::string, std::set<std::string>>;  // by function

std::string text_of(const std::filesystem::path& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

// Reads a name that begins at a place, such as pkv_cache_create.
std::string name_at(const std::string& text, size_t at) {
  size_t end = at;
  while (end < text.size() &&
         (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_'))
    end++;
  return text.substr(at, end - at);
}

// Adds what a comment lists after "Statuses:", without what is in parentheses.
void add_listed(const std::string& comment, const std::string& function, Statuses& listed) {
  const std::string mark = "Statuses: ";
  const size_t begin = comment.rfind(mark);
  if (begin == std::string::npos) return;
  int depth = 0;
  for (size_t at = begin + mark.size(); at < comment.size(); at++) {
    depth += (comment[at] == '(') - (comment[at] == ')');
    if (depth > 0 || !std::isalpha(static_cast<unsigned char>(comment[at]))) continue;
    const std::string word = name_at(comment, at);
    if (word == "Since") return;
    if (word.starts_with("pkv_"))  // as another function
      listed[function].insert(listed[word].begin(), listed[word].end());
    else if (word.size() > 1 && word.find_first_of("abcdefghijklmnopqrstuvwxyz") == word.npos)
      listed[function].insert("PKV_" + word);
    at += word.size() - 1;
  }
}

// The statuses that the headers list for each function itself.
Statuses read_headers() {
  Statuses listed;
  for (const auto& header : std::filesystem::directory_iterator(HEADERS)) {
    const std::string text = text_of(header.path());
    const std::string mark = "API pkv_status ";
    for (size_t at = text.find(mark); at != text.npos; at = text.find(mark, at + 1)) {
      const std::string function = name_at(text, at + mark.size());
      const size_t comment = text.rfind("/**", at);
      listed[function];
      add_listed(text.substr(comment, text.find("*/", comment) - comment), function, listed);
    }
  }
  return listed;
}

// What pagedkv.h says of all functions. The matrix provokes all of it.
std::set<std::string> common_to(const Function& function) {
  std::set<std::string> common{"PKV_INVALID_ARGUMENT", "PKV_OVERFLOW", "PKV_INTERNAL"};
  if (function.takes_handle())
    common.insert({"PKV_STALE_HANDLE", "PKV_BUSY", "PKV_REENTRANT", "PKV_WRONG_PROCESS"});
  const std::set<std::string> never{"pkv_batch_commit", "pkv_batch_abort", "pkv_session_suspend"};
  if (!function.closes && !never.contains(function.name)) common.insert("PKV_OUT_OF_MEMORY");
  return common;
}

void add_rows(Statuses& expected) {
  const auto add = [&](const Function& function, const Wanted& wanted) {
    for (const pkv_status status : wanted)
      if (status != PKV_OK) expected[function.name].insert(pkv_status_name(status));
  };
  for (const Function& function : all_rows()) {
    for (const Arg& arg : function.args)
      for (const Misuse& misuse : arg.misuses) add(function, misuse.wanted);
    for (const Case& one : function.cases) add(function, one.wanted);
  }
}

// The place after the call that begins at a place.
size_t end_of_call(const std::string& text, size_t at) {
  int depth = 0;
  for (at = text.find('(', at); at < text.size(); at++) {
    depth += (text[at] == '(') - (text[at] == ')');
    if (depth == 0) return at + 1;
  }
  return at;
}

// Adds what tests write as `PKV_STATUS, pkv_function(...)` or as `pkv_function(...), PKV_STATUS`.
void add_tests(const std::string& text, Statuses& expected) {
  const auto add = [&](const std::string& function, const std::string& status) {
    if (status.starts_with("PKV_") && status != "PKV_OK") expected[function].insert(status);
  };
  for (size_t at = text.find("pkv_"); at != text.npos; at = text.find("pkv_", at + 1)) {
    const std::string function = name_at(text, at);
    if (text[at + function.size()] != '(') continue;
    const size_t before = text.find_last_not_of(" \n", at - 1);
    if (text[before] == ',') {
      const size_t begin = text.find_last_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", before - 1) + 1;
      add(function, text.substr(begin, before - begin));
    }
    const size_t end = end_of_call(text, at);
    if (end < text.size() && text[end] == ',')
      add(function, name_at(text, text.find_first_not_of(" \n", end + 1)));
  }
}

// The statuses that rows and tests expect of each function, beside those that are common.
Statuses read_tests() {
  Statuses expected;
  add_rows(expected);
  const std::filesystem::path tests = std::filesystem::path(HEADERS) / "../../tests";
  for (const auto& file : std::filesystem::recursive_directory_iterator(tests))
    if (file.path().extension() == ".cpp" || file.path().extension() == ".h")
      add_tests(text_of(file.path()), expected);
  return expected;
}

// What no call in a test provokes.
const Statuses untested = {
    // UNSUPPORTED: builds that lack a library. LIMIT_REACHED: it takes 2^22 open objects, or as
    // many
    // references to a block; see reference_limit_test.cpp.
    {"pkv_file_save", {"PKV_UNSUPPORTED", "PKV_LIMIT_REACHED"}},
    {"pkv_redis_open", {"PKV_UNSUPPORTED"}},
    {"pkv_file_load", {"PKV_LIMIT_REACHED"}},
    {"pkv_hint_session", {"PKV_LIMIT_REACHED"}},
    {"pkv_hint_prompt", {"PKV_LIMIT_REACHED"}},
    {"pkv_session_admit", {"PKV_LIMIT_REACHED"}},
    {"pkv_session_fork", {"PKV_LIMIT_REACHED"}},
    {"pkv_session_open", {"PKV_LIMIT_REACHED"}},
    {"pkv_session_resume", {"PKV_LIMIT_REACHED"}},
    {"pkv_snapshot_fork", {"PKV_LIMIT_REACHED"}},
    {"pkv_snapshot_take", {"PKV_LIMIT_REACHED"}},
};

TEST(Statuses, AreDocumentedIfAndOnlyIfTestsExpectThem) {
  Statuses listed = read_headers(), expected = read_tests();
  ASSERT_GT(listed.size(), 50u) << "the headers were not read";
  ASSERT_GT(expected.size(), 50u) << "the tests were not read";
  for (const Function& function : all_rows()) {
    if (!listed.contains(function.name)) continue;
    const std::set<std::string> common = common_to(function);
    std::set<std::string> documented = listed[function.name], tested = expected[function.name];
    documented.insert(common.begin(), common.end());
    tested.insert(common.begin(), common.end());
    const auto excused = untested.find(function.name);
    if (excused != untested.end()) tested.insert(excused->second.begin(), excused->second.end());
    for (const std::string& status : tested)
      EXPECT_TRUE(documented.contains(status))
          << function.name << " returns " << status << ", which its comment does not list";
    for (const std::string& status : documented)
      EXPECT_TRUE(tested.contains(status))
          << function.name << " is documented to return " << status << ", which no test expects";
  }
}

TEST(Statuses, HaveTheirNames) {
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

TEST(Statuses, NamesOfUnknownValues) {
  EXPECT_STREQ(pkv_status_name(static_cast<pkv_status>(118)), "PKV_UNKNOWN_STATUS");
  EXPECT_STREQ(pkv_isa_name(pkv::test::unknown_isa), "unknown");
  EXPECT_NE(pkv_last_error(), nullptr);
}

// What the matrix does not provoke: there a call that fails writes no count, and its caches have
// all that calls need.

TEST(Statuses, OfListsThatAreTooShort) {
  World world;
  size_t count = 0;
  WANT(PKV_BUFFER_TOO_SMALL, pkv_session_get_block_table(world.session, 0, 0, nullptr, &count));
  uint32_t indptr[2], before[1];
  WANT(PKV_BUFFER_TOO_SMALL, pkv_batch_get_kv_indices(world.batch, 0, PKV_INDEX_SLOTS, indptr, 0,
                                                      nullptr, &count, nullptr));
  WANT(PKV_BUFFER_TOO_SMALL,
       pkv_batch_get_state_blocks(world.recurring, 1, before, indptr, 0, nullptr, nullptr, &count));
  pkv_session large = nullptr;
  OK(pkv_session_open(world.cache, nullptr, &large));
  OK(pkv_session_reserve(large, 50 * block_size));
  const pkv_session both[] = {world.session, large};
  const uint32_t new_tokens[] = {300, 1};
  WANT(PKV_BUFFER_TOO_SMALL,
       pkv_batch_choose_victims(world.cache, 2, both, new_tokens, 0, nullptr, &count));
  // The snapshot shares its last block.
  OK(pkv_batch_begin(world.cache, 1, &world.session, &new_tokens[1],
                     &world.more_batches.emplace_back()));
  WANT(PKV_BUFFER_TOO_SMALL,
       pkv_batch_get_block_copies(world.more_batches.back(), 0, 0, nullptr, nullptr, &count));
  world.close();
}

TEST(Statuses, WithoutIndexOrStore) {
  World world;
  const ModelConfig config = world.make_config(4);
  pkv_cache cache = nullptr;
  OK(pkv_cache_create(&config, &cache));
  const int32_t token = 1;
  uint64_t number = 0;
  WANT(PKV_UNSUPPORTED, pkv_prefix_probe(cache, TextArg({&token, 1}), &number));
  WANT(PKV_UNSUPPORTED, pkv_prefix_set_quota(cache, nullptr, 0, 1));
  WANT(PKV_UNSUPPORTED, pkv_prefetch_wait(cache, TextArg({&token, 1}), 0, &number, nullptr));
  WANT(PKV_UNSUPPORTED, pkv_prefetch_cancel(cache, TextArg({&token, 1})));
  WANT(PKV_UNSUPPORTED, pkv_cache_flush_store(cache, 0, &number));
  auto stats = made<pkv_store_stats>();
  WANT(PKV_UNSUPPORTED, pkv_cache_get_store_stats(cache, &stats));
  OK(pkv_cache_destroy(cache));
  world.close();
}

TEST(Statuses, OfGroupsWithStates) {
  World world;
  uint32_t list[64], indptr[2];
  size_t count = 0;
  WANT(PKV_UNSUPPORTED, pkv_batch_get_block_copies(world.recurring, 1, 64, list, list, &count));
  WANT(PKV_UNSUPPORTED, pkv_batch_get_kv_indices(world.recurring, 1, PKV_INDEX_SLOTS, indptr, 64,
                                                 list, &count, nullptr));
  OK(pkv_batch_abort(std::exchange(world.recurring, nullptr)));
  WANT(PKV_UNSUPPORTED, pkv_session_drop_blocks(world.recurrent, 1, 1, list));
  world.close();
}

TEST(Statuses, OfWhatIsTooLarge) {
  World world;
  ModelConfig config = world.make_config(4);
  const uint32_t indices[layers] = {0, UINT32_MAX};
  config.model.layer_indices = indices;
  pkv_cache cache = nullptr;
  WANT(PKV_OUT_OF_RANGE, pkv_cache_create(&config, &cache));
  std::vector<unsigned char> file(1 << 17);
  const pkv_file_item item = {world.session, nullptr, 1};
  auto stream =
      made<pkv_stream>({.kind = PKV_STREAM_BUFFER, .data = file.data(), .size = file.size()});
  OK(pkv_file_save(world.cache, 1, &item, nullptr, &stream, &stream.size));
  const auto few = made<pkv_file_config>({.max_tokens = 19});
  pkv_session loaded = nullptr;
  size_t count = 0;
  WANT(PKV_TOO_LARGE, pkv_file_load(world.cache, &few, &stream, 1, &loaded, nullptr, &count));
  world.close();
}

}  // namespace
}  // namespace hostile::statuses_test
