// Shared by tests of misuse: checks that end a child process, memory that counts and refuses, hooks
// that call back.
#pragma once

#include <pagedkv/pagedkv.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "../support/enums.h"
#include "../support/isa.h"
#include "../support/made.h"
#include "../support/memory.h"

namespace hostile {

// A check that failed. It is thrown because checks run in forked children, where GoogleTest cannot
// report.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

#ifdef __MINGW32__
#define HOSTILE_FORMAT gnu_printf
#else
#define HOSTILE_FORMAT printf
#endif
std::string format(const char* text, ...) __attribute__((format(HOSTILE_FORMAT, 1, 2)));

#define HOSTILE_CHECK(condition, ...)                                     \
  do {                                                                    \
    if (!(condition))                                                     \
      throw hostile::Failure(std::string(#condition " does not hold: ") + \
                             hostile::format(__VA_ARGS__));               \
  } while (0)

// Throws unless the call returned `wanted`. After an error the sentence must have a number or a
// name in it.
void expect(pkv_status wanted, pkv_status got, const char* what);
inline thread_local uint64_t operations = 0;  // checked by this thread
#define WANT(status, call) hostile::expect(status, call, #call)
#define OK(call) hostile::expect(PKV_OK, call, #call)

// Returns true if the sentence of pkv_last_error() says something: it has a number, or one of the
// words that name something.
bool sentence_tells(const std::string& sentence);

// Runs a body in a forked child. Returns "" if the body returned, and otherwise what failed or the
// name of the signal.
std::string in_child(const std::function<void()>& body, unsigned seconds = 300);

// Runs bodies one after another, in the same forked child until one fails, and returns what
// in_child() would return for each. `seconds` is the limit of one body.
std::vector<std::string> in_children(const std::vector<std::function<void()>>& bodies,
                                     unsigned seconds = 300);

// ---- Memory of this program -----------------------------------------------------------------

// Returns how many blocks of operator new are not freed yet, over the whole process, the library
// included.
inline int64_t live_news() { return memory::news.load(); }

// Makes the k-th operator new of this thread from now on fail, and all after it, while it lives.
using FailingNew = memory::Refusal;

// Allocator hooks that count what they gave out, can refuse, and can call back.
class Hooks {
 public:
  Hooks();
  Hooks(const Hooks&) = delete;
  Hooks& operator=(const Hooks&) = delete;

  const pkv_allocator* allocator() const { return &allocator_; }
  const pkv_logger* logger() const { return &logger_; }
  int64_t live() const { return live_.load(); }
  uint64_t lines() const { return lines_.load(); }
  // Returns true if each block came back with the size and the alignment that it was asked for
  // with.
  bool sound() const { return sound_.load(); }

  // The number of the allocation from now on that is refused, with all after it. 0 refuses none.
  std::atomic<uint64_t> fail_at{0};
  // An allocation was refused.
  std::atomic<bool> struck{false};
  // Runs inside each allocation. It is set while no call is in progress.
  std::function<void()> inside;
  // Runs inside each free.
  std::function<void()> inside_free;
  std::function<void()> inside_log;

 private:
  static void* alloc(void* user, size_t size, size_t alignment);
  static void free(void* user, void* memory, size_t size, size_t alignment);
  static void log(void* user, pkv_log_level level, const char* message);

  pkv_allocator allocator_;
  pkv_logger logger_;
  std::atomic<int64_t> live_{0};
  std::atomic<uint64_t> lines_{0};
  std::atomic<bool> sound_{true};
};

// ---- The small model ------------------------------------------------------------------------

// Returns a small model: 2 layers, 4 query heads, 2 KV heads, dim 16, f32, blocks of 16 tokens, one
// thread.
ModelConfig small_model(uint64_t blocks, const Hooks* hooks = nullptr);

inline constexpr uint32_t layers = 2, query_heads = 4, kv_heads = 2, dim = 16, block_size = 16;
inline constexpr size_t kv_floats = size_t{kv_heads} * dim, q_floats = size_t{query_heads} * dim;

inline pkv_tensor tensor(const void* data, pkv_dtype dtype = PKV_F32) {
  return {const_cast<void*>(data), dtype, 0, 0, 0, 0, 0};
}

// Returns n numbers in [-1, 1) that depend on `seed` only.
std::vector<float> numbers(size_t n, uint64_t seed);

// Runs one whole step over sessions: begin, write each layer with numbers of `seed`, attend,
// commit. Returns the outputs of all layers.
std::vector<float> step(pkv_cache cache, const std::vector<pkv_session>& sessions,
                        const std::vector<uint32_t>& new_tokens, uint64_t seed);

pkv_cache_stats stats_of(pkv_cache cache);
pkv_pool_stats pool_stats_of(pkv_cache cache);  // over all groups
uint64_t length_of(pkv_session session);

}  // namespace hostile
