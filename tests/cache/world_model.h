// A model for caches of every kind: layer groups with full attention, with windows and sinks, and
// with states, alone and together. A session computes one number for each token, its mark, which
// depends on the marks before it; keys, values and states depend on the mark. So a block of a text
// with the same tokens but another history is detected at once.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "../store/support.h"
#include "../support/memory.h"
#include "../support/memory_store.h"
#include "../support/test_clock.h"
#include "small_cache.h"

namespace world {

using namespace cache_test;

// The index of such a cache may give up single blocks of a text.
inline bool is_sparse(const SmallCache& kind) {
  return std::any_of(kind.groups.begin(), kind.groups.end(),
                     [](const SmallGroup& g) { return g.has_states() || g.window != 0; });
}

inline SmallGroup there(SmallGroup group) {
  group.elsewhere = true;
  return group;
}
inline SmallCache with_store(SmallCache kind) {
  kind.stored = true;
  return kind;
}
inline SmallCache in_file(SmallCache kind) {
  kind.directory = ".";
  return kind;
}
inline SmallCache lru(SmallCache kind) {
  kind.eviction = PKV_EVICTION_LRU;
  return kind;
}
inline SmallCache with_watermark(uint32_t watermark, SmallCache kind) {
  kind.watermark = watermark;
  return kind;
}
inline SmallCache with_quota(uint64_t quota, SmallCache kind) {
  kind.quota = quota;
  return kind;
}

// A cache without an index whose blocks are scarce. It has two layers in a group, and one in
// another that may have a window.
inline SmallCache scarce(const char* name, SmallGroup group, uint32_t window, pkv_storage storage,
                         pkv_layout layout = PKV_LAYOUT_PACKED) {
  group.heads = 2, group.value_dim = 32;
  SmallGroup first = group, last = group;
  first.layers = {0, 1}, last.layers = {2};
  last.window = window;
  first.sinks = 0;
  return {name, {first, last}, 24, false, false, storage, layout};
}

// New kinds go to the end, so that inputs of the fuzzer keep most of their meaning. The blocks of
// the kinds from `crowded` on are so few that the index evicts all the time, or that steps lack
// some. They have no states, so several threads can play in one cache of them.
inline const std::vector<SmallCache>& kinds() {
  const SmallGroup full, window{.window = 24}, sinks{.window = 20, .sinks = 5},
      states{.state_bytes = 72, .max_verify_tokens = 3},
      checkpoints{.state_bytes = 40, .checkpoint_interval = 32, .max_verify_tokens = 5},
      of_layer_0{.layers = {0}}, of_layer_2{.window = 40, .layers = {2}},
      of_layers_1_and_3{
          .state_bytes = 100, .checkpoint_interval = 48, .max_verify_tokens = 3, .layers = {1, 3}},
      wide{.layers = {1, 2, 3}}, wide_window{.window = 24, .layers = {1, 2, 3}};
  const SmallGroup full_there = there(full), window_there = there(window),
                   sinks_there = there(sinks), states_there = there(states),
                   checkpoints_there = there(checkpoints);
  constexpr auto internal = PKV_STORAGE_INTERNAL, none = PKV_STORAGE_EXTERNAL;
  constexpr auto packed = PKV_LAYOUT_PACKED, plain = PKV_LAYOUT_PLAIN;
  static const std::vector<SmallCache> all = {
      {"full", {full}, 40},
      {"window", {window}, 24},
      {"sinks", {sinks}, 28},
      {"states", {states}, 24},
      {"checkpoints", {checkpoints}, 40},
      {"full_and_window", {full, window}, 40},
      {"full_and_states", {full, states}, 40},
      {"window_and_states", {window, states}, 28},
      {"all", {full, sinks, checkpoints}, 44},
      {"plain", {full, window}, 40, true, false, internal, plain},
      {"without_index", {full, sinks, states}, 40, false},
      {"shared", {full, window}, 32, true, true},
      {"shared_states", {full, window, checkpoints}, 32, true, true},
      {"ids", {full, window}, 40, true, false, none},
      {"ids_of_states", {window, states}, 28, true, false, none},
      {"interleaved", {of_layer_0, of_layer_2, of_layers_1_and_3}, 44},
      {"checkpoints_without_index", {of_layer_0, of_layers_1_and_3, of_layer_2}, 28, false},
      {"elsewhere", {full_there, window_there}, 40, true, false, none},
      {"elsewhere_states", {window_there, states_there}, 28, true, false, none},
      {"elsewhere_shared", {full_there, checkpoints_there}, 32, true, true, none},
      {"elsewhere_without_index", {sinks_there, states_there}, 40, false, false, none},
      {"mixed", {full, window_there, checkpoints_there}, 40},
      with_store({"stored", {full, window, checkpoints}, 40}),
      with_store({"elsewhere_stored",
                  {full_there, sinks_there, checkpoints_there},
                  44,
                  true,
                  false,
                  none}),
      with_store({"mixed_stored", {states, full_there}, 40}),
      {"crowded", {full, full}, 22},
      with_quota(9, lru({"crowded_plain", {full, full}, 24, true, false, internal, plain})),
      lru({"crowded_window", {full, window}, 28}),
      with_quota(6, {"crowded_ids", {full, full}, 24, true, false, none}),
      lru({"crowded_ids_window", {full, {.window = 40}}, 27, true, false, none}),
      with_store({"crowded_stored", {full, full}, 22}),
      with_quota(12,
                 with_store(lru(
                     {"crowded_stored_window", {full, window}, 27, true, false, internal, plain}))),
      {"crowded_pages", {of_layer_0, wide}, 22, true, true},
      lru({"crowded_pages_window", {of_layer_0, wide_window}, 26, true, true}),
      with_quota(
          12, with_store(lru({"crowded_pages_stored", {of_layer_0, wide_window}, 26, true, true}))),
      {"crowded_elsewhere", {full_there, full_there}, 22, true, false, none},
      lru({"crowded_elsewhere_window", {full_there, window_there}, 30}),
      lru({"crowded_mixed", {full, full_there}, 24, true, false, internal, plain}),
      with_store({"crowded_elsewhere_stored", {full_there, full_there}, 22, true, false, none}),
      with_quota(
          12,
          with_store(lru(
              {"crowded_there_stored_window", {full_there, window_there}, 27, true, false, none}))),
      with_store(
          lru({"crowded_mixed_stored", {full, window_there}, 27, true, false, internal, plain})),
      {"crowded_watermark", {full, wide_window}, 24, true, false, internal, packed, 2},
      {"crowded_pages_watermark", {full, wide_window}, 24, true, true, internal, packed, 1},
      with_store({"crowded_pages_stored_watermark",
                  {full, wide_window},
                  24,
                  true,
                  true,
                  internal,
                  packed,
                  2}),
      scarce("scarce_bf16", {.dtype = PKV_BF16}, 0, internal),
      scarce("scarce_window", {}, 24, internal),
      scarce("scarce_plain_f16", {.dtype = PKV_F16}, 0, internal, plain),
      scarce("scarce_plain_bf16_window", {.dtype = PKV_BF16}, 1, internal, plain),
      scarce("scarce_ids", {}, 0, none),
      scarce("scarce_ids_window", {}, 33, none),
      scarce("scarce_f16_sinks", {.sinks = 5, .dtype = PKV_F16}, 20, internal),
      with_watermark(6, scarce("scarce_watermark", {}, 0, internal)),
      with_watermark(3, scarce("scarce_ids_watermark", {}, 33, none)),
      scarce("scarce_rotated", {.rotated = true}, 24, internal),
      in_file(scarce("scarce_in_file", {}, 0, internal)),
  };
  return all;
}

inline bool is_crowded(const SmallCache& kind) {
  return std::string_view(kind.name).starts_with("crowded");
}
inline bool is_scarce(const SmallCache& kind) {
  return std::string_view(kind.name).starts_with("scarce");
}
inline std::vector<SmallCache> kinds_that(bool (*is)(const SmallCache&)) {
  std::vector<SmallCache> chosen;
  std::copy_if(kinds().begin(), kinds().end(), std::back_inserter(chosen), is);
  return chosen;
}

// A cache, the engine that has what the library has not, and what plays did in it.
struct Place {
  explicit Place(const SmallCache& kind, const pkv_store_config* store = nullptr)
      : engine(kind.groups.size(), most_blocks(kind)),
        cache(create(kind, store, &engine, clock.hook(), memory.allocator())) {}
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  // The cache gives back all its memory, even if sessions, steps and snapshots are open.
  ~Place() {
    cache.close();
    EXPECT_EQ(0, memory.live());
    EXPECT_TRUE(memory.sound());
  }
  // Of groups that share memory, pages may have many small blocks.
  static uint64_t most_blocks(const SmallCache& kind) {
    uint64_t most = kind.blocks;
    for (const SmallGroup& group : kind.groups) most = std::max(most, group.blocks);
    return kind.shared ? most * 32 : most;
  }
  EngineMemory engine;
  cache_test::TestClock clock;
  memory::Hooks memory;
  Cache cache;
  std::atomic<uint64_t> commits{0}, committed_tokens{0}, suspensions{0};
};

// A cache that plays share, and the store behind it.
struct Shared {
  explicit Shared(const SmallCache& chosen, bool one_play = true)
      : kind(chosen), alone(one_play), here(make_place()) {}

