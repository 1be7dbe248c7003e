// Measures libpagedkv-llama in a prebuilt llama.cpp:
//
//   prompts MODEL FOLDER_OF_GGMLS_BACKENDS DIRECTORY THREADS ROUNDS
//   prompts MODEL FOLDER_OF_GGMLS_BACKENDS DIRECTORY THREADS talks
//
// What it costs to remember a turn, how long a prompt takes after a restart, and how many long
// conversations fit. Keys and values do not change any of this, so those of 32 tokens are computed,
// and repeated to make long sequences. Times are those that the calling thread was on a CPU, and in
// brackets those on the clock, each of the fastest round. DIRECTORY gets the store; it is emptied.
//
// talks: the same as talks.py in llama-server, to which it gives the states of conversations.
#include <ggml-backend.h>
#include <llama.h>
#include <pagedkv-llama.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "../recall/state.h"

namespace {

using Tokens = std::vector<llama_token>;
using pagedkv_llama::Buffer, pagedkv_llama::State;
using Clock = std::chrono::steady_clock;

constexpr uint32_t block = 32, turn = 256;
constexpr int32_t batch = 512;
constexpr uint32_t scale = 32;  // of the conversations whose number is counted
constexpr double mib = 1 << 20, gib = 1 << 30;
// What people report: 2.4 prompts of this many tokens in 8 GiB.
constexpr double long_prompt = 66163, reported = 2.4;
constexpr double reported_bytes = 8 * gib / reported / long_prompt;  // of a token

void check(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "%s: %s %s\n", what, pkv_llama_last_error(), pkv_last_error());
  std::exit(EXIT_FAILURE);
}

// The seconds of some rounds, on the clock and on a CPU.
struct Times {
  std::vector<double> wall, cpu;
  template <class Work>
  void add(Work work) {
    const auto begin = Clock::now();
    const double used = cpu_seconds();
    work();
    cpu.push_back(cpu_seconds() - used);
    wall.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  static double cpu_seconds() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
  }
  static double best(const std::vector<double>& of) {
    return *std::min_element(of.begin(), of.end());
  }
  std::string ms() const {
    char text[64];
    std::snprintf(text, sizeof text, "%.0f (%.0f)", 1e3 * best(cpu), 1e3 * best(wall));
    return text;
  }
};

// A text of its own for each number, which begins like all others.
Tokens text(uint64_t shared, uint64_t n, int number) {
  Tokens tokens(n);
  for (uint64_t i = 0; i < n; i++)
    tokens[i] =
        static_cast<llama_token>(i < shared ? 1 + i * 7 % 40000 : 1 + number + i * 13 % 40000);
  return tokens;
}

class Engine {
 public:
  Engine(llama_model* model, uint32_t cells, int threads, ggml_type type) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = cells, params.n_batch = params.n_ubatch = batch;
    params.n_seq_max = 2, params.kv_unified = true;
    params.n_threads = params.n_threads_batch = threads;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.type_k = params.type_v = type;
    context_ = llama_init_from_model(model, params);
    check(context_ != nullptr, "context");
    decode(0, block);
    block_state_.emplace(copy());
    empty();
  }
  ~Engine() { llama_free(context_); }

  llama_context* context() const { return context_; }
  void empty(llama_seq_id sequence = 0) const {
    llama_memory_seq_rm(llama_get_memory(context_), sequence, -1, -1);
  }

  // A whole copy, as a prompt cache of whole states makes it.
  Buffer copy() const {
    Buffer state(llama_state_seq_get_size_ext(context_, 0, 0));
    check(llama_state_seq_get_data_ext(context_, reinterpret_cast<uint8_t*>(state.bytes().data()),
                                       state.bytes().size(), 0, 0) == state.bytes().size(),
          "copy");
    return state;
  }
  void load(const Buffer& state) const {
    empty();
    check(llama_state_seq_set_data_ext(context_,
                                       reinterpret_cast<const uint8_t*>(state.bytes().data()),
                                       state.bytes().size(), 0, 0) == state.bytes().size(),
          "load");
  }

  // Gives the sequence n tokens.
  void fill(uint32_t n) const {
    const State one(block_state_->bytes(), 0, {});
    std::vector<std::byte> bytes(block * one.shape().token_bytes());
    one.cut(0, block, block, bytes.data());
    const Buffer all = make_state(one.shape(), 0, n);
    const State state(all.bytes(), 0, {});
    for (uint32_t i = 0; i < n; i += block)
      state.paste(i, std::min(block, n - i), block, bytes.data());
    load(all);
  }

  void decode(int32_t position, int32_t n, llama_seq_id sequence = 0) const {
    for (int32_t at = 0; at < n; at += batch) {
      llama_batch tokens = llama_batch_init(batch, 0, 1);
      tokens.n_tokens = std::min(batch, n - at);
      for (int32_t i = 0; i < tokens.n_tokens; i++) {
        tokens.token[i] = 1 + i * 7 % 40000, tokens.pos[i] = position + at + i;
        tokens.n_seq_id[i] = 1, tokens.seq_id[i][0] = sequence;
        tokens.logits[i] = at + i + 1 == n;
      }
      check(llama_decode(context_, tokens) == 0, "decode");
      llama_batch_free(tokens);
    }
    llama_synchronize(context_);
  }

 private:
  llama_context* context_;
  std::optional<Buffer> block_state_;
};

