// Shared by the benchmarks: checked calls, and a one-layer cache with sessions full of random rows.
#pragma once

#include <benchmark/benchmark.h>
#include <pagedkv/pagedkv.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "../tests/support/made.h"

namespace pkv::bench {

using Clock = std::chrono::steady_clock;

inline void check(pkv_status status) {
  if (status == PKV_OK) return;
  std::fprintf(stderr, "%s: %s\n", pkv_status_string(status), pkv_last_error());
  std::exit(1);
}

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Geometry {
  pkv_dtype dtype = PKV_BF16;
  uint32_t group = 4, kv_heads = 8, dim = 128;
  uint32_t sessions = 8, tokens = 4096;
  uint32_t extra = 128;  // tokens of room per session
  uint32_t block_size = 16;
  uint32_t threads = 0;
  pkv_isa isa = PKV_ISA_AUTO;
  pkv_layout layout = PKV_LAYOUT_PACKED;
  pkv_rotation rotation = PKV_ROTATION_NONE;
  const char* memory_directory = nullptr;

  uint32_t query_heads() const { return group * kv_heads; }
  // As they are stored, scales included.
  uint64_t kv_bytes() const;
  // With the room for more.
  uint64_t total_bytes() const;
  std::string name() const;
};

const char* dtype_name(pkv_dtype dtype);

// Creates a cache that keeps no rows, for what a prefix index costs by itself.
pkv_cache create_ids_only(uint32_t block_size, uint64_t blocks, const pkv_prefix_config& prefix,
                          const pkv_allocator* allocator = nullptr);

class Rows {
 public:
  Rows(size_t rows, uint32_t heads, uint32_t dim, pkv_dtype dtype = PKV_F32);
  const pkv_tensor* tensor() const { return &tensor_; }

 private:
  std::vector<unsigned char> bytes_;
  pkv_tensor tensor_;
};

class Filled {
 public:
  explicit Filled(const Geometry& geometry, bool prefilled = true);
  ~Filled() { check(pkv_cache_destroy(cache_)); }
  Filled(const Filled&) = delete;
  Filled& operator=(const Filled&) = delete;

  pkv_cache cache() const { return cache_; }
  std::vector<pkv_session>& sessions() { return sessions_; }
  pkv_batch begin(uint32_t new_tokens);

 private:
  pkv_cache cache_ = nullptr;
  std::vector<pkv_session> sessions_;
};

// A step of all sessions, written and ready to attend; aborted at its end.
class Step {
 public:
  Step(const Geometry& geometry, Filled& filled, uint32_t new_tokens);
  ~Step() { check(pkv_batch_abort(batch_)); }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  void write() { check(pkv_batch_write(batch_, 0, kv_.tensor(), kv_.tensor())); }
  void attend(const pkv_attention_params* params = nullptr) {
    check(pkv_batch_attend(batch_, 0, params, q_.tensor(), out_.tensor()));
  }

 private:
  Rows kv_, q_, out_;
  pkv_batch batch_;
};

// Queries choose blocks such that they read one of `part` blocks in all.
inline pkv_chosen_blocks chosen_part(const Geometry& geometry, uint32_t part) {
  auto chosen = made<pkv_chosen_blocks>();
  chosen.first = chosen.last = 1;
  chosen.top = geometry.tokens / geometry.block_size / part - chosen.first - chosen.last;
  return chosen;
}

// Seconds of two operations that are done in turns.
template <class First, class Second>
std::pair<double, double> in_turns(benchmark::State& state, const First& first,
                                   const Second& second) {
  std::pair<double, double> seconds{0, 0};
  for (auto _ : state) {
    auto begin = Clock::now();
    first();
    seconds.first += seconds_since(begin);
    begin = Clock::now();
    second();
    seconds.second += seconds_since(begin);
  }
  return seconds;
}

// True for the short mode: fewer shapes, shorter runs.
bool short_run();

// A main function: --short is one thing varied at a time, a tenth of a second each, unless other
// options say so.
int run(int argc, char** argv, void (*register_all)());

// Compares the instruction sets of this CPU. Returns 0 if the automatic choice is the best.
int choose();

// Registers the benchmarks of one file.
void register_decode();
void register_shared_memory();
void register_chosen_blocks();
void register_slow_tier();
void register_prefill();
void register_rotation();
void register_write();
void register_bookkeeping();
void register_prefix();
void register_index();
void register_store();

}  // namespace pkv::bench
