// Structs of the C interface with their defaults, and with what they point to in the same object.
#pragma once

#include <pagedkv/experimental.h>
#include <pagedkv/pagedkv.h>

#include <span>
#include <string_view>
#include <vector>

// Fields that a designated initializer of C++ leaves out are zero, as in C.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

// Returns a struct with its size and these fields; the others have their defaults, zeros.
template <class Struct>
Struct made(Struct value = {}) {
  value.struct_size = sizeof value;
  return value;
}

// A text as an argument of a call.
class TextArg {
 public:
  TextArg(std::span<const int32_t> tokens, std::string_view salt = {})
      : text_{sizeof text_, 0, salt.data(), salt.size(), tokens.data(), tokens.size()} {}
  operator const pkv_prompt*() const { return &text_; }

 private:
  pkv_prompt text_;
};

// Returns a stream of a buffer.
inline pkv_stream buffer_stream(void* data, uint64_t size) {
  return made<pkv_stream>({.kind = PKV_STREAM_BUFFER, .data = data, .size = size});
}

// Returns the description of sequences whose block tables, of one length, lie one behind the other.
inline pkv_kv_sequences sequences_of(uint32_t query_heads, const std::vector<uint32_t>& queries,
                                     const std::vector<uint64_t>& lengths,
                                     const std::vector<uint32_t>& tables) {
  return made<pkv_kv_sequences>(
      {.query_heads = query_heads,
       .count = queries.size(),
       .query_lengths = queries.data(),
       .kv_lengths = lengths.data(),
       .block_tables = tables.data(),
       .block_table_stride = queries.empty() ? 0 : tables.size() / queries.size()});
}

// Adds tokens to a session in a step of its own, with the same rows in every layer. If the step is
// refused, it is aborted.
inline pkv_status append(pkv_cache cache, pkv_session session, uint32_t tokens, uint32_t layers,
                         const pkv_tensor* k, const pkv_tensor* v) {
  pkv_batch batch = nullptr;
  pkv_status status = pkv_batch_begin(cache, 1, &session, &tokens, &batch);
  if (status != PKV_OK) return status;
  for (uint32_t layer = 0; layer < layers && status == PKV_OK; layer++)
    status = pkv_batch_write(batch, layer, k, v);
  if (status == PKV_OK) status = pkv_batch_commit(batch, 0, nullptr);
  if (status != PKV_OK) pkv_batch_abort(batch);
  return status;
}

// The config of a cache whose model is one group, which lies in this object. (A copy of the base
// alone would keep the address of the group.)
struct ModelConfig : pkv_cache_config {
  pkv_layer_group model = made<pkv_layer_group>();

  ModelConfig() : pkv_cache_config(made<pkv_cache_config>()) { groups = &model; }
  ModelConfig(const ModelConfig& other) : pkv_cache_config(other), model(other.model) {
    adopt(other);
  }
  ModelConfig& operator=(const ModelConfig& other) {
    static_cast<pkv_cache_config&>(*this) = other;
    model = other.model;
    adopt(other);
    return *this;
  }

 private:
  void adopt(const ModelConfig& other) {
    if (groups == &other.model) groups = &model;
  }
};

// Attention parameters, with the structs that they point to, and the outputs that are wanted with
// them, in this object.
struct AttentionParams : pkv_attention_params {
  pkv_mask own_mask = made<pkv_mask>();
  pkv_chosen_blocks own_blocks = made<pkv_chosen_blocks>();
  pkv_attention_outputs outputs = made<pkv_attention_outputs>({.block_outputs = &block_outputs});
  pkv_block_outputs block_outputs = made<pkv_block_outputs>();

  AttentionParams() : pkv_attention_params(made<pkv_attention_params>()) {}
  AttentionParams(const AttentionParams& other)
      : pkv_attention_params(other),
        own_mask(other.own_mask),
        own_blocks(other.own_blocks),
        outputs(other.outputs),
        block_outputs(other.block_outputs) {
    adopt(other);
  }
  AttentionParams& operator=(const AttentionParams& other) {
    static_cast<pkv_attention_params&>(*this) = other;
    own_mask = other.own_mask;
    own_blocks = other.own_blocks;
    outputs = other.outputs;
    block_outputs = other.block_outputs;
    adopt(other);
    return *this;
  }

  // A mask of new tokens in words.
  void see_bits(const uint64_t* words, int64_t row_stride) {
    see(PKV_MASK_TREE_BITS, words).row_stride = row_stride;
  }
  // A tree of new tokens.
  void see_tree(const int32_t* parents) { see(PKV_MASK_TREE_PARENTS, parents); }
  // A mask of bytes, whose strides and columns the caller sets.
  pkv_mask& see_bytes(const uint8_t* bytes) { return see(PKV_MASK_BYTES, bytes); }
  // An additive mask of f32, or of another kind that the caller sets.
  pkv_mask& add_mask(const void* numbers) { return see(PKV_MASK_F32, numbers); }
  // Queries choose `top_blocks` blocks; one first and one last block are read, too.
  pkv_chosen_blocks& choose(uint32_t top) {
    pkv_chosen_blocks& blocks = read_blocks();
    blocks.top_blocks = top;
    return blocks;
  }
  // Queries read the blocks of lists; one first and one last block are read, too.
  pkv_chosen_blocks& choose(const uint32_t* lists, uint32_t list_blocks) {
    pkv_chosen_blocks& blocks = read_blocks();
    blocks.lists = lists;
    blocks.list_blocks = list_blocks;
    return blocks;
  }
  void weigh(float* masses, uint64_t blocks) {
    block_outputs.masses = masses;
    block_outputs.mass_blocks = blocks;
  }

 private:
  pkv_mask& see(pkv_mask_kind kind, const void* data) {
    own_mask = made<pkv_mask>();
    own_mask.kind = kind;
    own_mask.data = data;
    mask = &own_mask;
    return own_mask;
  }
  pkv_chosen_blocks& read_blocks() {
    own_blocks = made<pkv_chosen_blocks>();
    own_blocks.first_blocks = own_blocks.last_blocks = 1;
    chosen_blocks = &own_blocks;
    return own_blocks;
  }
  void adopt(const AttentionParams& other) {
    if (mask == &other.own_mask) mask = &own_mask;
    if (chosen_blocks == &other.own_blocks) chosen_blocks = &own_blocks;
    if (outputs.block_outputs == &other.block_outputs) outputs.block_outputs = &block_outputs;
  }
};
