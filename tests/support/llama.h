// A small Llama from a checkpoint in the llama2.c layout, whose forward pass leaves attention to
// the caller. There are two kinds of attention: ReferenceLlama computes it by its definition over
// keys and values that it keeps in vectors, and CachedLlama lets a cache of the library do it.
#pragma once

#include <cmath>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <vector>

#include "cache.h"

namespace cache_test {

template <class Real>
class Llama {
 public:
  using Vector = std::vector<Real>;

  explicit Llama(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    int32_t header[7];
    if (!file.read(reinterpret_cast<char*>(header), sizeof header))
      throw std::runtime_error("no checkpoint at " + path.string());
    const auto size = [&](int i) { return static_cast<uint32_t>(header[i]); };
    dim_ = size(0), hidden_ = size(1), layers_ = size(2), heads_ = size(3), kv_heads_ = size(4),
    vocabulary_ = size(5);
    const uint32_t kv_dim = kv_heads_ * head_dim();
    for (const auto& [tensor, count] : {std::pair(&embedding_, vocabulary_ * dim_),
                                        {&attention_norm_, layers_ * dim_},
                                        {&wq_, layers_ * dim_ * dim_},
                                        {&wk_, layers_ * dim_ * kv_dim},
                                        {&wv_, layers_ * dim_ * kv_dim},
                                        {&wo_, layers_ * dim_ * dim_},
                                        {&ffn_norm_, layers_ * dim_},
                                        {&w1_, layers_ * dim_ * hidden_},
                                        {&w2_, layers_ * dim_ * hidden_},
                                        {&w3_, layers_ * dim_ * hidden_},
                                        {&final_norm_, dim_}}) {
      std::vector<float> read(count);
      if (!file.read(reinterpret_cast<char*>(read.data()),
                     static_cast<std::streamsize>(count * sizeof(float))))
        throw std::runtime_error("the checkpoint is cut short");
      tensor->assign(read.begin(), read.end());
    }
  }

  uint32_t head_dim() const { return dim_ / heads_; }
  uint32_t layers() const { return layers_; }
  Model model(pkv_dtype dtype) const { return {layers_, heads_, kv_heads_, head_dim(), 0, dtype}; }

  // Returns the logits of every token of a chunk whose first token has position `first`.
  // attend(layer, q, k, v) gets rows [tokens][heads][head_dim] and returns the output of attention
  // in the shape of q.
  template <class Attend>
  std::vector<Vector> forward(std::span<const int32_t> tokens, uint64_t first,
                              const Attend& attend) const {
    const size_t n = tokens.size();
    const uint32_t kv_dim = kv_heads_ * head_dim();
    Vector x(n * dim_);
    for (size_t t = 0; t < n; t++)
      std::copy_n(&embedding_[static_cast<size_t>(tokens[t]) * dim_], dim_, &x[t * dim_]);
    for (uint32_t layer = 0; layer < layers_; layer++) {
      const size_t square = size_t{layer} * dim_ * dim_, narrow = size_t{layer} * dim_ * kv_dim,
                   wide = size_t{layer} * dim_ * hidden_;
      const Vector normed = norm(x, &attention_norm_[size_t{layer} * dim_]);
      Vector q = multiply(normed, &wq_[square], dim_, dim_),
             k = multiply(normed, &wk_[narrow], dim_, kv_dim);
      const Vector v = multiply(normed, &wv_[narrow], dim_, kv_dim);
      rotate(q, dim_, first);
      rotate(k, kv_dim, first);
      add(x, multiply(attend(layer, q, k, v), &wo_[square], dim_, dim_));

      const Vector inner = norm(x, &ffn_norm_[size_t{layer} * dim_]);
      Vector gate = multiply(inner, &w1_[wide], dim_, hidden_);
      const Vector up = multiply(inner, &w3_[wide], dim_, hidden_);
      for (size_t i = 0; i < gate.size(); i++) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
      add(x, multiply(gate, &w2_[wide], hidden_, dim_));
    }
    const Vector all = multiply(norm(x, final_norm_.data()), embedding_.data(), dim_, vocabulary_);
    std::vector<Vector> logits;
    for (size_t t = 0; t < n; t++)
      logits.emplace_back(all.begin() + static_cast<int64_t>(t * vocabulary_),
                          all.begin() + static_cast<int64_t>((t + 1) * vocabulary_));
    return logits;
  }

  // Computes causal attention by its definition. q has the last rows of the sequence.
  Vector textbook_attention(const Vector& q, const Vector& k, const Vector& v) const {
    const uint32_t size = head_dim(), heads_per_kv_head = heads_ / kv_heads_,
                   kv_dim = kv_heads_ * size;
    const size_t before = k.size() / kv_dim - q.size() / dim_;
    Vector out(q.size());
    for (size_t t = 0; t < q.size() / dim_; t++) {
      for (uint32_t h = 0; h < heads_; h++) {
        const Real* const query = &q[t * dim_ + h * size];
        Vector weights(before + t + 1);
        Real max = -INFINITY, total = 0;
        for (size_t j = 0; j < weights.size(); j++) {
          for (uint32_t d = 0; d < size; d++)
            weights[j] += query[d] * k[j * kv_dim + h / heads_per_kv_head * size + d];
          weights[j] /= std::sqrt(static_cast<Real>(size));
          max = std::max(max, weights[j]);
        }
        for (Real& weight : weights) total += weight = std::exp(weight - max);
        for (size_t j = 0; j < weights.size(); j++)
          for (uint32_t d = 0; d < size; d++)
            out[t * dim_ + h * size + d] +=
                weights[j] / total * v[j * kv_dim + h / heads_per_kv_head * size + d];
      }
    }
    return out;
  }

