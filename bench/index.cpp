// Measures the prefix index when it is large, and when many threads use it.
#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "fixture.h"

namespace pkv::bench {

namespace {

constexpr uint32_t block_size = 16;

// Counts the bytes that a cache has allocated.
struct Counter {
  std::atomic<uint64_t> bytes = 0;
  pkv_allocator hooks() {
    return {[](void* user, size_t size, size_t alignment) {
              static_cast<Counter*>(user)->bytes += size;
              return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
            },
            [](void* user, void* memory, size_t size, size_t) {
              static_cast<Counter*>(user)->bytes -= size;
              std::free(memory);
            },
            this};
  }
};

// An index of ids only. No two texts share anything: each begins with a token of its own.
class Index {
 public:
  Index(uint64_t texts, uint32_t tokens, uint64_t salts)
      : texts_(texts), salts_(salts), tokens_(tokens) {
    const pkv_allocator hooks = memory_.hooks();
    const auto prefix = made<pkv_prefix_config>();
    cache_ = create_ids_only(block_size, blocks() + 4096, &prefix, &hooks);
    empty_bytes_ = memory_.bytes;
    std::vector<int32_t> text;
    for (uint64_t i = 0; i < texts; i++) {
      fill(i, text);
      const pkv_session session = open(i);
      step(session, text.data(), tokens);
      check(pkv_session_close(session));
    }
  }
  ~Index() { check(pkv_cache_destroy(cache_)); }
  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;

  uint64_t blocks() const { return texts_ * (tokens_ / block_size); }
  double bytes_per_block() const {
    return static_cast<double>(memory_.bytes - empty_bytes_) / static_cast<double>(blocks());
  }
  void fill(uint64_t number, std::vector<int32_t>& text) const {
    text.resize(tokens_);
    uint64_t x = number + 1;
    for (int32_t& token : text) {
      x = x * 6364136223846793005u + 1442695040888963407u;  // Knuth
      token = static_cast<int32_t>(x >> 48);
    }
  }
  // Opens a session under the salt of this text.
  pkv_session open(uint64_t number) const {
    const uint64_t salt = number % salts_;
    auto config = made<pkv_session_config>();
    config.salt = &salt;
    config.salt_size = salts_ > 1 ? sizeof salt : 0;
    pkv_session session;
    check(pkv_session_open(cache_, &config, &session));
    return session;
  }
  void step(pkv_session session, const int32_t* tokens, uint32_t count) const {
    pkv_batch batch;
    check(pkv_batch_begin(cache_, 1, &session, &count, &batch));
    check(pkv_batch_commit(batch, count, tokens));
  }
  void match(uint64_t number, const std::vector<int32_t>& text) const {
    const pkv_session session = open(number);
    uint64_t matched;
    check(pkv_session_admit(session, text.size(), text.data(), 0, &matched));
    if (matched != text.size()) std::abort();
    check(pkv_session_close(session));
  }
  void hint(const std::vector<int32_t>& text, pkv_hint_action action, uint64_t duration_ms) const {
    auto hint = made<pkv_hint>();
    hint.action = action;
    hint.end = text.size();
    if (action == PKV_HINT_SET_RETENTION && duration_ms > 0) hint.retention = PKV_RETENTION_HIGH;
    hint.duration_ms = duration_ms;
    auto result = made<pkv_hint_result>();
    check(pkv_hint_prompt(cache_, TextArg(text), &hint, &result));
    if (result.outcome != PKV_HINT_OUTCOME_DONE) std::abort();
  }
  void probe(const std::vector<int32_t>& text) const {
    uint64_t cached;
    check(pkv_prefix_probe(cache_, TextArg(text), &cached));
    if (cached != text.size()) std::abort();
  }

