// Plays random texts that share prefixes through sessions of one cache with a prefix index. A
// token's keys and values depend on its salt and all tokens up to it, as in a model. Whatever is
// matched, shared, copied, evicted or computed again, each session must hold exactly these.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "../store/support.h"
#include "../support/cache.h"
#include "../support/hints.h"
#include "../support/memory_store.h"
#include "../support/rows.h"
#include "../support/test_clock.h"
#include "engine_memory.h"

namespace cache_test {

struct PrefixSetup {
  const char* name;
  pkv_storage storage;
  pkv_layout layout;
  pkv_eviction eviction;
  uint32_t window;  // The window of the second group.
  uint64_t blocks;
  uint64_t max_blocks_per_salt = 0;
  bool tier = false;    // A store lies behind the cache.
  bool shared = false;  // The groups share the memory of all blocks.
  // Only the engine can read the blocks of the groups from this one on.
  uint32_t elsewhere_from = 2;
};

inline constexpr PrefixSetup prefix_setups[] = {
    {"packed", PKV_STORAGE_PAGED, PKV_LAYOUT_PACKED, PKV_EVICTION_LEARNED, 0, 22},
    {"plain_lru", PKV_STORAGE_PAGED, PKV_LAYOUT_PLAIN, PKV_EVICTION_LRU, 0, 24, 9},
    {"packed_window", PKV_STORAGE_PAGED, PKV_LAYOUT_PACKED, PKV_EVICTION_LRU, 24, 28},
    {"none", PKV_STORAGE_NONE, PKV_LAYOUT_PACKED, PKV_EVICTION_LEARNED, 0, 24, 6},
    {"none_window", PKV_STORAGE_NONE, PKV_LAYOUT_PACKED, PKV_EVICTION_LRU, 40, 27},
    {"tier", PKV_STORAGE_PAGED, PKV_LAYOUT_PACKED, PKV_EVICTION_LEARNED, 0, 22, 0, true},
    {"tier_plain_window", PKV_STORAGE_PAGED, PKV_LAYOUT_PLAIN, PKV_EVICTION_LRU, 24, 27, 12, true},
    {"shared", PKV_STORAGE_PAGED, PKV_LAYOUT_PACKED, PKV_EVICTION_LEARNED, 0, 22, 0, false, true},
    {"shared_window", PKV_STORAGE_PAGED, PKV_LAYOUT_PACKED, PKV_EVICTION_LRU, 24, 26, 0, false,
     true},
    {"shared_tier_window", PKV_STORAGE_PAGED, PKV_LAYOUT_PACKED, PKV_EVICTION_LRU, 24, 26, 12, true,
     true},
    {"elsewhere", PKV_STORAGE_NONE, PKV_LAYOUT_PACKED, PKV_EVICTION_LEARNED, 0, 22, 0, false, false,
     0},
    {"elsewhere_window", PKV_STORAGE_PAGED, PKV_LAYOUT_PACKED, PKV_EVICTION_LRU, 24, 30, 0, false,
     false, 0},
    {"mixed", PKV_STORAGE_PAGED, PKV_LAYOUT_PLAIN, PKV_EVICTION_LRU, 0, 24, 0, false, false, 1},
    {"elsewhere_tier", PKV_STORAGE_NONE, PKV_LAYOUT_PACKED, PKV_EVICTION_LEARNED, 0, 22, 0, true,
     false, 0},
    {"elsewhere_tier_window", PKV_STORAGE_NONE, PKV_LAYOUT_PACKED, PKV_EVICTION_LRU, 24, 27, 12,
     true, false, 0},
    {"mixed_tier", PKV_STORAGE_PAGED, PKV_LAYOUT_PLAIN, PKV_EVICTION_LRU, 24, 27, 0, true, false,
     1}};

inline Cache create_with_prefix(const PrefixSetup& setup, pkv_store store, EngineMemory& engine,
                                const TestClock& clock) {
  auto prefix = made<pkv_prefix_config>({.eviction = setup.eviction,
                                         .max_pinned_blocks = 6,
                                         .max_blocks_per_salt = setup.max_blocks_per_salt,
                                         .max_events = 4096});
  pkv_layer_group groups[2];
  for (pkv_layer_group& group : groups) {
    group = made<pkv_layer_group>();
    group.layers = group.query_heads = group.kv_heads = 1;
    group.key_dim = 16;
  }
  groups[1].window = setup.window;
  // Pages then have three blocks of the first group.
  if (setup.shared) groups[1].layers = 3;
  for (uint32_t g = setup.elsewhere_from; g < 2; g++)
    groups[g] = made<pkv_layer_group>(
        {.layers = 1, .window = groups[g].window, .block_bytes = EngineMemory::block_bytes});
  auto config = made<pkv_cache_config>({.group_count = 2,
                                        .groups = groups,
                                        .storage = setup.storage,
                                        .layout = setup.layout,
                                        .blocks = setup.blocks,
                                        .threads = 1,
                                        .prefix = &prefix,
                                        .clock = clock.hook()});
  auto behind = made<pkv_store_config>({.store = &store});
  if (setup.tier) config.store = &behind;
  if (setup.elsewhere_from < 2) config.block_io = engine.hooks();
  if (setup.shared) share_memory(config);
  return create(config);
}

// A cache of a setup, and the store that it may have.
struct PrefixWorld {
  explicit PrefixWorld(const PrefixSetup& chosen)
      : setup(chosen), cache(create_with_prefix(chosen, store.table(), engine, clock)) {}
  const PrefixSetup& setup;
  MemoryStore store;
  TestClock clock;
  EngineMemory engine{2, setup.blocks};  // of groups that the library keeps no rows of
  Cache cache;
};

class PrefixPlay {
 public:
  // If `alone` is true, no other thread uses the cache, so it may be validated.
  PrefixPlay(PrefixWorld& world, Random random, bool alone)
      : setup_(world.setup),
        cache_(world.cache),
        store_(world.store),
        engine_(world.engine),
        clock_(world.clock),
        random_(random),
        alone_(alone) {
    clock_.set(now_);
  }