 private:
  // Adds up lanes, because one sum would wait for each addition before the next.
  static Real product(const Real* a, const Real* b, uint32_t n) {
    typedef Real Lanes __attribute__((vector_size(16), aligned(alignof(Real)), may_alias));
    constexpr uint32_t lanes = sizeof(Lanes) / sizeof(Real);
    Lanes even{}, odd{};
    uint32_t i = 0;
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      even += *reinterpret_cast<const Lanes*>(a + i) * *reinterpret_cast<const Lanes*>(b + i);
      odd += *reinterpret_cast<const Lanes*>(a + i + lanes) *
             *reinterpret_cast<const Lanes*>(b + i + lanes);
    }
    Real sum = 0;
    for (uint32_t lane = 0; lane < lanes; lane++) sum += even[lane] + odd[lane];
    for (; i < n; i++) sum += a[i] * b[i];
    return sum;
  }

  // Multiplies the rows of x by a matrix [outputs][inputs].
  static Vector multiply(const Vector& x, const Real* matrix, uint32_t inputs, uint32_t outputs) {
    const size_t rows = x.size() / inputs;
    Vector result(rows * outputs);
    for (size_t r = 0; r < rows; r++) {
      for (uint32_t o = 0; o < outputs; o++) {
        result[r * outputs + o] = product(&x[r * inputs], matrix + size_t{o} * inputs, inputs);
      }
    }
    return result;
  }

  Vector norm(const Vector& x, const Real* weight) const {
    Vector result(x.size());
    for (size_t row = 0; row < x.size(); row += dim_) {
      Real squares = 0;
      for (uint32_t i = 0; i < dim_; i++) squares += x[row + i] * x[row + i];
      const Real factor =
          1 / std::sqrt(squares / static_cast<Real>(dim_) + static_cast<Real>(1e-5));
      for (uint32_t i = 0; i < dim_; i++) result[row + i] = x[row + i] * factor * weight[i];
    }
    return result;
  }

  // Rotates interleaved pairs by their positions (RoPE).
  void rotate(Vector& rows, uint32_t width, uint64_t first) const {
    for (size_t i = 0; i < rows.size(); i += 2) {
      const double position = static_cast<double>(first + i / width);
      const double angle =
          position * std::pow(10000.0, -static_cast<double>(i % width % head_dim()) / head_dim());
      const Real cosine = static_cast<Real>(std::cos(angle)),
                 sine = static_cast<Real>(std::sin(angle)), even = rows[i], odd = rows[i + 1];
      rows[i] = even * cosine - odd * sine;
      rows[i + 1] = even * sine + odd * cosine;
    }
  }

  static void add(Vector& x, const Vector& more) {
    for (size_t i = 0; i < x.size(); i++) x[i] += more[i];
  }

  uint32_t dim_, hidden_, layers_, heads_, kv_heads_, vocabulary_;
  Vector embedding_, attention_norm_, wq_, wk_, wv_, wo_, ffn_norm_, w1_, w2_, w3_, final_norm_;
};

// The model without a cache of the library, in double precision. It keeps what attention was given
// and what it returned in each layer.
class ReferenceLlama {
 public:
  struct Layer {
    std::vector<double> q, k, v, out;
  };

  explicit ReferenceLlama(const Llama<double>& llama) : layers(llama.layers()), llama_(llama) {}

  // Feeds the next tokens of a text and returns the logits of each.
  std::vector<std::vector<double>> feed(std::span<const int32_t> tokens) {
    const uint64_t first = std::exchange(length_, length_ + tokens.size());
    return llama_.forward(tokens, first,
                          [&](uint32_t layer, const auto& q, const auto& k, const auto& v) {
                            Layer& kept = layers[layer];
                            append(kept.q, q), append(kept.k, k), append(kept.v, v);
                            std::vector<double> out = llama_.textbook_attention(q, kept.k, kept.v);
                            append(kept.out, out);
                            return out;
                          });
  }

  std::vector<Layer> layers;

 private:
  static void append(std::vector<double>& to, const std::vector<double>& more) {
    to.insert(to.end(), more.begin(), more.end());
  }

  const Llama<double>& llama_;
  uint64_t length_ = 0;
};

inline pkv_tensor dense(std::vector<float>& rows) {
  return {rows.data(), PKV_F32, 0, 0, 0, 0, 4 * rows.size()};
}

// The model over a cache of the library, with one session.
class CachedLlama {
 public:
  CachedLlama(const Llama<float>& llama, pkv_cache_config config)
      : llama_(llama), cache_(create(config)), session_(open(cache_)) {}

  // Feeds the next tokens of a text and returns the logits of each.
  std::vector<std::vector<float>> feed(std::span<const int32_t> tokens) {
    const uint64_t first = length_of(session_);
    Batch batch = begin(cache_, {session_}, {static_cast<uint32_t>(tokens.size())});
    auto logits = llama_.forward(
        tokens, first,
        [&](uint32_t layer, std::vector<float>& q, std::vector<float>& k, std::vector<float> v) {
          std::vector<float> out(q.size());
          const pkv_tensor queries = dense(q), keys = dense(k), values = dense(v),
                           outputs = dense(out);
          CHECK(pkv_batch_write(batch, layer, &keys, &values));
          CHECK(pkv_batch_attend(batch, layer, nullptr, &queries, &outputs, nullptr));
          return out;
        });
    commit(batch, tokens);
    return logits;
  }

 private:
  const Llama<float>& llama_;
  Cache cache_;
  Session session_;
};

}  // namespace cache_test
