// Attention over chosen blocks: the library chooses the blocks with the highest bounds by a naive
// computation, and outputs are those of textbook attention over the blocks that are read.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <thread>

#include "block_bounds.h"
#include "host.h"
#include "memory_kinds.h"
#include "reference.h"

namespace cache_test::chosen_blocks_test {
namespace {

constexpr uint32_t block_size = 16;

struct Choice {
  uint32_t top, first, last;
};

// One session of a cache with one layer, and the results of its last step.
class Chooser {
 public:
  Chooser(const Model& model, const MemoryKind& kind, uint64_t seed, pkv_isa isa = PKV_ISA_AUTO)
      : model_(model), random_(seed) {
    ModelConfig config = config_of(model, 256, kind.storage);
    config.layout = kind.layout;
    config.memory_directory = kind.directory;
    config.isa = isa;
    config.threads = 2;
    cache_ = create(config);
    compute_ = make_compute(2, isa);
    session_ = open(cache_);
  }

  Random& random() { return random_; }
  pkv_cache cache() const { return cache_.get(); }
  pkv_session session() const { return session_.get(); }
  uint64_t length() const { return length_of(session_.get()); }
  uint32_t heads_per_kv_head() const { return model_.query_heads / model_.kv_heads; }

  // Adds tokens, and checks all results of a step with this choice.
  void step(uint32_t tokens, const Choice& choice, pkv_session session) {
    SCOPED_TRACE(testing::Message()
                 << tokens << " tokens after " << length_of(session) << ", top " << choice.top
                 << ", first " << choice.first << ", last " << choice.last);
    start_ = length_of(session);
    tokens_ = tokens;
    choice_ = choice;
    Batch batch = begin(cache_, {session}, {tokens});
    KeysValues rows = random_rows(model_, tokens, random_);
    write(batch, 0, model_, rows);
    Rows q(tokens, model_.query_heads, model_.key_dim),
        out(tokens, model_.query_heads, model_.values());
    q.fill(random_);
    chosen_.assign(size_t{tokens} * model_.kv_heads * choice.top, 7);
    std::vector<float> lse(size_t{tokens} * model_.query_heads);
    AttentionParams params = params_of(choice);
    params.own_blocks.top_blocks = choice.top;
    params.own_blocks.chosen = chosen_.data();
    params.lse = lse.data();
    const pkv_tensor queries = q.tensor(), outputs = out.tensor();
    CHECK(pkv_batch_attend(batch, 0, &params, &queries, &outputs));
    const KeysValues all = stored(session);
    check_choice(q, all);
    EXPECT_LE(worst_error_of(q, out, all, lse), 1);
    check_lists(batch, q, out);
    commit(batch);
  }

 private:
  static AttentionParams params_of(const Choice& choice) {
    AttentionParams params;
    params.choose(0);
    params.own_blocks.first_blocks = choice.first;
    params.own_blocks.last_blocks = choice.last;
    return params;
  }

  KeysValues stored(pkv_session session) const {
    const uint64_t length = start_ + tokens_;
    KeysValues all{Rows(length, model_.kv_heads, model_.key_dim),
                   Rows(length, model_.kv_heads, model_.values())};
    const pkv_tensor k = all.k.tensor(), v = all.v.tensor();
    CHECK(pkv_session_read(session, 0, 0, length, &k, &v));
    return all;
  }

  uint32_t first() const {
    return std::min<uint32_t>(choice_.first, static_cast<uint32_t>(start_ / block_size));
  }
  uint32_t last() const {
    const auto step = static_cast<uint32_t>(start_ / block_size);
    return std::max(first(), step - std::min(choice_.last, step));
  }

  std::vector<uint32_t> chosen(uint32_t row, uint32_t head) const {
    const size_t at = (size_t{row} * model_.kv_heads + head) * choice_.top;
    std::vector<uint32_t> list(chosen_.begin() + static_cast<std::ptrdiff_t>(at),
                               chosen_.begin() + static_cast<std::ptrdiff_t>(at + choice_.top));
    while (!list.empty() && list.back() == PKV_NO_BLOCK) list.pop_back();
    return list;
  }

  // Bounds are of rotated keys, which callers never see, so they are not computed here. Only the
  // form of the choice is checked.
  void check_choice(const Rows& q, const KeysValues& all) const {
    for (uint32_t row = 0; row < tokens_; row++) {
      for (uint32_t head = 0; head < model_.kv_heads; head++) {
        const std::vector<uint32_t> list = chosen(row, head);
        ASSERT_EQ(std::min(choice_.top, last() - first()), list.size());
        EXPECT_TRUE(std::is_sorted(list.begin(), list.end()));
        EXPECT_EQ(list.size(), std::set<uint32_t>(list.begin(), list.end()).size());
        double worst_chosen = HUGE_VAL, best_left = -HUGE_VAL;
        for (uint32_t block = first(); block < last(); block++) {
          if (model_.rotation != PKV_ROTATION_NONE) break;
          const double score = bound_of_block(q, row, head, all.k, block, block_size);
          if (std::find(list.begin(), list.end(), block) != list.end())
            worst_chosen = std::min(worst_chosen, score);
          else
            best_left = std::max(best_left, score);
        }
        EXPECT_GE(worst_chosen, best_left - 1e-4);
        for (const uint32_t block : list) {
          EXPECT_GE(block, first());
          EXPECT_LT(block, last());
        }
      }
    }
  }