  // Draws the choices of the operation from these.
  void operate(const Random& choices) {
    random_ = choices;
    operate();
  }
  void operate() {
    if (setup_.tier && random_.chance(20)) return use_tier();
    if (random_.chance(5)) return give_hint();
    if (alone_ && random_.chance(5)) return preempt();
    if (alone_ && random_.chance(1)) return expect_room();
    const uint64_t choice = random_.below(100);
    if (talks_.empty() || (choice < 25 && talks_.size() < 6)) return open_talk();
    const size_t t = random_.below(talks_.size());
    if (choice < 40)
      return static_cast<void>(talks_.erase(talks_.begin() + static_cast<int64_t>(t)));
    if (choice < 70) return extend(t);
    if (choice < 75) return trim(t);
    if (choice < 77) return drop(t);
    if (choice < 84) return fork_talk(t);
    if (choice < 88) return snapshot(t);
    if (choice < 92) return suspend(t);
    if (choice < 96) return resume(random_.below(talks_.size()));
    if (random_.chance(50)) return pass_time();
    if (random_.chance(50)) return save_and_load();
    CHECK(pkv_prefix_clear(cache_, nullptr, PKV_ALL_SALTS));
  }

  void compare() {
    for (Talk& talk : talks_) compare(talk);
    if (!alone_) return;
    settle();
    CHECK(pkv_cache_validate(cache_));
    const pkv_cache_stats stats = stats_of(cache_);
    ASSERT_LE(stats.evictable_blocks, stats.used_blocks);
    compare_events();
    compare_pins();
  }

  void finish() {
    talks_.clear();
    snapshots_.clear();
    clock_.end();
    settle();
  }

  uint64_t matched() const { return matched_; }
  uint64_t refused() const { return refused_; }
  bool spent() const { return random_.spent(); }

 private:
  static constexpr uint32_t forever = 60000;  // milliseconds
  static constexpr uint64_t first_time = 1'000'000;
  using Text = std::vector<int32_t>;
  struct Talk {
    Session session;
    Text text;
    char salt;
    // The text from before a suspension, while it is suspended or computed again.
    Text remembered = {};
    bool suspended = false;
    // The first dropped position, while the text contains it.
    uint64_t forgotten_from = UINT64_MAX;
    bool forgetful() const { return forgotten_from != UINT64_MAX; }
  };

  bool worked(pkv_status status) {
    if (status != PKV_OUT_OF_BLOCKS && status != PKV_TOO_LARGE && status != PKV_LIMIT_REACHED)
      check(status, "operation");
    refused_ += status != PKV_OK;
    return status == PKV_OK;
  }

