// Attention over chosen blocks, beside what attention_test.cpp compares with textbook attention and
// naive bounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <thread>

#include "host.h"
#include "memory_kinds.h"

namespace cache_test::chosen_blocks_test {
namespace {

// Returns what a step of one token, which is given up, chooses.
std::vector<uint32_t> choose(pkv_cache cache, pkv_session session, const Model& model, Rows& q,
                             uint32_t top) {
  const Batch batch = begin(cache, {session}, {1});
  KeysValues rows = rows_of(model, 1);
  write(batch, 0, model, rows);
  std::vector<uint32_t> chosen(model.kv_heads * top);
  AttentionParams params;
  params.choose(top);
  params.block_outputs.chosen = chosen.data();
  Rows out(1, model.query_heads, model.values());
  attend(batch, 0, q, out, &params);
  return chosen;
}

// Bounds have to be those of the keys that are there now: a session that was trimmed and forked
// chooses what a new session with the same keys does.
TEST(ChosenBlocks, FollowTrimsAndForks) {
  const Model model{1, 4, 2, 32, 32, PKV_F32};
  for (uint64_t seed = 0; seed < 12; seed++) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ModelConfig config = config_of(model, 256);
    config.layout = memory_kinds[seed % 3].layout;
    config.memory_directory = memory_kinds[seed % 3].directory;
    const Cache cache = create(config), other = create(config);
    Random random(seed);
    std::vector<Session> sessions;
    sessions.push_back(open(cache));
    const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random.below(n)); };
    for (int round = 0; round < 30; round++) {
      Session& session = sessions[below(static_cast<uint32_t>(sessions.size()))];
      const uint64_t length = length_of(session);
      const bool trims = length > 60 && below(2) == 0;
      if (trims) CHECK(pkv_session_trim(session, length - below(40)));
      step(cache, session, model, trims || below(4) == 0 ? 1 + below(60) : 1, random);
      KeysValues all = materialize(session, 0, model, 0, length_of(session));
      const Session same = open(other);
      step(other, same, model, static_cast<uint32_t>(all.k.rows()), all);
      Rows q(1, 4, 32);
      q.fill(random);
      const uint32_t top = 1 + below(4);
      EXPECT_EQ(choose(other, same, model, q, top), choose(cache, session, model, q, top));
      if (sessions.size() < 5 && below(3) == 0) sessions.push_back(fork(session));
    }
  }
}

// The window hides position 160, and the mask 161 to 175: a query at 200 sees nothing of block 10.
TEST(ChosenBlocks, AreNotThoseThatAWindowAndAMaskHideTogether) {
  const Model model{1, 2, 1, 16};
  Cache cache = create(config_of(model, 16));
  Session session = open(cache);
  Random random(4);
  step(cache, session, model, 200, random);
  const Batch batch = begin(cache, {session}, {1});
  KeysValues rows = rows_of(model, 1);
  write(batch, 0, model, rows);
  Rows q(1, 2, 16), out(1, 2, 16);
  q.fill(random);
  std::vector<uint8_t> mask(40, 1);
  std::fill_n(mask.begin(), 15, uint8_t{0});
  const int64_t first_position = 161;
  AttentionParams params;
  params.window = 40;
  params.see_bytes(mask.data());
  params.own_mask.columns = mask.size();
  params.own_mask.first_positions = &first_position;
  params.choose(2);
  params.own_blocks.first_blocks = params.own_blocks.last_blocks = 0;
  std::vector<uint32_t> chosen(2);
  params.block_outputs.chosen = chosen.data();
  attend(batch, 0, q, out, &params);
  EXPECT_EQ((std::vector<uint32_t>{11, PKV_NO_BLOCK_ID}), chosen);
}

// A prompt of one layer, in which 64 queries choose together.
struct Prompt {
  static constexpr uint32_t together = 64;

  Prompt(const Model& of, uint32_t tokens, Random& random)
      : model(of), rows(random_rows(of, tokens, random)), q(tokens, of.query_heads, of.key_dim) {
    q.fill(random);
  }