  double worst_error_of(const Rows& q, const Rows& out, const KeysValues& all,
                        const std::vector<float>& lse) const {
    const uint64_t length = start_ + tokens_;
    const Doubles queries(q), keys(all.k), values(all.v);
    double worst = 0;
    for (uint32_t row = 0; row < tokens_; row++) {
      for (uint32_t h = 0; h < model_.query_heads; h++) {
        Attention attention = attention_of(model_);
        attention.mask_words = (length + 63) / 64;
        attention.mask.assign((row + 1) * attention.mask_words, 0);
        const std::vector<uint32_t> list = chosen(row, h / heads_per_kv_head());
        for (uint64_t j = 0; j <= start_ + row; j++) {
          const auto block = static_cast<uint32_t>(j / block_size);
          if (block < first() || block >= last() ||
              std::find(list.begin(), list.end(), block) != list.end())
            attention.mask[row * attention.mask_words + j / 64] |= uint64_t{1} << j % 64;
        }
        const ReferenceRow expected(queries.row(row, h),
                                    {row, h, h / heads_per_kv_head(), start_ + row, 0, length},
                                    keys, values, attention);
        for (uint32_t d = 0; d < out.dim(); d++)
          worst = worse(std::abs(double{out.get(row, h, d)} - expected.out[d]) /
                            (expected.tolerance(d, out.dtype()) + rotated_tolerance()),
                        worst);
        worst = worse(std::abs(double{lse[row * model_.query_heads + h]} - expected.lse) /
                          (expected.lse_tolerance + rotated_tolerance()),
                      worst);
      }
    }
    return worst;
  }
  double rotated_tolerance() const { return model_.rotation == PKV_ROTATION_NONE ? 0 : 1e-2; }

  // The chosen blocks, given as lists, give the same bits in the batch and over the caller's
  // memory.
  void check_lists(const Batch& batch, Rows& q, const Rows& out) {
    AttentionParams params = params_of(choice_);
    params.own_blocks.lists = chosen_.data();
    params.own_blocks.list_blocks = choice_.top;
    Rows of_batch(tokens_, model_.query_heads, model_.values()), of_memory = of_batch;
    const pkv_tensor queries = q.tensor(), to_batch = of_batch.tensor(),
                     to_memory = of_memory.tensor();
    CHECK(pkv_batch_attend(batch, 0, &params, &queries, &to_batch));
    EXPECT_TRUE(out == of_batch || all_chosen());
    const pkv_kv_view view = kv_view_of(cache_, 0);
    std::vector<int64_t> blocks(256);
    int64_t indptr[2];
    size_t count = 0;
    CHECK(pkv_batch_get_kv_indices(batch, 0, PKV_INDEX_BLOCKS, indptr, blocks.size(), blocks.data(),
                                   &count, nullptr));
    const std::vector<uint32_t> table(blocks.begin(),
                                      blocks.begin() + static_cast<std::ptrdiff_t>(count));
    const std::vector<uint32_t> queries_of{tokens_};
    const std::vector<uint64_t> lengths{start_ + tokens_};
    auto sequences = sequences_of(model_.query_heads, queries_of, lengths, table);
    CHECK(pkv_kv_attend(compute_.get(), &view, &sequences, &params, &queries, &to_memory));
    EXPECT_TRUE(of_batch == of_memory);
  }
  // Then the whole sequence is read, and sums have another order.
  bool all_chosen() const { return choice_.top >= last() - first(); }

