#include "cache.h"

#include <algorithm>
#include <chrono>
#include <numeric>

namespace pkv::serve {

void check(pkv_status status, const char* what) {
  if (status != PKV_OK) throw std::runtime_error(std::string(what) + ": " + pkv_last_error());
}

namespace {

pkv_layer_group group_of(const Options& options) {
  auto group = made<pkv_layer_group>();
  group.layers = options.layers;
  group.query_heads = options.query_heads;
  group.kv_heads = options.kv_heads;
  group.key_dim = options.dim;
  group.dtype = options.dtype;
  group.blocks = options.blocks;
  return group;
}

pkv_cache_config config_of(const Options& options, const pkv_layer_group& group) {
  auto config = made<pkv_cache_config>();
  config.groups = &group;
  config.storage = options.ids_only ? PKV_STORAGE_EXTERNAL : PKV_STORAGE_INTERNAL;
  config.block_size = options.block_size;
  config.memory_bytes = options.memory;
  config.threads = options.threads;
  return config;
}

uint64_t longest_of(const Trace& trace) {
  uint64_t longest = 0;
  for (const Request& request : trace.requests) longest = std::max(longest, request.length());
  return longest;
}

// Rows of random numbers in [-1, 1).
std::vector<float> random_rows(size_t elements) {
  std::vector<float> rows(elements);
  for (size_t i = 0; i < elements; i++)
    rows[i] = static_cast<float>(static_cast<int32_t>(mix(7, i) >> 32)) * 0x1p-31f;
  return rows;
}

}  // namespace

Cache::Cache(const Options& options, const Setup& setup, const Trace& trace)
    : options_(options), setup_(setup), longest_(longest_of(trace)) {
  const pkv_layer_group group = group_of(options);
  pkv_cache_config config = config_of(options, group);
  auto plan = made<pkv_cache_sizes>();
  if (pkv_cache_compute_sizes(&config, PKV_ALL_GROUPS, &plan) != PKV_OK)
    throw InputError(pkv_last_error());
  blocks_ = plan.blocks;
  bytes_per_block_ = plan.bytes_per_block;

  if (options.context > 0 && options.context < longest_)
    throw InputError("--context " + std::to_string(options.context) +
                     " is less than the longest text of the trace, " + std::to_string(longest_) +
                     " tokens");
  longest_ = std::max(longest_, options.context);
  const uint64_t needed = blocks_of(longest_, options.block_size);
  if (needed > blocks_)
    throw InputError("the longest text has " + std::to_string(longest_) + " tokens and needs " +
                     std::to_string(needed) + " blocks of " + std::to_string(options.block_size) +
                     "; the cache has " + std::to_string(blocks_));
  // The longest request must be able to begin if it is alone.
  const auto wanted = static_cast<uint64_t>(options.watermark * static_cast<double>(blocks_));
  watermark_ = static_cast<uint32_t>(std::min(wanted, blocks_ - needed));
  if (setup.reserve != Reserve::none) watermark_ = 0;
  config.watermark_blocks = watermark_;

  auto prefix = made<pkv_prefix_config>();
  prefix.eviction = options.policy;
  if (setup.prefix) config.prefix = &prefix;
  if (pkv_cache_create(&config, &cache_) != PKV_OK) throw InputError(pkv_last_error());

  if (options.ids_only) return;
  const size_t most = options.budget + options.running;
  rows_ = random_rows(most * options.query_heads * options.dim);
  out_.resize(most * options.query_heads * options.dim);
}

uint64_t Cache::reservation(const Request& request) const {
  if (setup_.reserve == Reserve::none) return 0;
  return setup_.reserve == Reserve::longest ? longest_ : request.length();
}

pkv_cache_stats Cache::stats() const {
  auto stats = made<pkv_cache_stats>();
  check(pkv_cache_get_stats(cache_, &stats), "stats");
  return stats;
}

pkv_pool_stats Cache::pool_stats() const {
  auto stats = made<pkv_pool_stats>();
  check(pkv_cache_get_pool_stats(cache_, 0, &stats), "stats");
  return stats;
}

pkv_status Cache::open(const Request& request, pkv_session* session) const {
  const uint64_t tenant = mix(request.tenant, 0) % options_.salts;
  auto config = made<pkv_session_config>();
  if (options_.salts > 1) {
    config.salt = &tenant;
    config.salt_size = sizeof tenant;
  }
  check(pkv_session_open(cache_, &config, session), "opening a session");
  const uint64_t tokens = reservation(request);
  const pkv_status status = tokens == 0 ? PKV_OK : pkv_session_reserve(*session, tokens);
  if (status == PKV_OUT_OF_BLOCKS) {
    check(pkv_session_close(*session), "close");
    return status;
  }
  check(status, "reserving");
  return PKV_OK;
}

void Cache::compute(pkv_batch batch, size_t rows, const LayerWritten* written) {
  // There are at least as many query heads as KV heads, and keys are as long as queries, so one set
  // of rows serves all three.
  const pkv_tensor in{rows_.data(), PKV_F32, 0, 0, 0, 0, 0},
      out{out_.data(), PKV_F32, 0, 0, 0, 0, 0};
  if (rows > rows_.size() / (size_t{options_.query_heads} * options_.dim))
    throw std::logic_error("a step has more rows than were made");
  for (uint32_t layer = 0; layer < options_.layers; layer++) {
    check(pkv_batch_write(batch, layer, &in, &in), "write");
    if (written != nullptr) (*written)(layer, rows_.data());
    check(pkv_batch_attend(batch, layer, nullptr, &in, &out, nullptr), "attend");
  }
}

pkv_status Cache::step(std::span<const pkv_session> sessions, std::span<const uint32_t> counts,
                       const int32_t* tokens, double* seconds, const LayerWritten* written) {
  const auto begin = std::chrono::steady_clock::now();
  pkv_batch batch;
  const pkv_status status =
      pkv_batch_begin(cache_, sessions.size(), sessions.data(), counts.data(), &batch);
  if (status == PKV_OUT_OF_BLOCKS) return status;
  check(status, "begin");
  const size_t rows = std::accumulate(counts.begin(), counts.end(), size_t{0});
  if (!options_.ids_only) compute(batch, rows, written);
  check(pkv_batch_commit(batch, tokens != nullptr ? rows : 0, tokens), "commit");
  *seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (options_.modelled) {
    const auto decodes = static_cast<double>(std::count(counts.begin(), counts.end(), 1u));
    *seconds = (options_.step_ms + options_.prefill_ms * (static_cast<double>(rows) - decodes) +
                options_.decode_ms * decodes) /
               1000;
  }
  return PKV_OK;
}

}  // namespace pkv::serve
