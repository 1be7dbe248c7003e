// Draws one attention call from a source and makes it on every instruction set that runs here,
// through the C interface. Each must agree with the scalar one within what rounding explains, and
// in which outputs are finite.
#pragma once

#include <gtest/gtest.h>
#include <pagedkv/pagedkv.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "enums.h"
#include "isa.h"
#include "made.h"
#include "source.h"

class AttentionPlay {
 public:
  explicit AttentionPlay(Source source) : source_(std::move(source)) {}

  void run() {
    draw_config();
    draw_call();
    const Result expected = attend(PKV_ISA_SCALAR);
    for (const pkv_isa isa : pkv::test::instruction_sets) {
      if (isa == PKV_ISA_SCALAR) continue;
      if (pkv::test::isa_supported(isa)) compare(expected, attend(isa), isa);
    }
  }

 private:
  struct Result {
    std::vector<float> out, lse;
  };

  static constexpr auto& dtypes = pkv::test::stored_dtypes;

  // Draws mostly small numbers, and now and then those that break kernels. None is so large that a
  // sum of products overflows in one order only.
  float number() {
    if (!special_ || !source_.chance(2))
      return static_cast<float>(source_.below(256)) / 64.0f - 2.0f;
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const float numbers[] = {0.0f,    -0.0f,    1e-40f,    300.0f,
                             -300.0f, infinity, -infinity, std::numeric_limits<float>::quiet_NaN()};
    return numbers[source_.below(std::size(numbers))];
  }

  // Makes rows that repeat a short list of numbers. So an input needs few bytes, whatever the
  // shape.
  std::vector<float> rows(size_t n) {
    std::vector<float> few(1 + source_.below(61));
    for (float& x : few) x = number();
    std::vector<float> all(n);
    for (size_t i = 0; i < n; i++) all[i] = few[i % few.size()];
    return all;
  }

  bool is_latent() const { return config_.model.kind == PKV_LAYERS_LATENT; }

  void draw_config() {
    config_ = ModelConfig();
    special_ = source_.chance(30);
    config_.layout = source_.chance(30) ? PKV_LAYOUT_PLAIN : PKV_LAYOUT_PACKED;
    config_.block_size = static_cast<uint32_t>(16 * source_.between(1, 3));
    config_.model.layers = 1;
    config_.model.kv_heads = static_cast<uint32_t>(source_.between(1, 3));
    config_.model.query_heads =
        config_.model.kv_heads * static_cast<uint32_t>(source_.between(1, 18));
    config_.model.key_dim = static_cast<uint32_t>(16 * source_.between(1, 8));
    config_.model.dtype = dtypes[source_.below(std::size(dtypes))];
    if (source_.chance(15)) config_.model.kind = PKV_LAYERS_LATENT;
    config_.model.value_dim = static_cast<uint32_t>(
        16 * source_.between(1, is_latent() ? config_.model.key_dim / 16 : 8));
    config_.model.value_dtype =
        is_latent() ? config_.model.dtype : dtypes[source_.below(std::size(dtypes))];
    if (source_.chance(30)) {
      config_.model.window = static_cast<uint32_t>(source_.between(1, 70));
      if (source_.chance(50))
        config_.model.sink_tokens = static_cast<uint32_t>(source_.between(1, 20));
    }
    config_.model.blocks = 64;
    config_.threads = 1;
  }

