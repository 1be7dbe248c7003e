// A llama_context, and the states of its sequences.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "host.h"
#include "state.h"

namespace pagedkv_llama {

using Fingerprint = std::array<unsigned char, 16>;

class LlamaContext {
 public:
  // Throws Failure with UNSUPPORTED if its memory is something else.
  LlamaContext(void* context, void* library);

  // Throws Failure with INVALID_ARGUMENT unless the sequence exists.
  void check_sequence(int32_t sequence) const;
  // Returns whether the last token of a sequence is the n-th one, as far as is seen without a copy
  // of its state.
  bool has(int32_t sequence, uint64_t n) const;
  // How many tokens a sequence can have.
  uint32_t room() const { return host_.n_ctx_seq(context_); }

  // Reads the state of a sequence, or gives it to an empty one. Throws Failure with IO if llama.cpp
  // refuses; the sequence is then as it was.
  Buffer read(int32_t sequence) const;
  void write(int32_t sequence, const Buffer& state) const;

  // What keys and values depend on besides the tokens.
  struct Identity {
    Shape shape;
    Fingerprint fingerprint;
  };
  // Decodes a few tokens in an empty sequence, and removes them.
  Identity identify(std::span<const std::byte> model_id) const;

 private:
  Form form() const;
  int32_t empty_sequence() const;
  void decode(int32_t sequence, int32_t first, int32_t n) const;

  Host host_;
  Context* context_;
  Memory* memory_;
  const Model* model_;
};

}  // namespace pagedkv_llama
