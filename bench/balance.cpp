// Computes how well a step would divide among more CPUs than there are. The cache is given threads
// of the benchmark's own, which say that they are many but run all tasks on one, and measure each.
// The tasks of a loop are then handed out in order, each to the thread that is free first.
#include <algorithm>
#include <queue>

#include "fixture.h"

namespace pkv::bench {

namespace {

class OneForMany {
 public:
  explicit OneForMany(uint32_t threads) : runner_{run, this, threads, 0} {}
  const pkv_runner* runner() const { return &runner_; }

  // A call whose loops are the same as those of the call before it.
  template <class Call>
  void measure(const Call& call) {
    loop_ = 0;
    call();
  }

  void forget() { loops_.clear(); }
  size_t tasks() const { return loops_.empty() ? 0 : loops_[0].size(); }
  // The time of all tasks, over that of the threads until the last one is done with each loop.
  double balance() const {
    double busy = 0, elapsed = 0;
    for (const auto& seconds : loops_) {
      std::priority_queue<double, std::vector<double>, std::greater<>> free_at;
      for (uint32_t i = 0; i < runner_.threads; i++) free_at.push(0);
      double last = 0;
      for (const double task : seconds) {
        busy += task;
        const double end = free_at.top() + task;
        free_at.pop(), free_at.push(end);
        last = std::max(last, end);
      }
      elapsed += last * runner_.threads;
    }
    return busy / elapsed;
  }

 private:
  static void run(void* user, size_t n, void (*task)(void*, size_t, uint32_t), void* context) {
    OneForMany& self = *static_cast<OneForMany*>(user);
    if (self.loop_ == self.loops_.size()) self.loops_.emplace_back();
    auto& seconds = self.loops_[self.loop_++];
    seconds.resize(n, 1e9);
    for (size_t i = 0; i < n; i++) {
      const auto begin = Clock::now();
      task(context, i, 0);
      seconds[i] = std::min(seconds[i], seconds_since(begin));
    }
  }

  const pkv_runner runner_;
  size_t loop_ = 0;
  std::vector<std::vector<double>> loops_;  // the shortest time of each task
};

void balance(benchmark::State& state, Geometry geometry, uint32_t threads, uint32_t new_tokens) {
  OneForMany many(threads);
  geometry.runner = many.runner();
  if (new_tokens > 1) geometry.extra = new_tokens, geometry.tokens -= new_tokens;
  Filled filled(geometry);
  Step step(geometry, filled, new_tokens);
  many.forget();
  for (auto _ : state) many.measure([&] { step.attend(); });
  for (int i = 0; i < 20; i++) many.measure([&] { step.attend(); });
  state.counters["tasks"] = static_cast<double>(many.tasks());
  state.counters["ratio"] = many.balance();
}

}  // namespace

void register_balance() {
  for (const uint32_t threads : {16u, 64u})
    for (const auto& [sessions, tokens, chunk] : {std::array{1u, 4096u, 1u},
                                                  {1u, 32768u, 1u},
                                                  {8u, 4096u, 1u},
                                                  {64u, 4096u, 1u},
                                                  {1u, 4096u, 512u}}) {
      Geometry geometry;
      geometry.sessions = sessions, geometry.tokens = tokens;
      add(std::string("balance/") + (chunk > 1 ? "prefill" : "decode") + "/sessions" +
              std::to_string(sessions) + "/tokens" + std::to_string(tokens) + "/threads" +
              std::to_string(threads),
          balance, geometry, threads, chunk);
    }
}

}  // namespace pkv::bench
