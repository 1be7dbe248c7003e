// Sequences of operations on a whole cache against a naive model: a vector of rows per session. A row is a number of its own, from
// which every key and value of its token follows, so the model needs no bytes. Driven by a test's seeds and by a fuzzer's bytes.
#pragma once

#include <algorithm>
#include <array>

#include "rows.h"
#include "support.h"

namespace systems {
constexpr uint32_t block_size = 16, layers = 3, heads = 2, key_dim = 16, value_dim = 32, most_tokens = 150;
constexpr uint64_t blocks = 40;

// What a session or a snapshot should hold.
struct Naive {
  std::vector<uint32_t> rows;
  std::vector<int32_t> tokens;
  size_t trimmable = 0;  // any length from here on must be reachable by a trim
  bool suspended = false;
  std::vector<int32_t> remembered;  // tokens of before a suspension

  int32_t known(size_t position) const { return position < remembered.size() ? remembered[position] : PKV_NO_TOKEN; }
  void forget() { remembered.clear(), suspended = false; }
};

// Exact in every dtype.
float element(uint32_t row, uint32_t layer, bool value, uint32_t head, uint32_t dim) {
  const uint32_t mixed = (row * 2654435761u) ^ (layer * 40503u + value * 30011u + head * 1009u + dim * 17u) * 2246822519u;
  return static_cast<float>(mixed >> 24) - 127;
}

Rows rows_of(const std::vector<uint32_t>& rows, uint32_t layer, bool value, pkv_dtype dtype) {
  Rows result(rows.size(), heads, value ? value_dim : key_dim, dtype);
  result.each([&](size_t r, uint32_t h, uint32_t d) { result.set(r, h, d, element(rows[r], layer, value, h, d)); });
  return result;
}

struct Setup {
  const char* name;
  pkv_storage storage;
  pkv_layout layout;
  pkv_dtype dtype;
  uint32_t window;  // of the last layer, which is a group of its own
};

class Play {
 public:
  Play(const Setup& setup, Random random) : setup_(setup), random_(random) {
    pkv_layer_group groups[2];
    for (pkv_layer_group& group : groups) {
      CHECK(pkv_layer_group_init(&group, sizeof group));
      group.query_heads = group.kv_heads = heads;
      group.key_dim = key_dim;
      group.value_dim = value_dim;
      group.dtype = setup.dtype;
    }
    groups[0].layers = layers - 1;
    groups[1].layers = 1;
    groups[1].window = setup.window;
    pkv_cache_config config;
    CHECK(pkv_cache_config_init(&config, sizeof config));
    config.storage = setup.storage;
    config.layout = setup.layout;
    config.blocks = blocks;
    config.group_count = 2;
    config.groups = groups;
    cache_ = create(config);
    for (auto& slab : slabs_) slab.resize(blocks * block_size);
  }

  void operate() {
    const uint64_t choice = random_.below(100);
    if (sessions_.empty() || (choice < 8 && sessions_.size() < 8)) return open_session();
    const size_t s = random_.below(sessions_.size());
    if (choice < 12) return close(sessions_, s);
    if (choice < 50) return batch();
    if (choice < 58) return prefill(s);
    if (choice < 68) return push(s);
    if (choice < 76) return fork_session(s);
    if (choice < 80) return take_snapshot(s);
    if (choice < 84) return open_snapshot();
    if (choice < 86) return snapshots_.empty() ? void() : close(snapshots_, random_.below(snapshots_.size()));
    if (choice < 92) return trim(s);
    if (choice < 94) return suspend(s);
    if (choice < 98) return resume(random_.below(sessions_.size()));
    reserve(s);
  }

