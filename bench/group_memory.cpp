// Counts how many requests of a recorded workload fit into the memory of a hybrid model at once:
// with a pool for each layer group, and with one memory that the groups share. Only lengths matter,
// so the caches keep no keys and values.
#include <algorithm>
#include <deque>
#include <vector>

#include "../tests/support/trace.h"
#include "fixture.h"

namespace pkv::bench {

namespace {

constexpr uint32_t block_size = 16, chunk = 2048;  // tokens of a block, and of a step of a prompt
constexpr uint64_t memory_bytes = uint64_t{16} << 30;

// A hybrid model: groups of full attention, of sliding windows, and of states.
struct Hybrid {
  const char* name;
  uint32_t full_layers, window_layers, window, kv_heads, dim;
  uint32_t state_layers;
  uint64_t state_bytes;
};

constexpr Hybrid hybrids[] = {
    // Five sliding layers for each full one, as Gemma 3 has them.
    {"5_sliding_1_full", 8, 40, 1024, 4, 256, 0, 0},
    // Three gated delta nets for each full layer, as Qwen3-Next has them.
    {"3_states_1_full", 12, 0, 0, 2, 256, 36, 32 * 128 * 128 * sizeof(float)},
};

std::vector<pkv_layer_group> groups_of(const Hybrid& model) {
  std::vector<pkv_layer_group> groups;
  const auto add = [&](uint32_t layers) -> pkv_layer_group& {
    pkv_layer_group& group = groups.emplace_back(made<pkv_layer_group>());
    group.layers = layers;
    return group;
  };
  const auto add_rows = [&](uint32_t layers, uint32_t window) {
    pkv_layer_group& group = add(layers);
    group.query_heads = group.kv_heads = model.kv_heads;
    group.key_dim = model.dim;
    group.dtype = PKV_BF16;
    group.window = window;
  };
  add_rows(model.full_layers, 0);
  if (model.window_layers > 0) add_rows(model.window_layers, model.window);
  if (model.state_layers > 0) {
    pkv_layer_group& states = add(model.state_layers);
    states.kind = PKV_LAYERS_STATES;
    states.layer_bytes = model.state_bytes;
  }
  return groups;
}

// Returns the bytes of a block of each group.
std::vector<uint64_t> block_bytes_of(std::vector<pkv_layer_group> groups) {
  for (pkv_layer_group& group : groups) group.blocks = 1;
  auto config = made<pkv_cache_config>();
  config.groups = groups.data();
  config.group_count = static_cast<uint32_t>(groups.size());
  std::vector<uint64_t> bytes;
  for (uint32_t g = 0; g < config.group_count; g++) {
    auto plan = made<pkv_cache_sizes>();
    check(pkv_cache_compute_sizes(&config, g, &plan));
    bytes.push_back(plan.bytes_per_block);
  }
  return bytes;
}

// full_share is the part of the memory that the pool of the full group has, of two pools; with 0
// the groups share the memory.
pkv_cache create(const Hybrid& model, double full_share) {
  std::vector<pkv_layer_group> groups = groups_of(model);
  auto config = made<pkv_cache_config>();
  config.storage = PKV_STORAGE_EXTERNAL;
  config.block_size = block_size;
  config.groups = groups.data();
  config.group_count = static_cast<uint32_t>(groups.size());
  if (full_share == 0) {
    config.groups_share_memory = 1;
    config.memory_bytes = memory_bytes;
  } else {
    const std::vector<uint64_t> bytes = block_bytes_of(groups);
    for (size_t g = 0; g < groups.size(); g++)
      groups[g].blocks = static_cast<uint64_t>(static_cast<double>(memory_bytes) *
                                               (g == 0 ? full_share : 1 - full_share)) /
                         bytes[g];
  }
  pkv_cache cache;
  check(pkv_cache_create(&config, &cache));
  return cache;
}

// Continuous batching without a model: a step adds a token to each running answer, and up to 2,048
// to the next prompt of the trace. If there are too few blocks, the request that began last is
// stopped, and starts over when another one has ended.
class Server {
 public:
  Server(pkv_cache cache, const Hybrid& model, const std::vector<trace::Lengths>& requests)
      : cache_(cache),
        block_bytes_(block_bytes_of(groups_of(model))),
        waiting_(requests.begin(), requests.end()) {}

