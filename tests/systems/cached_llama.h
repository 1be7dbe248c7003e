// Runs a model over a cache: one session that is fed chunk by chunk.
#pragma once

#include "support.h"
#include "tiny_llama.h"

namespace systems {

class Cached {
 public:
  Cached(const TinyLlama<float>& llama, pkv_cache_config config)
      : llama_(llama), cache_(create(config)), session_(open(cache_)) {}

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
          CHECK(pkv_batch_attend(batch, layer, nullptr, &queries, &outputs));
          return out;
        });
    commit(batch, tokens.data());
    return logits;
  }

 private:
  static pkv_tensor dense(std::vector<float>& rows) { return {rows.data(), PKV_F32, 0, 0, 0}; }

  const TinyLlama<float>& llama_;
  Cache cache_;
  Session session_;
};

}  // namespace systems