  // Everything the library says against the model.
  void compare() {
    CHECK(pkv_cache_validate(cache_));
    uint64_t tokens = 0, suspended = 0;
    for (auto& [session, naive] : sessions_) {
      ASSERT_EQ(naive.rows.size(), length_of(session));
      tokens += naive.rows.size();
      std::vector<int32_t> expected = naive.tokens;
      if (naive.remembered.size() > expected.size())
        expected.insert(expected.end(), naive.remembered.begin() + static_cast<int64_t>(expected.size()), naive.remembered.end());
      std::vector<int32_t> ids(expected.size());
      CHECK(pkv_session_tokens(session, 0, ids.size(), ids.data()));
      ASSERT_EQ(expected, ids);
      suspended += naive.suspended;
      if (setup_.storage == PKV_STORAGE_NONE)
        compare_slots(session, naive);
      else
        compare_rows(session, naive);
    }
    const pkv_cache_stats stats = stats_of(cache_);
    ASSERT_EQ(tokens, stats.tokens);
    ASSERT_EQ(sessions_.size(), stats.sessions);
    ASSERT_EQ(snapshots_.size(), stats.snapshots);
    ASSERT_EQ(0u, stats.batches);
    ASSERT_EQ(suspended, stats.suspended_sessions);
    ASSERT_EQ(stats.blocks, stats.free_blocks + stats.used_blocks);
  }

  void finish() {
    sessions_.clear();
    snapshots_.clear();
    CHECK(pkv_cache_validate(cache_));
    EXPECT_EQ(2 * blocks, stats_of(cache_).free_blocks);
    EXPECT_EQ(0u, stats_of(cache_).slots_filled);
  }

  uint64_t committed() const { return committed_; }
  uint64_t refused() const { return refused_; }
  bool spent() const { return random_.spent(); }

 private:
  template <class Owner>
  using Held = std::vector<std::pair<Owner, Naive>>;

  // True if the call worked; no room for it, now or ever, is the only excuse.
  bool worked(pkv_status status, const Naive& of = {}) {
    if (of.suspended && status == PKV_SUSPENDED) return false;
    EXPECT_FALSE(of.suspended);
    if (status != PKV_OUT_OF_BLOCKS && status != PKV_TOO_LARGE) check(status, "operation");
    refused_ += status != PKV_OK;
    return status == PKV_OK;
  }

  void open_session() {
    pkv_session_config config;
    CHECK(pkv_session_config_init(&config, sizeof config));
    if (random_.chance(30)) config.reserve_tokens = random_.below(100);
    pkv_session session;
    if (worked(pkv_session_open(cache_, &config, &session))) sessions_.emplace_back(Session(session), Naive{});
  }

  template <class Owner>
  void close(Held<Owner>& from, size_t i) {
    from.erase(from.begin() + static_cast<int64_t>(i));
  }

  std::vector<uint32_t> fresh_rows(size_t n) {
    std::vector<uint32_t> rows(n);
    for (uint32_t& row : rows) row = next_row_++;
    return rows;
  }

  void extend(Naive& naive, const std::vector<uint32_t>& rows, const std::vector<int32_t>& tokens) {
    naive.trimmable = naive.rows.size();
    naive.rows.insert(naive.rows.end(), rows.begin(), rows.end());
    for (const int32_t token : tokens) naive.tokens.push_back(token != PKV_NO_TOKEN ? token : naive.known(naive.tokens.size()));
    if (naive.tokens.size() >= naive.remembered.size()) naive.remembered.clear();
    committed_ += !rows.empty();
  }

