// Plays random operations on one cache of any kind, and checks that each session holds exactly what
// it computed, took over or loaded. Files are among the operations: each save must load into other
// caches, into the same one, and into one that replaces it.
#pragma once

#include <atomic>
#include <cstdio>
#include <optional>
#include <span>
#include <thread>

#include "world_index.h"

namespace world {

class WorldPlay : WorldIndex {
 public:
  // Plays alone in a cache, or with others in one that they share.
  WorldPlay(const SmallCache& kind, Random random)
      : WorldPlay(std::make_shared<Shared>(kind), std::move(random)) {}
  WorldPlay(std::shared_ptr<Shared> shared, Random random)
      : WorldIndex(std::move(shared), std::move(random)) {}

  // Prints how often each operation was played.
  static void print_counts() {
    for (const Operation& operation : operations())
      std::printf("%12llu %s\n", (unsigned long long)operation.count, operation.name);
  }

  // Draws the choices of the operation from these.
  void operate(const Random& choices) {
    random_ = choices;
    operate();
  }
  // Plays an operation, and compares what it may have changed with the model.
  void operate() {
    Operation& operation = draw_operation();
    operation.count++;
    SCOPED_TRACE(operation.name);
    try {
      (this->*operation.run)();
      if (shared_->alone) settle();
      validate();
      check_index();
      check_stats();
      check_steps();
      if (!talks_.empty()) check(pick());
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }

  // Ends all talks. The cache is empty then, unless other plays use it.
  void finish() {
    for (const Talk& talk : talks_) check(talk);
    settle();
    count_store();
    if (shared_->alone && random_.chance(30)) return destroy_open();
    end_steps();
    talks_.clear();
    frozen_.clear();
    settle();
    here_->clock.end();
    if (shared_->alone) expect_empty(*shared_);
  }

  // Checks that the index has all blocks that are used, and gives them back.
  static void expect_empty(const Shared& shared) {
    const pkv_cache cache = shared.here->cache;
    CHECK(pkv_cache_validate(cache));
    EXPECT_EQ(pool_stats_of(cache).held_blocks, stats_of(cache).evictable_blocks);
    if (shared.kind.prefix) CHECK(pkv_prefix_clear(cache, nullptr, PKV_ALL_SALTS));
    EXPECT_EQ(0u, pool_stats_of(cache).held_blocks);
    for (uint32_t g = 0; g < shared.kind.groups.size() && !shared.kind.shared; g++)
      EXPECT_EQ(shared.kind.blocks, pool_stats_of(cache, g).free_blocks);
  }

  bool spent() const { return random_.spent(); }
  uint64_t matched() const { return matched_; }
  uint64_t matched_elsewhere() const { return matched_elsewhere_; }
  uint64_t trimmed() const { return trimmed_; }
  uint64_t refused() const { return refused_; }
  uint64_t no_memory() const { return no_memory_; }
  uint64_t fetched() const { return fetched_; }
  uint64_t corrupt() const { return corrupt_; }

 private:
  struct Operation {
    const char* name;
    uint64_t weight;
    void (WorldPlay::*run)();
    std::atomic<uint64_t> count = 0;  // how often it was played, by all threads
  };
  // New operations go to the end, so that inputs of the fuzzer keep most of their meaning.
  static std::span<Operation> operations() {
    static Operation all[] = {
        {"open", 14, &WorldPlay::open_talk},
        {"step", 40, &WorldPlay::step},
        {"draft", 10, &WorldPlay::draft},
        {"close", 12, &WorldPlay::close},
        {"fork", 6, &WorldPlay::fork_talk},
        {"snapshot", 5, &WorldPlay::take_snapshot},
        {"open snapshot", 5, &WorldPlay::open_snapshot},
        {"close snapshot", 1, &WorldPlay::close_snapshot},
        {"trim", 12, &WorldPlay::trim},
        {"drop", 6, &WorldPlay::drop},
        {"suspend", 6, &WorldPlay::suspend},
        {"resume", 8, &WorldPlay::resume},
        {"reserve", 2, &WorldPlay::reserve},
        {"set tokens", 3, &WorldPlay::set_tokens},
        {"step without ids", 9, &WorldPlay::step_without_ids},
        {"hint", 20, &WorldPlay::give_hint},
        {"time", 2, &WorldPlay::pass_time},
        {"clear", 1, &WorldPlay::clear},
        {"save", 8, &WorldPlay::save_and_load},
        {"load here", 2, &WorldPlay::load_here},
        {"restart", 3, &WorldPlay::restart},
        {"fetch", 16, &WorldPlay::fetch},
        {"spoil", 2, &WorldPlay::spoil},
        {"ids of a fork", 4, &WorldPlay::know_ids_of_a_fork},
        {"spoil and fetch", 6, &WorldPlay::spoil_and_fetch},
        {"victims", 8, &WorldPlay::ask_for_victims},
        {"room", 1, &WorldPlay::expect_room},
        {"open with room", 4, &WorldPlay::open_with_room},
        {"hold step", 8, &WorldPlay::hold_step},
        {"go on", 22, &WorldPlay::go_on},
        {"misuse", 4, &WorldPlay::misuse},
        {"set priority", 2, &WorldPlay::set_priority},
        {"refuse memory", 4, &WorldPlay::refuse_memory},
    };
    return all;
  }
  Operation& draw_operation() {
    uint64_t weights = 0;
    for (const Operation& operation : operations()) weights += operation.weight;
    uint64_t choice = random_.below(weights);
    size_t i = 0;
    while (choice >= operations()[i].weight) choice -= operations()[i++].weight;
    // Without a talk, only steps can go on.
    constexpr size_t open = 0, go_on = 29;
    if (talks_.empty() && i != open) i = steps_.empty() ? open : go_on;
    return operations()[i];
  }

  // Compares the figures of the cache with the model, while no other play changes them.
  void check_stats() const {
    if (!shared_->alone) return;
    pkv_cache_stats expected{};
    const auto add = [&](const Talk& talk) {
      expected.sessions++;
      expected.tokens += talk.text.size();
      expected.suspended_sessions += talk.suspended;
    };
    for (const Talk& talk : talks_) add(talk);
    for (const auto& step : steps_)
      for (const Member& member : step->members) add(member.talk);
    const pkv_cache_stats stats = stats_of(cache());
    ASSERT_EQ(expected.sessions, stats.sessions);
    ASSERT_EQ(frozen_.size(), stats.snapshots);
    ASSERT_EQ(steps_.size(), stats.batches);
    ASSERT_EQ(expected.tokens, stats.tokens);
    ASSERT_EQ(expected.suspended_sessions, stats.suspended_sessions);
    ASSERT_EQ(here_->commits, stats.commits);
    ASSERT_EQ(here_->committed_tokens, stats.committed_tokens);
    ASSERT_EQ(here_->suspensions, stats.suspensions);
    const pkv_pool_stats pools = pool_stats_of(cache());
    ASSERT_EQ(pools.blocks, pools.free_blocks + pools.held_blocks);
    ASSERT_LE(stats.filled_slots, pools.held_blocks * 16);
  }

  // ---- Files ----------------------------------------------------------------------------------

  // A file, and what must come back from it.
  struct Saved {
    store::Bytes bytes;
    pkv_file_config config;
    std::vector<const Talk*> talks;
    std::vector<std::vector<std::vector<bool>>> held;  // by talk, group and block
    bool under_pressure = false;  // the index lost blocks while the file was written
  };

  Saved save() {
    Saved saved;
    saved.config = made<pkv_file_config>();
    saved.config.trust_salts = 1;
    saved.config.prefix_index = random_.chance(60);
    if (encrypts() && random_.chance(30))
      saved.config.secret_key = "a secret of 24 bytes ...", saved.config.secret_key_size = 24;
    const bool all = random_.chance(50);
    std::vector<pkv_file_item> items;
    for (const Talk& talk : talks_) {
      if (!all && !random_.chance(60)) continue;
      items.push_back({talk.session, nullptr, items.size()});
      saved.talks.push_back(&talk);
      saved.held.push_back(check(talk));
    }
    for (const Frozen& frozen : frozen_) {
      if (!all && !random_.chance(60)) continue;
      items.push_back({nullptr, frozen.snapshot, items.size()});
      saved.talks.push_back(&frozen.talk);
      saved.held.emplace_back();
    }
    if (fails()) save_in_vain(items, saved.config);
    if (refuse_at_ > 0) save_without_memory(items, saved.config);
    saved.under_pressure = random_.chance(20);
    const EngineMemory::Reliable reliable;
    saved.bytes = !shared_->alone        ? store::save_meanwhile(cache(), items, &saved.config)
                  : saved.under_pressure ? save_under_pressure(items, saved.config)
                                         : store::save(cache(), items, &saved.config);
    return saved;
  }

  // Draws whether the device fails now. While other plays use it, it does not.
  bool fails() { return kind_.elsewhere() && random_.chance(20) && shared_->alone; }

  // A call fails if the device failed in it, and not in a thread of the store.
  void check_device(const Place& place, pkv_status status) const {
    EXPECT_TRUE(place.engine.failed() == (status == PKV_IO) ||
                (kind_.stored && place.engine.failed()))
        << pkv_status_name(status);
  }

  // Saves with a device that fails, if it is called often enough.
  void save_in_vain(const std::vector<pkv_file_item>& items, const pkv_file_config& config) {
    here_->engine.fail_after(random_.below(4));
    store::Bytes bytes(1 << 18);
    const pkv_stream to = store::buffer(bytes);
    const pkv_status status =
        pkv_file_save(cache(), items.size(), items.data(), &config, &to, nullptr);
    if (status != PKV_IO) cache_test::check(status, "save");
    check_device(*here_, status);
    here_->engine.work();
  }

  void save_without_memory(const std::vector<pkv_file_item>& items, const pkv_file_config& config) {
    const EngineMemory::Reliable reliable;
    store::Bytes bytes(1 << 18);
    const pkv_stream to = store::buffer(bytes);
    worked(run([&] {
             return pkv_file_save(cache(), items.size(), items.data(), &config, &to, nullptr);
           }),
           "save");
  }

  // Saves while another thread takes all evictable blocks, and gives them back at the end.
  store::Bytes save_under_pressure(const std::vector<pkv_file_item>& items,
                                   const pkv_file_config& config) {
    std::vector<Session> sessions;
    return store::save_meanwhile(cache(), items, &config, [&] {
      std::thread([&] { reserve_all(cache(), sessions); }).join();
    });
  }

  static void reserve_all(pkv_cache cache, std::vector<Session>& sessions) {
    for (uint64_t tokens = max_tokens; tokens > 0;) {
      sessions.push_back(cache_test::open(cache));
      while (tokens > 0 && pkv_session_reserve(sessions.back(), tokens) != PKV_OK) tokens /= 2;
    }
  }

  static bool encrypts() {
    static const bool can = [] {
      const Cache cache = create(kinds()[0]);
      auto config = made<pkv_file_config>();
      config.secret_key = "a secret of 24 bytes ...", config.secret_key_size = 24;
      const pkv_stream to = store::stream(PKV_STREAM_BUFFER);
      return pkv_file_save(cache, 0, nullptr, &config, &to, nullptr) != PKV_UNSUPPORTED;
    }();
    return can;
  }

  // Loads a file into a cache that may be too small for it. Returns false if it is.
  bool load(Place& place, const Saved& saved, std::vector<Talk>& loaded) {
    std::vector<pkv_session> sessions(saved.talks.size());
    size_t count = 0;
    const pkv_stream from = store::buffer(saved.bytes);
    const auto call = [&] {
      return pkv_file_load(place.cache, &saved.config, &from, sessions.size(), sessions.data(),
                           nullptr, &count);
    };
    std::optional<EngineMemory::Reliable> reliable;
    if (!shared_->alone) reliable.emplace();
    if (fails()) place.engine.fail_after(random_.below(4));
    pkv_status status = call();
    check_device(place, status);
    if (status == PKV_IO) {
      CHECK(pkv_cache_validate(place.cache));
      place.engine.work();
      status = call();
    }
    place.engine.work();
    if (status == PKV_OUT_OF_BLOCKS || status == PKV_TOO_LARGE) return false;
    cache_test::check(status, "load");
    EXPECT_EQ(sessions.size(), count);
    for (size_t i = 0; i < count; i++) {
      const Talk& talk = *saved.talks[i];
      loaded.push_back(copy(talk, Session(sessions[i])));
      loaded.back().suspended = talk.suspended;
      loaded.back().remembered = talk.remembered;
    }
    if (&place != here_.get() || shared_->alone) CHECK(pkv_cache_validate(place.cache));
    place.engine.complete = kind_.elsewhere();
    return true;
  }

  // Checks that loaded talks hold what the saved ones did. Which other states than the last one
  // exist depends on what was saved with them.
  void expect_same(const Saved& saved, const std::vector<Talk>& loaded, const Place& place) {
    ASSERT_EQ(saved.talks.size(), loaded.size());
    for (size_t i = 0; i < loaded.size(); i++) {
      SCOPED_TRACE(testing::Message() << "item " << i);
      const auto held = check(loaded[i], place);
      for (size_t g = 0; g < saved.held[i].size(); g++)
        for (size_t b = 0; b < held[g].size(); b++)
          EXPECT_TRUE(held[g][b] == saved.held[i][g][b] || kind_.groups[g].has_states())
              << "group " << g << ", block " << b;
    }
  }

  std::unique_ptr<Place> create_larger() {
    SmallCache larger = kind_;
    larger.blocks = 256;
    if (!kind_.has_states() && !kind_.shared && kind_.storage == PKV_STORAGE_INTERNAL &&
        random_.chance(50))
      larger.layout = kind_.layout == PKV_LAYOUT_PACKED ? PKV_LAYOUT_PLAIN : PKV_LAYOUT_PACKED;
    return std::make_unique<Place>(larger);
  }

  void save_and_load() {
    const Saved saved = save();
    const std::unique_ptr<Place> other = create_larger();
    std::vector<Talk> loaded;
    ASSERT_TRUE(load(*other, saved, loaded)) << pkv_last_error();
    expect_same(saved, loaded, *other);
    if (!kind_.prefix || saved.config.prefix_index == 0) return;
    for (const std::vector<int32_t>& text : past_)
      for (const char* salt : {"", "a", "b"}) {
        // A file leaves out some blocks of groups that give up single blocks. What a quota expelled
        // may come back with the sessions that have it.
        if (!is_sparse(kind_) && kind_.quota == 0 && !saved.under_pressure && shared_->alone) {
          EXPECT_EQ(cached(cache(), salt, text), cached(other->cache, salt, text));
        }
        check_cached(*other, salt, text);
      }
  }

  // Checks the result of a match of a text.
  void check_cached(const Place& other, const std::string& salt, const std::vector<int32_t>& text) {
    Talk talk;
    talk.salt = salt;
    talk.use = PKV_PREFIX_MATCH;
    talk.session = store::open_salted(other.cache, salt, talk.use);
    talk.dropped.resize(kind_.groups.size());
    match(talk, text);
    matched_elsewhere_ += talk.text.size();
    check(talk, other);
  }

  void load_here() {
    const Saved saved = save();
    std::vector<Talk> loaded;
    if (!load(*here_, saved, loaded)) return;
    expect_same(saved, loaded, *here_);
    for (Talk& talk : loaded)
      if (!full()) talks_.push_back(std::move(talk));
  }

  // Continues in a new cache of the same size with the content of a file, as after a restart.
  void restart() {
    if (!shared_->alone) return;
    const Saved saved = save();
    std::unique_ptr<Place> other = shared_->make_place();
    std::vector<Talk> loaded;
    if (!load(*other, saved, loaded)) return;
    expect_same(saved, loaded, *other);
    end_steps();
    talks_.clear();
    frozen_.clear();
    settle();
    move_to(std::move(other));
    talks_ = std::move(loaded);
    while (talks_.size() > max_talks) talks_.pop_back();
  }

  uint64_t matched_elsewhere_ = 0;  // tokens that were found in caches that files were loaded into
};

}  // namespace world