  uint32_t tokens() const { return static_cast<uint32_t>(q.rows()); }
  // Appends tokens [first, first + count) in a step, whose queries choose.
  Batch step(pkv_cache cache, pkv_session session, uint32_t first, uint32_t count, uint32_t top) {
    Batch batch = begin(cache, {session}, {count});
    for (uint32_t layer = 0; layer < model.layers; layer++) {
      KeysValues part{rows.k.slice(first, count), rows.v.slice(first, count)};
      write(batch, layer, model, part);
    }
    attend_part(batch, first, count, top);
    return batch;
  }
  // Appends what these queries choose to `chosen`, and their outputs to `out`.
  void attend_part(pkv_batch batch, uint32_t first, uint32_t count, uint32_t top) {
    std::vector<uint32_t> found((count + together - 1) / together * model.kv_heads * top);
    AttentionParams params;
    params.choose(top).tokens_per_choice = together;
    params.block_outputs.chosen = found.data();
    Rows queries = q.slice(first, count), outputs(count, model.query_heads, model.values());
    attend(batch, 0, queries, outputs, &params);
    chosen.insert(chosen.end(), found.begin(), found.end());
    out.append(outputs);
  }

  const Model model;
  KeysValues rows;
  Rows q;
  std::vector<uint32_t> chosen;  // [choices][KV heads][top]
  Rows out{0, model.query_heads, model.values()};
};

// A key that is 2.5 times one query, and far from all others, is in the blocks that the query's
// choice has, whether it lies in the same step or not.
TEST(ChosenBlocks, OfAPromptFindANeedle) {
  const Model model{1, 2, 1, 64, 64, PKV_BF16};
  for (const uint32_t tokens : {8192u, 32768u})
    for (const uint32_t step_tokens : {tokens, 2048u}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens in steps of " << step_tokens);
      Random random(tokens + step_tokens);
      Prompt prompt(model, tokens, random);
      // Before the last step, if there are several, and far before the query.
      const auto query = static_cast<uint32_t>(tokens - 1 - random.below(step_tokens / 4)),
                 needle = static_cast<uint32_t>(1024 + random.below(tokens / 2));
      for (uint32_t d = 0; d < 64; d++) {
        prompt.q.set(query, 1, d, random.below(2) == 0 ? 2.0f : -2.0f);
        prompt.rows.k.set(needle, 0, d, 2.5f * prompt.q.get(query, 1, d));
        prompt.rows.v.set(needle, 0, d, 5);
      }
      Cache cache = create(config_of(model, tokens / 16 + 1));
      Session session = open(cache);
      const uint32_t top = tokens / 16 / 8;
      for (uint32_t first = 0; first + step_tokens < tokens; first += step_tokens) {
        Batch batch = begin(cache, {session}, {step_tokens});
        KeysValues part{prompt.rows.k.slice(first, step_tokens),
                        prompt.rows.v.slice(first, step_tokens)};
        write(batch, 0, model, part);
        commit(batch);
      }
      const uint32_t first = tokens - step_tokens;
      const Batch batch = prompt.step(cache, session, first, step_tokens, top);
      const auto list = prompt.chosen.begin() + (query - first) / Prompt::together * top;
      EXPECT_NE(list + top, std::find(list, list + top, needle / 16));
      EXPECT_NEAR(5, prompt.out.get(query - first, 1, 0), 0.1);
    }
}

TEST(ChosenBlocks, AreTheSameForAPromptAndItsChunks) {
  const Model model{1, 4, 2, 32, 32, PKV_F32};
  for (const MemoryKind& kind : memory_kinds) {
    ModelConfig config = config_of(model, 256);
    config.layout = kind.layout;
    config.memory_directory = kind.directory;
    Cache cache = create(config);
    Random random(8);
    Prompt whole(model, 1000, random), chunks = whole;
    Session one = open(cache), other = open(cache);
    Batch batch = whole.step(cache, one, 0, 1000, 7);
    commit(batch);
    for (uint32_t first = 0; first < 1000; first += 192) {
      batch = chunks.step(cache, other, first, std::min(192u, 1000 - first), 7);
      commit(batch);
    }
    EXPECT_EQ(whole.chosen, chunks.chosen);
    EXPECT_TRUE(whole.out == chunks.out);
  }
}

