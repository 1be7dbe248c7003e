// A hybrid toy model: one layer of full attention, one with a window, and two that keep a state
// each. Everything depends only on the text, so a naive model is a function of the text: K and V of
// a token depend on the token and its position, a state on all tokens up to it. The state has a
// running hash in its first bytes and numbers derived from it in the others. The next state is
// computed only from these bytes, so a state that is wrong anywhere stays wrong.
#pragma once

#include <cstring>
#include <span>

#include "../store/support.h"
#include "small_cache.h"

namespace states {

using namespace cache_test;

using Text = std::vector<int32_t>;
using State = std::vector<unsigned char>;

constexpr uint32_t block_size = 16, window = 40;
constexpr uint32_t full_layer = 0, window_layer = 2, state_layers[] = {1, 3};
constexpr uint32_t state_group = 2;

struct Kind {
  uint64_t blocks = 256, states = 64;  // of the groups with K and V, and of the one with states
  uint64_t state_bytes = 100;
  uint32_t checkpoint_interval = 0, max_verify_tokens = 0;
  bool prefix = false;
  pkv_storage storage = PKV_STORAGE_INTERNAL;
  const pkv_store_config* store = nullptr;
  uint32_t watermark = 0;
};

inline Cache create(const Kind& setup) {
  return cache_test::create(
      SmallCache{.groups = {{.layers = {full_layer}},
                            {.window = window, .layers = {window_layer}},
                            {.state_bytes = setup.state_bytes,
                             .checkpoint_interval = setup.checkpoint_interval,
                             .max_verify_tokens = setup.max_verify_tokens,
                             .blocks = setup.states,
                             .layers = {std::begin(state_layers), std::end(state_layers)}}},
                 .blocks = setup.blocks,
                 .prefix = setup.prefix,
                 .storage = setup.storage,
                 .watermark = setup.watermark},
      setup.store);
}

// Writes a state. All its bytes follow from the first eight.
inline void write_state(uint64_t hash, std::span<unsigned char> state) {
  std::memcpy(state.data(), &hash, sizeof hash);
  for (size_t i = sizeof hash; i < state.size(); i++)
    state[i] = static_cast<unsigned char>(mix(hash + i));
}

// Computes the state after one more token. before: NULL for none.
inline void next_state(const unsigned char* before, uint32_t layer, int32_t token,
                       std::span<unsigned char> after) {
  uint64_t hash = layer;
  if (before != nullptr) {
    std::memcpy(&hash, before, sizeof hash);
    for (size_t i = sizeof hash; i < after.size(); i++)
      if (before[i] != static_cast<unsigned char>(mix(hash + i))) hash = ~hash;  // a corrupt state
  }
  write_state(mix(hash ^ static_cast<uint32_t>(token)), after);
}

// The naive model.
inline State state_of(std::span<const int32_t> text, uint32_t layer, size_t bytes) {
  State state(bytes);
  uint64_t hash = layer;
  for (const int32_t token : text) hash = mix(hash ^ static_cast<uint32_t>(token));
  if (!text.empty()) write_state(hash, state);
  return state;
}

inline void fill_row(Rows& rows, size_t row, int32_t token, uint64_t position) {
  for (uint32_t d = 0; d < 16; d++)
    rows.set(row, 0, d,
             static_cast<float>(mix(static_cast<uint32_t>(token) ^ position << 32 ^ d) >> 40));
}

// The new tokens of one session.
struct NewTokens {
  pkv_session session;
  Text tokens;
};

// The states of a batch in one layer.
struct BatchStates {
  std::vector<const void*> before;
  std::vector<uint32_t> indptr;
  std::vector<uint32_t> tokens;
  std::vector<void*> after;
};

inline BatchStates states_of(pkv_batch batch, uint32_t layer, size_t sessions) {
  BatchStates states;
  states.indptr.resize(sessions + 1);
  states.before.resize(sessions);
  size_t count = 0;
  const pkv_status status = pkv_batch_get_state_blocks(
      batch, state_group, nullptr, states.indptr.data(), 0, nullptr, nullptr, &count);
  if (status != PKV_BUFFER_TOO_SMALL) CHECK(status);
  states.tokens.resize(count);
  states.after.resize(count);
  CHECK(pkv_batch_get_state_blocks(batch, state_group, nullptr, states.indptr.data(), count,
                                   states.tokens.data(), nullptr, &count));
  CHECK(
      pkv_batch_get_states(batch, layer, states.before.data(), count, states.after.data(), &count));
  EXPECT_EQ(states.after.size(), count);
  return states;
}

// Writes all layers of a step that is begun.
inline void write_step(pkv_batch batch, const std::vector<NewTokens>& news, size_t state_bytes) {
  for (const uint32_t layer : state_layers) {
    const BatchStates states = states_of(batch, layer, news.size());
    for (size_t s = 0; s < news.size(); s++) {
      std::vector<State> computed(news[s].tokens.size(), State(state_bytes));
      for (size_t i = 0; i < computed.size(); i++)
        next_state(
            i > 0 ? computed[i - 1].data() : static_cast<const unsigned char*>(states.before[s]),
            layer, news[s].tokens[i], computed[i]);
      for (size_t j = states.indptr[s]; j < states.indptr[s + 1]; j++)
        std::memcpy(states.after[j], computed[states.tokens[j]].data(), state_bytes);
    }
  }
  for (const uint32_t layer : {full_layer, window_layer}) {
    size_t count = 0, row = 0;
    for (const NewTokens& each : news) count += each.tokens.size();
    Rows k(count, 1, 16), v(count, 1, 16);
    for (const NewTokens& each : news) {
      const uint64_t start = length_of(each.session);
      for (size_t i = 0; i < each.tokens.size(); i++, row++) {
        fill_row(k, row, each.tokens[i], start + i);
        fill_row(v, row, ~each.tokens[i], start + i);
      }
    }
    write(batch, layer, k, v);
  }
}

inline Text ids_of(const std::vector<NewTokens>& news) {
  Text ids;
  for (const NewTokens& each : news) ids.insert(ids.end(), each.tokens.begin(), each.tokens.end());
  return ids;
}

inline void step(pkv_cache cache, const std::vector<NewTokens>& news, size_t state_bytes = 100) {
  std::vector<pkv_session> sessions;
  std::vector<uint32_t> counts;
  for (const NewTokens& each : news) {
    sessions.push_back(each.session);
    counts.push_back(static_cast<uint32_t>(each.tokens.size()));
  }
  Batch batch = begin(cache, sessions, counts);
  write_step(batch, news, state_bytes);
  const Text ids = ids_of(news);
  commit(batch, ids);
}

inline pkv_status get_state(pkv_session session, uint32_t layer, uint64_t tokens, State& state) {
  return pkv_session_get_state(session, layer, tokens, state.size(), state.data());
}

// Returns the lengths at which a session holds a state.
inline std::vector<uint64_t> held_states(pkv_session session, size_t state_bytes = 100) {
  std::vector<uint64_t> held;
  State state(state_bytes);
  for (uint64_t tokens = 1; tokens <= length_of(session); tokens++)
    if (get_state(session, state_layers[0], tokens, state) == PKV_OK) held.push_back(tokens);
  return held;
}

// Checks all that a session holds against the naive model.
inline void expect_holds(pkv_session session, const Text& text, size_t state_bytes = 100) {
  ASSERT_EQ(text.size(), length_of(session));
  ASSERT_EQ(text, tokens_of(session, text.size()));
  const std::vector<uint64_t> held = held_states(session, state_bytes);
  if (!text.empty()) {
    ASSERT_FALSE(held.empty());
    EXPECT_EQ(text.size(), held.back());
  }
  for (const uint64_t tokens : held)
    for (const uint32_t layer : state_layers) {
      State state(state_bytes);
      CHECK(get_state(session, layer, tokens, state));
      ASSERT_EQ(state_of(std::span(text).first(tokens), layer, state_bytes), state)
          << "layer " << layer << " after " << tokens << " of " << text.size();
    }
  const size_t n = text.size();
  Rows k(n, 1, 16), v(n, 1, 16), expected_k(n, 1, 16), expected_v(n, 1, 16);
  for (size_t i = 0; i < n; i++) {
    fill_row(expected_k, i, text[i], i);
    fill_row(expected_v, i, ~text[i], i);
  }
  const pkv_tensor keys = k.tensor(), values = v.tensor();
  if (n > 0) CHECK(pkv_session_read(session, full_layer, 0, n, &keys, &values));
  EXPECT_TRUE(k == expected_k);
  EXPECT_TRUE(v == expected_v);
}

}  // namespace states