  // Draws a text: a prefix of an earlier one, and then a few tokens of a small alphabet.
  Text draw_text() {
    Text text;
    if (!past_.empty() && random_.chance(80)) {
      const Text& old = past_[random_.below(past_.size())];
      text.assign(old.begin(), old.begin() + static_cast<int64_t>(random_.below(old.size() + 1)));
    }
    for (uint64_t more = random_.below(60); more > 0 && text.size() < 130; more--)
      text.push_back(static_cast<int32_t>(random_.chance(90) ? 1 : random_.below(3)));
    return text;
  }

  void open_talk() {
    Talk talk{{}, {}, random_.chance(70) ? '\0' : 'x'};
    auto config = made<pkv_session_config>({.prefix_use = random_.chance(85)   ? PKV_PREFIX_SHARE
                                                          : random_.chance(50) ? PKV_PREFIX_MATCH
                                                                               : PKV_PREFIX_OFF,
                                            .salt = &talk.salt,
                                            .salt_size = talk.salt != '\0'});
    pkv_session session;
    CHECK(pkv_session_open(cache_, &config, &session));
    talk.session = Session(session);
    const Text wanted = draw_text();
    uint64_t matched = 0;
    CHECK(pkv_session_admit(session, wanted.size(), wanted.data(), 0, &matched));
    ASSERT_LE(matched, wanted.size());
    if (config.prefix_use == PKV_PREFIX_OFF) {
      ASSERT_EQ(0u, matched);
    }
    matched_ += matched;
    talk.text.assign(wanted.begin(), wanted.begin() + static_cast<int64_t>(matched));
    talks_.push_back(std::move(talk));
    compare(talks_.back());
    extend(talks_.size() - 1, wanted);
  }

  void extend(size_t t) {
    Text wanted = talks_[t].text;
    for (uint64_t more = random_.below(30); more > 0 && wanted.size() < 140; more--)
      wanted.push_back(static_cast<int32_t>(random_.below(3)));
    extend(t, wanted);
  }

  void extend(size_t t, Text wanted) {
    Talk& talk = talks_[t];
    if (talk.suspended) return;
    // The text that is computed again is the same as before.
    for (size_t i = talk.text.size(); i < std::min(wanted.size(), talk.remembered.size()); i++)
      wanted[i] = talk.remembered[i];
    const uint64_t from = talk.text.size();
    const pkv_session session = talk.session;
    const uint32_t n = static_cast<uint32_t>(wanted.size() - from);
    pkv_batch handle;
    if (!worked(pkv_batch_begin(cache_, 1, &session, &n, &handle))) return;
    Batch batch(handle);
    write(batch, wanted, talk.forgetful() ? 'f' : talk.salt, from);
    if (random_.chance(10)) return;  // The batch is aborted.
    commit(batch, std::span(wanted).subspan(from));
    talk.text = wanted;
    if (talk.text.size() >= talk.remembered.size()) talk.remembered.clear();
    past_.push_back(wanted);
    if (past_.size() > 12) past_.erase(past_.begin());
  }

  void write(pkv_batch batch, const Text& text, char salt, uint64_t from) {
    for (uint32_t layer = 0; layer < layers(); layer++) {
      if (of_engine(std::min(layer, 1u))) continue;
      Rows k = rows(text, salt, layer, from), v = rows(text, salt, layer + layers(), from);
      cache_test::write(batch, layer, k, v);
    }
    std::vector<uint64_t> marks = hashes(text, salt, 0);
    marks.erase(marks.begin(), marks.begin() + static_cast<int64_t>(from));
    for (uint32_t group = 0; group < 2; group++)
      if (of_engine(group)) engine_.write(batch, group, 1, marks);
  }

  void trim(size_t t) {
    Talk& talk = talks_[t];
    const uint64_t length = random_.below(talk.text.size() + 1);
    const pkv_status status = pkv_session_trim(talk.session, length);
    if (status == PKV_OUT_OF_RANGE && (setup_.window != 0 || talk.forgetful())) return;
    CHECK(status);
    talk.text.resize(length);
    talk.remembered.clear();
    talk.suspended = false;
    if (length <= talk.forgotten_from) talk.forgotten_from = UINT64_MAX;
  }

