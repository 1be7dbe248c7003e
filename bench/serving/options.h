// The options of the user.
#pragma once

#include <pagedkv/pagedkv.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace pkv::serve {

// One sentence for the user about bad options, a bad trace or impossible sizes. The program ends
// with code 2.
struct InputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What a session reserves when it begins: nothing, the longest text of the trace (or --context), or
// its own length, as if the length of the answer were known.
enum class Reserve { none, longest, oracle };

// How the cache of one run is used; --compare makes several of these.
struct Setup {
  std::string name;
  bool prefix = true;
  Reserve reserve = Reserve::none;
};

struct Options {
  std::string trace;               // empty: the generator
  std::string workload = "chats";  // of the generator; "all" with --policies
  unsigned half = 0;               // 1 or 2: only that half of the requests
  size_t requests = 0;
  uint64_t seed = 1;
  double time_scale = 1;
  uint32_t salts = 1;

  uint64_t blocks = 0, memory = 0;
  uint32_t block_size = 16;
  pkv_eviction policy = PKV_EVICTION_LEARNED;
  Setup setup;
  uint64_t context = 0;
  double watermark = 0.01;

  size_t budget = 512, running = 256;
  bool ids_only = false, modelled = false;
  double step_ms = 8, prefill_ms = 0.02, decode_ms = 0.05;

  uint32_t layers = 4, query_heads = 8, kv_heads = 2, dim = 64, threads = 0;
  pkv_dtype dtype = PKV_BF16;

  bool compare_policies = false;
  std::vector<uint64_t> capacities;

  std::string json, pictures;
  bool compare = false, quiet = false;
};

// Throws InputError. Returns false if it printed the help.
bool parse(int argc, char** argv, Options& options);

}  // namespace pkv::serve
