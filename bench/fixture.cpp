#include "fixture.h"

#include <algorithm>
#include <cstring>

namespace pkv::bench {

static pkv_isa given_isa = PKV_ISA_AUTO;

const char* dtype_name(pkv_dtype dtype) {
  static const char* const names[] = {"none", "f32",      "f16",      "bf16", "int8",
                                      "int4", "fp8_e4m3", "fp8_e5m2", "q8_0", "q4_0"};
  return names[dtype];
}

pkv_layer_group Geometry::layer_group(uint32_t layers) const {
  auto layer_group = made<pkv_layer_group>();
  layer_group.layers = layers;
  layer_group.query_heads = query_heads();
  layer_group.kv_heads = kv_heads;
  layer_group.key_dim = dim;
  layer_group.dtype = dtype;
  layer_group.rotation = rotation;
  layer_group.blocks = uint64_t{sessions} * ((tokens + extra) / block_size + 1);
  return layer_group;
}

pkv_cache_config Geometry::config(const pkv_layer_group& layer_group) const {
  auto config = made<pkv_cache_config>();
  config.groups = &layer_group;
  config.threads = threads;
  config.runner = runner;
  config.isa = isa == PKV_ISA_AUTO ? given_isa : isa;
  config.layout = layout;
  config.memory_directory = memory_directory;
  config.block_size = block_size;
  return config;
}

static pkv_cache_sizes sizes_of(const Geometry& geometry) {
  const pkv_layer_group group = geometry.layer_group();
  const pkv_cache_config config = geometry.config(group);
  auto plan = made<pkv_cache_sizes>();
  check(pkv_cache_compute_sizes(&config, 0, &plan));
  return plan;
}

pkv_cache create_ids_only(uint32_t block_size, uint64_t blocks, const pkv_prefix_config* prefix,
                          const pkv_allocator* allocator) {
  pkv_layer_group group = Geometry{}.layer_group();
  group.blocks = blocks;
  auto config = made<pkv_cache_config>();
  config.groups = &group;
  config.storage = PKV_STORAGE_EXTERNAL;
  config.block_size = block_size;
  config.prefix = prefix;
  config.allocator = allocator;
  pkv_cache cache;
  check(pkv_cache_create(&config, &cache));
  return cache;
}

uint64_t Geometry::kv_bytes() const {
  return uint64_t{sessions} * tokens * sizes_of(*this).bytes_per_token;
}

uint64_t Geometry::total_bytes() const { return sizes_of(*this).memory_bytes; }

std::string Geometry::name() const {
  return std::string(dtype_name(dtype)) + "/gqa" + std::to_string(group) + "/dim" +
         std::to_string(dim) + "/sessions" + std::to_string(sessions) + "/tokens" +
         std::to_string(tokens);
}

Rows::Rows(size_t rows, uint32_t heads, uint32_t dim, pkv_dtype dtype) {
  const size_t n = rows * heads * dim;
  bytes_.resize(n * (dtype == PKV_F32 ? 4 : 2));
  uint32_t state = 12345;
  for (size_t i = 0; i < n; i++) {
    state = state * 1664525 + 1013904223;
    const float x = static_cast<float>(state >> 8) / 8388608.0f - 1.0f;
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    // The upper half of a float is bf16; other bits of it make a binary16 number near 1.
    const auto upper =
        static_cast<uint16_t>(dtype == PKV_BF16 ? bits >> 16 : 0x3000u | (bits >> 10 & 0x8FFFu));
    if (dtype == PKV_F32)
      std::memcpy(bytes_.data() + i * 4, &bits, 4);
    else
      std::memcpy(bytes_.data() + i * 2, &upper, 2);
  }
  tensor_ = {bytes_.data(), dtype, 0, 0, 0, 0, bytes_.size()};
}

Filled::Filled(const Geometry& geometry, bool prefilled) : sessions_(geometry.sessions) {
  const pkv_layer_group group = geometry.layer_group();
  pkv_cache_config config = geometry.config(group);
  config.prefault = 1;
  check(pkv_cache_create(&config, &cache_));
  const Rows rows(prefilled ? geometry.tokens : 0, geometry.kv_heads, geometry.dim);
  for (pkv_session& session : sessions_) {
    check(pkv_session_open(cache_, nullptr, &session));
    if (prefilled) check(append(cache_, session, geometry.tokens, 1, rows.tensor(), rows.tensor()));
  }
}

// Rows of a step have the stored type, as in a model, or bf16 if rows cannot have the stored type.
static pkv_dtype rows_dtype(pkv_dtype stored) { return stored <= PKV_BF16 ? stored : PKV_BF16; }

Step::Step(const Geometry& geometry, Filled& filled, uint32_t new_tokens)
    : kv_(size_t{geometry.sessions} * new_tokens, geometry.kv_heads, geometry.dim,
          rows_dtype(geometry.dtype)),
      q_(size_t{geometry.sessions} * new_tokens, geometry.query_heads(), geometry.dim,
         rows_dtype(geometry.dtype)),
      out_(size_t{geometry.sessions} * new_tokens, geometry.query_heads(), geometry.dim,
           rows_dtype(geometry.dtype)),
      batch_(filled.begin(new_tokens)) {
  write();
  attend();  // the first call allocates working memory
}

pkv_batch Filled::begin(uint32_t new_tokens) {
  const std::vector<uint32_t> counts(sessions_.size(), new_tokens);
  pkv_batch batch;
  check(pkv_batch_begin(cache_, sessions_.size(), sessions_.data(), counts.data(), &batch));
  return batch;
}

double shortest(benchmark::State& state, std::vector<double>& seconds) {
  constexpr double noisy = 0.2;
  std::sort(seconds.begin(), seconds.end());
  const double spread = seconds[seconds.size() / 2] / seconds[0] - 1;
  benchmark::Counter& reported = state.counters["spread"];
  reported = std::max(reported.value, spread);
  if (spread > noisy) state.SetLabel("noisy: the median is over a fifth above the best time");
  return seconds[0];
}

static bool is_short = false;

bool short_run() { return is_short; }

// Returns the instruction set of a name. Ends the process if there is none.
static pkv_isa isa_named(const char* name) {
  for (int isa = PKV_ISA_AUTO; std::strcmp(pkv_isa_name(static_cast<pkv_isa>(isa)), "unknown") != 0;
       isa++)
    if (std::strcmp(pkv_isa_name(static_cast<pkv_isa>(isa)), name) == 0)
      return static_cast<pkv_isa>(isa);
  std::fprintf(stderr, "there is no instruction set named %s\n", name);
  std::exit(1);
}

int run(int argc, char** argv, void (*register_all)()) {
  std::vector<char*> arguments;
  static char min_time[] = "--benchmark_min_time=0.1";
  for (int i = 0; i < argc; i++) {
    if (std::strncmp(argv[i], "--isa=", 6) == 0) {
      given_isa = isa_named(argv[i] + 6);
      continue;
    }
    if (std::strcmp(argv[i], "--short") != 0) {
      arguments.push_back(argv[i]);
      continue;
    }
    is_short = true;
    arguments.insert(arguments.begin() + 1, min_time);
  }
  register_all();
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace pkv::bench
