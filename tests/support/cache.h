// What every test of a cache needs: calls that must work, handles that close themselves, and short
// ways to make caches and sessions.
#pragma once

#include <gtest/gtest.h>
#include <pagedkv/pagedkv.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "enums.h"
#include "isa.h"
#include "made.h"

namespace cache_test {

// A call that must return PKV_OK. Otherwise the test fails with the library's sentence.
#define CHECK(call) ::cache_test::check((call), #call)
// A call that must fail with this status.
#define REFUSED(status, call) EXPECT_EQ(status, call) << pkv_last_error()

inline void check(pkv_status status, const char* call) {
  if (status != PKV_OK)
    throw std::runtime_error(std::string(call) + ": " + pkv_status_name(status) + ": " +
                             pkv_last_error());
}

// Owns one handle. Closing it at the end must work, so every test checks that, too.
template <class T, pkv_status (*close_handle)(T)>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T handle) : handle_(handle) {}
  Handle(Handle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Handle() { close(); }

  operator T() const { return handle_; }
  T get() const { return handle_; }
  // Gives up a handle that the library closed, or that ended with its cache.
  void forget() { handle_ = nullptr; }
  void close() {
    if (handle_ == nullptr) return;
    const pkv_status status = close_handle(std::exchange(handle_, nullptr));
    EXPECT_EQ(PKV_OK, status) << pkv_last_error();
  }

 private:
  T handle_ = nullptr;
};

using Pool = Handle<pkv_pool, pkv_pool_destroy>;
using Cache = Handle<pkv_cache, pkv_cache_destroy>;
using Session = Handle<pkv_session, pkv_session_close>;
using Batch = Handle<pkv_batch, pkv_batch_abort>;
using Snapshot = Handle<pkv_snapshot, pkv_snapshot_close>;

struct Model {
  uint32_t layers = 1, query_heads = 1, kv_heads = 1, key_dim = 16, value_dim = 0;
  pkv_dtype dtype = PKV_F32;
  uint32_t window = 0;
  pkv_dtype value_dtype = static_cast<pkv_dtype>(0);
  uint32_t sinks = 0;
  pkv_layer_kind kind = PKV_LAYERS_KV;
  pkv_rotation rotation = PKV_ROTATION_NONE;
  const pkv_rotation_matrices* rotation_matrices = nullptr;
  uint64_t layer_bytes = 0;  // of states and of opaque layers, which have no heads, dims and dtypes

  bool latent() const { return kind == PKV_LAYERS_LATENT; }
  bool has_states() const { return kind == PKV_LAYERS_STATES || kind == PKV_LAYERS_OPAQUE_STATES; }
  bool opaque() const { return kind == PKV_LAYERS_OPAQUE_KV || kind == PKV_LAYERS_OPAQUE_STATES; }
  uint32_t values() const { return value_dim == 0 ? key_dim : value_dim; }
  pkv_dtype values_dtype() const { return value_dtype == 0 ? dtype : value_dtype; }
};

inline pkv_layer_group group_of(const Model& model) {
  if (model.has_states() || model.opaque())
    return made<pkv_layer_group>({.layers = model.layers,
                                  .kind = model.kind,
                                  .window = model.window,
                                  .sink_tokens = model.sinks,
                                  .layer_bytes = model.layer_bytes});
  return made<pkv_layer_group>({.layers = model.layers,
                                .kind = model.kind,
                                .query_heads = model.query_heads,
                                .kv_heads = model.kv_heads,
                                .key_dim = model.key_dim,
                                .value_dim = model.value_dim,
                                .dtype = model.dtype,
                                .value_dtype = model.value_dtype,
                                .window = model.window,
                                .sink_tokens = model.sinks,
                                .rotation = model.rotation,
                                .rotation_matrices = model.rotation_matrices});
}

inline ModelConfig config_of(const Model& model, uint64_t blocks,
                             pkv_storage storage = PKV_STORAGE_INTERNAL) {
  ModelConfig config;
  config.storage = storage;
  config.model = group_of(model);
  config.model.blocks = blocks;
  return config;
}

inline Cache create(const pkv_cache_config& config) {
  pkv_cache cache;
  CHECK(pkv_cache_create(&config, &cache));
  return Cache(cache);
}

inline Pool make_pool(uint32_t blocks) {
  auto config = made<pkv_pool_config>({.blocks = blocks});
  pkv_pool pool;
  CHECK(pkv_pool_create(&config, &pool));
  return Pool(pool);
}

