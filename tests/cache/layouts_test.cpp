// Both layouts hold the same rows in each 16- and 32-bit type.
#include "../support/cache.h"
#include "../support/rows.h"

namespace cache_test::layouts_test {
namespace {

class Layouts : public testing::TestWithParam<pkv_dtype> {
 protected:
  const Model model{2, 4, 2, 32, 48, GetParam()};
};

TEST_P(Layouts, MaterializeGivesTheSameBits) {
  Cache packed = create(config_of(model, 16));
  ModelConfig plain_config = config_of(model, 16);
  plain_config.layout = PKV_LAYOUT_PLAIN;
  Cache plain = create(plain_config);
  // The rows are given as fp32, and both round them to their dtype.
  const Model written{model.layers,  model.query_heads, model.kv_heads,
                      model.key_dim, model.value_dim,   PKV_F32};
  std::vector<Session> sessions;
  for (const pkv_cache cache : {packed.get(), plain.get()}) {
    Random random(2);
    sessions.push_back(open(cache));
    step(cache, sessions.back(), written, 100, random);
    for (int i = 0; i < 13; i++) step(cache, sessions.back(), written, 1, random);
  }
  for (uint32_t layer = 0; layer < model.layers; layer++) {
    EXPECT_TRUE(materialize(sessions[0], layer, model, 0, 113) ==
                materialize(sessions[1], layer, model, 0, 113));
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Layouts, testing::Values(PKV_F32, PKV_F16, PKV_BF16),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace cache_test::layouts_test