  void run() {
    while (!waiting_.empty() || !running_.empty()) {
      if (room_ && !waiting_.empty() && (running_.empty() || running_.back().is_answering()))
        begin_one();
      if (!step()) start_over();
    }
  }
  double requests_at_once() const { return mean(session_steps_, steps_); }
  double memory_used() const {
    return mean(used_bytes_, samples_) / static_cast<double>(memory_bytes);
  }
  uint64_t started_over() const { return started_over_; }
  uint64_t too_long() const { return too_long_; }
  uint64_t steps() const { return steps_; }

 private:
  struct Running {
    pkv_session session;
    trace::Lengths request;
    uint32_t done;  // tokens of prompt and answer

    bool is_answering() const { return done >= request.input; }
    uint32_t next() const { return is_answering() ? 1 : std::min(chunk, request.input - done); }
    bool has_ended() const { return done >= request.input + request.output; }
  };

  static double mean(uint64_t sum, uint64_t count) {
    return static_cast<double>(sum) / static_cast<double>(std::max<uint64_t>(count, 1));
  }

  void begin_one() {
    pkv_session session;
    check(pkv_session_open(cache_, nullptr, &session));
    running_.push_back({session, waiting_.front(), 0});
    waiting_.pop_front();
  }

  // Returns false if there are too few blocks.
  bool step() {
    std::vector<pkv_session> sessions;
    std::vector<uint32_t> tokens;
    for (const Running& one : running_) {
      sessions.push_back(one.session);
      tokens.push_back(one.next());
    }
    pkv_batch batch;
    if (pkv_batch_begin(cache_, sessions.size(), sessions.data(), tokens.data(), &batch) != PKV_OK)
      return false;
    check(pkv_batch_commit(batch, 0, nullptr));
    steps_++;
    session_steps_ += sessions.size();
    if (steps_ % 64 == 0 && !room_) sample();
    for (Running& one : running_) one.done += one.next();
    for (const Running& one : running_)
      if (one.has_ended()) check(pkv_session_close(one.session));
    if (std::erase_if(running_, [](const Running& one) { return one.has_ended(); }) > 0)
      room_ = true;
    return true;
  }

  void start_over() {
    const Running last = running_.back();
    running_.pop_back();
    check(pkv_session_close(last.session));
    room_ = running_.empty();
    if (room_) {
      too_long_++;  // not even alone
    } else {
      waiting_.push_front(last.request);
      started_over_++;
    }
  }

  // Adds the bytes that sessions use in a full memory.
  void sample() {
    samples_++;
    for (uint32_t g = 0; g < block_bytes_.size(); g++) {
      auto stats = made<pkv_pool_stats>();
      check(pkv_cache_get_pool_stats(cache_, g, &stats));
      used_bytes_ += stats.held_blocks * block_bytes_[g];
    }
  }

  const pkv_cache cache_;
  const std::vector<uint64_t> block_bytes_;
  std::deque<trace::Lengths> waiting_;
  std::vector<Running> running_;
  bool room_ = true;  // false from a refusal until a request ends
  uint64_t steps_ = 0, session_steps_ = 0, samples_ = 0, used_bytes_ = 0;
  uint64_t started_over_ = 0, too_long_ = 0;
};

void group_memory(benchmark::State& state, const Hybrid& model) {
  const std::filesystem::path path = find_trace(state);
  if (path.empty()) return;
  std::vector<trace::Lengths> requests = trace::read_lengths(path);
  requests.resize(std::min<size_t>(requests.size(), 3000));
  for (auto _ : state) {
    const pkv_cache cache = create(model, static_cast<double>(state.range(0)) / 100);
    Server server(cache, model, requests);
    state.SetIterationTime(seconds_of([&] { server.run(); }));
    state.counters["requests_at_once"] = server.requests_at_once();
    state.counters["steps"] = static_cast<double>(server.steps());
    state.counters["used_%"] = 100 * server.memory_used();
    state.counters["started_over"] = static_cast<double>(server.started_over());
    state.counters["too_long"] = static_cast<double>(server.too_long());
    check(pkv_cache_destroy(cache));
  }
}

}  // namespace

// /N: N % of the memory are the pool of the full group; 0: the groups share it.
void register_group_memory() {
  for (const Hybrid& model : hybrids)
    for (int share = 0; share < 100; share += short_run() ? 50 : 10)
      add_manual(std::string("group_memory/") + model.name, group_memory, model)
          ->Arg(share)
          ->Iterations(1);
}

}  // namespace pkv::bench