  // A talk that has dropped blocks has other keys and values from then on, as in a model. No other
  // talk may get them.
  void drop(size_t t) {
    Talk& talk = talks_[t];
    if (talk.suspended || talk.text.size() < 16) return;
    std::vector<uint32_t> chosen;
    for (uint32_t i = 0; i < talk.text.size() / 16; i++)
      if (random_.chance(40)) chosen.push_back(i);
    const auto group = static_cast<uint32_t>(random_.below(2));
    CHECK(pkv_session_drop_blocks(talk.session, group, chosen.size(), chosen.data()));
    if (!chosen.empty())
      talk.forgotten_from = std::min<uint64_t>(talk.forgotten_from, chosen[0] * 16);
  }

  void fork_talk(size_t t) {
    if (talks_[t].suspended || talks_.size() >= 8) return;
    Talk child{fork(talks_[t].session), talks_[t].text, talks_[t].salt};
    child.forgotten_from = talks_[t].forgotten_from;
    talks_.push_back(std::move(child));
  }

  void snapshot(size_t t) {
    if (snapshots_.size() < 2 && !talks_[t].suspended && !talks_[t].forgetful()) {
      snapshots_.emplace_back(freeze(talks_[t].session), std::pair(talks_[t].text, talks_[t].salt));
    } else if (!snapshots_.empty()) {
      const auto& [frozen, what] = snapshots_.back();
      talks_.push_back({thaw(frozen), what.first, what.second});
      snapshots_.pop_back();
    }
  }

  void suspend(size_t t) {
    Talk& talk = talks_[t];
    CHECK(pkv_session_suspend(talk.session));
    if (talk.text.size() > talk.remembered.size()) talk.remembered = talk.text;
    talk.text.clear();
    talk.suspended = true;
    talk.forgotten_from = UINT64_MAX;
  }

  // Once the sessions that choose_victims names are suspended, a step of the others gets its
  // blocks. If it reports that suspending all others is not enough, the first session alone gets
  // none.
  void preempt() {
    std::vector<pkv_session> sessions;
    std::vector<uint32_t> counts;
    for (const Talk& talk : talks_) {
      if (talk.suspended || random_.chance(40)) continue;
      sessions.push_back(talk.session);
      counts.push_back(static_cast<uint32_t>(random_.below(80)));
    }
    std::vector<pkv_session> victims(talks_.size());
    size_t count = 0;
    const pkv_status chosen =
        pkv_batch_choose_victims(cache_, sessions.size(), sessions.data(), counts.data(),
                                 victims.size(), victims.data(), &count);
    if (chosen == PKV_OUT_OF_BLOCKS) return expect_too_few(sessions[0], counts[0]);
    if (!worked(chosen)) return;
    victims.resize(count);
    for (const pkv_session victim : victims) {
      for (size_t t = 0; t < talks_.size(); t++)
        if (talks_[t].session == victim) suspend(t);
      const auto at = std::find(sessions.begin(), sessions.end(), victim) - sessions.begin();
      if (static_cast<size_t>(at) == sessions.size()) continue;
      sessions.erase(sessions.begin() + at);
      counts.erase(counts.begin() + at);
    }
    pkv_batch batch;
    const auto begins = [&] {
      return pkv_batch_begin(cache_, sessions.size(), sessions.data(), counts.data(), &batch);
    };
    pkv_status status = begins();
    // Blocks that block_io copies to the store are in use meanwhile.
    if (status == PKV_OUT_OF_BLOCKS && setup_.tier && setup_.elsewhere_from < 2) {
      settle();
      status = begins();
    }
    check(status, "begin without the victims");
    CHECK(pkv_batch_abort(batch));
  }

  void expect_too_few(pkv_session session, uint32_t tokens) {
    for (size_t t = 0; t < talks_.size(); t++)
      if (talks_[t].session != session && !talks_[t].suspended) suspend(t);
    pkv_batch batch;
    ASSERT_EQ(PKV_OUT_OF_BLOCKS, pkv_batch_begin(cache_, 1, &session, &tokens, &batch));
  }