class Memory {
 public:
  Memory(const Engine& engine, uint64_t max_bytes, const char* directory = nullptr) {
    pkv_store store = {};
    store.struct_size = sizeof store;
    pkv_llama_config config = {};
    config.struct_size = sizeof config;
    config.context = engine.context(), config.max_bytes = max_bytes;
    config.wait_ms = 60000;  // a busy machine reads slowly
    if (directory != nullptr) {
      pkv_directory_config there = {};
      there.struct_size = sizeof there, there.path = directory;
      check(pkv_store_open_directory(&there, &store) == PKV_OK, "store");
      config.store = &store;
    }
    check(pkv_llama_open(&config, &llama_) == PKV_OK, "open");
    check(pkv_llama_get_cache(llama_, &cache_) == PKV_OK, "cache");
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { check(pkv_llama_close(llama_) == PKV_OK, "close"); }

  void remember(const Tokens& tokens) const {
    const pkv_prompt prompt = as_prompt(tokens);
    check(pkv_llama_remember(llama_, 0, &prompt) == PKV_OK, "remember");
  }
  uint64_t recall(const Tokens& tokens) const {
    const pkv_prompt prompt = as_prompt(tokens);
    uint64_t length;
    check(pkv_llama_recall(llama_, 0, &prompt, &length) == PKV_OK, "recall");
    return length;
  }
  uint64_t known(const Tokens& tokens) const {
    const pkv_prompt prompt = as_prompt(tokens);
    uint64_t cached;
    check(pkv_prefix_probe(cache_, &prompt, &cached) == PKV_OK, "probe");
    return cached;
  }
  pkv_llama_stats stats() const {
    pkv_llama_stats stats = {};
    stats.struct_size = sizeof stats;
    check(pkv_llama_get_stats(llama_, &stats) == PKV_OK, "stats");
    return stats;
  }
  uint64_t written() const {
    uint64_t queued;
    check(pkv_cache_flush_store(cache_, 600000, &queued) == PKV_OK && queued == 0, "flush");
    pkv_store_stats stats = {};
    stats.struct_size = sizeof stats;
    check(pkv_cache_get_store_stats(cache_, &stats) == PKV_OK, "store stats");
    return stats.written_bytes;
  }

 private:
  static pkv_prompt as_prompt(const Tokens& tokens) {
    pkv_prompt prompt = {};
    prompt.struct_size = sizeof prompt;
    prompt.tokens = tokens.data(), prompt.n = tokens.size();
    return prompt;
  }
  pkv_llama llama_ = nullptr;
  pkv_cache cache_ = nullptr;
};

void measure_turn(const Engine& engine, const char* directory, uint32_t depth, int rounds) {
  Times whole, loads, turns[2], recalls[2];
  uint64_t written = 0;
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  const Memory memory(engine, uint64_t(3) << 30, directory);
  engine.fill(depth - turn);
  memory.remember(text(depth - turn, depth - turn, 0));
  engine.fill(depth);
  std::optional<Buffer> state;
  for (int i = 0; i < 2 * rounds; i++) {
    const bool pieces = i % 2 == 1;  // they need another empty sequence
    engine.empty(1);
    if (!pieces) engine.decode(0, 1, 1);
    const Tokens tokens = text(depth - turn, depth, 1 + i);
    whole.add([&] { state.emplace(engine.copy()); });
    written = memory.written();
    turns[pieces].add([&] { memory.remember(tokens); });
    written = memory.written() - written;
    loads.add([&] { engine.load(*state); });
    engine.empty();
    recalls[pieces].add([&] { check(memory.recall(tokens) == depth, "recall all"); });
  }
  std::printf("| %u | %.0f | %.1f | %s | %s | %s | %s | %s | %s |\n", depth,
              double(state->bytes().size()) / mib, double(written) / mib, whole.ms().c_str(),
              turns[0].ms().c_str(), turns[1].ms().c_str(), loads.ms().c_str(),
              recalls[0].ms().c_str(), recalls[1].ms().c_str());
  std::fflush(stdout);
}

// What n tokens take, of which five batches were measured.
double sum(const std::vector<double>& parts, uint32_t n) {
  double sum = 0;
  for (size_t i = 1; i < parts.size(); i++) sum += (parts[i - 1] + parts[i]) / 2;
  return sum * n / batch / double(parts.size() - 1);
}

// Computing is measured in batches at five depths.
void measure_restart(const Engine& engine, const char* directory, uint32_t n, int rounds) {
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  const Tokens tokens = text(n, n, 0);
  {
    const Memory memory(engine, uint64_t(1) << 30, directory);
    engine.fill(n);
    memory.remember(tokens);
  }
  Times opens, recalls;
  for (int i = 0; i < rounds; i++) {
    engine.empty();
    std::optional<Memory> memory;
    opens.add([&] { memory.emplace(engine, uint64_t(1) << 30, directory); });
    const Tokens known(tokens.begin(), tokens.end() - 1);
    recalls.add([&] {
      const uint64_t length = memory->recall(known);
      check(length == (n - 1) / block * block, "recall after a restart");
      engine.decode(static_cast<int32_t>(length), static_cast<int32_t>(n - length));
    });
    Times parts;
    for (uint32_t part = 0; part <= 4; part++) {
      const uint32_t depth = part * (n - batch) / 4;
      if (part == 0)
        engine.empty();
      else
        engine.fill(depth);
      parts.add([&] { engine.decode(static_cast<int32_t>(depth), batch); });
    }
    const double wall = sum(parts.wall, n), cpu = sum(parts.cpu, n);
    std::printf("| %u | %.2f (%.2f) | %.2f (%.2f) | %.1f (%.1f) | %.0f (%.0f) |\n", n,
                opens.cpu.back(), opens.wall.back(), recalls.cpu.back(), recalls.wall.back(), cpu,
                wall, cpu / recalls.cpu.back(), wall / recalls.wall.back());
    std::fflush(stdout);
  }
}

// How many conversations are known in full, after another one was remembered: in memory, and with
// the directory behind it. The numbers of tokens and bytes are divided by `scale`.
void measure_capacity(const Engine& engine, const char* type, double max_bytes) {
  const uint64_t n = uint64_t(long_prompt) / scale / block * block, shared = 20000 / scale;
  std::vector<Tokens> talks;
  for (int i = 0; i < 20; i++) talks.push_back(text(shared, n, 1 + i));
  size_t most = 0;
  const Memory memory(engine, uint64_t(max_bytes / scale));
  engine.fill(static_cast<uint32_t>(n));
  for (size_t i = 0; i < talks.size(); i++) {
    memory.remember(talks[i]);
    size_t warm = 0;
    for (const Tokens& talk : talks) warm += memory.known(talk) == n;
    most = std::max(most, warm);
  }
  const pkv_llama_stats stats = memory.stats();
  check(stats.memory_bytes <= max_bytes / scale, "the limit");

  std::printf("| %s | %lu | %.2f | %.1f | %zu |\n", type,
              static_cast<unsigned long>(stats.token_bytes), max_bytes / gib,
              max_bytes / (long_prompt * double(stats.token_bytes)), most);
  std::fflush(stdout);
}

// As many conversations with a directory behind memory that is too small for them.
void measure_directory(const Engine& engine, const char* directory, double max_bytes) {
  const uint64_t n = uint64_t(long_prompt) / scale / block * block, shared = 20000 / scale;
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  const Memory memory(engine, uint64_t(max_bytes / scale), directory);
  engine.fill(static_cast<uint32_t>(n));
  for (int i = 0; i < 20; i++) {
    memory.remember(text(shared, n, 1 + i));
    memory.written();
  }
  Times times;
  int recalled = 0;
  for (int i = 0; i < 20; i++) {
    engine.empty();
    times.add([&] { recalled += memory.recall(text(shared, n, 1 + i)) == n; });
  }
  std::printf("\nWith a directory, %d of 20 are recalled in full; for 1/%u of one %s ms.\n",
              recalled, scale, times.ms().c_str());
}

double resident_mib() {
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  long pages = 0;
  check(file != nullptr && std::fscanf(file, "%*s %ld", &pages) == 1, "statm");
  std::fclose(file);
  return double(pages * getpagesize()) / mib;
}

// Conversations take turns in one sequence. Each one is left for a short text, and continued later.
void measure_talks(const Engine& engine, const std::string& directory, uint32_t n) {
  constexpr int talks = 6, others = 8;
  const uint32_t shared = n / 3 / block * block;
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  const Memory memory(engine, uint64_t(8) << 30);
  engine.fill(n);
  for (int i = 0; i < talks; i++) {
    // As llama-server packs the tokens of a slot: -1, a version, their number; no images.
    Tokens packed = text(shared, n, 1 + i);
    packed.insert(packed.begin(), {-1, 1, static_cast<llama_token>(n)});
    packed.push_back(0);
    const std::string file = directory + "/" + std::to_string(i);
    check(llama_state_seq_save_file(engine.context(), file.c_str(), 0, packed.data(),
                                    packed.size()) > 0,
          "save");
  }
  Times first, back, again;
  const auto leave = [&](const Tokens& tokens) {
    memory.remember(tokens);
    engine.empty();
    engine.decode(0, others);
  };
  const double before = resident_mib();
  for (int i = 0; i < talks; i++) {
    engine.fill(n);
    first.add([&] { leave(text(shared, n, 1 + i)); });
  }
  const double after = resident_mib();
  for (int i = 0; i < talks; i++) {
    Tokens tokens = text(shared, n, 1 + i);
    back.add([&] {
      engine.empty();
      check(memory.recall(tokens) == n, "recall");
      engine.decode(static_cast<int32_t>(n), 1);
    });
    tokens.push_back(1);
    again.add([&] { leave(tokens); });
  }
  const auto ms = [](const Times& times) { return 1e3 * Times::best(times.wall); };
  std::printf("pagedkv %u %d %.0f %.0f %.0f %.0f\n", n, talks, ms(first), ms(back), ms(again),
              (after - before) / talks);
}

}  // namespace