  // Several sessions, prefill chunks and decode steps mixed; one in five is aborted, with some layers written.
  void batch() {
    std::vector<size_t> members;
    std::vector<pkv_session> handles;
    std::vector<uint32_t> counts;
    for (size_t s = 0; s < sessions_.size(); s++) {
      if (sessions_[s].second.suspended || random_.chance(50)) continue;
      members.push_back(s);
      handles.push_back(sessions_[s].first);
      const uint64_t room = most_tokens - sessions_[s].second.rows.size(), wanted = random_.chance(50) ? 1 : random_.below(40);
      counts.push_back(static_cast<uint32_t>(std::min(room, wanted)));
    }
    pkv_batch handle;
    if (!worked(pkv_batch_begin(cache_, handles.size(), handles.data(), counts.data(), nullptr, &handle))) return;
    Batch batch(handle);
    size_t rows = 0;
    for (const uint32_t count : counts) rows += count;
    const std::vector<uint32_t> fresh = fresh_rows(rows);
    const bool aborted = random_.chance(20);
    if (setup_.storage == PKV_STORAGE_NONE) {
      write_slots(batch, fresh);
    } else {
      for (uint32_t layer = 0; layer < (aborted ? random_.below(layers + 1) : layers); layer++) {
        Rows k = rows_of(fresh, layer, false, PKV_F32), v = rows_of(fresh, layer, true, setup_.dtype);
        write(batch, layer, k, v);
      }
    }
    CHECK(pkv_cache_validate(cache_));
    if (aborted) return batch.close();
    const std::vector<int32_t> tokens = draw_tokens(members, counts);
    refuse_others(batch, tokens, members, counts);
    commit(batch, tokens.data());
    size_t row = 0;
    for (size_t i = 0; i < members.size(); row += counts[i++]) {
      const auto from = static_cast<int64_t>(row), to = static_cast<int64_t>(row + counts[i]);
      extend(sessions_[members[i]].second, {fresh.begin() + from, fresh.begin() + to}, {tokens.begin() + from, tokens.begin() + to});
    }
  }

  // What a step tells: nothing, or new ids and, for what is computed again, those there were.
  std::vector<int32_t> draw_tokens(const std::vector<size_t>& members, const std::vector<uint32_t>& counts) {
    std::vector<int32_t> tokens;
    const bool tell = random_.chance(50);
    for (size_t i = 0; i < members.size(); i++) {
      const Naive& naive = sessions_[members[i]].second;
      for (uint32_t n = 0; n < counts[i]; n++) {
        const int32_t known = naive.known(naive.rows.size() + n);
        tokens.push_back(!tell ? PKV_NO_TOKEN : known != PKV_NO_TOKEN ? known : static_cast<int32_t>(random_.below(1000)));
      }
    }
    return tokens;
  }

  // Other ids than before a suspension do not get in.
  void refuse_others(pkv_batch batch, std::vector<int32_t> tokens, const std::vector<size_t>& members, const std::vector<uint32_t>& counts) {
    size_t row = 0;
    for (size_t i = 0; i < members.size(); row += counts[i++]) {
      const Naive& naive = sessions_[members[i]].second;
      if (counts[i] == 0 || naive.known(naive.rows.size()) == PKV_NO_TOKEN) continue;
      tokens[row] = naive.known(naive.rows.size()) + 1;
      REFUSED(PKV_INVALID_ARGUMENT, pkv_batch_commit(batch, tokens.data()));
      return;
    }
  }

  // Layer by layer without a batch; one in five is left unfinished and ended by a trim.
  template <class Call>
  bool solo(Session& session, Naive& naive, const std::vector<uint32_t>& rows, const Call& call) {
    const uint32_t given = random_.chance(20) ? static_cast<uint32_t>(random_.between(1, layers - 1)) : layers;
    for (uint32_t layer = 0; layer < given; layer++) {
      Rows k = rows_of(rows, layer, false, setup_.dtype), v = rows_of(rows, layer, true, PKV_F32);
      const pkv_tensor keys = k.tensor(), values = v.tensor();
      if (!worked(call(layer, &keys, &values), naive)) return false;
      CHECK(pkv_cache_validate(cache_));
    }
    if (given == layers) return true;
    CHECK(pkv_session_trim(session, length_of(session)));
    naive.forget();
    return false;
  }

