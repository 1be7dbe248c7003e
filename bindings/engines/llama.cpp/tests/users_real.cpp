// Users of a real llama.cpp with a real model: "model", in $LLAMA_MODEL, computed by ggml's
// backends in the folder $LLAMA_BACKENDS. All keys and values must be near those that are computed
// without the library: a restored text is continued in batches of other sizes, which rounds
// differently.
#include <ggml-backend.h>
#include <llama.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "../recall/state.h"
#include "users.h"

namespace {

using pagedkv_llama::Buffer, pagedkv_llama::State;

// The largest error of a layer's keys or values in a block, as a part of their size. 0.06 was
// measured; where a token is another one, it is about 1.
constexpr double most_error = 0.2;
constexpr size_t block = 16;

void check(bool good, const char* what) {
  if (good) return;
  std::printf("%s failed\n", what);
  std::exit(1);
}

class Real : public Engine {
 public:
  Real() {
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    ggml_backend_load_all_from_path(std::getenv("LLAMA_BACKENDS"));
    model_ = llama_model_load_from_file(std::getenv("LLAMA_MODEL"), llama_model_default_params());
    check(model_ != nullptr, "loading the model");
    llama_context_params params = llama_context_default_params();
    params.n_seq_max = sequences + 2;  // one to compute what is right, and one for pieces
    params.n_ctx = longest * params.n_seq_max;
    params.n_batch = params.n_ubatch = 256;
    params.kv_unified = true;
    params.n_threads = params.n_threads_batch = 2;
    context_ = llama_init_from_model(model_, params);
    check(context_ != nullptr, "making a context");
    batch_ = llama_batch_init(256, 0, 1);
    const Text text(longest, 1);  // so that all is allocated
    decode(0, text, 0), clear(0);
  }
  ~Real() override {
    llama_batch_free(batch_);
    llama_free(context_);
    llama_model_free(model_);
  }

  void* context() override { return context_; }
  void clear(int32_t sequence) override {
    llama_memory_seq_rm(llama_get_memory(context_), sequence, -1, -1);
  }
  void decode(int32_t sequence, std::span<const int32_t> text, size_t first) override {
    while (first < text.size()) {
      for (batch_.n_tokens = 0; first < text.size() && batch_.n_tokens < 256; first++) {
        const int32_t row = batch_.n_tokens++;
        batch_.token[row] = text[first], batch_.pos[row] = static_cast<int32_t>(first);
        batch_.n_seq_id[row] = 1, batch_.seq_id[row][0] = sequence;
        batch_.logits[row] = 0;
      }
      check(llama_decode(context_, batch_) == 0, "llama_decode");
    }
  }
  bool has(int32_t sequence, std::span<const int32_t> text) override {
    const int64_t last = llama_memory_seq_pos_max(llama_get_memory(context_), sequence);
    return last + 1 == static_cast<int64_t>(text.size());
  }
  bool is_right(int32_t sequence, std::span<const int32_t> text) override {
    constexpr int32_t computed = sequences;
    clear(computed), decode(computed, text, 0);
    const Buffer all = read(sequence), right = read(computed);
    clear(computed);
    const State a(all.bytes(), sequence, {}), b(right.bytes(), computed, {});
    if (a.shape() != b.shape() || a.tokens() != text.size()) return false;
    bool good = true;
    std::vector<std::byte> blocks[2];
    for (auto& one : blocks) one.resize(block * a.shape().token_bytes());
    for (size_t first = 0; first < text.size(); first += block) {
      const size_t n = std::min(block, text.size() - first);
      a.cut(first, n, block, blocks[0].data()), b.cut(first, n, block, blocks[1].data());
      size_t at = 0;
      for (const auto& tensor : a.shape().caches.front().tensors) {
        good = good && error(&blocks[0][at], &blocks[1][at], n * tensor.element_bytes) < most_error;
        at += block * tensor.element_bytes;
      }
    }
    return good;
  }

 private:
  Buffer read(int32_t sequence) {
    Buffer state(llama_state_seq_get_size_ext(context_, sequence, 0));
    const auto bytes = state.bytes();
    check(llama_state_seq_get_data_ext(context_, reinterpret_cast<uint8_t*>(bytes.data()),
                                       bytes.size(), sequence, 0) == bytes.size(),
          "reading a state");
    return state;
  }
  static double error(const std::byte* a, const std::byte* b, size_t bytes) {
    const auto* const x = reinterpret_cast<const ggml_fp16_t*>(a);
    const auto* const y = reinterpret_cast<const ggml_fp16_t*>(b);
    double error = 0, all = 0;
    for (size_t i = 0; i < bytes / sizeof *x; i++) {
      const double right = ggml_fp16_to_fp32(y[i]), difference = ggml_fp16_to_fp32(x[i]) - right;
      error += difference * difference, all += right * right;
    }
    return std::sqrt(error / all);
  }

  llama_model* model_;
  llama_context* context_;
  llama_batch batch_;
};

}  // namespace

const uint64_t bytes_for_users = 48 << 20;
std::vector<std::string> engine_kinds() { return {"model"}; }
std::unique_ptr<Engine> make_engine(const std::string&) { return std::make_unique<Real>(); }
