// The functions of llama.cpp that are used. They are found in the process, by name.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pagedkv_llama {

struct Context;
struct Memory;
struct Model;
struct Vocabulary;

// llama_batch.
struct Tokens {
  int32_t n;
  int32_t* token;
  float* embeddings;
  int32_t* position;
  int32_t* sequences;
  int32_t** sequence;
  int8_t* output;
};

// Each one is called llama_NAME there.
#define PAGEDKV_LLAMA_FUNCTIONS(X)                                                            \
  X(get_model, const Model*, (const Context*))                                                \
  X(get_memory, Memory*, (const Context*))                                                    \
  X(n_ctx_seq, uint32_t, (const Context*))                                                    \
  X(n_batch, uint32_t, (const Context*))                                                      \
  X(n_seq_max, uint32_t, (const Context*))                                                    \
  X(model_is_recurrent, bool, (const Model*))                                                 \
  X(model_is_hybrid, bool, (const Model*))                                                    \
  X(model_has_encoder, bool, (const Model*))                                                  \
  X(model_n_swa, int32_t, (const Model*))                                                     \
  X(model_rope_type, int32_t, (const Model*))                                                 \
  X(model_n_ctx_train, int32_t, (const Model*))                                               \
  X(model_get_vocab, const Vocabulary*, (const Model*))                                       \
  X(vocab_n_tokens, int32_t, (const Vocabulary*))                                             \
  X(model_desc, int32_t, (const Model*, char* text, size_t size))                             \
  X(model_size, uint64_t, (const Model*))                                                     \
  X(model_meta_count, int32_t, (const Model*))                                                \
  X(model_meta_key_by_index, int32_t, (const Model*, int32_t i, char* text, size_t size))     \
  X(model_meta_val_str_by_index, int32_t, (const Model*, int32_t i, char* text, size_t size)) \
  X(batch_init, Tokens, (int32_t tokens, int32_t embedding, int32_t sequences))               \
  X(batch_free, void, (Tokens))                                                               \
  X(decode, int32_t, (Context*, Tokens))                                                      \
  X(memory_seq_pos_min, int32_t, (Memory*, int32_t sequence))                                 \
  X(memory_seq_pos_max, int32_t, (Memory*, int32_t sequence))                                 \
  X(memory_seq_rm, bool, (Memory*, int32_t sequence, int32_t first, int32_t end))             \
  X(memory_seq_cp, void, (Memory*, int32_t from, int32_t to, int32_t first, int32_t end))     \
  X(state_seq_get_size_ext, size_t, (Context*, int32_t sequence, uint32_t flags))             \
  X(state_seq_get_data_ext, size_t,                                                           \
    (Context*, void* to, size_t, int32_t sequence, uint32_t flags))                           \
  X(state_seq_set_data_ext, size_t,                                                           \
    (Context*, const void* from, size_t, int32_t sequence, uint32_t flags))

struct Host {
  // Finds all functions in a library that dlopen returned, or if it is NULL in the process. Throws
  // Failure with UNSUPPORTED.
  explicit Host(void* library);

#define PAGEDKV_DECLARE(name, result, arguments) result(*name) arguments;
  PAGEDKV_LLAMA_FUNCTIONS(PAGEDKV_DECLARE)
#undef PAGEDKV_DECLARE
};

}  // namespace pagedkv_llama