inline pkv_cache_sizes sizes_of(const pkv_cache_config& config, uint32_t group = PKV_ALL_GROUPS) {
  auto plan = made<pkv_cache_sizes>();
  CHECK(pkv_cache_compute_sizes(&config, group, &plan));
  return plan;
}

// Sets the number of blocks of all groups of a config, which are variables.
inline void set_blocks(const pkv_cache_config& config, uint64_t blocks) {
  auto* const groups = const_cast<pkv_layer_group*>(config.groups);
  for (uint32_t g = 0; g < std::max(config.group_count, 1u); g++) groups[g].blocks = blocks;
}

// The memory of the blocks of all groups becomes one memory that they share.
inline void share_memory(pkv_cache_config& config) {
  config.memory_bytes = sizes_of(config).memory_bytes;
  set_blocks(config, 0);
  config.groups_share_memory = 1;
}

inline pkv_cache_stats stats_of(pkv_cache cache) {
  auto stats = made<pkv_cache_stats>();
  CHECK(pkv_cache_get_stats(cache, &stats));
  return stats;
}

inline pkv_pool_stats pool_stats_of(pkv_cache cache, uint32_t group = PKV_ALL_GROUPS) {
  auto stats = made<pkv_pool_stats>();
  CHECK(pkv_cache_get_pool_stats(cache, group, &stats));
  return stats;
}

inline uint32_t block_size_of(pkv_cache cache) {
  auto info = made<pkv_cache_info>();
  CHECK(pkv_cache_get_info(cache, &info));
  return info.block_size;
}

// Statistics that count tokens of full blocks, with the same counts in blocks.
struct PrefixStats : pkv_prefix_stats {
  uint64_t published_blocks, evicted_blocks, expelled_blocks, cleared_blocks, cached_blocks,
      evictable_blocks, pinned_blocks;
};
struct StoreStats : pkv_store_stats {
  uint64_t queued_blocks, unwritten_blocks;
};

inline uint64_t whole_blocks(uint64_t tokens, uint32_t block_size) {
  EXPECT_EQ(0u, tokens % block_size);
  return tokens / block_size;
}

// The figures of the prefix index, for all salts or for one.
inline PrefixStats prefix_stats_of(pkv_cache cache, const char* salt = nullptr,
                                   size_t salt_size = PKV_ALL_SALTS) {
  PrefixStats stats{};
  stats.struct_size = sizeof(pkv_prefix_stats);
  CHECK(pkv_prefix_get_stats(cache, salt, salt_size, &stats));
  const uint32_t size = block_size_of(cache);
  stats.published_blocks = whole_blocks(stats.published_tokens, size);
  stats.evicted_blocks = whole_blocks(stats.evicted_tokens, size);
  stats.expelled_blocks = whole_blocks(stats.expelled_tokens, size);
  stats.cleared_blocks = whole_blocks(stats.cleared_tokens, size);
  stats.cached_blocks = whole_blocks(stats.cached_tokens, size);
  stats.evictable_blocks = whole_blocks(stats.evictable_tokens, size);
  stats.pinned_blocks = whole_blocks(stats.pinned_tokens, size);
  return stats;
}

inline StoreStats store_stats_of(pkv_cache cache) {
  StoreStats stats{};
  stats.struct_size = sizeof(pkv_store_stats);
  CHECK(pkv_cache_get_store_stats(cache, &stats));
  const uint32_t size = block_size_of(cache);
  stats.queued_blocks = whole_blocks(stats.queued_tokens, size);
  stats.unwritten_blocks = whole_blocks(stats.lost_tokens, size);
  return stats;
}

// Waits until the store has what was given to it. Returns how many tokens still wait, after a
// minute.
inline uint64_t flush_store(pkv_cache cache) {
  uint64_t queued = 99;
  CHECK(pkv_cache_flush_store(cache, 60000, &queued));
  return queued;
}

inline pkv_kv_view kv_view_of(pkv_cache cache, uint32_t layer) {
  auto view = made<pkv_kv_view>();
  CHECK(pkv_cache_get_kv_view(cache, layer, &view));
  return view;
}

inline Session open(pkv_cache cache, uint64_t reserved_tokens = 0) {
  pkv_session handle;
  CHECK(pkv_session_open(cache, nullptr, &handle));
  Session session(handle);
  if (reserved_tokens != 0) CHECK(pkv_session_reserve(session, reserved_tokens));
  return session;
}

inline Session fork(pkv_session parent) {
  pkv_session child;
  CHECK(pkv_session_fork(parent, &child));
  return Session(child);
}