int main(int argc, char** argv) {
  check(argc == 6, "usage: prompts MODEL BACKENDS DIRECTORY THREADS ROUNDS|talks");
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  ggml_backend_load_all_from_path(argv[2]);
  llama_model* const model = llama_model_load_from_file(argv[1], llama_model_default_params());
  check(model != nullptr, "model");
  const int threads = std::atoi(argv[4]), rounds = std::atoi(argv[5]);
  if (std::string(argv[5]) == "talks") {
    for (const uint32_t n : {2048u, 7680u})  // llama-server takes no more than 8,192 tokens
      measure_talks(Engine(model, n + batch, threads, GGML_TYPE_F16),
                    std::string(argv[3]) + "/" + std::to_string(n), n);
    return 0;
  }
  std::printf(
      "| tokens | whole state, MiB | written, MiB | copied out, ms | remember, ms | in pieces, ms "
      "| loaded whole, ms | recall, ms | in pieces, ms |\n"
      "|---|---|---|---|---|---|---|---|---|\n");
  for (const uint32_t depth : {2048u, 16384u, 65536u})
    measure_turn(Engine(model, depth + batch, threads, GGML_TYPE_F16), argv[3], depth, rounds);
  std::printf(
      "\n| tokens | open, s | first token after a restart, s | computed, s | ratio |\n"
      "|---|---|---|---|---|\n");
  measure_restart(Engine(model, 16384 + batch, threads, GGML_TYPE_F16), argv[3], 16384, rounds);
  std::printf(
      "\n| type | bytes of a token | GiB | whole states | with shared blocks |\n"
      "|---|---|---|---|---|\n");
  // Of a model whose tokens have as many bytes as in the report, 8 GiB hold as much as this.
  const double like_reported = 8 * gib * 23040 / reported_bytes;
  const uint32_t cells = uint32_t(long_prompt) / scale + batch;
  for (const ggml_type type : {GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0})
    for (const double bytes : {like_reported, 8 * gib})
      measure_capacity(Engine(model, cells, threads, type), ggml_type_name(type), bytes);
  measure_directory(Engine(model, cells, threads, GGML_TYPE_F16), argv[3], like_reported);
  llama_model_free(model);
}
