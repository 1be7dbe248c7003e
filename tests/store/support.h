// Caches with texts, saves and loads, and the comparison of two sessions.
#pragma once

#include <pagedkv/file.h>

#include <functional>
#include <optional>

#include "../cache/engine_memory.h"
#include "../support/cache.h"
#include "../support/rows.h"

namespace store {

using namespace cache_test;

using Bytes = std::vector<unsigned char>;

inline constexpr pkv_rotation hadamard = PKV_ROTATION_HADAMARD;

// The configuration of a cache: its layer groups, and how they are stored.
struct Plan {
  std::vector<Model> groups =
      std::vector<Model>(1, {.layers = 2, .query_heads = 4, .kv_heads = 2, .key_dim = 16});
  pkv_storage storage = PKV_STORAGE_INTERNAL;
  pkv_layout layout = PKV_LAYOUT_PACKED;
  uint32_t block_size = 16;
  uint64_t blocks = 256;
  bool prefix = false;
  pkv_isa isa = PKV_ISA_AUTO;
  const pkv_allocator* allocator = nullptr;
  uint32_t threads = 1;
  const pkv_runner* runner = nullptr;
  const char* memory_directory = nullptr;
  EngineMemory* engine = nullptr;  // has the opaque groups; each cache has its own

  bool has_rows(uint32_t layer) const {
    return storage != PKV_STORAGE_EXTERNAL && !of_layer(layer).opaque();
  }
  const Model& of_layer(uint32_t layer) const {
    size_t g = 0;
    for (; layer >= groups[g].layers; g++) layer -= groups[g].layers;
    return groups[g];
  }
  uint32_t layers() const {
    uint32_t layers = 0;
    for (const Model& group : groups) layers += group.layers;
    return layers;
  }
  Plan with(pkv_dtype k, pkv_dtype v) const {
    Plan other = *this;
    for (Model& group : other.groups) group.dtype = k, group.value_dtype = group.latent() ? k : v;
    return other;
  }
};

// Returns a plan with an engine, if a group needs one.
inline Plan with(Plan plan, EngineMemory& engine) {
  for (const Model& group : plan.groups)
    if (group.opaque()) plan.engine = &engine;
  return plan;
}

inline Cache create(const Plan& setup) {
  auto config = made<pkv_cache_config>();
  std::vector<pkv_layer_group> groups;
  for (const Model& model : setup.groups) groups.push_back(group_of(model));
  auto prefix = made<pkv_prefix_config>();
  config.groups = groups.data();
  config.group_count = static_cast<uint32_t>(groups.size());
  config.storage = setup.storage;
  config.layout = setup.layout;
  config.memory_directory = setup.memory_directory;
  config.block_size = setup.block_size;
  for (pkv_layer_group& group : groups) group.blocks = setup.blocks;
  config.threads = setup.runner != nullptr ? 0 : setup.threads;
  config.runner = setup.runner;
  config.isa = setup.isa;
  config.allocator = setup.allocator;
  if (setup.prefix) config.prefix = &prefix;
  if (setup.engine != nullptr) config.block_io = setup.engine->hooks();
  return cache_test::create(config);
}

inline Session open_salted(pkv_cache cache, const std::string& salt,
                           pkv_prefix_use use = PKV_PREFIX_SHARE, int32_t priority = 0) {
  auto config = made<pkv_session_config>(
      {.priority = priority, .prefix_use = use, .salt = salt.data(), .salt_size = salt.size()});
  pkv_session session;
  CHECK(pkv_session_open(cache, &config, &session));
  return Session(session);
}

// What an engine has of a token.
inline uint64_t mark_of(int32_t token) { return static_cast<uint64_t>(token) + 1; }

// Writes the new tokens of a session to the engine. before: the mark of the last old one, or 0.
inline void write_elsewhere(pkv_batch batch, const Plan& setup, uint64_t before,
                            const std::vector<int32_t>& tokens) {
  std::vector<uint64_t> marks;
  for (const int32_t token : tokens) marks.push_back(mark_of(token));
  for (uint32_t g = 0; g < setup.groups.size(); g++) {
    if (!setup.groups[g].opaque()) continue;
    if (!setup.groups[g].has_states())
      setup.engine->write(batch, g, 1, marks);
    else
      setup.engine->write_states(batch, g, 1,
                                 [&](size_t, size_t n) { return n == 0 ? before : marks[n - 1]; });
  }
}

// Checks that the engine of a cache has what a session needs.
inline void expect_elsewhere(pkv_session session, const Plan& setup) {
  const std::vector<int32_t> tokens = tokens_of(session, length_of(session));
  for (uint32_t g = 0; g < setup.groups.size(); g++) {
    const Model& model = setup.groups[g];
    if (!model.opaque()) continue;
    const std::vector<uint32_t> table = block_table(session, g);
    for (size_t i = 0; i < tokens.size(); i++) {
      const bool seen = model.window == 0 || i + model.window > tokens.size() || i < model.sinks;
      const uint32_t block = table[i / 16];
      if (model.has_states() && i + 1 < tokens.size()) continue;
      ASSERT_TRUE(block != PKV_NO_BLOCK_ID || !seen) << "token " << i;
      if (block == PKV_NO_BLOCK_ID) continue;
      const size_t slot = model.has_states() ? 0 : i % 16;
      ASSERT_EQ(mark_of(tokens[i]), setup.engine->at(g, block * 16 + slot))
          << "token " << i << " of group " << g;
    }
  }
}

// Appends n tokens. Ids are seed * 1000 + position, and keys and values follow from seed, model and
// position.
inline void append(pkv_cache cache, pkv_session session, const Plan& setup, uint32_t n,
                   uint64_t seed, uint64_t model_seed = 0) {
  const uint64_t length = length_of(session);
  Batch batch = begin(cache, {session}, {n});
  std::vector<int32_t> tokens;
  for (uint32_t i = 0; i < n; i++) tokens.push_back(static_cast<int32_t>(seed * 1000 + length + i));
  for (uint32_t layer = 0; layer < setup.layers(); layer++) {
    if (!setup.has_rows(layer)) continue;
    const Model& model = setup.of_layer(layer);
    Random random(model_seed << 60 ^ seed << 40 ^ length << 8 ^ layer);
    KeysValues rows = random_rows(model, n, random);
    write(batch, layer, model, rows);
  }
  if (setup.engine != nullptr)
    write_elsewhere(batch, setup, length == 0 ? 0 : mark_of(tokens_of(session, length).back()),
                    tokens);
  commit(batch, tokens);
}

// Appends the same in steps of a few tokens, so that blocks leave windows.
inline void append_in_steps(pkv_cache cache, pkv_session session, const Plan& setup, uint32_t n,
                            uint64_t seed, uint32_t step = 13, uint64_t model_seed = 0) {
  for (uint32_t done = 0; done < n; done += step)
    append(cache, session, setup, std::min(step, n - done), seed, model_seed);
}

// Returns one position of a layer as rows of a dtype, or nothing if it has left the window.
inline std::optional<KeysValues> position(pkv_session session, const Model& model, uint32_t layer,
                                          uint64_t at, pkv_dtype k_dtype, pkv_dtype v_dtype) {
  KeysValues rows{Rows(1, model.kv_heads, model.key_dim, k_dtype),
                  Rows(1, model.kv_heads, model.values(), v_dtype)};
  const pkv_tensor k = rows.k.tensor(), v = rows.v.tensor();
  const pkv_status status = pkv_session_read(session, layer, at, 1, &k, &v);
  if (status == PKV_OUT_OF_RANGE) return std::nullopt;
  CHECK(status);
  return rows;
}

// Checks that both sessions hold the same tokens with the same bits. `b` is in a cache of `setup`,
// which may store another dtype; then its rows are what the conversion gives. Both hold the same
// positions, or (some_gone) b may lack some that no query will see.
inline void expect_same(pkv_session a, pkv_session b, const Plan& setup, bool some_gone = false) {
  const uint64_t length = length_of(a);
  ASSERT_EQ(length, length_of(b));
  ASSERT_EQ(tokens_of(a, length), tokens_of(b, length));
  if (setup.engine != nullptr) expect_elsewhere(b, setup);
  for (uint32_t layer = 0; layer < setup.layers(); layer++) {
    if (!setup.has_rows(layer)) continue;
    const Model& model = setup.of_layer(layer);
    for (uint64_t at = 0; at < length; at++) {
      const pkv_dtype k = rows_dtype(model.dtype), v = rows_dtype(model.values_dtype());
      const auto one = position(a, model, layer, at, k, v),
                 other = position(b, model, layer, at, k, v);
      const bool seen = model.window == 0 || at + model.window > length || at < model.sinks;
      if (seen || !some_gone) {
        ASSERT_EQ(one.has_value(), other.has_value()) << "layer " << layer << ", position " << at;
      }
      if (one.has_value() && other.has_value()) {
        ASSERT_TRUE(*one == *other) << "layer " << layer << ", position " << at;
      }
    }
  }
}

// ---- Files in memory ----------------------------------------------------------------------------

inline pkv_stream stream(pkv_stream_kind kind) { return made<pkv_stream>({.kind = kind}); }

inline pkv_stream buffer(const Bytes& bytes) {
  return buffer_stream(const_cast<unsigned char*>(bytes.data()), bytes.size());
}

inline pkv_stream at_path(const std::string& path) {
  return made<pkv_stream>({.kind = PKV_STREAM_PATH, .path = path.c_str()});
}

inline pkv_file_config file_config() { return made<pkv_file_config>(); }

// Whether the library was built with libcrypto and libsodium.
inline bool keys_work() {
  const cache_test::Cache cache =
      cache_test::create(cache_test::config_of({1, 1, 1, 16}, 4, PKV_STORAGE_INTERNAL));
  pkv_file_config config = file_config();
  config.secret_key = "a key of 24 secret bytes", config.secret_key_size = 24;
  pkv_stream to = stream(PKV_STREAM_BUFFER);
  return pkv_file_save(cache, 0, nullptr, &config, &to, nullptr) != PKV_UNSUPPORTED;
}

inline std::vector<pkv_file_item> items_of(const std::vector<pkv_session>& sessions) {
  std::vector<pkv_file_item> items;
  for (size_t i = 0; i < sessions.size(); i++) items.push_back({sessions[i], nullptr, 100 + i});
  return items;
}

inline Bytes save(pkv_cache cache, const std::vector<pkv_file_item>& items,
                  const pkv_file_config* config = nullptr) {
  uint64_t bytes = 0;
  pkv_stream to = stream(PKV_STREAM_BUFFER);
  EXPECT_EQ(PKV_BUFFER_TOO_SMALL,
            pkv_file_save(cache, items.size(), items.data(), config, &to, &bytes))
      << pkv_last_error();
  Bytes file(bytes);
  to = buffer(file);
  CHECK(pkv_file_save(cache, items.size(), items.data(), config, &to, &bytes));
  EXPECT_EQ(file.size(), bytes);
  return file;
}
inline Bytes save(pkv_cache cache, const std::vector<pkv_session>& sessions,
                  const pkv_file_config* config = nullptr) {
  return save(cache, items_of(sessions), config);
}

// Saves while other threads change the cache, so that the size is not known before. If told, calls
// begun() when the file begins: its header comes first, and is read from nothing in the cache.
inline Bytes save_meanwhile(
    pkv_cache cache, const std::vector<pkv_file_item>& items, const pkv_file_config* config,
    const std::function<void()>& begun = [] {}) {
  struct Writer {
    Bytes bytes;
    const std::function<void()>& begun;
  } writer{{}, begun};
  pkv_stream to = stream(PKV_STREAM_CALLBACKS);
  to.user = &writer;
  to.write = [](void* user, const void* from, uint64_t n) {
    Writer& self = *static_cast<Writer*>(user);
    if (self.bytes.empty()) self.begun();
    const auto* bytes = static_cast<const unsigned char*>(from);
    self.bytes.insert(self.bytes.end(), bytes, bytes + n);
    return static_cast<int64_t>(n);
  };
  CHECK(pkv_file_save(cache, items.size(), items.data(), config, &to, nullptr));
  return writer.bytes;
}

inline std::vector<Session> load(pkv_cache cache, const pkv_stream& from,
                                 const pkv_file_config* config = nullptr,
                                 std::vector<uint64_t>* labels = nullptr) {
  std::vector<pkv_session> handles(1024);
  std::vector<uint64_t> names(handles.size());
  size_t count = 0;
  CHECK(pkv_file_load(cache, config, &from, handles.size(), handles.data(), names.data(), &count));
  std::vector<Session> sessions;
  for (size_t i = 0; i < count; i++) sessions.emplace_back(handles[i]);
  if (labels != nullptr)
    labels->assign(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(count));
  return sessions;
}
inline std::vector<Session> load(pkv_cache cache, const Bytes& file,
                                 const pkv_file_config* config = nullptr,
                                 std::vector<uint64_t>* labels = nullptr) {
  return load(cache, buffer(file), config, labels);
}

inline pkv_status try_load(pkv_cache cache, const pkv_stream& from,
                           const pkv_file_config* config = nullptr) {
  pkv_session handles[64];
  size_t count = 0;
  const pkv_status status = pkv_file_load(cache, config, &from, 64, handles, nullptr, &count);
  for (size_t i = 0; status == PKV_OK && i < count; i++) CHECK(pkv_session_close(handles[i]));
  return status;
}

inline pkv_file_info inspect(const Bytes& file, const pkv_file_config* config = nullptr) {
  auto info = made<pkv_file_info>();
  const pkv_stream from = buffer(file);
  CHECK(pkv_file_inspect(config, &from, &info));
  return info;
}

// What a refused call must leave unchanged.
struct State {
  uint32_t sessions;
  uint64_t free_blocks, held_blocks, tokens, filled_slots, evictable, cached;
  bool operator==(const State&) const = default;
};

inline State state_of(pkv_cache cache) {
  const pkv_cache_stats stats = stats_of(cache);
  const pkv_pool_stats pools = pool_stats_of(cache);
  auto prefix = made<pkv_prefix_stats>();
  const pkv_status status = pkv_prefix_get_stats(cache, nullptr, PKV_ALL_SALTS, &prefix);
  if (status != PKV_UNSUPPORTED) CHECK(status);
  return {stats.sessions,     pools.free_blocks,      pools.held_blocks,   stats.tokens,
          stats.filled_slots, stats.evictable_blocks, prefix.cached_tokens};
}

}  // namespace store