inline Snapshot freeze(pkv_session session) {
  pkv_snapshot snapshot;
  CHECK(pkv_snapshot_take(session, &snapshot));
  return Snapshot(snapshot);
}

inline Session thaw(pkv_snapshot snapshot) {
  pkv_session session;
  CHECK(pkv_snapshot_fork(snapshot, &session));
  return Session(session);
}

inline Batch begin(pkv_cache cache, const std::vector<pkv_session>& sessions,
                   const std::vector<uint32_t>& new_tokens) {
  pkv_batch batch;
  CHECK(pkv_batch_begin(cache, sessions.size(), sessions.data(), new_tokens.data(), &batch));
  return Batch(batch);
}

inline void commit(Batch& batch, std::span<const int32_t> tokens = {}) {
  CHECK(pkv_batch_commit(batch, tokens.size(), tokens.empty() ? nullptr : tokens.data()));
  batch.forget();
}

// Adds tokens without keys and values, for storage EXTERNAL.
inline void grow(pkv_cache cache, pkv_session session, uint32_t tokens) {
  Batch batch = begin(cache, {session}, {tokens});
  commit(batch);
}

inline uint64_t length_of(pkv_session session) {
  uint64_t length;
  CHECK(pkv_session_get_length(session, &length));
  return length;
}

inline pkv_session_info info_of(pkv_session session) {
  auto info = made<pkv_session_info>();
  CHECK(pkv_session_get_info(session, &info));
  return info;
}

inline std::vector<int32_t> tokens_of(pkv_session session, uint64_t count) {
  std::vector<int32_t> tokens(count);
  CHECK(pkv_session_get_tokens(session, 0, count, tokens.data()));
  return tokens;
}

inline std::vector<uint32_t> block_table(pkv_session session, uint32_t group = 0) {
  size_t count = 0;
  const pkv_status status = pkv_session_get_block_table(session, group, 0, nullptr, &count);
  if (status != PKV_BUFFER_TOO_SMALL) CHECK(status);
  std::vector<uint32_t> ids(count);
  CHECK(pkv_session_get_block_table(session, group, count, ids.data(), &count));
  return ids;
}

// The slots of the first n positions by the block table; -1 where there is no block.
inline std::vector<int64_t> slots_of(pkv_session session, size_t n, uint32_t group = 0,
                                     int64_t block_size = 16) {
  const std::vector<uint32_t> table = block_table(session, group);
  std::vector<int64_t> slots;
  for (int64_t i = 0; i < static_cast<int64_t>(n); i++) {
    const uint32_t id = table.at(static_cast<size_t>(i / block_size));
    slots.push_back(id == PKV_NO_BLOCK_ID ? -1 : int64_t{id} * block_size + i % block_size);
  }
  return slots;
}

// The slots that each session of a batch reads, one list after the other.
inline std::vector<int64_t> kv_indices(pkv_batch batch, std::vector<uint32_t>& indptr,
                                       uint32_t group = 0) {
  size_t count = 0;
  const pkv_status status = pkv_batch_get_kv_indices(batch, group, PKV_INDEX_SLOTS, indptr.data(),
                                                     0, nullptr, &count, nullptr);
  if (status != PKV_BUFFER_TOO_SMALL) CHECK(status);
  std::vector<uint32_t> slots(count);
  CHECK(pkv_batch_get_kv_indices(batch, group, PKV_INDEX_SLOTS, indptr.data(), count, slots.data(),
                                 &count, nullptr));
  return {slots.begin(), slots.end()};
}

// The slots that a session reads between two steps.
inline std::vector<int64_t> kv_indices(pkv_cache cache, pkv_session session, uint32_t group = 0) {
  std::vector<uint32_t> indptr(2);
  return kv_indices(begin(cache, {session}, {0}), indptr, group);
}

inline std::vector<int64_t> slot_mapping(pkv_batch batch, uint32_t group = 0) {
  size_t count = 0;
  const pkv_status status = pkv_batch_get_slot_mapping(batch, group, 0, nullptr, &count);
  if (status != PKV_BUFFER_TOO_SMALL) CHECK(status);
  std::vector<int64_t> slots(count);
  CHECK(pkv_batch_get_slot_mapping(batch, group, count, slots.data(), &count));
  return slots;
}

// Returns the instruction sets that this machine can run, the best one last.
inline std::vector<pkv_isa> supported_isas() {
  std::vector<pkv_isa> isas;
  for (const pkv_isa isa : pkv::test::instruction_sets)
    if (pkv::test::isa_supported(isa)) isas.push_back(isa);
  return isas;
}

}  // namespace cache_test
