// Attention beside what attention_test.cpp compares with textbook attention: prompts whose last
// piece is short, the largest latent rows, and results that are merged.
#include <algorithm>

#include "grown.h"

namespace cache_test::variants_test {
namespace {

struct Shape {
  uint32_t query_heads, kv_heads, key_dim, value_dim;
};

constexpr Shape shapes[] = {
    {3, 3, 64, 64}, {6, 2, 48, 80}, {8, 1, 128, 128}, {16, 1, 80, 48}, {64, 2, 32, 16}};

Model model_of(const Shape& shape, pkv_dtype dtype = PKV_F32) {
  Model model;
  model.query_heads = shape.query_heads;
  model.kv_heads = shape.kv_heads;
  model.key_dim = shape.key_dim;
  model.value_dim = shape.value_dim;
  model.dtype = dtype;
  return model;
}

// A prompt is cut into pieces of 288 rows of a KV head. A last piece of few queries must not be
// computed as a decode step, which combines heads.
TEST(Variants, PromptsWithAShortLastBlock) {
  for (const Shape& shape : shapes) {
    const Model model = model_of(shape);
    const uint32_t block = 288 * model.kv_heads / model.query_heads;
    for (const uint32_t tokens : {block + 1, block + 3, 2 * block + 15}) {
      SCOPED_TRACE(testing::Message() << shape.query_heads << " heads, " << tokens << " tokens");
      Cache cache = create(config_of(model, 80));
      Grown grown(cache, model, 8);
      EXPECT_LE(grown.step(tokens, attention_of(model)), 1.0);
      EXPECT_LE(grown.step(tokens, attention_of(model)), 1.0) << "more";
    }
  }
}

// V is the first 512 dims of K and is never given.
TEST(Latent, EqualsTheReference) {
  for (const uint32_t query_heads : {16u, 128u}) {
    for (const pkv_dtype dtype : {PKV_BF16, PKV_INT8}) {
      for (const pkv_layout layout : {PKV_LAYOUT_PACKED, PKV_LAYOUT_PLAIN}) {
        SCOPED_TRACE(testing::Message()
                     << query_heads << " heads, " << name_of(dtype) << ", layout " << layout);
        Model model = model_of({query_heads, 1, 576, 512}, dtype);
        model.kind = PKV_LAYERS_LATENT;
        ModelConfig config = config_of(model, 16);
        config.layout = layout;
        Cache cache = create(config);
        EXPECT_EQ(sizes_of(config).bytes_per_token, dtype == PKV_BF16 ? 576 * 2u : 576 + 4u)
            << "stored once";
        Grown grown(cache, model, 8);
        EXPECT_LE(grown.step(query_heads == 16 ? 40 : 18, attention_of(model)), 1.0);
        EXPECT_LE(grown.step(1, attention_of(model)), 1.0);
        EXPECT_LE(grown.step(2, attention_of(model)), 1.0);
      }
    }
  }
}

TEST(Latent, ValuesAreNotGiven) {
  Model model = model_of({4, 1, 48, 32});
  model.kind = PKV_LAYERS_LATENT;
  Cache cache = create(config_of(model, 4));
  Session session = open(cache);
  Batch batch = begin(cache, {session}, {1});
  Rows k(1, 1, 48), v(1, 1, 32);
  const pkv_tensor keys = k.tensor(), values = v.tensor();
  REFUSED(PKV_INVALID_ARGUMENT, pkv_batch_write(batch, 0, &keys, &values));
  REFUSED(PKV_INVALID_ARGUMENT, pkv_batch_write(batch, 0, nullptr, nullptr));
  write(batch, 0, k);
  commit(batch);
}

// Attends each query alone to positions [first, end) of rows that lie one after the other, as
// blocks of one token.
void attend_piece(KeysValues& all, uint64_t first, uint64_t end, Rows& q, Rows& out,
                  const AttentionParams& params) {
  const pkv_tensor k = all.k.tensor(), v = all.v.tensor(), queries = q.tensor(),
                   results = out.tensor();
  const auto view = made<pkv_kv_view>({.layout = PKV_LAYOUT_PLAIN,
                                       .block_size = 1,
                                       .kv_heads = all.k.heads(),
                                       .key_dim = all.k.dim(),
                                       .value_dim = all.v.dim(),
                                       .dtype = PKV_F32,
                                       .blocks = all.k.rows(),
                                       .k = k.data,
                                       .v = v.data,
                                       .k_block_stride = k.row_stride,
                                       .k_row_stride = k.row_stride,
                                       .k_head_stride = k.head_stride,
                                       .v_block_stride = v.row_stride,
                                       .v_row_stride = v.row_stride,
                                       .v_head_stride = v.head_stride});
  const std::vector<uint32_t> ones(q.rows(), 1);
  const std::vector<uint64_t> lengths(q.rows(), end - first);
  std::vector<uint32_t> tables;
  for (size_t row = 0; row < q.rows(); row++)
    for (uint64_t p = first; p < end; p++) tables.push_back(static_cast<uint32_t>(p));
  const pkv_kv_sequences sequences = sequences_of(q.heads(), ones, lengths, tables);
  CHECK(pkv_kv_attend(nullptr, &view, &sequences, &params, &queries, &results, &params.outputs));
}

// Attention over pieces of a sequence, merged by their log-sum-exps, is attention over the whole.
TEST(MergeAttention, PiecesMakeTheWhole) {
  constexpr uint32_t rows = 5, length = 200;
  Random random(10);
  Rows k(length, 2, 48), v(length, 2, 80), q(rows, 6, 48);
  KeysValues all{std::move(k.fill(random)), std::move(v.fill(random))};
  q.fill(random);
  for (const auto& cuts :
       {std::vector<uint64_t>{0, 200}, {0, 1, 200}, {0, 64, 65, 130, 200}, {0, 199, 200}}) {
    std::vector<Rows> outs;
    std::vector<std::vector<float>> lses;
    for (size_t i = 0; i + 1 < cuts.size(); i++) {
      Attention attention{.causal = false};
      // The sink logits are given in one of the calls only.
      if (i == 0) attention.sink_logits = {1, 2, 3, -1, -2, 0};
      outs.emplace_back(rows, 6, 80);
      lses.emplace_back(rows * 6);
      const AttentionParams params = attention.params(lses.back().data());
      attend_piece(all, cuts[i], cuts[i + 1], q, outs.back(), params);
    }
    std::vector<pkv_tensor> tensors;
    std::vector<const float*> lse;
    for (size_t i = 0; i < outs.size(); i++) {
      tensors.push_back(outs[i].tensor());
      lse.push_back(lses[i].data());
    }
    Rows merged(rows, 6, 80);
    std::vector<float> merged_lse(rows * 6);
    const pkv_tensor to = merged.tensor();
    CHECK(pkv_attention_merge(nullptr, outs.size(), tensors.data(), lse.data(), rows, 6, 80, &to,
                              merged_lse.data()));
    Attention whole{.causal = false, .sink_logits = {1, 2, 3, -1, -2, 0}, .merged = true};
    EXPECT_LE(worst_error(q, merged, 0, rows, all, length, whole, merged_lse), 1.0)
        << cuts.size() - 1 << " pieces";
  }
}

// A result that saw nothing has an lse of -infinity, or of +infinity if FlashAttention 2 made it.
TEST(MergeAttention, WhatSawNothingCountsForNothing) {
  Rows nothing(1, 1, 16), something(1, 1, 16), merged(1, 1, 16);
  for (uint32_t d = 0; d < 16; d++) nothing.set(0, 0, d, NAN), something.set(0, 0, d, 3);
  const pkv_tensor outs[] = {nothing.tensor(), something.tensor(), nothing.tensor()},
                   to = merged.tensor();
  for (const pkv_isa isa : supported_isas()) {
    SCOPED_TRACE(pkv_isa_name(isa));
    auto config = made<pkv_compute_config>({.isa = isa});
    pkv_compute compute;
    CHECK(pkv_compute_create(&config, &compute));
    for (const float none : {-INFINITY, INFINITY}) {
      const float some = 1.5f, other = -INFINITY, nan = NAN;
      const float *lse[] = {&none, &some, &other}, *last[] = {&none, &other},
                  *bad[] = {&none, &nan};
      float merged_lse = 0;
      CHECK(pkv_attention_merge(compute, 3, outs, lse, 1, 1, 16, &to, &merged_lse));
      EXPECT_TRUE(merged == something);
      EXPECT_EQ(some, merged_lse);
      CHECK(pkv_attention_merge(compute, 1, outs, lse, 1, 1, 16, &to, &merged_lse));
      EXPECT_EQ(-INFINITY, merged_lse);
      EXPECT_EQ(0, merged.get(0, 0, 5));
      CHECK(pkv_attention_merge(compute, 2, outs, last, 1, 1, 16, &to, &merged_lse));
      EXPECT_EQ(-INFINITY, merged_lse);
      EXPECT_EQ(0, merged.get(0, 0, 5));
      CHECK(pkv_attention_merge(compute, 2, outs, bad, 1, 1, 16, &to, &merged_lse));
      EXPECT_TRUE(std::isnan(merged_lse));
      EXPECT_TRUE(std::isnan(merged.get(0, 0, 5)));
    }
    CHECK(pkv_compute_destroy(compute));
  }
}

}  // namespace
}  // namespace cache_test::variants_test
