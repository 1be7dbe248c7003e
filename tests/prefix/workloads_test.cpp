// Small workloads whose outcome is known in advance.
#include <map>

#include "replay.h"

namespace workloads_test {
namespace {

constexpr uint32_t block_size = 16;

// Texts made of named blocks. The same name is the same text.
class Texts {
 public:
  std::vector<int32_t> of(const std::vector<std::string>& names) {
    std::vector<int32_t> tokens;
    for (const std::string& name : names) {
      const int32_t number =
          static_cast<int32_t>(numbers_.emplace(name, numbers_.size()).first->second);
      for (uint32_t i = 0; i < block_size; i++)
        tokens.push_back(number * static_cast<int32_t>(block_size) + static_cast<int32_t>(i));
    }
    return tokens;
  }

 private:
  std::map<std::string, size_t> numbers_;
};

// A request of a chat service with a system prompt of 8 blocks. Examples of 6 blocks may follow,
// and it ends with its own question.
struct Request {
  bool has_examples;
  int question_blocks;
};
constexpr Request requests[] = {
    {false, 5}, {true, 2}, {true, 4}, {true, 4}, {false, 5}, {true, 4}, {true, 3}, {true, 3},
    {false, 3}, {true, 3}, {true, 4}, {true, 5}, {false, 2}, {true, 5}, {true, 4}, {true, 3},
    {false, 4}, {true, 4}, {true, 3}, {true, 3}, {false, 4}, {true, 4}, {true, 4}, {true, 3},
    {false, 5}, {true, 3}, {true, 3}, {true, 5}, {false, 3}, {true, 2}, {true, 4}, {true, 4},
    {false, 2}, {true, 2}, {true, 3}, {true, 5}, {false, 3}, {true, 5}, {true, 3}, {true, 2}};

std::vector<std::string> blocks_of(size_t number) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name, int count) {
    for (int i = 0; i < count; i++) names.push_back(name + std::to_string(i));
  };
  add("system ", 8);
  if (requests[number].has_examples) add("example ", 6);
  add("question " + std::to_string(number) + " ", requests[number].question_blocks);
  return names;
}

TEST(Workload, SharedBlocksAreStoredOnce) {
  for (const bool sharing : {false, true}) {
    cache_test::Cache cache = replay::cache_of(1000, block_size, PKV_EVICTION_LEARNED);
    Texts texts;
    std::vector<cache_test::Session> sessions;
    for (size_t number = 0; number < std::size(requests); number++) {
      auto config =
          made<pkv_session_config>({.prefix_use = sharing ? PKV_PREFIX_SHARE : PKV_PREFIX_OFF});
      pkv_session session;
      CHECK(pkv_session_open(cache, &config, &session));
      sessions.emplace_back(session);
      replay::run(cache, session, texts.of(blocks_of(number)));
    }
    EXPECT_EQ(sharing ? 156u : 642u, cache_test::pool_stats_of(cache).held_blocks);
    CHECK(pkv_cache_validate(cache));
    sessions.clear();
    CHECK(pkv_cache_validate(cache));
  }
}

// Every tenth text begins with one of two prompts, and the others occur once. So 2 x 8 blocks
// return, in a cache of 64, with 9 times 8 others in between.
uint64_t found_among_strangers(pkv_eviction eviction) {
  cache_test::Cache cache = replay::cache_of(64, block_size, eviction);
  Texts texts;
  uint64_t found = 0;
  for (int i = 0; i < 4000; i++) {
    std::vector<std::string> names;
    const std::string text =
        i % 10 == 0 ? "prompt " + std::to_string(i / 10 % 2) : "stranger " + std::to_string(i);
    for (int block = 0; block < 8; block++) names.push_back(text + " " + std::to_string(block));
    found += replay::serve(cache, texts.of(names)) / block_size;
  }
  CHECK(pkv_cache_validate(cache));
  return found;
}

TEST(Workload, WhatReturnsIsKeptAmongWhatDoesNot) {
  EXPECT_EQ(0u, found_among_strangers(PKV_EVICTION_LRU)) << "19 texts come between, and 8 fit";
  if (!replay::learns) GTEST_SKIP() << "hashes of a few bits: what is learned was not looked at";
  // There are 400 prompts of 8 blocks. All there is to learn is learned after the first of them.
  EXPECT_GT(found_among_strangers(PKV_EVICTION_LEARNED), 9 * 400 * 8 / 10u);
}

// Conversations end one after another. Their blocks were used equally often, so the oldest are
// evicted.
TEST(Workload, TheOldestGoesWhereNothingElseIsKnown) {
  cache_test::Cache cache = replay::cache_of(8, block_size, PKV_EVICTION_LEARNED);
  Texts texts;
  for (const std::string name : {"a", "b", "c", "d", "e"})
    replay::serve(cache, texts.of({name + "0", name + "1"}));
  EXPECT_EQ(0u, replay::serve(cache, texts.of({"a0"})))
      << "the first of five that need ten blocks of eight";
  EXPECT_EQ(32u, replay::serve(cache, texts.of({"e0", "e1"})));
}

}  // namespace
}  // namespace workloads_test