TEST(ChosenBlocks, OfAPromptThatChoosesAllGiveTheSameBits) {
  const Model model{1, 4, 2, 32, 32, PKV_F32};
  Cache cache = create(config_of(model, 64));
  Session session = open(cache);
  Random random(8);
  Prompt prompt(model, 500, random);
  const Batch batch = prompt.step(cache, session, 0, 500, 32);
  Rows out(500, 4, 32);
  attend(batch, 0, prompt.q, out);
  EXPECT_TRUE(out == prompt.out);
}

// The bounds of blocks of a step are forgotten with it, and with what was written.
TEST(ChosenBlocks, OfAStepAreThoseOfWhatIsWritten) {
  const Model model{2, 4, 2, 32, 32, PKV_F32};
  Cache cache = create(config_of(model, 64));
  Session session = open(cache), other = open(cache);
  Random random(9);
  Prompt first(model, 400, random), second(model, 400, random);
  // What the second prompt chooses in a session that never had another one.
  second.step(cache, other, 0, 400, 3).close();
  const auto expected = std::exchange(second.chosen, {});

  first.step(cache, session, 0, 400, 3).close();
  Batch batch = second.step(cache, session, 0, 400, 3);
  EXPECT_EQ(expected, std::exchange(second.chosen, {}));
  EXPECT_NE(expected, first.chosen);
  // Other rows for the same tokens, or in the other layer.
  write(batch, 0, model, first.rows);
  write(batch, 1, model, second.rows);
  first.chosen.clear();
  first.attend_part(batch, 0, 400, 3);
  write(batch, 0, model, second.rows);
  second.attend_part(batch, 0, 400, 3);
  EXPECT_EQ(expected, std::exchange(second.chosen, {}));
  commit(batch);
  // The first of these tokens are dropped, and others follow.
  CHECK(pkv_session_trim(session, 192));
  Prompt mixed = second;
  mixed.rows.k.copy(192, first.rows.k, 192, 208);
  batch = mixed.step(cache, session, 192, 208, 3);
  Prompt fresh = mixed;
  fresh.chosen.clear();
  fresh.step(cache, other, 0, 400, 3).close();
  const std::vector<uint32_t> tail(fresh.chosen.begin() + 192 / Prompt::together * 2 * 3,
                                   fresh.chosen.end());
  EXPECT_EQ(tail, mixed.chosen);
}

// Threads that need the bounds of the same blocks at once.
TEST(ChosenBlocks, OfSharedBlocksAreComputedOnce) {
  Model model{1, 2, 1, 64, 64, PKV_F32};
  Cache cache = create(config_of(model, 512));
  Session parent = open(cache);
  Random random(3);
  step(cache, parent, model, 1024, random);
  std::vector<Session> sessions;
  for (int i = 0; i < 8; i++) sessions.push_back(fork(parent));
  Rows q(1, 2, 64);
  q.fill(random);
  KeysValues rows = random_rows(model, 1, random);
  std::vector<std::vector<uint32_t>> chosen(sessions.size(), std::vector<uint32_t>(5));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < sessions.size(); i++)
    threads.emplace_back([&, i] {
      Batch batch = begin(cache, {sessions[i]}, {1});
      KeysValues own = rows;
      write(batch, 0, model, own);
      AttentionParams params;
      params.choose(5);
      params.block_outputs.chosen = chosen[i].data();
      Rows own_q = q, out(1, 2, 64);
      attend(batch, 0, own_q, out, &params);
      commit(batch);
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& list : chosen) EXPECT_EQ(chosen[0], list);
}

