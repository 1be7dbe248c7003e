#include "stored.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>

namespace pkv::bench {

namespace {

constexpr size_t layer_bytes = size_t{16} * 8 * 128 * 2 * 2;  // K and V of a block in a layer
constexpr uint32_t chunk = 2048;                              // tokens of a prompt at once
constexpr uint64_t patient_ms = 60'000;

// Returns a number for a text that no store has yet.
uint32_t fresh_number() {
  static uint32_t number = 1000;
  return number++;
}

// Returns the text of a session. No two numbers have a block in common.
std::vector<int32_t> text(uint32_t number, uint32_t tokens) {
  std::vector<int32_t> ids(tokens);
  for (uint32_t i = 0; i < tokens; i++) ids[i] = static_cast<int32_t>(number * 1000003u + i);
  return ids;
}

// Who has the bytes of blocks: the library, the engine, or each has a group.
enum class Owner { library, engine, both };

// The blocks of an engine, in memory of its own, and the hooks that copy them.
class Device {
 public:
  Device(uint64_t blocks, uint64_t block_bytes)
      : block_bytes_(block_bytes), bytes_(blocks * block_bytes, 1) {}
  pkv_block_io hooks() {
    auto hooks = made<pkv_block_io>();
    hooks.user = this;
    hooks.read = [](void* user, uint32_t, size_t n, const uint32_t* ids, const uint32_t*,
                    void* to) {
      auto& self = *static_cast<Device*>(user);
      for (size_t i = 0; i < n; i++)
        std::memcpy(static_cast<unsigned char*>(to) + i * self.block_bytes_, self.block(ids[i]),
                    self.block_bytes_);
      return 0;
    };
    hooks.write = [](void* user, uint32_t, size_t n, const uint32_t* ids, const void* from) {
      auto& self = *static_cast<Device*>(user);
      for (size_t i = 0; i < n; i++)
        std::memcpy(self.block(ids[i]),
                    static_cast<const unsigned char*>(from) + i * self.block_bytes_,
                    self.block_bytes_);
      return 0;
    };
    return hooks;
  }

 private:
  unsigned char* block(uint32_t id) { return &bytes_[id * block_bytes_]; }

  const uint64_t block_bytes_;
  std::vector<unsigned char> bytes_;
};

// A cache with a prefix index, and a store if `open` is not null.
class Served {
 public:
  // Room for some sessions of as many tokens each.
  struct Shape {
    uint32_t layers, tokens, sessions;
    bool keyed = false;  // the store's items are encrypted
    Owner owner = Owner::library;
  };