  void resume(size_t t) {
    for (size_t i = 0; i < talks_.size() && !talks_[t].suspended; i++) t = (t + 1) % talks_.size();
    Talk& talk = talks_[t];
    if (!talk.suspended) return;
    uint64_t length = 0, total = 0;
    if (!worked(pkv_session_resume(talk.session, &length, &total))) return;
    ASSERT_EQ(talk.remembered.size(), total);
    talk.suspended = false;
    matched_ += length;
    talk.text.assign(talk.remembered.begin(),
                     talk.remembered.begin() + static_cast<int64_t>(length));
    if (length >= total) talk.remembered.clear();
  }

  uint64_t draw_position(const Text& text) {
    return random_.chance(40) ? 0 : random_.below(text.size() + 1);
  }

  // Gives a hint about an earlier text or a session.
  void give_hint() {
    if (past_.empty()) return;
    const Text& text = past_[random_.below(past_.size())];
    const char salt = random_.chance(70) ? '\0' : 'x';
    constexpr uint64_t durations[] = {0, 1, 5, 1000, UINT64_MAX};
    pkv_hint given = hint_of(static_cast<pkv_hint_action>(random_.below(8) + 1));
    given.first = draw_position(text);
    given.end = draw_position(text);
    if (given.end != 0 && given.end < given.first) std::swap(given.first, given.end);
    given.retention = static_cast<pkv_retention>(static_cast<int>(random_.below(3)) - 1);
    given.duration_ms = durations[random_.below(std::size(durations))];
    if (random_.chance(40) && !talks_.empty()) {
      hint(talks_[random_.below(talks_.size())].session, given.action, given);
      if (given.action == PKV_HINT_UNPIN) pins_.clear();  // It may have been any of them.
      return;
    }
    if (given.action == PKV_HINT_RETURN) return;
    const std::string_view salted(&salt, salt != '\0');
    const pkv_hint_result result = hint(cache_, given.action, text, salted, given);
    const uint64_t end = given.end == 0 ? text.size() : given.end;
    ASSERT_LE(result.tokens, end);
    if (!alone_) return;
    const bool accepted = result.outcome == PKV_HINT_ACCEPTED;
    if (given.action == PKV_HINT_DROP && accepted) {
      ASSERT_LE(probe(text, salt), (given.first + 15) / 16 * 16);
    } else if (given.action == PKV_HINT_PIN && result.tokens > 0) {
      const uint64_t until =
          given.duration_ms - 1 < UINT64_MAX - 1 - now_ ? now_ + given.duration_ms : UINT64_MAX;
      uint64_t& known = pins_[{first_tokens(text, result.tokens), salt}];
      known = std::max(known, until);
    } else if (given.action == PKV_HINT_UNPIN && accepted) {
      // One that was clipped ends where less of the text was cached.
      pins_.erase({first_tokens(text, result.tokens), salt});
    }
  }

  // Lets time pass. The clocks of several threads differ, so the cache's goes forth and back.
  void pass_time() {
    now_ += random_.below(20);
    clock_.set(now_);
  }

  static Text first_tokens(const Text& text, uint64_t n) {
    return {text.begin(), text.begin() + static_cast<int64_t>(n)};
  }
  uint64_t probe(const Text& text, char salt) {
    uint64_t cached = 0;
    CHECK(pkv_prefix_probe(cache_, TextArg(text, {&salt, salt != '\0'}), &cached));
    return cached;
  }

  // Pinned texts are cached, unless a step needed their blocks.
  void compare_pins() {
    auto stats = made<pkv_prefix_stats>();
    CHECK(pkv_prefix_get_stats(cache_, nullptr, PKV_ALL_SALTS, &stats));
    if (std::exchange(yielded_, stats.yielded_pins) != stats.yielded_pins) pins_.clear();
    std::erase_if(pins_, [&](const auto& pin) { return pin.second <= now_; });
    for (const auto& [pin, until] : pins_)
      ASSERT_GE(probe(pin.first, pin.second), pin.first.size()) << "a pinned text is gone";
    if (!pins_.empty()) {
      ASSERT_GT(stats.pinned_blocks, 0u);
    }
  }

  // Whatever hints said, a step that an empty cache has room for gets its blocks once nothing else
  // holds any.
  void expect_room() {
    for (size_t t = 0; t < talks_.size(); t++)
      if (!talks_[t].suspended) suspend(t);
    snapshots_.clear();
    settle();
    const Session session = open(cache_);
    CHECK(pkv_session_reserve(session, 16 * most_blocks()));
  }
  uint64_t most_blocks() const { return setup_.shared ? setup_.blocks / 2 : setup_.blocks; }

