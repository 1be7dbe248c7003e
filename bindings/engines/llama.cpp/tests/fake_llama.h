// A program that links fake_llama.cpp looks like llama.cpp to libpagedkv-llama: contexts whose
// keys, values and states are deterministic bytes, which depend on all tokens before them. What a
// context computes depends on what was restored, so it notices a wrong byte. Its functions can
// fail.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fake_state.h"

namespace fake {

// The kinds of memory: "tokens", "streams" (one for each of four sequences), "windows", "chunks",
// "hybrid", "recurrent". Their tensors have a few bytes, times `scale`.
Model model_of(const std::string& kind, uint32_t scale = 1);
extern const std::vector<std::string> kinds;

class Context {
 public:
  // All its memory is allocated here.
  Context(const Model& model, uint32_t sequences, uint32_t tokens);

  // Appends tokens to a sequence.
  void decode(int32_t sequence, std::span<const int32_t> tokens);
  // The token that follows a sequence, if all of its bytes are right.
  int32_t next(int32_t sequence) const;
  int32_t length(int32_t sequence) const { return of(sequence).length; }
  void clear(int32_t sequence) { of(sequence).length = 0; }
  void copy(int32_t from, int32_t to, int32_t first, int32_t end);
  // Whether all that a sequence has is what these tokens make.
  bool has(int32_t sequence, std::span<const int32_t> tokens) const;
  // All that a sequence has.
  Bytes all_of(int32_t sequence) const;

  // The k-th call from now on of a function that can fail does so, in one of some ways.
  void fail(uint64_t k, int way) { calls_until_fault_ = k, way_ = way, struck = false; }
  bool struck = false;
  static constexpr int ways = 4;
  // llama_memory_seq_cp does nothing, as for cells that belong to another context.
  bool ignores_copies = false;
  // Called while llama_state_seq_get_data_ext or llama_state_seq_set_data_ext runs, with the size
  // of the state.
  void (*watch)(size_t bytes) = nullptr;

  // What the functions of llama.cpp do.
  struct Batch {
    int32_t n;
    int32_t* token;
    float* embeddings;
    int32_t* position;
    int32_t* sequences;
    int32_t** sequence;
    int8_t* output;
  };
  bool fails();
  int way() const { return way_; }
  int32_t decode(const Batch& batch);
  int32_t first_position(int32_t sequence) const;
  int32_t last_position(int32_t sequence) const;
  size_t state_size(int32_t sequence) const;
  size_t get_state(int32_t sequence, void* to, size_t size);
  size_t set_state(int32_t sequence, const void* from, size_t size);
  uint32_t sequence_count() const { return static_cast<uint32_t>(sequences_.size()); }
  uint32_t capacity() const { return capacity_; }
  const Model& model() const { return model_; }

 private:
  struct Sequence {
    int32_t first = 0, length = 0;
    int32_t window_from = 0;  // the first position that the window still has
    Bytes cells, recurrent;
  };
  Sequence& of(int32_t sequence) { return sequences_[static_cast<size_t>(sequence)]; }
  const Sequence& of(int32_t sequence) const { return sequences_[static_cast<size_t>(sequence)]; }
  bool append(Sequence& to, int32_t position, int32_t token);
  uint64_t last_hash(const Sequence& of) const;
  void fill(Sequence& to, int32_t i, uint64_t hash);
  std::vector<uint32_t> positions_of(int32_t sequence) const;
  std::byte& at(Sequence& of, size_t cache, size_t tensor, size_t row, size_t position,
                size_t byte) const;

  const Model model_;
  const uint32_t capacity_;
  size_t cell_bytes_ = 0, recurrent_bytes_ = 0;
  std::vector<size_t> offsets_[3];  // of each tensor of each cache in a cell, and of recurrent ones
  std::vector<Sequence> sequences_;
  uint64_t calls_until_fault_ = 0;
  int way_ = 0;
};

// The token that follows these.
int32_t next_of(std::span<const int32_t> tokens);

}  // namespace fake
