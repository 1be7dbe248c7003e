// Measures the bookkeeping of the prefix index on a recorded workload.
#include <algorithm>

#include "../tests/support/trace.h"
#include "fixture.h"

namespace pkv::bench {

namespace {

constexpr uint32_t block_size = 16;
constexpr double aim = 3;  // seconds for the whole trace, on one thread

struct Replay {
  double seconds = 0;
  uint64_t blocks = 0, matched = 0;
};

// Every request opens a session, matches, computes the rest in one step and ends. Tokens are made
// beforehand: only the library is timed.
Replay replay(const std::vector<trace::Request>& requests, uint64_t capacity,
              pkv_eviction eviction) {
  auto prefix = made<pkv_prefix_config>();
  prefix.eviction = eviction;
  const pkv_cache cache = create_ids_only(block_size, capacity, &prefix);
  Replay result;
  std::vector<int32_t> tokens;
  for (const trace::Request& request : requests) {
    tokens.clear();
    for (const uint32_t id : request) trace::append_tokens(id, trace::tokens_per_block, tokens);
    uint64_t matched = 0;
    const auto begin = Clock::now();
    pkv_session session;
    check(pkv_session_open(cache, nullptr, &session));
    check(pkv_session_admit(session, tokens.size(), tokens.data(), 0, &matched));
    if (matched < tokens.size()) {
      const uint32_t rest = static_cast<uint32_t>(tokens.size() - matched);
      pkv_batch batch;
      check(pkv_batch_begin(cache, 1, &session, &rest, &batch));
      check(pkv_batch_commit(batch, rest, tokens.data() + matched));
    }
    check(pkv_session_close(session));
    result.seconds += seconds_since(begin);
    result.blocks += tokens.size() / block_size;
    result.matched += matched / block_size;
  }
  check(pkv_cache_destroy(cache));
  return result;
}

void prefix_trace(benchmark::State& state, pkv_eviction eviction) {
  const std::filesystem::path path = find_trace(state);
  if (path.empty()) return;
  const std::vector<trace::Request> requests = trace::read(path);
  uint64_t capacity =
      static_cast<uint64_t>(state.range(0)) * (trace::tokens_per_block / block_size);
  if (capacity == 0)
    for (const trace::Request& request : requests)
      capacity += request.size() * (trace::tokens_per_block / block_size);
  Replay all;
  for (auto _ : state) {
    const Replay one = replay(requests, capacity, eviction);
    state.SetIterationTime(one.seconds);
    all.seconds += one.seconds;
    all.blocks += one.blocks;
    all.matched += one.matched;
  }
  const auto blocks = static_cast<double>(all.blocks);
  state.counters["hit_%"] = 100 * static_cast<double>(all.matched) / blocks;
  state.counters["ns/block"] = all.seconds * 1e9 / blocks;
  state.counters["ratio"] = aim * rounds(state) / all.seconds;
}

}  // namespace

std::filesystem::path find_trace(benchmark::State& state) {
  const auto path = trace::path(PAGEDKV_ROOT);
  if (std::filesystem::exists(path)) return path;
  state.SkipWithError(
      ("no " + path.string() + ": set PAGEDKV_DATA to the folder that holds it").c_str());
  return {};
}

// /N: room for N blocks of 512 tokens; 0: for all there are.
void register_prefix() {
  const auto add_all = [](const char* name, pkv_eviction eviction) {
    for (const int capacity :
         short_run() ? std::vector{0, 5000} : std::vector{0, 1000, 5000, 10000, 30000})
      add_manual(name, prefix_trace, eviction)->Arg(capacity)->Iterations(1);
  };
  add_all("prefix/trace", PKV_EVICTION_LEARNED);
  if (!short_run()) add_all("prefix/trace/lru", PKV_EVICTION_LRU);
}

}  // namespace pkv::bench