  // A file restores sessions, whatever they share.
  void save_and_load() {
    const EngineMemory::Reliable reliable;
    std::vector<pkv_session> sessions;
    for (const Talk& talk : talks_) sessions.push_back(talk.session);
    pkv_file_config config = store::file_config();
    config.prefix_index = config.trust_salts = 1;
    const store::Bytes file = store::save_meanwhile(cache_, store::items_of(sessions), &config);
    PrefixSetup larger = setup_;
    larger.blocks = 512;
    larger.tier = false;
    EngineMemory engine(2, larger.blocks);
    const Cache other = create_with_prefix(larger, store_.table(), engine, clock_);
    const std::vector<Session> loaded = store::load(other, file, &config);
    ASSERT_EQ(talks_.size(), loaded.size());
    for (size_t i = 0; i < loaded.size(); i++)
      compare(talks_[i], loaded[i], setup_.elsewhere_from < 2 ? &engine : nullptr);
    CHECK(pkv_cache_validate(other));
  }

  // Evicted blocks come back from the store. If the store's bytes have changed, these are misses.
  void use_tier() {
    if (past_.empty() || random_.chance(20)) return spoil();
    if (setup_.elsewhere_from < 2) engine_.result = random_.chance(10) ? -EIO : 0;
    if (random_.chance(20)) CHECK(pkv_prefix_clear(cache_, nullptr, PKV_ALL_SALTS));
    const Text& text = past_[random_.below(past_.size())];
    const char salt = random_.chance(70) ? '\0' : 'x';
    prefetch(cache_, text, {&salt, salt != '\0'});
    if (random_.chance(10)) CHECK(pkv_store_cancel(cache_, TextArg(text, {&salt, salt != '\0'})));
    uint64_t cached = 0;
    CHECK(pkv_store_wait(cache_, TextArg(text, {&salt, salt != '\0'}), forever, &cached, nullptr));
    ASSERT_LE(cached, text.size());
  }

  void spoil() {
    if (alone_) settle();
    store_.spoil(random_);
  }

  void settle() {
    if (setup_.tier) cache_test::settle(cache_);
  }

  // Checks that a match of a text ends after the last block of it that the events promise.
  void compare_promise(const Text& text, const char* salt) {
    std::vector<uint64_t> hashes(text.size() / 16);
    CHECK(pkv_prefix_hash_blocks(TextArg(text, salt), 16, hashes.data()));
    while (!hashes.empty() && !cached_.contains(hashes.back())) hashes.pop_back();
    uint64_t cached = 99;
    CHECK(pkv_prefix_probe(cache_, TextArg(text, salt), &cached));
    ASSERT_EQ(16 * hashes.size(), cached);
  }

  // Checks that the events add up to what is cached, and that no salt exceeds its quota.
  void compare_events() {
    pkv_prefix_event events[64];
    for (size_t n = 64; n == 64;) {
      uint64_t lost = 0;
      CHECK(pkv_prefix_read_events(cache_, &next_event_, 64, events, &n, &lost));
      ASSERT_EQ(0u, lost);
      for (size_t i = 0; i < n; i++) {
        const bool stored = events[i].kind == PKV_PREFIX_EVENT_STORED;
        ASSERT_EQ(stored, cached_.insert(events[i].hash).second) << "event " << events[i].number;
        if (!stored) cached_.erase(events[i].hash);
        ASSERT_TRUE(setup_.window != 0 || events[i].position == 0 ||
                    cached_.contains(events[i].parent))
            << "event " << events[i].number;
      }
    }
    for (const Text& text : past_)
      for (const char* salt : {"", "x"}) compare_promise(text, salt);
    auto stats = made<pkv_prefix_stats>();
    CHECK(pkv_prefix_get_stats(cache_, nullptr, PKV_ALL_SALTS, &stats));
    if (setup_.window == 0) {
      ASSERT_EQ(cached_.size(), stats.cached_blocks);
    } else {
      ASSERT_LE(cached_.size(), stats.cached_blocks);
    }
    for (const char* salt : {"", "x"}) {
      CHECK(pkv_prefix_get_stats(cache_, salt, std::strlen(salt), &stats));
      ASSERT_TRUE(setup_.max_blocks_per_salt == 0 ||
                  stats.cached_blocks <= setup_.max_blocks_per_salt)
          << stats.cached_blocks;
    }
  }