  void draw_call() {
    past_ = static_cast<uint32_t>(source_.below(90));
    fresh_ = static_cast<uint32_t>(source_.between(1, 20));
    forks_ = source_.chance(25) ? source_.between(1, 3) : 0;
    k_ = rows(size_t{past_ + fresh_} * config_.model.kv_heads * config_.model.key_dim);
    v_ = rows(size_t{past_ + fresh_} * config_.model.kv_heads * config_.model.value_dim);
    q_ = rows((forks_ + 1) * fresh_ * config_.model.query_heads * config_.model.key_dim);
    params_ = AttentionParams();
    params_.bidirectional = !source_.chance(75);
    if (source_.chance(20)) params_.softcap = static_cast<float>(source_.between(1, 40));
    if (source_.chance(20)) params_.alibi_slopes = (slopes_ = heads(-0.5f)).data();
    if (source_.chance(20)) params_.sink_logits = (logits_ = heads(1.0f)).data();
    if (source_.chance(30)) {
      for (uint64_t row = 0; row < (forks_ + 1) * fresh_; row++)
        mask_.push_back(source_.below(uint64_t{1} << fresh_));
      params_.see_bits(mask_.data(), 1);
    }
    // Choices that came later are the last ones, so that inputs that were found before keep their
    // meaning.
    bf16_rows_ = source_.below(2) != 0;
    if (bf16_rows_) q_ = floats(halves(q_));
    const bool can_choose = params_.alibi_slopes == nullptr;
    if (can_choose && !source_.chance(60)) {
      params_.choose(static_cast<uint32_t>(source_.between(1, 4)));
      params_.own_blocks.first_blocks = static_cast<uint32_t>(source_.below(3));
      params_.own_blocks.last_blocks = static_cast<uint32_t>(source_.below(3));
      params_.own_blocks.tokens_per_choice = source_.chance(60) ? 0 : UINT32_MAX;
    }
    if (!source_.chance(70)) params_.head_windows = draw_windows(config_.model.window, 1, windows_);
    if (!source_.chance(80))
      params_.head_sink_tokens = draw_windows(config_.model.sink_tokens, 0, sinks_);
    if (mask_.empty() && !source_.chance(80)) {
      for (uint64_t row = 0; row < (forks_ + 1) * fresh_; row++)
        parents_.push_back(static_cast<int32_t>(source_.below(row % fresh_ + 1)) - 1);
      params_.see_tree(parents_.data());
    }
    const bool needs_positions = config_.model.window != 0 || !slopes_.empty() || !windows_.empty();
    if (!mask_.empty() && (needs_positions || source_.chance(30))) {
      for (uint64_t row = 0; row < (forks_ + 1) * fresh_; row++)
        positions_.push_back(static_cast<int64_t>(past_ + source_.below(fresh_ + 3)));
      params_.own_mask.positions = positions_.data();
    }
  }

  // Draws a number for each KV head, up to that of the layer if it has one.
  const uint32_t* draw_windows(uint32_t of_layer, uint64_t least, std::vector<uint32_t>& list) {
    for (uint32_t head = 0; head < config_.model.kv_heads; head++)
      list.push_back(static_cast<uint32_t>(
          config_.model.window == 0
              ? source_.below(100)
              : source_.between(std::min<uint64_t>(least, of_layer), of_layer)));
    return list.data();
  }

  std::vector<float> heads(float unit) {
    std::vector<float> numbers(config_.model.query_heads);
    for (float& x : numbers) x = unit * static_cast<float>(source_.below(8));
    return numbers;
  }

  Result attend(pkv_isa isa) {
    config_.isa = isa;
    pkv_cache cache;
    EXPECT_EQ(pkv_cache_create(&config_, &cache), PKV_OK) << pkv_last_error();
    const pkv_tensor k = tensor(k_, 0), v = tensor(v_, 0);
    std::vector<pkv_session> sessions(1);
    EXPECT_EQ(pkv_session_open(cache, nullptr, &sessions[0]), PKV_OK);
    EXPECT_EQ(append(cache, sessions[0], past_, 1, &k, is_latent() ? nullptr : &v), PKV_OK)
        << pkv_last_error();
    for (uint64_t i = 0; i < forks_; i++)
      EXPECT_EQ(pkv_session_fork(sessions[0], &sessions.emplace_back()), PKV_OK);

    const uint64_t new_rows = sessions.size() * fresh_;
    std::vector<float> new_k, new_v;
    for (size_t i = 0; i < sessions.size(); i++) {
      new_k.insert(new_k.end(),
                   k_.begin() + static_cast<int64_t>(size_t{past_} * config_.model.kv_heads *
                                                     config_.model.key_dim),
                   k_.end());
      new_v.insert(new_v.end(),
                   v_.begin() + static_cast<int64_t>(size_t{past_} * config_.model.kv_heads *
                                                     config_.model.value_dim),
                   v_.end());
    }
    const std::vector<uint32_t> counts(sessions.size(), fresh_);
    pkv_batch batch;
    EXPECT_EQ(pkv_batch_begin(cache, sessions.size(), sessions.data(), counts.data(), &batch),
              PKV_OK)
        << pkv_last_error();
    const std::vector<uint16_t> half_q = halves(q_);
    const pkv_tensor batch_k = tensor(new_k, 0), batch_v = tensor(new_v, 0),
                     q = bf16_rows_ ? tensor(half_q) : tensor(q_, 0);
    EXPECT_EQ(pkv_batch_write(batch, 0, &batch_k, is_latent() ? nullptr : &batch_v), PKV_OK)
        << pkv_last_error();
    const Result result = attend_to_blocks(batch, q, new_rows);
    EXPECT_EQ(pkv_batch_commit(batch, 0, nullptr), PKV_OK) << pkv_last_error();
    EXPECT_EQ(pkv_cache_validate(cache), PKV_OK) << pkv_last_error();
    EXPECT_EQ(pkv_cache_destroy(cache), PKV_OK);
    return result;
  }