  void prefill(size_t s) {
    if (setup_.storage == PKV_STORAGE_NONE) return;
    auto& [session, naive] = sessions_[s];
    const std::vector<uint32_t> rows = fresh_rows(random_.between(1, 80));
    const uint64_t refused = refused_;
    Naive replaced;  // also where it was suspended
    const bool finished = solo(session, replaced, rows, [&](uint32_t layer, const pkv_tensor* k, const pkv_tensor* v) {
      return pkv_session_prefill(session, layer, rows.size(), k, v);
    });
    if (refused_ != refused) return;  // nothing was replaced
    naive = {};
    if (finished) extend(naive, rows, std::vector<int32_t>(rows.size(), PKV_NO_TOKEN));
  }

  void push(size_t s) {
    auto& [session, naive] = sessions_[s];
    if (setup_.storage == PKV_STORAGE_NONE || naive.rows.size() == most_tokens) return;
    const std::vector<uint32_t> rows = fresh_rows(1);
    const bool finished = solo(session, naive, rows, [&](uint32_t layer, const pkv_tensor* k, const pkv_tensor* v) {
      return pkv_session_push(session, layer, k, v);
    });
    if (finished) extend(naive, rows, {PKV_NO_TOKEN});
    if (!finished) naive.trimmable = naive.rows.size();
  }

  void fork_session(size_t s) {
    pkv_session child;
    if (!worked(pkv_session_fork(sessions_[s].first, &child), sessions_[s].second)) return;
    Naive naive = sessions_[s].second;
    naive.forget();
    sessions_.emplace_back(Session(child), std::move(naive));
  }

  void take_snapshot(size_t s) {
    pkv_snapshot snapshot;
    if (!worked(pkv_snapshot_take(sessions_[s].first, &snapshot), sessions_[s].second)) return;
    snapshots_.emplace_back(Snapshot(snapshot), sessions_[s].second);
    snapshots_.back().second.forget();
  }

  void open_snapshot() {
    if (snapshots_.empty()) return;
    const auto& [snapshot, naive] = snapshots_[random_.below(snapshots_.size())];
    pkv_session session;
    if (worked(pkv_snapshot_open(cache_, snapshot, &session))) sessions_.emplace_back(Session(session), naive);
  }

  void trim(size_t s) {
    auto& [session, naive] = sessions_[s];
    const uint64_t length = random_.below(naive.rows.size() + 1);
    const pkv_status status = pkv_session_trim(session, length);
    if (status == PKV_OUT_OF_RANGE && setup_.window != 0 && length < naive.trimmable) return;
    CHECK(status);
    naive.rows.resize(length);
    naive.tokens.resize(length);
    naive.trimmable = length;
    naive.forget();
  }

  void suspend(size_t s) {
    auto& [session, naive] = sessions_[s];
    CHECK(pkv_session_suspend(session));
    if (naive.remembered.size() > naive.tokens.size())
      std::copy(naive.tokens.begin(), naive.tokens.end(), naive.remembered.begin());
    else
      naive.remembered = naive.tokens;
    naive.rows.clear();
    naive.tokens.clear();
    naive.trimmable = 0;
    naive.suspended = true;
  }

  // The next suspended one, if there is one.
  void resume(size_t s) {
    for (size_t i = 0; i < sessions_.size() && !sessions_[s].second.suspended; i++) s = (s + 1) % sessions_.size();
    auto& [session, naive] = sessions_[s];
    uint64_t length, total;
    if (!worked(pkv_session_resume(session, &length, &total, nullptr))) return;
    naive.suspended = false;
    ASSERT_EQ(naive.rows.size(), length);
    ASSERT_EQ(std::max(naive.remembered.size(), naive.rows.size()), total);
  }

  void reserve(size_t s) { worked(pkv_session_reserve(sessions_[s].first, random_.below(most_tokens)), sessions_[s].second); }