  void compare(const Talk& talk) { compare(talk, talk.session, &engine_); }

  void compare_slots(const Talk& talk, pkv_session session, const EngineMemory& engine,
                     uint32_t group) {
    const size_t length = talk.text.size(), window = group == 0 ? 0 : setup_.window;
    const std::vector<int64_t> slots = slots_of(session, length, group);
    const std::vector<uint64_t> marks = hashes(talk.text, talk.salt, 0);
    for (size_t i = 0; i < length; i++) {
      ASSERT_TRUE(slots[i] >= 0 || (window != 0 && i + window <= length)) << "token " << i;
      ASSERT_TRUE(slots[i] < 0 || engine.at(group, slots[i]) == marks[i])
          << "token " << i << " of " << length << ", group " << group;
    }
  }

  // `engine` has what the library does not, unless it is NULL.
  void compare(const Talk& talk, pkv_session session, const EngineMemory* engine) {
    ASSERT_EQ(talk.text.size(), length_of(session));
    Text ids(talk.text.size());
    CHECK(pkv_session_get_tokens(session, 0, ids.size(), ids.data()));
    ASSERT_EQ(talk.text, ids);
    if (talk.forgetful()) return;
    for (uint32_t group = 0; group < 2 && engine != nullptr; group++)
      if (of_engine(group)) compare_slots(talk, session, *engine, group);
    if (of_engine(0)) return;
    const auto layer = static_cast<uint32_t>(random_.below(of_engine(1) ? 1 : layers()));
    const size_t seen = setup_.window == 0 || layer == 0
                            ? talk.text.size()
                            : std::min<size_t>(talk.text.size(), setup_.window - 1);
    const KeysValues found =
        materialize(session, layer, {2, 1, 1, 16}, talk.text.size() - seen, seen);
    ASSERT_TRUE(found.k == rows(talk.text, talk.salt, layer, talk.text.size() - seen))
        << "keys of layer " << layer;
    ASSERT_TRUE(found.v == rows(talk.text, talk.salt, layer + layers(), talk.text.size() - seen))
        << "values of layer " << layer;
  }

  uint32_t layers() const { return setup_.shared ? 4 : 2; }
  bool of_engine(uint32_t group) const {
    return setup_.storage == PKV_STORAGE_NONE || group >= setup_.elsewhere_from;
  }

  // Returns a hash for each token of a text, of all tokens up to it.
  static std::vector<uint64_t> hashes(const Text& text, char salt, uint32_t layer) {
    std::vector<uint64_t> result;
    uint64_t hash = 0x9E3779B97F4A7C15u * (layer + 1) + static_cast<unsigned char>(salt);
    for (const int32_t token : text) {
      hash = (hash ^ static_cast<uint64_t>(token)) * 0xD6E8FEB86659FD93u;
      hash ^= hash >> 32;
      result.push_back(hash);
    }
    return result;
  }

  // Returns the rows of a text from `from` to its end.
  static Rows rows(const Text& text, char salt, uint32_t layer, uint64_t from) {
    Rows result(text.size() - from, 1, 16);
    const std::vector<uint64_t> hash = hashes(text, salt, layer);
    for (uint64_t i = from; i < text.size(); i++)
      for (uint32_t d = 0; d < 16; d++)
        result.set(i - from, 0, d, static_cast<float>((hash[i] >> d) & 0xFFFF));
    return result;
  }

  const PrefixSetup& setup_;
  pkv_cache cache_;
  MemoryStore& store_;
  EngineMemory& engine_;
  TestClock& clock_;
  Random random_;
  const bool alone_;
  std::vector<Talk> talks_;
  std::vector<std::pair<Snapshot, std::pair<Text, char>>> snapshots_;
  std::vector<Text> past_;
  std::map<std::pair<Text, char>, uint64_t> pins_;  // Texts with salts, and until when.
  uint64_t now_ = first_time, yielded_ = 0;
  uint64_t next_event_ = 0;
  std::set<uint64_t> cached_;  // The hashes of the cached blocks.
  uint64_t matched_ = 0, refused_ = 0;
};

}  // namespace cache_test