  Result attend(pkv_batch batch, const AttentionParams& params, const pkv_tensor& q,
                uint64_t new_rows) const {
    Result result{
        std::vector<float>(new_rows * config_.model.query_heads * config_.model.value_dim),
        std::vector<float>(new_rows * config_.model.query_heads)};
    pkv_attention_outputs outputs = params.outputs;
    outputs.lse = result.lse.data();
    std::vector<uint16_t> half_out(result.out.size());
    const pkv_tensor out = bf16_rows_ ? tensor(half_out) : tensor(result.out, 0);
    EXPECT_EQ(pkv_batch_attend(batch, 0, &params, &q, &out, &outputs), PKV_OK) << pkv_last_error();
    if (bf16_rows_) result.out = floats(half_out);
    return result;
  }

  // Attends to all blocks, or to those that the scalar kernels chose: what others choose differs
  // where bounds are equal up to rounding. Whatever is chosen, a list of it gives the same result.
  Result attend_to_blocks(pkv_batch batch, const pkv_tensor& q, uint64_t new_rows) {
    if (params_.own_blocks.top_blocks == 0) return attend(batch, params_, q, new_rows);
    std::vector<uint32_t> chosen(new_rows * config_.model.kv_heads * params_.own_blocks.top_blocks);
    AttentionParams params = params_;
    params.block_outputs.chosen = chosen.data();
    const Result by_bounds = attend(batch, params, q, new_rows);
    params.own_blocks.list_blocks = std::exchange(params.own_blocks.top_blocks, 0);
    params.block_outputs.chosen = nullptr;
    params.own_blocks.lists = chosen.data();
    compare(by_bounds, attend(batch, params, q, new_rows), config_.isa);
    if (config_.isa == PKV_ISA_SCALAR) chosen_ = chosen;
    params.own_blocks.lists = chosen_.data();
    return attend(batch, params, q, new_rows);
  }

  static pkv_tensor tensor(const std::vector<float>& rows, int64_t stride) {
    return {const_cast<float*>(rows.data()), PKV_F32, stride, 0, 0};
  }

  static pkv_tensor tensor(const std::vector<uint16_t>& rows) {
    return {const_cast<uint16_t*>(rows.data()), PKV_BF16, 0, 0, 0};
  }

  static std::vector<uint16_t> halves(const std::vector<float>& rows) {
    std::vector<uint16_t> upper(rows.size());
    for (size_t i = 0; i < rows.size(); i++)
      upper[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(rows[i]) >> 16);
    return upper;
  }

  static std::vector<float> floats(const std::vector<uint16_t>& upper) {
    std::vector<float> rows(upper.size());
    for (size_t i = 0; i < rows.size(); i++)
      rows[i] = std::bit_cast<float>(uint32_t{upper[i]} << 16);
    return rows;
  }

  static double largest(const std::vector<float>& numbers) {
    double max = 0;
    for (const float x : numbers)
      if (std::isfinite(x)) max = std::max(max, std::fabs(static_cast<double>(x)));
    return max;
  }