  // One layer, another one each time.
  void compare_rows(pkv_session session, const Naive& naive) {
    const uint32_t layer = static_cast<uint32_t>(random_.below(layers));
    const bool windowed = setup_.window != 0 && layer == layers - 1;
    const size_t kept = windowed ? std::min<size_t>(naive.rows.size(), setup_.window - 1) : naive.rows.size();
    const std::vector<uint32_t> rows(naive.rows.end() - static_cast<int64_t>(kept), naive.rows.end());
    const Model model{layers, heads, heads, key_dim, value_dim, setup_.dtype};
    const KeysValues found = materialize(session, layer, model, naive.rows.size() - kept, kept);
    ASSERT_TRUE(found.k == rows_of(rows, layer, false, setup_.dtype)) << "keys of layer " << layer;
    ASSERT_TRUE(found.v == rows_of(rows, layer, true, setup_.dtype)) << "values of layer " << layer;
  }

  // Storage NONE: the engine's own slabs, here with the row's number in each slot. What an aborted step wrote lies in blocks of
  // its own, or beyond what anybody holds: nobody takes it back.
  void write_slots(pkv_batch batch, const std::vector<uint32_t>& fresh) {
    for (uint32_t group = 0; group < 2; group++) {
      std::vector<uint32_t>& slab = slabs_[group];
      std::vector<uint32_t> from(sessions_.size()), to(sessions_.size());
      size_t copies;
      CHECK(pkv_batch_block_copies(batch, group, from.size(), from.data(), to.data(), &copies));
      for (size_t i = 0; i < copies; i++) std::copy_n(&slab[from[i] * block_size], block_size, &slab[to[i] * block_size]);
      const std::vector<int64_t> slots = slot_mapping(batch, group);
      for (size_t i = 0; i < slots.size(); i++) slab[static_cast<size_t>(slots[i])] = fresh[i];
    }
  }

  void compare_slots(pkv_session session, const Naive& naive) {
    for (uint32_t group = 0; group < 2; group++) {
      std::vector<uint32_t> found;
      for (const int64_t slot : kv_indices(session, group)) found.push_back(slabs_[group][static_cast<size_t>(slot)]);
      ASSERT_LE(found.size(), naive.rows.size());
      if (setup_.window == 0 || group == 0) {
        ASSERT_EQ(naive.rows.size(), found.size());
      } else {
        ASSERT_GE(found.size() + 1, std::min<size_t>(setup_.window, naive.rows.size()));
      }
      ASSERT_TRUE(std::equal(found.begin(), found.end(), naive.rows.end() - static_cast<int64_t>(found.size()))) << "group " << group;
    }
  }

  const Setup setup_;
  Random random_;
  Cache cache_;
  Held<Session> sessions_;
  Held<Snapshot> snapshots_;
  std::array<std::vector<uint32_t>, 2> slabs_;
  uint32_t next_row_ = 1;
  uint64_t committed_ = 0, refused_ = 0;
};

// Every storage kind, layout and dtype, with and without a window.
inline constexpr Setup setups[] = {
    {"packed_bf16", PKV_STORAGE_PAGED, PKV_LAYOUT_PACKED, PKV_BF16, 0},
    {"packed_f32_window", PKV_STORAGE_PAGED, PKV_LAYOUT_PACKED, PKV_F32, 24},
    {"plain_f16", PKV_STORAGE_PAGED, PKV_LAYOUT_PLAIN, PKV_F16, 0},
    {"plain_bf16_window", PKV_STORAGE_PAGED, PKV_LAYOUT_PLAIN, PKV_BF16, 1},
    {"contiguous_f32", PKV_STORAGE_CONTIGUOUS, PKV_LAYOUT_PACKED, PKV_F32, 0},
    {"contiguous_bf16_window", PKV_STORAGE_CONTIGUOUS, PKV_LAYOUT_PACKED, PKV_BF16, 40},
    {"none", PKV_STORAGE_NONE, PKV_LAYOUT_PACKED, PKV_F32, 0},
    {"none_window", PKV_STORAGE_NONE, PKV_LAYOUT_PACKED, PKV_F32, 33}};

}  // namespace systems
