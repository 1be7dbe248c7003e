// Measures the loss of text quality by stored types. A real model reads a text that it wrote
// itself, with its keys and values stored in each type.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "../support/data.h"
#include "../support/llama.h"
#include "../support/rows.h"

namespace cache_test::stored_type_quality_test {
namespace {

constexpr size_t text_length = 480;

// Returns the cost of each possible next token in bits: -log2 of its probability.
std::vector<double> bits_of(std::vector<double> logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - max);
  for (double& logit : logits) logit = (max + std::log(sum) - logit) / std::log(2.0);
  return logits;
}

// Draws one token from the model's own distribution.
int32_t draw(const std::vector<double>& bits, Random& random) {
  double left =
      static_cast<double>(random.below(uint64_t{1} << 52)) / static_cast<double>(uint64_t{1} << 52);
  for (size_t token = 0; token < bits.size(); token++)
    if ((left -= std::exp2(-bits[token])) < 0) return static_cast<int32_t>(token);
  return static_cast<int32_t>(bits.size() - 1);
}

struct Pair {
  pkv_dtype keys, values;
  std::string name() const {
    return keys == values ? name_of(keys) : std::string(name_of(keys)) + "/" + name_of(values);
  }
};

struct Measured {
  double logits = 0, attention = 0, bits = 0, divergence = 0;
};

class StoredTypeQuality : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto path = repository_data("tiny-shakespeare.bin");
    llama = new Llama<float>(path);
    const Llama<double> model(path);
    ReferenceLlama exact(model);
    Random random(2026);
    text.push_back(1);  // This token begins a text.
    while (text.size() <= text_length) {
      logits.push_back(exact.feed(std::span(&text.back(), 1)).back());
      bits.push_back(bits_of(logits.back()));
      text.push_back(draw(bits.back(), random));
    }
    layers = exact.layers;
  }
  static void TearDownTestSuite() {
    delete llama;
    llama = nullptr;
  }

  ModelConfig config(const Pair& pair, pkv_isa isa) const {
    Model model = llama->model(pair.keys);
    model.value_dtype = pair.values;
    ModelConfig config = config_of(model, 40);
    config.isa = isa;
    return config;
  }

  Measured measure(const Pair& pair, pkv_isa isa) const {
    Measured measured;
    CachedLlama cached(*llama, config(pair, isa));
    for (size_t t = 0; t < text_length; t++) {
      const std::vector<float> rounded = cached.feed(std::span(text).subspan(t, 1)).back();
      const std::vector<double> costs = bits_of({rounded.begin(), rounded.end()});
      for (size_t i = 0; i < costs.size(); i++) {
        measured.logits = std::max(measured.logits, std::abs(double{rounded[i]} - logits[t][i]));
        measured.divergence += std::exp2(-bits[t][i]) * (costs[i] - bits[t][i]) / text_length;
      }
      measured.bits += costs[static_cast<size_t>(text[t + 1])] / text_length;
    }
    measured.attention = attention_error(pair, isa);
    return measured;
  }

  // Computes attention over the exact keys and values, with the text as one prompt. Returns the
  // root of the sum of squared errors, relative to that of the squared outputs.
  double attention_error(const Pair& pair, pkv_isa isa) const {
    Cache cache = create(config(pair, isa));
    Session session = open(cache);
    double errors = 0, outputs = 0;
    Batch batch = begin(cache, {session}, {text_length});
    for (uint32_t layer = 0; layer < layers.size(); layer++) {
      const ReferenceLlama::Layer& at = layers[layer];
      std::vector<float> q(at.q.begin(), at.q.end()), k(at.k.begin(), at.k.end()),
          v(at.v.begin(), at.v.end()), out(q.size());
      const pkv_tensor queries = dense(q), keys = dense(k), values = dense(v), to = dense(out);
      CHECK(pkv_batch_write(batch, layer, &keys, &values));
      CHECK(pkv_batch_attend(batch, layer, nullptr, &queries, &to, nullptr));
      for (size_t i = 0; i < out.size(); i++) {
        errors += (double{out[i]} - at.out[i]) * (double{out[i]} - at.out[i]);
        outputs += at.out[i] * at.out[i];
      }
    }
    return std::sqrt(errors / outputs);
  }

  static inline Llama<float>* llama = nullptr;
  static inline std::vector<int32_t> text;
  // In double precision, for each position.
  static inline std::vector<std::vector<double>> logits, bits;
  static inline std::vector<ReferenceLlama::Layer> layers;
};

TEST_F(StoredTypeQuality, StaysWithinItsBoundsForEveryType) {
  double exact_bits = 0;
  for (size_t t = 0; t < text_length; t++)
    exact_bits += bits[t][static_cast<size_t>(text[t + 1])] / text_length;
  std::printf("bits per byte in double precision: %.5f\n%-9s %10s %10s %9s %10s %10s\n", exact_bits,
              "K/V", "logit", "attention", "bits/byte", "change", "KL, bits");
  // Bounds are about twice what was measured, because instruction sets round differently here and
  // there.
  struct Row {
    Pair pair;
    double logits, attention, divergence;
  };
  const Row rows[] = {{{PKV_F32, PKV_F32}, 4e-5, 8e-7, 1e-8},
                      {{PKV_F16, PKV_F16}, 0.013, 7e-4, 2e-7},
                      {{PKV_BF16, PKV_BF16}, 0.1, 6e-3, 1.3e-5},
                      {{PKV_INT8, PKV_INT8}, 0.4, 0.016, 1e-4},
                      {{PKV_FP8_E4M3, PKV_FP8_E4M3}, 1.4, 0.09, 3.2e-3},
                      {{PKV_FP8_E5M2, PKV_FP8_E5M2}, 4.2, 0.18, 0.014},
                      {{PKV_INT8, PKV_INT4}, 2.4, 0.2, 9e-3},
                      {{PKV_INT4, PKV_INT4}, 5.8, 0.3, 0.03}};
  double f32_bits = 0;
  for (const Row& row : rows) {
    const Measured found = measure(row.pair, PKV_ISA_AUTO);
    if (row.pair.keys == PKV_F32) f32_bits = found.bits;
    std::printf("%-9s %10.2g %10.2g %9.5f %+10.5f %10.2g\n", row.pair.name().c_str(), found.logits,
                found.attention, found.bits, found.bits - f32_bits, found.divergence);
    EXPECT_LE(found.logits, row.logits) << row.pair.name();
    EXPECT_LE(found.attention, row.attention) << row.pair.name();
    EXPECT_LE(found.divergence, row.divergence) << row.pair.name();
    // The text was drawn from the exact model. So the expected number of additional bits of a token
    // is the divergence, with a variance of about 2 / ln 2 times that. The mean over the text is
    // within four standard deviations, plus what fp32 adds.
    const double deviation = std::sqrt(2 / std::log(2.0) * found.divergence / text_length);
    EXPECT_LE(std::abs(found.bits - exact_bits - found.divergence), 4 * deviation + 1e-6)
        << row.pair.name();
  }
}

}  // namespace
}  // namespace cache_test::stored_type_quality_test