  static bool integers(pkv_dtype dtype) { return dtype == PKV_INT8 || dtype == PKV_INT4; }

  // A score is off by dim units in the last place of the sum of magnitudes, or by 2^-15 of it where
  // queries are rounded to integers (2^-16 where they are split into two bf16 numbers). A weight is
  // off by twice that. An output is off by that times the largest value; by 2^-11 more where
  // weights are rounded to integers (16 tokens times 2^-15 of the largest), and by 2^-8 where they
  // and the outputs are rounded to bf16.
  void compare(const Result& expected, const Result& got, pkv_isa isa) const {
    const double magnitude =
        largest(q_) * largest(k_) * config_.model.key_dim / std::sqrt(config_.model.key_dim);
    const double score =
        magnitude * (integers(config_.model.dtype)     ? 0x1p-15
                     : config_.model.dtype == PKV_BF16 ? 0x1p-16
                                                       : config_.model.key_dim * 0x1p-23) +
        1e-5;
    const double weights =
        (integers(config_.model.value_dtype) ? 0x1p-10 : 0) + (bf16_rows_ ? 0x1p-7 : 0);
    const double values = largest(v_.empty() ? k_ : is_latent() ? k_ : v_);
    const double tolerance = std::min(2.0, 4 * score + weights + 1e-4) * values + 1e-6;
    for (size_t i = 0; i < got.out.size(); i++) {
      if (any_result(i / config_.model.value_dim) ||
          (!std::isfinite(got.out[i]) && spreads(expected, i / config_.model.value_dim)))
        continue;
      ASSERT_EQ(std::isfinite(got.out[i]), std::isfinite(expected.out[i]))
          << pkv_isa_name(isa) << " output " << i << ": " << got.out[i] << ", " << expected.out[i];
      if (std::isfinite(got.out[i])) {
        ASSERT_NEAR(got.out[i], expected.out[i], tolerance) << pkv_isa_name(isa) << " output " << i;
      }
    }
    for (size_t i = 0; i < got.lse.size(); i++) {
      if (any_result(i)) continue;
      ASSERT_EQ(std::isnan(got.lse[i]), std::isnan(expected.lse[i]))
          << pkv_isa_name(isa) << " lse " << i;
      if (std::isfinite(expected.lse[i])) {
        ASSERT_NEAR(got.lse[i], expected.lse[i],
                    4 * score + 1e-4 * (1 + std::fabs(expected.lse[i])))
            << pkv_isa_name(isa) << " lse " << i;
      }
    }
  }

  // Integers have no product with infinity. Some ways of computing it give NaN, others the result
  // of IEEE 754.
  bool any_result(size_t row) const {
    const auto q = q_.begin() + static_cast<int64_t>(row * config_.model.key_dim);
    return integers(config_.model.dtype) &&
           !std::all_of(q, q + config_.model.key_dim, [](float x) { return std::isfinite(x); });
  }

  // The integers of int4 have one unit for all runs of 32 dims. So a run of V that is not finite
  // may spoil the whole row.
  bool spreads(const Result& expected, size_t row) const {
    const auto out = expected.out.begin() + static_cast<int64_t>(row * config_.model.value_dim);
    return config_.model.value_dtype == PKV_INT4 &&
           !std::all_of(out, out + config_.model.value_dim,
                        [](float x) { return std::isfinite(x); });
  }

  Source source_;
  bool special_ = false, bf16_rows_ = false;  // bf16_rows_: q and out are bf16.
  ModelConfig config_;
  AttentionParams params_;
  uint32_t past_ = 0, fresh_ = 1;
  uint64_t forks_ = 0;
  std::vector<float> k_, v_, q_, slopes_, logits_;
  std::vector<uint64_t> mask_;
  std::vector<int32_t> parents_;
  std::vector<int64_t> positions_;         // of new tokens with a mask of bits
  std::vector<uint32_t> windows_, sinks_;  // of KV heads
  std::vector<uint32_t> chosen_;           // by the scalar kernels
};
