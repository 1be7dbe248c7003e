// Shared by the benchmarks: checked calls, and a one-layer cache with sessions full of random rows.
#pragma once

#include <benchmark/benchmark.h>
#include <pagedkv/experimental.h>
#include <pagedkv/pagedkv.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <type_traits>
#include <vector>

#include "../tests/support/made.h"

namespace pkv::bench {

using Clock = std::chrono::steady_clock;

inline void check(pkv_status status) {
  if (status == PKV_OK) return;
  std::fprintf(stderr, "%s: %s\n", pkv_status_name(status), pkv_last_error());
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
  const pkv_runner* runner = nullptr;
  pkv_isa isa = PKV_ISA_AUTO;
  pkv_layout layout = PKV_LAYOUT_PACKED;
  pkv_rotation rotation = PKV_ROTATION_NONE;
  const char* memory_directory = nullptr;

  uint32_t query_heads() const { return group * kv_heads; }
  // K and V of the tokens, as they are stored, with scales.
  uint64_t kv_bytes() const;
  // All that the cache allocates.
  uint64_t total_bytes() const;
  std::string name() const;

  pkv_layer_group layer_group(uint32_t layers = 1) const;
  pkv_cache_config config(const pkv_layer_group& group) const;
};

const char* dtype_name(pkv_dtype dtype);

constexpr pkv_dtype all_dtypes[] = {PKV_F32,  PKV_F16,      PKV_BF16,    PKV_INT8,
                                    PKV_INT4, PKV_FP8_E4M3, PKV_FP8_E5M2};

// Creates a cache that keeps no rows, to measure the bookkeeping by itself.
pkv_cache create_ids_only(uint32_t block_size, uint64_t blocks, const pkv_prefix_config* prefix,
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
    check(pkv_batch_attend(batch_, 0, params, q_.tensor(), out_.tensor(), nullptr));
  }

 private:
  Rows kv_, q_, out_;
  pkv_batch batch_;
};

// Queries choose blocks such that they read one of `part` blocks in all.
inline pkv_chosen_blocks chosen_part(const Geometry& geometry, uint32_t part) {
  auto chosen = made<pkv_chosen_blocks>();
  chosen.first_blocks = chosen.last_blocks = 1;
  chosen.top_blocks =
      geometry.tokens / geometry.block_size / part - chosen.first_blocks - chosen.last_blocks;
  return chosen;
}

inline double rounds(const benchmark::State& state) {
  return static_cast<double>(state.iterations());
}

// Returns the seconds that a call takes. A call that measures itself returns its seconds.
template <class Call>
double seconds_of(const Call& call) {
  const auto begin = Clock::now();
  if constexpr (std::is_void_v<decltype(call())>) {
    call();
    return seconds_since(begin);
  } else {
    return call();
  }
}

// Returns the shortest of some times. Reports as `spread` by how much the median exceeds it, unless
// another operation of the benchmark spreads more.
double shortest(benchmark::State& state, std::vector<double>& seconds);

// Does some operations in turns, after a first turn that fills caches and working memory. Returns
// the shortest time of each, because other load on the machine only makes times longer.
template <class... Calls>
std::array<double, sizeof...(Calls)> in_turns(benchmark::State& state, const Calls&... calls) {
  constexpr size_t min_turns = 20;
  std::array<std::vector<double>, sizeof...(Calls)> seconds;
  const auto take_turn = [&] {
    size_t i = 0;
    (seconds[i++].push_back(seconds_of(calls)), ...);
  };
  (seconds_of(calls), ...);
  for (auto _ : state) take_turn();
  while (seconds[0].size() < min_turns) take_turn();
  std::array<double, sizeof...(Calls)> best;
  for (size_t i = 0; i < best.size(); i++) best[i] = shortest(state, seconds[i]);
  return best;
}

// Reports an amount per second under the name `ours`, that of a limit or a peer, and their ratio.
inline void report(benchmark::State& state, const char* ours, const char* peer, double amount,
                   double seconds, double peer_seconds) {
  state.counters[ours] = amount / seconds;
  state.counters[peer] = amount / peer_seconds;
  state.counters["ratio"] = peer_seconds / seconds;
}

// Registers a benchmark whose time is shown in milliseconds.
template <class... Arguments>
auto* add(const std::string& name, Arguments&&... arguments) {
  return benchmark::RegisterBenchmark(name.c_str(), std::forward<Arguments>(arguments)...)
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
}

// The same for a benchmark that measures its time itself.
template <class... Arguments>
auto* add_manual(const std::string& name, Arguments&&... arguments) {
  return benchmark::RegisterBenchmark(name.c_str(), std::forward<Arguments>(arguments)...)
      ->Unit(benchmark::kMillisecond)
      ->UseManualTime();
}

// Returns whether the mode is the short one: fewer shapes, shorter runs.
bool short_run();

// A main function. With --short, shapes differ from the usual one in one number, and a benchmark
// takes a tenth of a second unless other options say so.
int run(int argc, char** argv, void (*register_all)());

// Compares the instruction sets of this CPU. Returns 0 if the automatic choice is the best.
int choose();

// Returns the path of the recorded workload. If it is not there, it skips the benchmark and returns
// an empty path.
std::filesystem::path find_trace(benchmark::State& state);

// Registers the benchmarks of one file.
void register_balance();
void register_decode();
void register_group_memory();
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
