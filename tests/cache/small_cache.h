// Small caches for random plays: groups of a few heads of 16 dims, and groups of states.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <ostream>
#include <vector>

#include "engine_memory.h"

namespace cache_test {

struct SmallGroup {
  uint32_t window = 0, sinks = 0;
  uint64_t state_bytes = 0;  // 0: the group keeps K and V
  uint32_t checkpoint_interval = 0, max_verify_tokens = 0;
  uint64_t blocks = 0;                // 0: as many as the cache says
  std::vector<uint32_t> layers = {};  // none: the layer of the group's number
  bool elsewhere = false;             // only the engine can read its blocks
  uint32_t heads = 1, value_dim = 16;
  pkv_dtype dtype = PKV_F32;
  bool rotated = false;  // by matrices under which small whole numbers stay exact

  bool has_states() const { return state_bytes != 0; }
  pkv_layer_kind kind() const {
    if (elsewhere) return has_states() ? PKV_LAYERS_OPAQUE_STATES : PKV_LAYERS_OPAQUE_KV;
    return has_states() ? PKV_LAYERS_STATES : PKV_LAYERS_KV;
  }
};

struct SmallCache {
  const char* name = "";
  std::vector<SmallGroup> groups = {};
  uint64_t blocks = 0;  // of each group
  bool prefix = true;
  bool shared = false;  // the groups share the memory of these blocks
  pkv_storage storage = PKV_STORAGE_INTERNAL;
  pkv_layout layout = PKV_LAYOUT_PACKED;
  uint32_t watermark = 0;
  bool stored = false;                 // for plays that can put a store behind it
  uint64_t max_pinned = 6, quota = 0;  // in blocks
  pkv_eviction eviction = PKV_EVICTION_LEARNED;
  const char* directory = nullptr;  // of the file that the memory is

  bool has_states() const {
    return std::any_of(groups.begin(), groups.end(), [](const auto& g) { return g.has_states(); });
  }
  // Returns whether the library has the rows or states of a group, or of all.
  bool has_rows(size_t group) const {
    return storage != PKV_STORAGE_EXTERNAL && !groups[group].elsewhere;
  }
  bool has_rows() const { return storage != PKV_STORAGE_EXTERNAL && !elsewhere(); }
  bool elsewhere() const {
    return std::any_of(groups.begin(), groups.end(), [](const auto& g) { return g.elsewhere; });
  }
  std::vector<uint32_t> layers_of(uint32_t group) const {
    return groups[group].layers.empty() ? std::vector{group} : groups[group].layers;
  }
};
// GoogleTest calls this.
inline void PrintTo(const SmallCache& kind, std::ostream* out) { *out << kind.name; }

// A Hadamard matrix for each 16 dims, times 1 / 4.
template <uint32_t dim>
constexpr std::array<float, size_t{dim} * dim> exact_rotation() {
  std::array<float, size_t{dim} * dim> matrix{};
  for (uint32_t i = 0; i < dim; i++)
    for (uint32_t j = i / 16 * 16; j < i / 16 * 16 + 16; j++)
      matrix[i * dim + j] = std::popcount(i % 16 & j % 16) % 2 != 0 ? -0.25f : 0.25f;
  return matrix;
}

// Groups that are elsewhere need an engine.
inline Cache create(const SmallCache& kind, const pkv_store_config* store = nullptr,
                    EngineMemory* engine = nullptr, const pkv_clock* clock = nullptr,
                    const pkv_allocator* allocator = nullptr) {
  static constexpr auto key_rotation = exact_rotation<16>();
  static constexpr auto value_rotation = exact_rotation<32>();
  static const auto matrices =
      made<pkv_rotation_matrices>({.key = key_rotation.data(), .value = value_rotation.data()});
  std::vector<pkv_layer_group> groups;
  for (const SmallGroup& from : kind.groups) {
    pkv_layer_group& group = groups.emplace_back(made<pkv_layer_group>());
    group.layers = from.layers.empty() ? 1 : static_cast<uint32_t>(from.layers.size());
    group.layer_indices = from.layers.empty() ? nullptr : from.layers.data();
    group.blocks = from.blocks != 0 ? from.blocks : kind.blocks;
    group.window = from.window;
    group.sink_tokens = from.sinks;
    group.checkpoint_interval = from.checkpoint_interval;
    group.max_verify_tokens = from.max_verify_tokens;
    group.kind = from.kind();
    group.layer_bytes =
        from.elsewhere ? EngineMemory::block_bytes / group.layers : from.state_bytes;
    if (group.kind != PKV_LAYERS_KV) continue;
    group.query_heads = group.kv_heads = from.heads;
    group.key_dim = 16;
    group.value_dim = from.value_dim;
    group.dtype = from.dtype;
    if (from.rotated) group.rotation_matrices = &matrices;
  }
  auto prefix = made<pkv_prefix_config>({.eviction = kind.eviction,
                                         .max_pinned_tokens = 16 * kind.max_pinned,
                                         .max_tokens_per_salt = 16 * kind.quota,
                                         .max_events = 4096});
  auto config = made<pkv_cache_config>({.group_count = static_cast<uint32_t>(groups.size()),
                                        .groups = groups.data(),
                                        .storage = kind.storage,
                                        .layout = kind.layout,
                                        .watermark_blocks = kind.watermark,
                                        .memory_directory = kind.directory,
                                        .threads = 1,
                                        .prefix = kind.prefix ? &prefix : nullptr,
                                        .store = store,
                                        .allocator = allocator,
                                        .block_io = kind.elsewhere() ? engine->hooks() : nullptr,
                                        .clock = clock});
  if (kind.shared) share_memory(config);
  return create(config);
}

// The finaliser of splitmix64.
inline uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

}  // namespace cache_test
