// Trees of speculative tokens: a mask tells attention which tokens see which, and one path is
// accepted. The session is then as if it had got only these tokens, one by one.
#include <algorithm>

#include "grown.h"
#include "memory_kinds.h"

namespace cache_test::tree_test {
namespace {

// Every new token has a parent among those before it, or -1 for the last token before the step.
struct Tree {
  std::vector<int> parents;

  // A chain.
  explicit Tree(uint32_t tokens) {
    for (uint32_t i = 0; i < tokens; i++) parents.push_back(static_cast<int>(i) - 1);
  }
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

  // Returns the position of each token in its own text, after `start` tokens.
  std::vector<int64_t> positions(uint64_t start) const {
    std::vector<int64_t> all;
    for (const int parent : parents)
      all.push_back(parent < 0 ? static_cast<int64_t>(start)
                               : all[static_cast<size_t>(parent)] + 1);
    return all;
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

  // Returns what a session and its open step hold. Rows that left the window may be anything, since
  // no query sees them.
  static KeysValues stored(pkv_session session, uint32_t layer, const Model& model,
                           uint64_t length) {
    KeysValues all = rows_of(model, length);
    for (uint64_t p = 0; p < length; p++) {
      const pkv_tensor k = all.k.tensor(p), v = all.v.tensor(p);
      const pkv_status status = pkv_session_read(session, layer, p, 1, &k, &v);
      if (status != PKV_OUT_OF_RANGE || model.window == 0) CHECK(status);
    }
    return all;
  }

  // Returns a node's own text: the tokens before the step, and those from the root to the node.
  static KeysValues text_of(uint32_t node, const Tree& tree, const KeysValues& all) {
    const uint64_t start = all.k.rows() - tree.parents.size();
    KeysValues text{all.k.slice(0, start), all.v.slice(0, start)};
    for (const uint32_t i : tree.path_to(node)) {
      text.k.append(all.k.slice(start + i, 1));
      text.v.append(all.v.slice(start + i, 1));
    }
    return text;
  }

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
    AttentionParams params = attention.params(lse.data());
    const std::vector<int64_t> positions = tree.positions(length_of(session));
    if (model.window != 0) params.own_mask.positions = positions.data();
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

// Of the new tokens only those whose bits are set are seen, even if they are sinks.
TEST_P(Trees, AMaskHidesSinksAmongTheNewTokens) {
  const Model model{layers, 4, 2, 32, 0, PKV_F32, 64, PKV_F32, 8};
  for (const uint32_t tokens : {5u, 20u}) {
    Random random(5);
    Cache cache = make(model);
    Session session = open(cache);
    const Tree tree(tokens, random);
    std::vector<KeysValues> rows = random_rows(model, tokens, random);
    Batch batch = begin(cache, {session}, {tokens});
    for (uint32_t layer = 0; layer < layers; layer++)
      write_and_attend(batch, session, layer, model, rows[layer], tree, random);
  }
}

// Windows, sinks and slopes count from where a node is in its text, not from its row. What follows
// an accepted path sees it as any other text.
TEST_P(Trees, NodesSeeWhatTheirOwnTextsShow) {
  constexpr uint32_t nodes = 20, prompt = 17, none = 0;
  for (const auto& [window, sinks, old, sloped] : {std::tuple{20u, none, 64u, false},
                                                   {3u, none, 30u, false},
                                                   {5u, 2u, 30u, false},
                                                   {2u, 40u, 33u, false},
                                                   {1u, 5u, none, false},
                                                   {none, none, 30u, true},
                                                   {4u, 3u, 30u, true}}) {
    SCOPED_TRACE(testing::Message() << "window " << window << ", sinks " << sinks);
    const Model model{1, 4, 2, 32, 0, PKV_F32, window, PKV_F32, sinks};
    Random random(window + 10);
    Cache cache = make(model);
    Session session = open(cache), beside = open(cache);
    if (old > 0) step(cache, session, model, old, random);
    const Tree tree(nodes, random), chain(prompt);
    Attention attention = attention_of(model);
    if (sloped) attention.alibi_slopes = {0.5f, 0.1f, -0.2f, 1.0f};

    Batch batch = begin(cache, {session, beside}, {nodes, prompt});
    KeysValues rows = cache_test::random_rows(model, nodes + prompt, random);
    write(batch, 0, model, rows);
    Rows q(nodes + prompt, model.query_heads, model.key_dim),
        out(nodes + prompt, model.query_heads, model.values());
    q.fill(random);
    const KeysValues all = stored(session, 0, model, old + nodes),
                     all_beside = stored(beside, 0, model, prompt);
    std::vector<int32_t> parents = tree.parents;
    parents.insert(parents.end(), chain.parents.begin(), chain.parents.end());
    std::vector<uint64_t> words;
    tree.add_to(words, 1), chain.add_to(words, 1);
    std::vector<int64_t> positions = tree.positions(old);
    for (const int64_t at : chain.positions(0)) positions.push_back(at);
    AttentionParams by_parents = attention.params(), by_bits = by_parents;
    by_parents.see_tree(parents.data());
    by_bits.see_bits(words.data(), 1);
    by_bits.own_mask.positions = positions.data();
    for (const AttentionParams* params : {&by_parents, &by_bits}) {
      attend(batch, 0, q, out, params);
      for (uint32_t node = 0; node < nodes; node++) {
        const KeysValues text = text_of(node, tree, all);
        EXPECT_LE(
            worst_error(q.slice(node, 1), out.slice(node, 1), 0, 1, text, text.k.rows(), attention),
            1.0)
            << "node " << node;
      }
      EXPECT_LE(worst_error(q, out, nodes, prompt, all_beside, prompt, attention), 1.0);
    }
    const std::vector<uint32_t> kept = tree.path_to(nodes - 1);
    CHECK(pkv_batch_accept(batch, 0, kept.size(), kept.data()));
    commit(batch);

    Batch next = begin(cache, {session}, {1});
    KeysValues one = cache_test::random_rows(model, 1, random);
    write(next, 0, model, one);
    Rows next_q(1, model.query_heads, model.key_dim),
        next_out(1, model.query_heads, model.values());
    const AttentionParams plain = attention.params();
    attend(next, 0, next_q.fill(random), next_out, &plain);
    KeysValues text = text_of(nodes - 1, tree, all);
    text.k.append(one.k);
    text.v.append(one.v);
    EXPECT_LE(worst_error(next_q, next_out, 0, 1, text, text.k.rows(), attention), 1.0);
    commit(next);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Trees, testing::ValuesIn(memory_kinds), kind_name);

}  // namespace
}  // namespace cache_test::tree_test