  Served(const Shape& shape, const OpenStore& open)
      : layers_(shape.owner == Owner::engine ? 0 : shape.layers),
        kv_(chunk, 8, 128, PKV_BF16),
        q_(chunk, 32, 128),
        out_(chunk, 32, 128) {
    const Geometry geometry{.sessions = shape.sessions, .tokens = shape.tokens, .extra = 16};
    const pkv_layer_group ours = geometry.layer_group(shape.layers);
    auto theirs = made<pkv_layer_group>();
    theirs.layers = shape.layers;
    theirs.kind = PKV_LAYERS_OPAQUE_KV;
    theirs.layer_bytes = layer_bytes;
    theirs.blocks = ours.blocks;
    const pkv_layer_group groups[] = {ours, theirs};
    pkv_cache_config config = geometry.config(ours);
    config.prefault = 1;
    pkv_block_io io;
    if (shape.owner != Owner::library) {
      io = device_.emplace(ours.blocks, shape.layers * layer_bytes).hooks();
      config.block_io = &io;
      config.groups = shape.owner == Owner::both ? groups : &groups[1];
      config.group_count = shape.owner == Owner::both ? 2 : 1;
      if (shape.owner == Owner::engine) config.storage = PKV_STORAGE_EXTERNAL;
    }
    const auto prefix = made<pkv_prefix_config>();
    config.prefix = &prefix;
    pkv_store store = made<pkv_store>();
    auto store_config = made<pkv_store_config>();
    store_config.store = &store;
    store_config.wait_ms = patient_ms;
    if (shape.keyed)
      store_config.secret_key = "a key of 24 secret bytes", store_config.secret_key_size = 24;
    store_config.max_queued_tokens = UINT64_MAX;
    if (open) {
      store = open();
      config.store = &store_config;
    }
    check(pkv_cache_create(&config, &cache_));
  }
  ~Served() { check(pkv_cache_destroy(cache_)); }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  pkv_cache cache() const { return cache_; }
  pkv_session open() {
    pkv_session session;
    check(pkv_session_open(cache_, nullptr, &session));
    return session;
  }
  // Computes the tokens from `from` on, with or without attention.
  void compute(pkv_session session, const std::vector<int32_t>& ids, size_t from, bool attends) {
    for (size_t at = from; at < ids.size(); at += chunk) {
      const auto n = static_cast<uint32_t>(std::min<size_t>(chunk, ids.size() - at));
      step(session, n, attends, ids.data() + at);
    }
  }
  void step(pkv_session session, uint32_t n, bool attends, const int32_t* ids) {
    pkv_batch batch;
    check(pkv_batch_begin(cache_, 1, &session, &n, &batch));
    for (uint32_t layer = 0; layer < layers_; layer++) {
      check(pkv_batch_write(batch, layer, kv_.tensor(), kv_.tensor()));
      if (attends)
        check(pkv_batch_attend(batch, layer, nullptr, q_.tensor(), out_.tensor(), nullptr));
    }
    check(pkv_batch_commit(batch, n, ids));
  }
  // Ends a session with this text, which goes to the store.
  void end_session(uint32_t number, uint32_t tokens) {
    const pkv_session session = open();
    compute(session, text(number, tokens), 0, false);
    check(pkv_session_close(session));
  }
  uint64_t flush() {
    uint64_t queued = 0;
    check(pkv_cache_flush_store(cache_, patient_ms, &queued));
    return queued;
  }
  pkv_store_stats stats() const {
    auto stats = made<pkv_store_stats>();
    check(pkv_cache_get_store_stats(cache_, &stats));
    return stats;
  }