// A runner that leaves tasks out costs the call, and nobody waits for the bounds that are missing.
TEST(ChosenBlocks, AfterARunnerThatFailed) {
  Model model{1, 2, 1, 64, 64, PKV_F32};
  bool fails = false;
  pkv_runner runner{};
  runner.user = &fails;
  runner.threads = 1;
  runner.run = [](void* user, size_t n, void (*task)(void*, size_t, uint32_t), void* context) {
    for (size_t i = 0; i < n; i++)
      if (!*static_cast<bool*>(user) || i % 2 == 0) task(context, i, 0);
  };
  ModelConfig config = config_of(model, 64);
  config.threads = 0;
  config.runner = &runner;
  Cache cache = create(config);
  Session session = open(cache);
  Random random(3);
  step(cache, session, model, 300, random);
  Batch batch = begin(cache, {session}, {1});
  KeysValues rows = rows_of(model, 1);
  write(batch, 0, model, rows);
  AttentionParams params;
  params.choose(5);
  Rows q(1, 2, 64), out(1, 2, 64);
  const pkv_tensor queries = q.tensor(), outputs = out.tensor();
  fails = true;
  REFUSED(PKV_INVALID_ARGUMENT, pkv_batch_attend(batch, 0, &params, &queries, &outputs, nullptr));
  fails = false;
  CHECK(pkv_batch_attend(batch, 0, &params, &queries, &outputs, nullptr));
}

// A step without tokens writes nothing. The block in which its session ends is a full one of
// another session here, whose bounds stay.
TEST(ChosenBlocks, KeepTheirBoundsInAStepWithoutTokens) {
  const Model model{1, 2, 1, 64, 64, PKV_F32};
  uint64_t tasks = 0;
  pkv_runner runner{};
  runner.user = &tasks;
  runner.threads = 1;
  runner.run = [](void* user, size_t n, void (*task)(void*, size_t, uint32_t), void* context) {
    *static_cast<uint64_t*>(user) += n;
    for (size_t i = 0; i < n; i++) task(context, i, 0);
  };
  ModelConfig config = config_of(model, 64);
  config.threads = 0;
  config.runner = &runner;
  const Cache cache = create(config);
  const Session session = open(cache);
  Random random(3);
  step(cache, session, model, 100, random);
  std::vector<Session> forks;
  for (uint64_t block = 1; block < 5; block++) {
    forks.push_back(fork(session));
    CHECK(pkv_session_trim(forks.back(), block * 16 + 8));
  }
  Rows q(1, 2, 64);
  q.fill(random);
  const auto count_tasks = [&] {
    tasks = 0;
    choose(cache, session, model, q, 2);
    return tasks;
  };
  EXPECT_LT(0u, count_tasks()) << "bounds are computed";
  const uint64_t before = count_tasks();
  Batch batch = begin(cache, {forks[0], forks[1], forks[2], forks[3]}, {0, 0, 0, 0});
  commit(batch);
  EXPECT_EQ(before, count_tasks());
}

TEST(ChosenBlocks, CountInTheStatistics) {
  Model model{1, 2, 1, 64, 64, PKV_BF16};
  Cache cache = create(config_of(model, 64));
  Session session = open(cache);
  Random random(3);
  step(cache, session, model, 100, random);
  const uint64_t before = stats_of(cache).mapped_bytes;
  Batch batch = begin(cache, {session}, {1});
  KeysValues rows = rows_of(model, 1);
  write(batch, 0, model, rows);
  AttentionParams params;
  Rows q(1, 2, 64), out(1, 2, 64);
  const pkv_tensor queries = q.tensor(), outputs = out.tensor();
  params.choose(4);  // as many as there are to choose from
  CHECK(pkv_batch_attend(batch, 0, &params, &queries, &outputs, nullptr));
  EXPECT_EQ(before, stats_of(cache).mapped_bytes);
  params.choose(2);
  CHECK(pkv_batch_attend(batch, 0, &params, &queries, &outputs, nullptr));
  EXPECT_EQ(before + 64 * 64 * 4, stats_of(cache).mapped_bytes);
}

}  // namespace
}  // namespace cache_test::chosen_blocks_test
