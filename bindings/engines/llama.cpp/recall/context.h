// A llama_context, and the states of its sequences.
#pragma once

#include <array>
#include <optional>
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

  // Returns an empty sequence besides that one.
  std::optional<int32_t> empty_sequence(int32_t besides = -1) const;
  void empty(int32_t sequence) const;

  size_t state_size(int32_t sequence) const;
  // Reads the state of a sequence, or gives it to an empty one. Throws Failure with IO if llama.cpp
  // refuses; the sequence is then as it was.
  Buffer read(int32_t sequence) const;
  void write(int32_t sequence, const Buffer& state) const;
  // Lets another sequence have the cells of some positions, too. All sequences must share one
  // stream: then nothing is copied. Throws Failure with IO.
  void share(int32_t from, int32_t to, uint64_t first, uint64_t end) const;

  // What keys and values depend on besides the tokens.
  struct Identity {
    Shape shape;
    Fingerprint fingerprint;
  };
  // Decodes a few tokens in an empty sequence, and removes them.
  Identity identify(std::span<const std::byte> model_id) const;

 private:
  Form form() const;
  void decode(int32_t sequence, int32_t first, int32_t n) const;

  Host host_;
  Context* context_;
  Memory* memory_;
  const Model* model_;
};

}  // namespace pagedkv_llama
