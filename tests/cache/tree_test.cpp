// Trees of speculative tokens: a mask tells attention which tokens see which, and one path is
// accepted. The session is then as if it had got only these tokens, one by one.
#include <algorithm>

#include "memory_kinds.h"
#include "reference.h"

namespace cache_test::tree_test {
namespace {

// Every new token has a parent among those before it, or -1 for the last token before the step.
struct Tree {
  std::vector<int> parents;

  Tree(uint32_t tokens, Random& random) {
    for (uint32_t i = 0; i < tokens; i++)
      parents.push_back(static_cast<int>(i) - 1 -
                        static_cast<int>(random.below(std::min(i, 4u) + 1)));
  }

  // Returns the tokens from the root to this one, in ascending order.
  std::vector<uint32_t> path_to(uint32_t token) const {
    std::vector<uint32_t> path;
    for (int at = static_cast<int>(token); at >= 0; at = parents[static_cast<size_t>(at)])
      path.insert(path.begin(), static_cast<uint32_t>(at));
    return path;
  }

  // Lets each token see its ancestors and itself.
  void add_to(std::vector<uint64_t>& mask, uint64_t words) const {
    for (uint32_t i = 0; i < parents.size(); i++) {
      std::vector<uint64_t> row(words);
      for (const uint32_t j : path_to(i)) row[j / 64] |= uint64_t{1} << j % 64;
      mask.insert(mask.end(), row.begin(), row.end());
    }
  }
};

constexpr uint32_t layers = 2;

// Sessions that get trees of tokens, in one kind of storage and layout.
class Trees : public testing::TestWithParam<MemoryKind> {
 protected:
  Cache make(const Model& model) const {
    ModelConfig config = config_of(model, 64);
    config.layout = GetParam().layout;
    config.memory_directory = GetParam().directory;
    return create(config);
  }

  static std::vector<KeysValues> content(pkv_session session, const Model& model) {
    std::vector<KeysValues> result;
    for (uint32_t layer = 0; layer < layers; layer++)
      result.push_back(materialize(session, layer, model, 0, length_of(session)));
    return result;
  }

  static std::vector<int32_t> tokens_of(pkv_session session) {
    return cache_test::tokens_of(session, length_of(session));
  }

  std::vector<uint32_t> table(pkv_session session) const { return block_table(session); }

  // Writes the tokens of a tree into one layer of one session and compares the attention with the
  // reference.
  static void write_and_attend(pkv_batch batch, pkv_session session, uint32_t layer,
                               const Model& model, KeysValues& rows, const Tree& tree,
                               Random& random) {
    const auto n = static_cast<uint32_t>(tree.parents.size());
    write(batch, layer, rows.k, rows.v);
    Attention attention = attention_of(model);
    attention.mask_words = (n + 63) / 64;
    tree.add_to(attention.mask, attention.mask_words);
    Rows q(n, model.query_heads, model.key_dim), out(n, model.query_heads, model.values());
    std::vector<float> lse(n * model.query_heads);
    const AttentionParams params = attention.params(lse.data());
    attend(batch, layer, q.fill(random), out, &params);
    const uint64_t length = length_of(session) + n;
    EXPECT_LE(worst_error(q, out, 0, n, materialize(session, layer, model, 0, length), length,
                          attention, lse),
              1.0)
        << "layer " << layer;
  }

  static std::vector<KeysValues> random_rows(const Model& model, uint32_t n, Random& random) {
    std::vector<KeysValues> rows;
    for (uint32_t layer = 0; layer < layers; layer++) {
      rows.push_back(cache_test::random_rows(model, n, random));
    }
    return rows;
  }

  // Lets both sessions take the same decode step, each alone, and compares both outputs with the
  // reference.
  static void expect_same_step(pkv_cache cache, pkv_session one, pkv_session other,
                               const Model& model) {
    for (const pkv_session session : {one, other}) {
      Random random(77);
      Batch batch = begin(cache, {session}, {1});
      std::vector<KeysValues> rows = random_rows(model, 1, random);
      for (uint32_t layer = 0; layer < layers; layer++) {
        write(batch, layer, rows[layer].k, rows[layer].v);
        Rows q(1, model.query_heads, model.key_dim), out(1, model.query_heads, model.values());
        attend(batch, layer, q.fill(random), out);
        const uint64_t length = length_of(session) + 1;
        EXPECT_LE(worst_error(q, out, 0, 1, materialize(session, layer, model, 0, length), length,
                              attention_of(model)),
                  1.0);
      }
      commit(batch);
    }
    EXPECT_TRUE(content(one, model) == content(other, model));
  }