  const Model model_;
  Random random_;
  Compute compute_;
  Cache cache_;
  Session session_;
  uint64_t start_ = 0;
  uint32_t tokens_ = 0;
  Choice choice_{};
  std::vector<uint32_t> chosen_;
};

struct Kind {
  const char* name;
  Model model;
};

const Kind kinds[] = {
    {"f32", {1, 4, 2, 32, 48, PKV_F32}},
    {"bf16, 7 query heads", {1, 7, 1, 64, 64, PKV_BF16}},
    {"f16", {1, 6, 2, 80, 32, PKV_F16}},
    {"int8", {1, 8, 2, 64, 64, PKV_INT8}},
    {"int4 values", {1, 4, 4, 32, 32, PKV_INT8, 0, PKV_INT4}},
    {"fp8", {1, 2, 1, 16, 16, PKV_FP8_E4M3}},
    {"latent", {1, 5, 1, 576, 512, PKV_BF16, 0, PKV_BF16, 0, 1}},
    {"rotated", {1, 4, 2, 64, 64, PKV_F32, 0, PKV_F32, 0, 0, PKV_ROTATION_HADAMARD}},
};

TEST(ChosenBlocks, AreThoseOfTheHighestBounds) {
  for (const Kind& kind : kinds) {
    for (const MemoryKind& memory : memory_kinds) {
      if (memory.storage != PKV_STORAGE_PAGED) continue;
      SCOPED_TRACE(testing::Message() << kind.name << ", " << memory.name);
      Chooser chooser(kind.model, memory, 11);
      chooser.step(150, {2, 1, 1}, chooser.session());
      for (const Choice choice : {Choice{1, 0, 0}, {3, 1, 1}, {2, 2, 3}, {100, 1, 1}, {1, 9, 9}})
        chooser.step(1, choice, chooser.session());
      chooser.step(20, {3, 0, 2}, chooser.session());
    }
  }
}

// Bounds must be those of the current keys.
TEST(ChosenBlocks, FollowTrimsAndForks) {
  for (uint64_t seed = 0; seed < 6; seed++) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Chooser chooser({1, 4, 2, 32, 32, PKV_F32}, memory_kinds[seed % 3], seed);
    std::vector<Session> others;
    for (int round = 0; round < 30; round++) {
      const size_t which = chooser.random().below(others.size() + 1);
      pkv_session session = which == 0 ? chooser.session() : others[which - 1].get();
      const uint64_t length = length_of(session);
      const auto number = [&](uint32_t n) {
        return static_cast<uint32_t>(chooser.random().below(n));
      };
      if (length > 60 && number(3) == 0)
        CHECK(pkv_session_trim(session, length - chooser.random().below(length - 1)));
      if (others.size() < 4 && number(3) == 0) others.push_back(fork(session));
      chooser.step(number(4) == 0 ? 1 + number(60) : 1, {1 + number(4), number(3), number(3)},
                   session);
    }
  }
}

TEST(ChosenBlocks, AreThoseOfEveryInstructionSet) {
  for (const pkv_isa isa : supported_isas()) {
    SCOPED_TRACE(testing::Message() << "isa " << isa);
    Chooser chooser({1, 11, 1, 48, 32, PKV_BF16}, memory_kinds[0], 5, isa);
    chooser.step(130, {2, 1, 1}, chooser.session());
    chooser.step(1, {3, 1, 1}, chooser.session());
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
  params.own_blocks.chosen = chosen.data();
  attend(batch, 0, q, out, &params);
  EXPECT_EQ((std::vector<uint32_t>{11, PKV_NO_BLOCK}), chosen);
}

// Several threads need the bounds of the same blocks at once.
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
      params.own_blocks.chosen = chosen[i].data();
      Rows own_q = q, out(1, 2, 64);
      const pkv_tensor queries = own_q.tensor(), outputs = out.tensor();
      CHECK(pkv_batch_attend(batch, 0, &params, &queries, &outputs));
      commit(batch);
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& list : chosen) EXPECT_EQ(chosen[0], list);
}

// If a runner leaves out tasks, the call fails, and no thread waits for the missing bounds.
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
  REFUSED(PKV_INVALID_ARGUMENT, pkv_batch_attend(batch, 0, &params, &queries, &outputs));
  fails = false;
  CHECK(pkv_batch_attend(batch, 0, &params, &queries, &outputs));
}

TEST(ChosenBlocks, CountInTheStatistics) {
  Model model{1, 2, 1, 64, 64, PKV_BF16};
  Cache cache = create(config_of(model, 64));
  Session session = open(cache);
  Random random(3);
  step(cache, session, model, 100, random);
  const uint64_t before = stats_of(cache).memory_bytes;
  Batch batch = begin(cache, {session}, {1});
  KeysValues rows = rows_of(model, 1);
  write(batch, 0, model, rows);
  AttentionParams params;
  Rows q(1, 2, 64), out(1, 2, 64);
  const pkv_tensor queries = q.tensor(), outputs = out.tensor();
  params.choose(4);  // as many as there are to choose from
  CHECK(pkv_batch_attend(batch, 0, &params, &queries, &outputs));
  EXPECT_EQ(before, stats_of(cache).memory_bytes);
  params.choose(2);
  CHECK(pkv_batch_attend(batch, 0, &params, &queries, &outputs));
  EXPECT_EQ(before + 64 * 64 * 4, stats_of(cache).memory_bytes);
}

}  // namespace
}  // namespace cache_test::chosen_blocks_test
