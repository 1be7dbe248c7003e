// What a session sees: every earlier token of its own, and nothing of other sessions.
#include <set>

#include "../support/cache.h"
#include "../support/rows.h"

namespace cache_test::visibility_test {
namespace {

const Model model{2, 4, 2, 32};

TEST(Visibility, InterleavedSessionsSeeOnlyTheirOwnRows) {
  constexpr size_t count = 7;
  Cache cache = create(config_of(model, count * 6));
  std::vector<Session> sessions;
  std::vector<std::vector<KeysValues>> expected(count);
  Random random(5);
  for (size_t s = 0; s < count; s++) {
    sessions.push_back(open(cache));
    expected[s] = step(cache, sessions[s], model, static_cast<uint32_t>(1 + 5 * s), random);
  }
  for (int round = 0; round < 40; round++) {
    const size_t s = random.below(count);
    const std::vector<KeysValues> rows = step(cache, sessions[s], model, 1, random);
    for (uint32_t layer = 0; layer < model.layers; layer++) {
      expected[s][layer].k.append(rows[layer].k);
      expected[s][layer].v.append(rows[layer].v);
    }
  }
  std::set<uint32_t> seen;
  size_t held = 0;
  for (size_t s = 0; s < count; s++) {
    for (uint32_t layer = 0; layer < model.layers; layer++)
      EXPECT_TRUE(expected[s][layer] ==
                  materialize(sessions[s], layer, model, 0, length_of(sessions[s])))
          << "session " << s;
    const std::vector<uint32_t> table = block_table(sessions[s]);
    seen.insert(table.begin(), table.end());
    held += table.size();
  }
  EXPECT_EQ(held, seen.size()) << "no block is in two tables";
  CHECK(pkv_cache_validate(cache));
}

TEST(Visibility, AnOutputDependsOnlyOnItsOwnSession) {
  // The same session alone, and beside another whose rows are NaN.
  std::vector<Rows> outputs;
  for (const bool beside : {false, true}) {
    Cache cache = create(config_of(model, 16));
    Session other = open(cache), session = open(cache);
    Random random(6);
    Rows result(0, model.query_heads, model.key_dim);
    for (int i = 0; i < 40; i++) {
      Batch batch = beside ? begin(cache, {other, session}, {1, 1}) : begin(cache, {session}, {1});
      const size_t rows = beside ? 2 : 1;
      for (uint32_t layer = 0; layer < model.layers; layer++) {
        Rows k(rows, model.kv_heads, model.key_dim), v(k),
            q(rows, model.query_heads, model.key_dim), out(q);
        for (Rows* own : {&k, &v, &q}) {
          own->each([&](size_t r, uint32_t h, uint32_t d) { own->set(r, h, d, NAN); });
          own->copy(rows - 1, Rows(1, own->heads(), own->dim()).fill(random), 0, 1);
        }
        write(batch, layer, k, v);
        attend(batch, layer, q, out);
        result.append(out.slice(rows - 1, 1));
      }
      commit(batch);
    }
    outputs.push_back(result);
  }
  EXPECT_TRUE(outputs[0] == outputs[1]);
}

const Model one_layer{1, 8, 2, 64};

// The output of one decode step after `tokens` random tokens, the value of one of them changed.
Rows decode_with_changed_value(uint32_t tokens, int64_t changed) {
  Cache cache = create(config_of(one_layer, 16));
  Session session = open(cache);
  Random random(7);
  Rows k(tokens + 1, one_layer.kv_heads, one_layer.key_dim), v(k),
      q(1, one_layer.query_heads, one_layer.key_dim), out(q);
  k.fill(random);
  v.fill(random);
  if (changed >= 0)
    for (uint32_t h = 0; h < one_layer.kv_heads; h++)
      for (uint32_t d = 0; d < one_layer.key_dim; d++)
        v.set(static_cast<size_t>(changed), h, d, 100);
  Batch prefill = begin(cache, {session}, {tokens});
  write(prefill, 0, k, v);
  commit(prefill);
  Rows last_k = k.slice(tokens, 1), last_v = v.slice(tokens, 1);
  Batch decode = begin(cache, {session}, {1});
  write(decode, 0, last_k, last_v);
  attend(decode, 0, q.fill(random), out);
  commit(decode);
  return out;
}

TEST(Visibility, ADecodeStepReadsEveryEarlierToken) {
  constexpr uint32_t tokens = 100;
  const Rows unchanged = decode_with_changed_value(tokens, -1);
  EXPECT_TRUE(unchanged == decode_with_changed_value(tokens, -1));
  for (int64_t token = 0; token <= tokens; token++) {
    const Rows changed = decode_with_changed_value(tokens, token);
    bool every_element = true;
    changed.each([&](size_t r, uint32_t h, uint32_t d) {
      every_element &= changed.get(r, h, d) > unchanged.get(r, h, d);
    });
    EXPECT_TRUE(every_element) << "token " << token;
  }
}

}  // namespace
}  // namespace cache_test::visibility_test
