// The llama.cpp of the users in users.cpp: a fake one, or a real one with a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

using Text = std::vector<int32_t>;

// A context with `sequences` sequences.
class Engine {
 public:
  static constexpr int32_t sequences = 4;
  static constexpr uint32_t longest = 1000;  // tokens of a sequence

  virtual ~Engine() = default;
  virtual void* context() = 0;
  virtual void clear(int32_t sequence) = 0;
  // Appends tokens from the first-th of a text on, which the sequence lacks.
  virtual void decode(int32_t sequence, std::span<const int32_t> text, size_t first) = 0;
  // Whether a sequence that was restored has a text, as far as is seen before it is continued.
  virtual bool has(int32_t sequence, std::span<const int32_t> text) = 0;
  // Whether a sequence continues as one that has computed all of this text.
  virtual bool is_right(int32_t sequence, std::span<const int32_t> text) = 0;
};

// The kinds of memory that there are.
std::vector<std::string> engine_kinds();
std::unique_ptr<Engine> make_engine(const std::string& kind);
// How many bytes a memory may have that is too small for all users.
extern const uint64_t bytes_for_users;
// An engine calls it while it copies a state of that size.
void check_memory_with_state(size_t bytes);