 private:
  Counter memory_;
  const uint64_t texts_, salts_;
  const uint32_t tokens_;
  uint64_t empty_bytes_ = 0;
  pkv_cache cache_ = nullptr;
};

// Calls look_up(thread, text number, text) on each thread for all texts, some times over and in an
// order of its own.
constexpr unsigned look_up_rounds = 4;
template <class LookUp>
double seconds_of_look_ups(const std::vector<std::vector<int32_t>>& texts, unsigned threads,
                           const LookUp& look_up) {
  const auto begin = Clock::now();
  std::vector<std::thread> workers;
  for (unsigned t = 0; t < threads; t++)
    workers.emplace_back([&, t] {
      for (size_t i = 0; i < look_up_rounds * texts.size(); i++) {
        const size_t number = (i * 7 + t * 31) % texts.size();
        look_up(t, number, texts[number]);
      }
    });
  for (std::thread& worker : workers) worker.join();
  return seconds_since(begin);
}

// N threads look up 128 texts of 8,192 tokens in one index, against N threads with an index each.
// The ratio shows what threads lose by waiting for one another.
void look_up(benchmark::State& state, bool matches) {
  const unsigned threads = static_cast<unsigned>(state.range(0));
  std::vector<std::unique_ptr<Index>> indexes;
  for (unsigned t = 0; t < threads; t++) indexes.push_back(std::make_unique<Index>(128, 8192, 1));
  std::vector<std::vector<int32_t>> texts(128);
  for (size_t i = 0; i < texts.size(); i++) indexes[0]->fill(i, texts[i]);
  const auto look_up_in = [&](const Index& index, uint64_t number,
                              const std::vector<int32_t>& text) {
    matches ? index.match(number, text) : index.probe(text);
  };
  const auto in_one = [&](unsigned, uint64_t number, const auto& text) {
    look_up_in(*indexes[0], number, text);
  };
  const auto in_own = [&](unsigned thread, uint64_t number, const auto& text) {
    look_up_in(*indexes[thread], number, text);
  };
  const auto [one, own] = in_turns(
      state, [&] { return seconds_of_look_ups(texts, threads, in_one); },
      [&] { return seconds_of_look_ups(texts, threads, in_own); });
  state.counters["us"] = 1e6 * one / static_cast<double>(look_up_rounds * texts.size());
  state.counters["ratio"] = own / one;
}

// Measures hints about texts of 8,192 tokens, and those that undo them, against matches of them.
void hint(benchmark::State& state, pkv_hint_action action, pkv_hint_action undo) {
  const Index index(128, 8192, 1);
  std::vector<std::vector<int32_t>> texts(128);
  for (size_t i = 0; i < texts.size(); i++) index.fill(i, texts[i]);
  const auto give = [&] {
    for (const auto& text : texts) {
      index.hint(text, action, 3600000);
      index.hint(text, undo, 0);
    }
  };
  const auto match = [&] {
    for (size_t i = 0; i < texts.size(); i++) index.match(i, texts[i]);
  };
  const auto [hints, matches] = in_turns(state, give, match);
  state.counters["us"] = 1e6 * hints / static_cast<double>(2 * texts.size());
  state.counters["ratio"] = 2 * matches / hints;
}

// Measures matches of 1,600 tokens, and decode steps that fill a block, in an index of N blocks
// under N / 100 salts, against an index of 1,000 blocks.
void scale(benchmark::State& state) {
  constexpr uint32_t tokens = 1600, looks = 2000;
  const auto texts = static_cast<uint64_t>(state.range(0)) * block_size / tokens;
  std::vector<int32_t> text;
  const auto seconds_to_match = [&](const Index& index, uint64_t count) {
    double seconds = 0;
    for (uint64_t i = 0; i < looks; i++) {
      const uint64_t number = i * 2654435761u % count;
      index.fill(number, text);
      seconds += seconds_of([&] { index.match(number, text); });
    }
    return seconds;
  };
  const auto seconds_to_step = [&](const Index& index) {
    index.fill(texts, text);
    const pkv_session session = index.open(0);
    double seconds = 0;
    for (uint32_t i = 0; i < looks; i++)
      seconds +=
          seconds_of([&] { index.step(session, &text[i * block_size % tokens], block_size); });
    check(pkv_session_close(session));
    return seconds;
  };
  const Index large(texts, tokens, texts), small(10, tokens, 10);
  double match = 0, small_match = 0, step = 0, small_step = 0;
  for (auto _ : state) {
    match += seconds_to_match(large, texts);
    small_match += seconds_to_match(small, 10);
    step += seconds_to_step(large);
    small_step += seconds_to_step(small);
  }
  const double calls = looks * rounds(state);
  state.counters["bytes/block"] = large.bytes_per_block();
  state.counters["us_match"] = match * 1e6 / calls;
  state.counters["us_match_small"] = small_match * 1e6 / calls;
  state.counters["us_step"] = step * 1e6 / calls;
  state.counters["us_step_small"] = small_step * 1e6 / calls;
  state.counters["ratio"] = small_step / step;
}

}  // namespace

void register_index() {
  for (const int threads : {1, 2, 4, 8}) {
    add("index/match", look_up, true)->Arg(threads);
    add("index/probe", look_up, false)->Arg(threads);
  }
  add("index/hint/set_retention", hint, PKV_HINT_SET_RETENTION, PKV_HINT_SET_RETENTION);
  add("index/hint/pin", hint, PKV_HINT_PIN, PKV_HINT_UNPIN);
  for (const int64_t blocks : {1000, 100000, 10000000})
    if (!short_run() || blocks <= 100000) add("index/scale", scale)->Arg(blocks)->Iterations(1);
}

}  // namespace pkv::bench