 private:
  const uint32_t layers_;  // those that the library has
  std::optional<Device> device_;
  Rows kv_, q_, out_;
  pkv_cache cache_ = nullptr;
};

// ---- Time to first token ------------------------------------------------------------------------

uint32_t prompt_tokens() { return short_run() ? 4096 : 32768; }
Served::Shape prompt_shape() { return {.layers = 1, .tokens = prompt_tokens(), .sessions = 2}; }

// Returns the seconds of writing and attending to a prompt, measured once. A whole model takes
// longer.
double seconds_of_prefill() {
  static const double seconds = [] {
    Served served(prompt_shape(), nullptr);
    const pkv_session session = served.open();
    const auto begin = Clock::now();
    served.compute(session, text(1, prompt_tokens()), 0, true);
    return seconds_since(begin);
  }();
  return seconds;
}

void report_first_token(benchmark::State& state, double seconds) {
  const double each = seconds / rounds(state);
  state.counters["ms"] = 1e3 * each;
  state.counters["prefill_ms"] = 1e3 * seconds_of_prefill();
  state.counters["ratio"] = seconds_of_prefill() / each;
}

void first_token_from_store(benchmark::State& state, const OpenStore& open) {
  const std::vector<int32_t> prompt = text(1, prompt_tokens());
  {
    Served served(prompt_shape(), open);
    served.end_session(1, prompt_tokens());
    if (served.flush() != 0) return state.SkipWithError("the store does not take the prompt");
  }
  double seconds = 0;
  for (auto _ : state) {
    Served served(prompt_shape(), open);
    const auto begin = Clock::now();
    const pkv_session session = served.open();
    uint64_t matched = 0;
    check(pkv_session_admit(session, prompt.size() - 1, prompt.data(), 0, &matched));
    served.compute(session, prompt, matched, true);
    seconds += seconds_since(begin);
    if (matched + 16 < prompt.size()) state.SkipWithError("the store has lost the prompt");
  }
  report_first_token(state, seconds);
}

void first_token_from_file(benchmark::State& state) {
  const Folder folder;
  const std::string path = folder.file("prompt");
  const std::vector<int32_t> prompt = text(1, prompt_tokens());
  auto stream = made<pkv_stream>();
  stream.kind = PKV_STREAM_PATH;
  stream.path = path.c_str();
  {
    Served served(prompt_shape(), nullptr);
    const pkv_session session = served.open();
    served.compute(session, std::vector<int32_t>(prompt.begin(), prompt.end() - 1), 0, false);
    const pkv_file_item item{session, nullptr, 0};
    check(pkv_file_save(served.cache(), 1, &item, nullptr, &stream, nullptr));
  }
  double seconds = 0;
  for (auto _ : state) {
    Served served(prompt_shape(), nullptr);
    const auto begin = Clock::now();
    pkv_session session;
    size_t count = 0;
    check(pkv_file_load(served.cache(), nullptr, &stream, 1, &session, nullptr, &count));
    served.compute(session, prompt, prompt.size() - 1, true);
    seconds += seconds_since(begin);
  }
  report_first_token(state, seconds);
}

// ---- Throughput ---------------------------------------------------------------------------------

constexpr Served::Shape moved{.layers = 8, .tokens = 1024, .sessions = 4};

Served::Shape moved_shape(bool keyed, Owner owner) {
  Served::Shape shape = moved;
  shape.keyed = keyed;
  shape.owner = owner;
  return shape;
}

constexpr size_t moved_block = moved.layers * layer_bytes;

void spill(benchmark::State& state, const OpenStore& open, const Plain& plain, bool keyed,
           Owner owner) {
  Served served(moved_shape(keyed, owner), open);
  double ours = 0, other = 0, bytes = 0;
  for (auto _ : state) {
    const uint64_t before = served.stats().written_bytes;
    state.PauseTiming();
    std::vector<pkv_session> sessions;
    for (uint32_t i = 0; i < moved.sessions; i++) {
      sessions.push_back(served.open());
      served.compute(sessions.back(), text(fresh_number(), moved.tokens), 0, false);
    }
    state.ResumeTiming();
    ours += seconds_of([&] {
      for (const pkv_session session : sessions) check(pkv_session_close(session));
      served.flush();
    });
    const uint64_t written = served.stats().written_bytes - before;
    bytes += static_cast<double>(written);
    std::vector<char> same(written, 'x');
    other += plain.write(same, moved_block);
  }
  if (served.stats().lost_tokens > 0) state.SkipWithError("not everything was written");
  report(state, "GB/s", "plain_GB/s", bytes / 1e9, ours, other);
}

void fetch(benchmark::State& state, const OpenStore& open, const Plain& plain, bool keyed,
           Owner owner) {
  {
    Served served(moved_shape(keyed, owner), open);
    for (uint32_t i = 1; i <= moved.sessions; i++) served.end_session(i, moved.tokens);
    served.flush();
  }
  double ours = 0, other = 0, bytes = 0;
  for (auto _ : state) {
    state.PauseTiming();
    Served served(moved_shape(keyed, owner), open);
    state.ResumeTiming();
    const auto begin = Clock::now();
    const auto prefetch = made<pkv_hint>({.action = PKV_HINT_PREFETCH, .end = PKV_TO_END});
    for (uint32_t i = 1; i <= moved.sessions; i++) {
      const std::vector<int32_t> ids = text(i, moved.tokens);
      check(pkv_hint_prompt(served.cache(), TextArg(ids), &prefetch, nullptr));
    }
    for (uint32_t i = 1; i <= moved.sessions; i++) {
      const std::vector<int32_t> ids = text(i, moved.tokens);
      uint64_t cached = 0;
      check(pkv_prefetch_wait(served.cache(), TextArg(ids), patient_ms, &cached, nullptr));
      if (cached != ids.size()) state.SkipWithError("the store has lost something");
    }
    ours += seconds_since(begin);
    const uint64_t read = served.stats().read_bytes;
    bytes += static_cast<double>(read);
    std::vector<char> same(read, 'x');
    other += plain.read(same, moved_block);
  }
  report(state, "GB/s", "plain_GB/s", bytes / 1e9, ours, other);
}

// ---- Decode beside it ---------------------------------------------------------------------------

// A store that accepts nothing while its gate is shut, so that everything to be written waits when
// the steps begin.
class Gated {
 public:
  explicit Gated(const pkv_store& inner) : inner_(inner) {}
  pkv_store table() {
    pkv_store table = inner_;
    table.user = this;
    table.put = [](void* user, size_t n, pkv_store_item* items) {
      auto& self = *static_cast<Gated*>(user);
      const std::lock_guard shut(self.gate);
      return self.inner_.put(self.inner_.user, n, items);
    };
    table.get = [](void* user, size_t n, pkv_store_item* items) {
      return of(user).get(of(user).user, n, items);
    };
    table.touch = [](void* user, size_t n, pkv_store_item* items) {
      return of(user).touch(of(user).user, n, items);
    };
    table.remove = [](void* user, size_t n, const pkv_store_item* items) {
      return of(user).remove(of(user).user, n, items);
    };
    table.close = [](void* user) { of(user).close(of(user).user); };
    return table;
  }
  std::mutex gate;