  // Makes a cache of the same kind, with the same store.
  std::unique_ptr<Place> make_place() {
    pkv_store table = store.table();
    auto behind = made<pkv_store_config>({.store = &table});
    return std::make_unique<Place>(kind, kind.stored ? &behind : nullptr);
  }

  const SmallCache kind;
  const bool alone;  // No other play uses the cache, so it does only what this one says.
  MemoryStore store;
  std::unique_ptr<Place> here;
};

// ---- Texts --------------------------------------------------------------------------------------

struct Token {
  int32_t id;
  uint64_t mark;
  bool told = true;  // the library knows the id
  int32_t known() const { return told ? id : PKV_UNKNOWN_TOKEN; }
};
using Text = std::vector<Token>;

// Returns the mark of a token after another one. way: how a session computes; sessions that publish
// compute the same way if they have the same salt.
inline uint64_t mark_after(uint64_t before, int32_t id, uint64_t way) {
  return mix(before ^ mix(way ^ static_cast<uint64_t>(static_cast<uint32_t>(id)) << 32));
}

inline void extend(Text& text, int32_t id, uint64_t way) {
  text.push_back({id, mark_after(text.empty() ? 0 : text.back().mark, id, way)});
}

inline Text computed(const std::vector<int32_t>& ids, uint64_t way) {
  Text text;
  for (const int32_t id : ids) extend(text, id, way);
  return text;
}

inline std::vector<int32_t> ids_of(const Text& text, size_t first = 0) {
  std::vector<int32_t> ids;
  for (size_t i = first; i < text.size(); i++) ids.push_back(text[i].id);
  return ids;
}

// ---- Talks --------------------------------------------------------------------------------------

// What a session or a snapshot must hold.
struct Talk {
  Session session = {};
  Text text = {};
  std::string salt = {};
  pkv_prefix_use use = PKV_PREFIX_SHARE;
  uint64_t own_way = 0;  // how it computes if it does not publish, or has forgotten something
  int32_t priority = 0;
  bool suspended = false;
  Text remembered = {};  // from before a suspension, until it is computed again
  uint64_t forgotten_from = UINT64_MAX;
  std::vector<std::set<size_t>> dropped = {};  // blocks, by group
  // It can be trimmed to any length from here on: that before its last step, until another one
  // begins, because begin() and reserve() may free what left a window.
  size_t trimmable = 0;
  bool has_run = false;  // It was stepped or resumed, so it need not leave the watermark.
  uint64_t opened = 0;   // how many of a play were opened before
};

using Tables = std::vector<std::vector<uint32_t>>;  // of blocks, by group
inline Tables tables_of(const Talk& talk) {
  Tables tables;
  for (uint32_t g = 0; g < talk.dropped.size(); g++) tables.push_back(block_table(talk.session, g));
  return tables;
}

struct Frozen {
  Snapshot snapshot;
  Talk talk;
  Tables tables;
};

// The new tokens of one session in a step; token i follows new token parents[i], or the last one of
// the session (-1).
struct NewTokens {
  pkv_session session;
  const Text* before;
  Text tokens;
  std::vector<int> parents = {};
};

// A session in a step that is held open.
struct Member {
  Talk talk;
  Tables tables;  // from before the step
  bool draft;     // some of its new tokens may be accepted
  std::optional<std::vector<uint32_t>> kept = {};
};

struct Step {
  Batch batch;
  std::vector<Member> members;
  std::vector<NewTokens> news;        // of each member
  std::set<uint32_t> unwritten = {};  // layers with keys and values
  bool accepted = false;
};

// ---- What is stored -----------------------------------------------------------------------------

// Returns an element of a key or a value, which is exact in every dtype of the kinds.
inline float element(uint64_t mark, uint32_t layer, bool value, uint32_t head, uint32_t dim) {
  const uint64_t mixed = mix(mark + layer * 2 + value) * (2 * (head * 64 + dim) + 1);
  return static_cast<float>(mixed >> 56) - 127;
}

inline void fill_row(Rows& rows, size_t row, uint64_t mark, uint32_t layer, bool value) {
  for (uint32_t h = 0; h < rows.heads(); h++)
    for (uint32_t d = 0; d < rows.dim(); d++)
      rows.set(row, h, d, element(mark, layer, value, h, d));
}

// Returns room for keys or values of a group.
inline Rows rows_for(const SmallGroup& group, size_t n, bool value) {
  return {n, group.heads, value ? group.value_dim : 16};
}

inline Rows rows_of(const Text& text, size_t first, size_t last, const SmallGroup& group,
                    uint32_t layer, bool value) {
  Rows rows = rows_for(group, last - first, value);
  for (size_t i = first; i < last; i++) fill_row(rows, i - first, text[i].mark, layer, value);
  return rows;
}

inline std::vector<unsigned char> state_of(uint64_t mark, uint32_t layer, size_t bytes) {
  std::vector<unsigned char> state(bytes);
  for (size_t i = 0; i < bytes; i += sizeof mark) {
    const uint64_t word = mix(mark ^ layer ^ i << 8);
    std::memcpy(state.data() + i, &word, std::min(sizeof word, bytes - i));
  }
  return state;
}

// Writes the states of a step, and checks that the one before it is that of the last token.
inline void write_states(pkv_batch batch, uint32_t group, uint32_t layer,
                         const std::vector<NewTokens>& news, size_t bytes) {
  std::vector<uint32_t> indptr(news.size() + 1);
  std::vector<const void*> before(news.size());
  size_t count = 0;
  const pkv_status status =
      pkv_batch_get_state_blocks(batch, group, nullptr, indptr.data(), 0, nullptr, nullptr, &count);
  if (status != PKV_BUFFER_TOO_SMALL) CHECK(status);
  std::vector<uint32_t> tokens(count);
  std::vector<void*> after(count);
  CHECK(pkv_batch_get_state_blocks(batch, group, nullptr, indptr.data(), count, tokens.data(),
                                   nullptr, &count));
  CHECK(pkv_batch_get_states(batch, layer, before.data(), count, after.data(), &count));
  for (size_t s = 0; s < news.size(); s++) {
    const Text& text = *news[s].before;
    ASSERT_EQ(text.empty(), before[s] == nullptr);
    if (before[s] != nullptr) {
      const auto expected = state_of(text.back().mark, layer, bytes);
      ASSERT_EQ(0, std::memcmp(expected.data(), before[s], bytes)) << "the state before a step";
    }
    for (size_t j = indptr[s]; j < indptr[s + 1]; j++)
      std::memcpy(after[j], state_of(news[s].tokens[tokens[j]].mark, layer, bytes).data(), bytes);
  }
}

// The tokens of all sessions of a step.
inline Text tokens_of_all(const std::vector<NewTokens>& news) {
  Text all;
  for (const NewTokens& each : news) all.insert(all.end(), each.tokens.begin(), each.tokens.end());
  return all;
}

inline void write_layer(pkv_batch batch, const SmallGroup& group, uint32_t g, uint32_t layer,
                        const std::vector<NewTokens>& news) {
  if (group.has_states()) return write_states(batch, g, layer, news, group.state_bytes);
  const Text all = tokens_of_all(news);
  Rows k = rows_of(all, 0, all.size(), group, layer, false),
       v = rows_of(all, 0, all.size(), group, layer, true);
  write(batch, layer, k, v);
}

inline void write_step(pkv_batch batch, const SmallCache& kind,
                       const std::vector<NewTokens>& news) {
  for (uint32_t g = 0; g < kind.groups.size(); g++)
    for (const uint32_t layer : kind.has_rows(g) ? kind.layers_of(g) : std::vector<uint32_t>())
      write_layer(batch, kind.groups[g], g, layer, news);
}

// Compares each block of 16 tokens of a layer with the text. Returns the blocks that the session
// holds. The last one may be part-filled.
inline std::vector<bool> check_rows(pkv_session session, const Text& text, const SmallGroup& group,
                                    uint32_t layer) {
  std::vector<bool> held;
  for (size_t first = 0; first < text.size(); first += 16) {
    const size_t last = std::min(first + 16, text.size());
    Rows k = rows_for(group, last - first, false), v = rows_for(group, last - first, true);
    const pkv_tensor keys = k.tensor(), values = v.tensor();
    const pkv_status status = pkv_session_read(session, layer, first, last - first, &keys, &values);
    held.push_back(status == PKV_OK);
    if (status == PKV_OUT_OF_RANGE) continue;
    CHECK(status);
    EXPECT_TRUE(k == rows_of(text, first, last, group, layer, false))
        << "keys from token " << first;
    EXPECT_TRUE(v == rows_of(text, first, last, group, layer, true))
        << "values from token " << first;
  }
  return held;
}

// The same for states. A block is held if the state after its last token is; a session may hold
// others, too.
inline std::vector<bool> check_states(pkv_session session, const Text& text, uint32_t layer,
                                      size_t bytes) {
  std::vector<bool> held;
  for (size_t tokens = 1; tokens <= text.size(); tokens++) {
    std::vector<unsigned char> state(bytes);
    const pkv_status status = pkv_session_get_state(session, layer, tokens, bytes, state.data());
    if (tokens % 16 == 0 || tokens == text.size()) held.push_back(status == PKV_OK);
    if (status == PKV_OUT_OF_RANGE) continue;
    CHECK(status);
    EXPECT_TRUE(state == state_of(text[tokens - 1].mark, layer, bytes))
        << "after " << tokens << " tokens";
  }
  return held;
}

}  // namespace world