  void accept_a_path(const Model& model, uint32_t prompt, uint32_t n, Random& random) const {
    Cache cache = make(model);
    Session session = open(cache);
    if (prompt > 0) step(cache, session, model, prompt, random);
    Session sequential = fork(session), bystander = fork(session);
    const std::vector<KeysValues> before = content(bystander, model);

    const Tree tree(n, random);
    std::vector<KeysValues> rows = random_rows(model, n, random);
    std::vector<int32_t> ids(n);
    for (int32_t& id : ids) id = static_cast<int32_t>(random.below(1000));
    const std::vector<uint32_t> kept = random.chance(15)
                                           ? std::vector<uint32_t>{}
                                           : tree.path_to(static_cast<uint32_t>(random.below(n)));
    Batch batch = begin(cache, {session}, {n});
    for (uint32_t layer = 0; layer < layers; layer++)
      write_and_attend(batch, session, layer, model, rows[layer], tree, random);
    CHECK(pkv_batch_accept(batch, 0, kept.size(), kept.data()));
    CHECK(pkv_cache_validate(cache));
    commit(batch, ids);

    for (const uint32_t i : kept) {
      Batch one = begin(cache, {sequential}, {1});
      for (uint32_t layer = 0; layer < layers; layer++) {
        Rows k = rows[layer].k.slice(i, 1), v = rows[layer].v.slice(i, 1);
        write(one, layer, k, v);
      }
      commit(one, std::span(ids).subspan(i, 1));
    }
    CHECK(pkv_cache_validate(cache));
    EXPECT_EQ(prompt + kept.size(), length_of(session));
    EXPECT_EQ(tokens_of(sequential), tokens_of(session));
    EXPECT_TRUE(content(sequential, model) == content(session, model))
        << kept.size() << " of " << n << " tokens after " << prompt;
    EXPECT_EQ(table(sequential).size(), table(session).size())
        << "blocks beyond what was accepted are given back";
    EXPECT_TRUE(before == content(bystander, model)) << "a fork sees nothing of it";
    expect_same_step(cache, session, sequential, model);
  }
};

TEST_P(Trees, AnAcceptedPathIsAsIfItHadComeTokenByToken) {
  std::vector<std::pair<pkv_dtype, pkv_dtype>> pairs = {{PKV_INT8, PKV_INT4},
                                                        {PKV_F16, PKV_FP8_E4M3}};
  for (const pkv_dtype dtype : stored_dtypes) pairs.emplace_back(dtype, dtype);
  for (const auto& [keys, values] : pairs) {
    const Model model{layers, 4, 2, 48, 80, keys, 0, values};
    Random random(static_cast<uint64_t>(keys * 10 + values));
    for (const uint32_t tokens : {1u, 6u, 13u, 30u, 70u}) {
      const auto prompt = static_cast<uint32_t>(random.below(40));
      SCOPED_TRACE(testing::Message() << name_of(keys) << "/" << name_of(values) << ", " << tokens
                                      << " tokens after " << prompt);
      accept_a_path(model, prompt, tokens, random);
    }
  }
}

TEST_P(Trees, AllOrNoneOfTheTokens) {
  const Model model{layers, 4, 2, 32, 0, PKV_INT4};
  Random random(3);
  Cache cache = make(model);
  Session all = open(cache), none = open(cache), plain = open(cache);
  for (Session* session : {&all, &none, &plain}) {
    Random same(4);
    step(cache, *session, model, 21, same);
  }
  const std::vector<KeysValues> before = content(none, model);
  const std::vector<uint32_t> table_before = table(none),
                              everything = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  std::vector<KeysValues> rows = random_rows(model, 13, random);
  for (KeysValues& layer : rows)
    for (int copies = 0; copies < 2; copies++)
      layer.k.append(layer.k.slice(0, 13)), layer.v.append(layer.v.slice(0, 13));
  std::vector<int32_t> ids(39);
  for (size_t i = 0; i < ids.size(); i++) ids[i] = static_cast<int32_t>(i % 13);
  Batch batch = begin(cache, {all, none, plain}, {13, 13, 13});
  REFUSED(PKV_INCOMPLETE, pkv_batch_accept(batch, 0, 13, everything.data()));
  for (uint32_t layer = 0; layer < layers; layer++)
    write(batch, layer, rows[layer].k, rows[layer].v);
  CHECK(pkv_batch_accept(batch, 1, 0, nullptr));
  CHECK(pkv_batch_accept(batch, 0, 13, everything.data()));
  REFUSED(PKV_INVALID_ARGUMENT, pkv_batch_accept(batch, 1, 0, nullptr));
  commit(batch, ids);
  EXPECT_EQ(34u, length_of(all));
  EXPECT_EQ(tokens_of(plain), tokens_of(all));
  EXPECT_TRUE(content(plain, model) == content(all, model));
  EXPECT_EQ(21u, length_of(none));
  EXPECT_TRUE(before == content(none, model));
  EXPECT_EQ(table_before, table(none));
  CHECK(pkv_cache_validate(cache));
}

TEST_P(Trees, AbortAfterAcceptLeavesTheSessionAsItWas) {
  for (const pkv_dtype dtype : stored_dtypes) {
    const Model model{layers, 4, 2, 32, 0, dtype};
    Random random(dtype);
    Cache cache = make(model);
    Session session = open(cache);
    step(cache, session, model, 27, random);
    Session sharer = fork(session);  // The tail is shared, so that the step copies it.
    const std::vector<KeysValues> before = content(session, model);
    const std::vector<uint32_t> table_before = table(session);
    const std::vector<int32_t> tokens = tokens_of(session);
    const Tree tree(20, random);
    std::vector<KeysValues> rows = random_rows(model, 20, random);
    Batch batch = begin(cache, {session}, {20});
    for (uint32_t layer = 0; layer < layers; layer++)
      write_and_attend(batch, session, layer, model, rows[layer], tree, random);
    const uint32_t kept[] = {1, 7, 18};
    CHECK(pkv_batch_accept(batch, 0, 3, kept));
    batch.close();
    EXPECT_EQ(27u, length_of(session));
    EXPECT_EQ(tokens, tokens_of(session));
    EXPECT_EQ(table_before, table(session));
    EXPECT_TRUE(before == content(session, model)) << name_of(dtype);
    EXPECT_TRUE(before == content(sharer, model)) << name_of(dtype);
    CHECK(pkv_cache_validate(cache));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Trees, testing::ValuesIn(memory_kinds), kind_name);

}  // namespace
}  // namespace cache_test::tree_test