 private:
  static const pkv_store& of(void* user) { return static_cast<Gated*>(user)->inner_; }
  const pkv_store inner_;
};

// Compares steps of 8 sessions of 4096 tokens while ended sessions are written with the same steps
// while nothing is written.
void decode(benchmark::State& state, const OpenStore& open, Owner owner) {
  constexpr uint32_t sessions = 8, tokens = 4096, ended = 16, ended_tokens = 1024, steps = 24;
  Gated store(open());
  Served served({.layers = 1, .tokens = tokens, .sessions = 2 * sessions, .owner = owner},
                [&] { return store.table(); });
  std::vector<pkv_session> running;
  for (uint32_t i = 0; i < sessions; i++) {
    running.push_back(served.open());
    served.compute(running.back(), text(i, tokens), 0, false);
  }
  const Rows kv(sessions, 8, 128), q(sessions, 32, 128), out(sessions, 32, 128);
  const std::vector<uint32_t> one(sessions, 1);
  const auto run_steps = [&] {
    for (uint32_t i = 0; i < steps; i++) {
      pkv_batch batch;
      check(pkv_batch_begin(served.cache(), sessions, running.data(), one.data(), &batch));
      check(pkv_batch_write(batch, 0, kv.tensor(), kv.tensor()));
      check(pkv_batch_attend(batch, 0, nullptr, q.tensor(), out.tensor(), nullptr));
      check(pkv_batch_abort(batch));
    }
  };
  double beside = 0, alone = 0, written = 0;
  bool always = true;
  for (auto _ : state) {
    std::unique_lock shut(store.gate);
    for (uint32_t i = 0; i < ended; i++) served.end_session(fresh_number(), ended_tokens);
    shut.unlock();
    const uint64_t before = served.stats().written_bytes;
    beside += seconds_of(run_steps);
    const pkv_store_stats stats = served.stats();
    written += static_cast<double>(stats.written_bytes - before);
    always = always && stats.queued_tokens > 0;
    served.flush();
    alone += seconds_of(run_steps);
  }
  if (!always) state.SetLabel("part of the steps ran alone: all was written before they ended");
  state.counters["written_GB/s"] = written / beside / 1e9;
  state.counters["slowdown_%"] = 100 * (beside / alone - 1);
  state.counters["ratio"] = alone / beside;
}

}  // namespace

Folder::Folder() {
  const char* const base = std::getenv("TMPDIR");
  path_ = std::string(base != nullptr ? base : "/tmp") + "/pagedkv-bench-XXXXXX";
  if (mkdtemp(path_.data()) == nullptr) {
    std::perror("mkdtemp");
    std::exit(1);
  }
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void register_stored(const std::string& name, const OpenStore& open, const Plain& plain) {
  const int64_t times = short_run() ? 1 : 3;
  add("stored/first_token/" + name, first_token_from_store, open)->Iterations(times);
  for (const bool keyed : {false, true}) {
    const std::string key = keyed ? "key/" : "";
    add("stored/spill/" + key + name, spill, open, plain, keyed, Owner::library);
    add("stored/fetch/" + key + name, fetch, open, plain, keyed, Owner::library);
  }
  add("stored/spill/elsewhere/" + name, spill, open, plain, false, Owner::engine);
  add("stored/fetch/elsewhere/" + name, fetch, open, plain, false, Owner::engine);
  add("stored/decode/" + name, decode, open, Owner::library);
  add("stored/decode/elsewhere/" + name, decode, open, Owner::both);
}

void register_first_token_from_file() {
  add("stored/first_token/file", first_token_from_file)->Iterations(short_run() ? 1 : 3);
}

}  // namespace pkv::bench
